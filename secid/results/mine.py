"""What `secid mine` reports: frozen results. Source: METHOD 10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secid.results.inputs import EncoderInfo, Shown

MINE_SCHEMA_VERSION = "1.0"


@dataclass(frozen=True)
class Preset:
    """A method as it is typed, under the name of its origin. takes : which candidates.   source : its citation."""

    method: str
    takes: str
    source: str


PRESETS: Mapping[str, Preset] = {
    "nv-retriever-95": Preset(
        "dense:relative=0.05",
        "the nearest candidates that score below 95 % of the positive",
        "NV-Retriever, arXiv 2407.15831",
    ),
    "simans": Preset(
        "dense:pick=simans",
        "random candidates, those near the positive's score most often: p(n) ∝ exp(−a (s_qn − s_qp − b)²), a=0.5, b=0",
        "SimANS, arXiv 2210.11773",
    ),
    "rank-10-210": Preset(
        "dense:ranks=10-210,pick=random", "random candidates of ranks 10 to 210", "BGE (FlagEmbedding)"
    ),
    "rank-50-100": Preset("dense:ranks=50-100,pick=random", "random candidates of ranks 50 to 100", "KaLM-Embedding"),
    "qwen-0.1": Preset(
        "dense:absolute=-0.1",
        "the nearest candidates, but for those that score more than 0.1 above the positive",
        "Qwen3-Embedding",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What the answers of a language model took that a source is made of, those of earlier runs too.

    n_answers  : one of each distinct request.   n_uncounted : those of which the server counted no tokens.
    n_tokens_in, n_tokens_out : of the others, as it counted them.   cost : of these tokens; None without a price.
    """

    n_answers: int
    n_uncounted: int
    n_tokens_in: int
    n_tokens_out: int
    cost: float | None


@dataclass(frozen=True, kw_only=True)
class MinedSource:
    """One source that was written.

    path       : of its file.   sha256 : of its bytes.   method : with every option, as it was applied.
    n_rows     : rows of the file; n_missing : rows of the input without any negative, which are not in it, and
                 n_dropped : short ones that --on-short drop left out.
    layout     : as in write.writer.Written.
    n_negatives: in the file.   n_filled : those of them drawn at random for short rows.
    n_short    : rows of the input for which the method found fewer than K; short : the same by what ended it.
    n_still_short : rows of the file with fewer than K, after filling too; n_lacking : negatives they lack together.
    excluded   : candidates that may be no negative of their query and were passed over, by reason.
    s_query_negative, consistency, inverted_share : means over the negatives, and the share of those that score above
                 the row's first positive, with which `secid score` compares them; None without an encoder.
    n_passages : distinct passages used.   most_used : rows that the most used one serves.
    n_made_ids : rows whose query id, or ids of passages, the source does not name: a hash of the text is written.
    not_held   : what the schema does not hold, by name: of how many rows.
    kept_beside: answers of a language model, and texts in them, that are no negatives, by reason; they are in the
                 hidden file .NAME.rejected.jsonl.   usage : None where no model was asked.
    """

    name: str
    path: str
    sha256: str
    method: Mapping[str, Any]
    layout: str
    n_rows: int
    n_missing: int
    n_dropped: int
    n_negatives: int
    n_filled: int
    n_short: int
    n_still_short: int
    n_lacking: int
    short: Mapping[str, int]
    excluded: Mapping[str, int]
    s_query_negative: float | None
    consistency: float | None
    inverted_share: float | None
    n_passages: int
    most_used: int
    n_made_ids: int
    not_held: Mapping[str, int]
    kept_beside: Mapping[str, int]
    usage: Usage | None


@dataclass(frozen=True, kw_only=True, repr=False)
class MiningRun(Shown):
    """What was asked for, and the input.

    n_rows, n_candidates : of the input.   n_queries : distinct ones of these rows; qrels give a row for each.
    skipped : rows, judgements, or passages of the collection that give nothing, by reason.
    k, seed, max_reuse : as they were asked for.   settings : the others that decide what is mined.
    encoder : None where none was used.
    """

    schema_version: str
    secid_version: str
    encoder: EncoderInfo | None
    n_rows: int
    n_queries: int
    n_candidates: int
    skipped: Mapping[str, int]
    k: int
    seed: int
    max_reuse: int | None
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, repr=False)
class Mined(MiningRun):
    """Sources mined over the same queries and candidates.

    on_short, schema : as they were asked for.   next_command : scores the files.
    """

    folder: str
    on_short: str
    schema: str
    sources: tuple[MinedSource, ...]
    next_command: str


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """What a guide says of some negatives. n_scored : of them, in a sample drawn by strata of s_qn.

    share : estimated share of all of them that the guide's relative margin flags; interval_95 : queries as clusters.
    """

    n_scored: int
    share: float
    interval_95: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What one method would give. Fields as in MinedSource, over all rows of the input, before anything is filled up.

    n_lacking : negatives that short rows lack, together.
    suspects  : None without a guide, or where there is no negative.
    """

    method: Mapping[str, Any]
    n_negatives: int
    n_short: int
    n_lacking: int
    n_missing: int
    s_query_negative: float | None
    consistency: float | None
    inverted_share: float | None
    suspects: Suspects | None


@dataclass(frozen=True, kw_only=True)
class SweptSource:
    """A dense source. own : as it was named.   variants : with other windows and, in each, relative margins."""

    name: str
    own: Swept
    variants: tuple[Swept, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(MiningRun):
    """What margins and windows of ranks would give; nothing was written.

    random : K candidates drawn at random for each row, to compare with.   unswept : sources without a margin.
    guide  : None without one.   guide_margin, guide_sample : the relative margin from which it suspects a negative, and
    the negatives that it scored of each method at most.
    """

    encoder: EncoderInfo
    guide: EncoderInfo | None
    guide_margin: float
    guide_sample: int
    random: Swept
    sources: tuple[SweptSource, ...]
    unswept: tuple[str, ...]
