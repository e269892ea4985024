"""Frozen results of `secid mine`. Source: METHOD 10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secid.results.inputs import Displayable, EncoderInfo

MINE_SCHEMA_VERSION = "1.0"


@dataclass(frozen=True)
class Preset:
    """A method as typed, under the name of its origin. takes : the candidates that it takes.   source : citation."""

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
        "the nearest candidates, except those that score more than 0.1 above the positive",
        "Qwen3-Embedding",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Usage of a language model for the answers that a source consists of, including answers of earlier runs.

    n_answers  : distinct requests.   n_uncounted : answers without a token count of the server.
    n_tokens_in, n_tokens_out : tokens of the other answers, as the server counted them.   cost : price of these tokens;
    None without a price.
    """

    n_answers: int
    n_uncounted: int
    n_tokens_in: int
    n_tokens_out: int
    cost: float | None


@dataclass(frozen=True, kw_only=True)
class MinedSource:
    """One mined source that was written.

    path       : path of its file.   sha256 : hash of its bytes.   method : method with every option, as applied.
    n_rows     : rows of the file.   n_missing : rows of the input without any negative, which are not in the file.
    n_dropped  : short rows that --on-short drop left out.
    layout     : as in write.writer.WrittenFile.
    n_negatives: negatives in the file.   n_filled : negatives among them that were drawn at random for short rows.
    n_short    : rows of the input for which the method found fewer than K.   short : these rows by cause.
    n_still_short : rows of the file with fewer than K even after filling.   n_lacking : negatives they lack in total.
    excluded   : candidates that cannot be negatives of their query and were skipped, by reason.
    s_query_negative, consistency, inverted_share : means over the negatives, and the share of negatives that score
                 above the row's first positive, which `secid score` compares them with; None without an encoder.
    n_passages : distinct passages used.   most_used : rows that use the most frequent passage.
    n_made_ids : rows without a query id or without ids of passages; a hash of the text is written instead.
    not_held   : names of the values that the schema cannot hold, with the number of rows that have them.
    rejected: answers of a language model, and texts in them, that are no negatives, by reason; they are in the
                 hidden file .NAME.rejected.jsonl.   usage : None if no model was used.
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
    rejected: Mapping[str, int]
    usage: Usage | None


@dataclass(frozen=True, kw_only=True, repr=False)
class MiningRun(Displayable):
    """Input and settings of a mining run.

    n_rows, n_candidates : size of the input.   n_queries : distinct queries of these rows; qrels give one row each.
    skipped : unusable rows, judgements, or passages of the collection, by reason.
    k, seed, max_reuse : as requested.   settings : the other settings that affect the result.
    encoder : None if none was used.
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

    on_short, schema : as requested.   next_command : the command that scores the files.
    """

    folder: str
    on_short: str
    schema: str
    sources: tuple[MinedSource, ...]
    next_command: str


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """A guide's estimate for some negatives. n_scored : negatives scored, in a sample stratified by s_qn.

    share : estimated share of all negatives that the guide's relative margin flags; interval_95 : queries as clusters.
    """

    n_scored: int
    share: float
    interval_95: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Swept:
    """Expected result of one method over all rows of the input, before short rows are filled. Fields: see MinedSource.

    n_lacking : negatives that short rows lack in total.
    suspects  : None without a guide, or without any negative.
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
    """A dense source. own : its method as requested.   variants : other windows, each with several relative margins."""

    name: str
    own: Swept
    variants: tuple[Swept, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(MiningRun):
    """Expected results of several margins and windows of ranks; nothing was written.

    random : K candidates drawn at random for each row, for comparison.   unswept : sources without a margin.
    guide  : None without one.   guide_margin : relative margin from which the guide suspects a negative.
    guide_sample : most negatives of each method that it scored.
    """

    encoder: EncoderInfo
    guide: EncoderInfo | None
    guide_margin: float
    guide_sample: int
    random: Swept
    sources: tuple[SweptSource, ...]
    unswept: tuple[str, ...]
