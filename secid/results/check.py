"""What `secid check` reports: frozen results, and the table of everything it can find.

`secid.pages.check` shows these as text and JSON; a field is described once, here.
Fractions lie in [0, 1]. None always comes with a reason beside it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from secid.errors import UsageError
from secid.results import Example, Overlap

CHECK_SCHEMA_VERSION = "1.0"


class Kind(NamedTuple):
    """One kind of finding: what its fraction is a share of, the default limit, what it means and what to do.

    limit: the finding stands out above this fraction; None where a setting gives the limit.
    """

    of: str
    limit: float | None
    text: str
    advice: str


KINDS: Mapping[str, Kind] = {
    "malformed_rows": Kind(
        "rows", None, "rows or single negatives that cannot be used",
        "mend the file; if many rows fail for one reason, name the schema with --format or the columns",
    ),
    "rows_without_negatives": Kind(
        "rows", 0.05, "rows without an explicit negative",
        "these give no triplet; mine negatives for them, or leave them to in-batch negatives",
    ),
    "negative_equals_positive": Kind(
        "negatives", 0.0, "the negative is a positive of its own record, but for case, spaces and composed letters",
        "leave them out: training pushes the query away from its own answer",
    ),
    "negative_is_other_positive": Kind(
        "negatives", 0.0, "another record of the run, of any source, labels the negative a positive of the same query",
        "leave them out: they are labelled relevant",
    ),
    "duplicate_negative": Kind(
        "negatives", 0.01, "a record lists the same negative again, but for case, spaces and composed letters",
        "list each negative once; secid scores one of the copies",
    ),
    "repeated_negative": Kind(
        "negatives", 0.01, "several records of one query list the same negative",
        "merge the records of a query, or leave the repetition out: it counts as often as it stands there",
    ),
    "short_negative": Kind(
        "negatives", 0.01, "the negative is empty or has three tokens at most, by estimate",
        "leave them out: their length alone gives them away",
    ),
    "known_preamble": Kind(
        "negatives", 0.001, "the negative begins as a language model's answer does (\"Sure, here is a passage\")",
        "cut the preamble off: the encoder learns it instead of the content",
    ),
    "shared_opening": Kind(
        "negatives", 0.01, "the negative opens as more than 1 % of the distinct negatives do (five words)",
        "cut the common opening off: it tells negatives from positives without reading on",
    ),
    "query_echoed": Kind(
        "negatives", 0.01, "the negative repeats the query word for word",
        "look at the examples: an echo is a lexical worst case (c = 1, weight 0) or hints at a relevant passage",
    ),
    "too_long": Kind(
        "texts", 0.05, "the text is longer than the maximum length",
        "the encoder does not see the end: split the passages, or take an encoder that reads more",
    ),
    "hub_negative": Kind(
        "negatives", 0.01, "more than one query in ten lists the same negative",
        "limit how often a passage may be drawn: training learns the passage, not the query",
    ),
    "other_script": Kind(
        "negatives", 0.01, "the negative is written in another script than the positive",
        "the script alone gives the negative away; mine negatives in the positive's language",
    ),
    "query_without_tokens": Kind(
        "queries", 0.01, "the query has no usable token under the tokenizer",
        "its coverage is 0 whatever the negative says: choose another --tokenizer",
    ),
    "words_misread": Kind(
        "texts", 0.05, "the tokenizer cuts up or runs together the words of the text's script",
        "score with --tokenizer multilingual, under which words of every script are told apart",
    ),
    "lexical_gate_inactive": Kind(
        "IDF weight", 0.95, "weight of the queries' tokens that their labelled positives lack, on average",
        "λ is near 1 for every negative and tells nothing apart: choose a --tokenizer under which it covers more; "
        "where none does, queries and passages share no words to tell by",
    ),
    "eval_query": Kind(
        "queries", 0.0, "the query is an evaluation query, exactly or nearly",
        "leave its records out, or the evaluation measures memory",
    ),
    "eval_passage": Kind(
        "texts", 0.0, "the passage is relevant to an evaluation query, exactly or nearly",
        "leave it out as a positive; as a negative it teaches the encoder to reject what is asked for",
    ),
}  # fmt: skip
"""Every finding by name. Limits: 0 where a single case is a mistake, 0.1 % where one may be natural; 1 % where
a collection has some of it by nature, and more is a habit of the miner; 5 % as --max-bad-fraction; 95 % of the
weight uncovered is a mean coverage below 0.05. None: a setting gives the limit."""

ANY = "any"
"""Name that stands for all findings in --fail-on."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One kind of finding in one source.

    n, fraction : how many of the things that `of` names, and their share.
    exceeded    : fraction > limit.
    detail      : what distinguishes the cases, in words; may be empty.
    """

    name: str
    of: str
    n: int
    fraction: float
    limit: float
    exceeded: bool
    text: str
    detail: str
    advice: str
    examples: tuple[Example, ...]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Smallest, middle, 95th percentile and largest of some counts."""

    minimum: float
    median: float
    p95: float
    maximum: float


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Distinct texts of one role: how many, and their lengths."""

    n_texts: int
    characters: Spread
    tokens: Spread


@dataclass(frozen=True, kw_only=True)
class FileRead:
    """What was understood of one file."""

    path: str
    container: str
    schema: str
    mapping: str


@dataclass(frozen=True, kw_only=True)
class CheckedSource:
    """One source. n_read = n_used + sum(skipped).

    lengths, scripts         : by role (query, positive, negative); scripts are shares of the distinct texts.
    negatives_per_query      : distinct negatives of a distinct query.
    positive_coverage_mean   : mean lexical coverage of the labelled positives, METHOD 2.3.
    findings                 : every kind that was looked for, in the order of KINDS.
    """

    name: str
    files: tuple[FileRead, ...]
    n_read: int
    n_used: int
    n_records: int
    n_queries: int
    n_positives: int
    n_negatives: int
    n_triplets: int
    skipped: Mapping[str, int]
    dropped_negatives: Mapping[str, int]
    negatives_per_query: Spread
    lengths: Mapping[str, Lengths]
    scripts: Mapping[str, Mapping[str, float]]
    positive_coverage_mean: float
    findings: tuple[Finding, ...]

    def finding(self, name: str) -> Finding:
        """The finding of this name. Raises KeyError where it was not looked for."""
        return {finding.name: finding for finding in self.findings}[name]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The evaluation set that was looked for. qrels: the files that name its queries; empty where all queries count."""

    folder: str
    qrels: tuple[str, ...]
    n_queries: int
    n_relevant_passages: int


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check. tokens_by: how tokens were counted. failed: "source: finding" above a limit of --fail-on."""

    schema_version: str
    secid_version: str
    tokenizer: str
    max_length: int
    tokens_by: str
    evaluation: Evaluation | None
    sources: tuple[CheckedSource, ...]
    overlaps: tuple[Overlap, ...]
    failed: tuple[str, ...]
    seconds: float


def parse_limits(specs: Sequence[str]) -> dict[str, float | None]:
    """NAME or NAME=LIMIT to {name: limit}; None keeps the default limit. LIMIT is a fraction, or a percentage with %.

    Raises UsageError for an unknown name (with the nearest known one) or a limit outside [0, 1].
    """
    limits: dict[str, float | None] = {}
    for spec in specs:
        name, separator, text = spec.partition("=")
        name = name.strip()
        if name != ANY and name not in KINDS:
            near = difflib.get_close_matches(name, [ANY, *KINDS], n=1)
            raise UsageError(
                f"unknown finding {name!r}",
                where="--fail-on",
                remedy=f"did you mean {near[0]!r}?" if near else f"findings: {ANY}, {', '.join(KINDS)}",
            )
        limits[name] = _limit(text, spec) if separator else None
    return limits


def _limit(text: str, spec: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        limit = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        limit = float("nan")
    if not 0 <= limit <= 1:
        raise UsageError(
            f"{spec!r} has no limit between 0 and 1", where="--fail-on", remedy="write 0.01 or 1%, as a share"
        )
    return limit


def failures(sources: tuple[CheckedSource, ...], limits: Mapping[str, float | None]) -> tuple[str, ...]:
    """ "source: finding" of every finding above its limit; the limit of a name wins over that of `any`.

    Raises UsageError for a finding that no source was looked into for (an eval_ one without --against-eval).
    """
    looked_for = {finding.name for source in sources for finding in source.findings}
    for name in limits:
        if name != ANY and name not in looked_for:
            raise UsageError(f"{name} was not looked for", where="--fail-on", remedy="it needs --against-eval DIR")
    failed = []
    for source in sources:
        for finding in source.findings:
            if finding.name not in limits and ANY not in limits:
                continue
            asked = limits.get(finding.name, limits.get(ANY))
            # "passes if at most the limit": NaN does not pass
            if not finding.fraction <= (finding.limit if asked is None else asked):
                failed.append(f"{source.name}: {finding.name}")
    return tuple(failed)
