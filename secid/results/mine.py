"""Results of `secid mine`. Source: METHOD 10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secid.results.inputs import Displayable, EncoderInfo

MINE_SCHEMA_VERSION = "1.0"


@dataclass(frozen=True)
class Preset:
    """A published mining method. method: text to type.   takes: candidates that it selects.   source: citation."""

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
        "dense:relative=none,pick=simans",
        "random candidates, mostly with scores near the positive's: p(n) ∝ exp(−a (s_qn − s_qp − b)²), a=0.5, b=0",
        "SimANS, arXiv 2210.11773",
    ),
    "rank-10-210": Preset(
        "dense:ranks=10-210,relative=none,pick=random", "random candidates at ranks 10 to 210", "BGE (FlagEmbedding)"
    ),
    "rank-50-100": Preset(
        "dense:ranks=50-100,relative=none,pick=random", "random candidates at ranks 50 to 100", "KaLM-Embedding"
    ),
    "qwen-0.1": Preset(
        "dense:absolute=-0.1",
        "the nearest candidates, except those that score more than 0.1 above the positive",
        "Qwen3-Embedding",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Usage of a language model for all answers in a source, including answers from earlier runs.

    n_answers  : number of distinct requests.   n_uncounted : number of answers without a token count from the server.
    n_tokens_in, n_tokens_out : number of input and output tokens for all other answers, as counted by the server.
    cost       : price of these tokens; None if no price is known.
    """

    n_answers: int
    n_uncounted: int
    n_tokens_in: int
    n_tokens_out: int
    cost: float | None


@dataclass(frozen=True, kw_only=True)
class MinedSource:
    """One mined source that was written to a file. A short row has fewer than K negatives.

    path       : path of the file.   sha256 : hash of its bytes.   method : method with every option, as applied.
    layout     : as in write.writer.WrittenFile.
    n_rows     : number of rows in the file.   n_negatives : number of negatives in the file.
    n_missing  : number of input rows without any negative, which are not in the file.
    n_dropped  : number of short rows that --on-short drop left out.
    n_filled   : number of negatives that were drawn at random to fill short rows.
    n_short    : number of input rows that were short before filling.   short : number of these rows by cause.
    n_still_short : number of rows in the file that are short even after filling.
    n_lacking  : number of negatives that these rows lack in total.
    excluded   : number of skipped candidates that cannot be negatives of their query, by reason.
    s_query_negative, consistency : means over the negatives; None without an encoder.
    inverted_share : share of negatives that score above the row's first positive, which `secid score` compares them
                 with; None without an encoder.
    n_passages : number of distinct passages used.   most_used : number of rows that use the most frequent passage.
    n_made_ids : number of rows without a query id or passage ids. Hashes of the texts were written instead.
    not_held   : number of rows with a value that the schema has no place for, by name of the value.
    rejected   : number of answers of a language model, or texts in them, that cannot be negatives, by reason. The
                 hidden file .NAME.rejected.jsonl lists them.
    usage      : usage of the language model; None if no model was used.
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

    n_rows, n_candidates : number of input rows, and of candidate passages.
    n_queries : number of distinct queries. With qrels, each query is one row.
    skipped : number of unusable rows, judgements, or collection passages, by reason.
    k, seed, max_reuse : settings as requested.   settings : all other settings that affect the result.
    encoder : recipe of the encoder; None if none was used.
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

    on_short, schema : settings as requested.   next_command : command that scores the written files.
    """

    folder: str
    on_short: str
    schema: str
    sources: tuple[MinedSource, ...]
    next_command: str


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """A guide's estimate of the share of suspects.

    n_scored    : number of negatives that the guide scored, in a sample stratified by s_qn.
    share       : estimated share of suspects among all negatives.
    interval_95 : interval of the share, clustered by query.
    """

    n_scored: int
    share: float
    interval_95: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Swept:
    """Expected result of one method over all input rows, before short rows are filled. Fields are as in MinedSource.

    n_lacking : number of negatives that short rows lack in total.
    suspects  : guide's estimate; None without a guide or without negatives.
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
    """A swept dense source.

    own      : result of the source's method as requested.
    variants : results of the method with other windows of ranks, each with several relative margins.
    """

    name: str
    own: Swept
    variants: tuple[Swept, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(MiningRun):
    """Expected results with several margins and windows of ranks. No file was written.

    random  : result with K random candidates per row, for comparison.   unswept : names of sources without a margin.
    guide   : recipe of the guide, or None.   guide_min_hardness : minimum hardness of a suspect under the guide.
    guide_sample : maximum number of negatives that the guide scored per method.
    """

    encoder: EncoderInfo
    guide: EncoderInfo | None
    guide_min_hardness: float
    guide_sample: int
    random: Swept
    sources: tuple[SweptSource, ...]
    unswept: tuple[str, ...]
