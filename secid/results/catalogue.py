"""The catalogue of findings. It alone defines each finding's name, requirements, limit and texts.

A finding is a column of the triplet table: True if the negative has it. Its rule is implemented in `secid/findings/`.
Pages, policy keys, `--fail-on NAME`, `secid select --drop NAME`, `secid explain NAME` and the `in_*` columns of
negatives.parquet are derived from the entry here. Source: METHOD 4, 14.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from secid.errors import UsageError, suggest_name
from secid.settings import flag_of

Needs = Literal["texts", "tokens", "rows", "guide"]
"""Data that a finding needs. texts: only the texts. tokens: tokens of the run's or the encoder's tokenizer. rows:
vectors of the encoder. guide: scores of a guide."""

DEFECT_LIMIT = 0.01
"""Share of a source's negatives above which a counted defect is flagged. Source: METHOD 14."""
NEAR_HARDNESS = 0.9
"""Minimum hardness of the findings near_positive, by the encoder, and suspect, by a guide. Source: METHOD 10, 14."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An entry of the catalogue.

    needs   : data that the rule needs.
    counted : True for a defect, which is always wrong to train on and decides the status of a source. False for a
              property that may be intended.
    limit   : share of the negatives above which the finding is flagged; None for a purely descriptive finding.
    rule    : condition on a negative, without the thresholds in `settings`.
    says    : predicate for a sentence about the negatives ("12 negatives ...").   do : advice.
    urgency : order on pages; 0 is shown first.
    formal  : True for a finding about the form of a text. A model can recognise negatives by their form only if
              positives have that form less often. So the limit applies to the share of negatives minus the share of
              positives, `AmongPositives.excess`. Source: METHOD 16.2.
    settings : names of the settings that are thresholds of the rule.
    """

    name: str
    needs: Needs
    counted: bool
    limit: float | None
    urgency: int
    rule: str
    says: str
    do: str
    formal: bool = False
    settings: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        """Name of the finding's column in negatives.parquet."""
        return f"in_{self.name}"

    def exceeded_by(self, share: float) -> bool:
        """Return True if a share is above the limit; False without a limit."""
        return self.limit is not None and share > self.limit


def _entries(*entries: Finding) -> Mapping[str, Finding]:
    return {entry.name: entry for entry in entries}


FINDINGS: Mapping[str, Finding] = _entries(
    Finding(
        name="false_negative", needs="texts", counted=True, limit=DEFECT_LIMIT, urgency=0,
        rule="the negative has the same text as a labelled positive of its query, anywhere in the run or the baseline; "
        "case, spaces and punctuation do not count",
        says="equal a labelled positive of the query",
        do="remove them: training would push relevant passages away from the query",
    ),
    Finding(
        name="near_copy", needs="texts", counted=True, limit=DEFECT_LIMIT, urgency=0,
        rule="at least 80 % of the negative's five-word runs occur in one labelled positive of its query, or at least "
        "80 % of that positive's runs occur in the negative",
        says="are nearly the same as a labelled positive of the query, or a part of one",
        do="remove them: a copy or an excerpt of a relevant passage is usually relevant, too",
    ),
    Finding(
        name="preamble", needs="texts", counted=True, limit=DEFECT_LIMIT, urgency=0,
        rule="the first 12 words of the negative mention the task that it was generated for, in wording with which no "
        "positive of the run starts",
        says="start with a generator's preamble instead of the passage",
        do="remove them, and fix the parsing of the generator's output",
    ),
    Finding(
        name="empty", needs="texts", counted=True, limit=DEFECT_LIMIT, urgency=0,
        rule="the negative has no letter and no digit, is a single ASCII letter, or is a placeholder such as null or "
        "n/a",
        says="are empty or a placeholder",
        do="remove them, and find out why the miner returned nothing",
    ),
    Finding(
        name="repeat", needs="texts", counted=True, limit=DEFECT_LIMIT, urgency=1,
        rule="the record already lists the negative; case, spaces and punctuation do not count",
        says="repeat a negative of the same record",
        do="list each negative once",
    ),
    Finding(
        name="query_echo", needs="texts", counted=True, limit=DEFECT_LIMIT, urgency=1,
        rule="the negative has the same text as its query; case, spaces and punctuation do not count",
        says="equal the query",
        do="remove them: a query is not a passage",
    ),
    Finding(
        name="mojibake", needs="texts", counted=True, limit=DEFECT_LIMIT, urgency=1, formal=True,
        rule="the negative was decoded with the wrong character encoding",
        says="were decoded with the wrong character encoding",
        do="read the source again in the right encoding: a model can tell negatives by the damage",
    ),
    Finding(
        name="trailing_note", needs="texts", counted=True, limit=DEFECT_LIMIT, urgency=1, formal=True,
        rule="the last 25 words of the negative mention the task that it was generated for",
        says="end in a generator's note about its task",
        do="cut the note off, and fix the prompt or the parsing of the generator's output",
    ),
    Finding(
        name="wrapper", needs="texts", counted=True, limit=DEFECT_LIMIT, urgency=1, formal=True,
        rule="the negative is a JSON object or array, a fenced block, or starts with a key of the prompt such as "
        '"hard_negative":',
        says="are wrapped in JSON or Markdown",
        do="take the passage out of its wrapper: fix the parsing of the generator's output",
    ),
    Finding(
        name="loop", needs="texts", counted=True, limit=DEFECT_LIMIT, urgency=1, formal=True,
        rule="the negative has at least 20 tokens, and one token, or one sequence of two, makes up more than half of "
        "them",
        says="repeat one or two words over and over",
        do="remove them, and generate again with a repetition penalty",
    ),
    Finding(
        name="shared_opening", needs="texts", counted=False, limit=0.01, urgency=2,
        rule="at least 1 % of the source's negatives start with the negative's first five words (in at least 5 texts "
        "and for at least 3 queries), and at least five times the share of its positives do",
        says="start like many other negatives but few positives",
        do="strip the opening: a model can tell negatives by it alone",
    ),
    Finding(
        name="hub", needs="texts", counted=False, limit=0.01, urgency=2,
        rule="the passage is a negative of more than 5 % of the queries, estimated for samples of 100 queries",
        says="recur in more than 5 % of the queries",
        do="limit how often one passage is used; otherwise the model learns to avoid it everywhere",
    ),
    Finding(
        name="other_language", needs="texts", counted=False, limit=0.01, urgency=2, formal=True,
        rule="the negative is in a different language from the positives of its record",
        says="are in a different language from the positive",
        do="mine negatives in the positive's language, unless the mixture is intended",
    ),
    Finding(
        name="unfinished", needs="texts", counted=False, limit=0.01, urgency=2, formal=True,
        rule="the negative has at least eight words (24 characters in scripts without spaces) and ends in no sentence "
        "mark, closing brackets and quotes aside, or in an ellipsis; not evaluated for Thai, Lao and Khmer",
        says="break off in mid-sentence",
        do="raise the generator's token limit, or cut negatives and positives alike",
    ),
    Finding(
        name="markup", needs="texts", counted=False, limit=0.01, urgency=2, formal=True,
        rule="HTML or XML tags, escaped ones too, make up more than 5 % of the negative's characters",
        says="contain markup",
        do="strip the tags, or keep those of negatives and positives alike",
    ),
    Finding(
        name="length", needs="texts", counted=False, limit=0.5, urgency=2, formal=True,
        rule="the negative has fewer characters than the 1st percentile of the source's positives, or more than the "
        "99th",
        says="are shorter or longer than nearly all positives",
        do="use passages as long as the positives",
    ),
    Finding(
        name="query_without_tokens", needs="tokens", counted=False, limit=0.01, urgency=3,
        rule="the query has no token, so the coverage is 0 by definition",
        says="belong to a query without tokens",
        do=f"choose another tokenizer ({flag_of('tokenizer', 'NAME')}): the lexical gate says nothing about these "
        "queries",
    ),
    Finding(
        name="unknown_script", needs="tokens", counted=False, limit=0.01, urgency=1,
        rule="the encoder's tokenizer turns at least half of the negative's letters into unknown tokens or pieces of a "
        "single letter (a single Chinese character is a word)",
        says="are in a script that the encoder's tokenizer does not know",
        do="score with an encoder that was trained on this script: the numbers of this one mean little",
    ),
    Finding(
        name="truncated", needs="tokens", counted=False, limit=0.1, urgency=3,
        rule="the negative is longer than the encoder's maximum length",
        says="are longer than the encoder's maximum length",
        do="raise --max-length or split long passages: the encoder never sees their ends",
    ),
    Finding(
        name="inversion", needs="rows", counted=False, limit=0.2, urgency=2,
        rule="the encoder scores the negative above its positive (π < 0.5)",
        says="outscore the positive",
        do="first look for false negatives among them and drop those; training should correct the rest",
    ),
    Finding(
        name="suspect", needs="guide", counted=False, limit=0.1, urgency=2,
        rule=f"by the guide's scores, the negative is at least {NEAR_HARDNESS} of the way from random passages of the "
        f"run to its positive (hardness h ≥ {NEAR_HARDNESS}), and its positive scores higher than random passages",
        says="look relevant to the guide",
        do="read the examples: remove the suspects if most of them answer the query",
    ),
    Finding(
        name="random_like", needs="rows", counted=False, limit=0.5, urgency=2,
        rule="the negative is no nearer to its query than the 90th percentile of 30 random passages of the run",
        says="are no closer to the query than random passages",
        do="mine negatives that are nearer to the query: in-batch training gives passages like these for free",
    ),
    Finding(
        name="weak_positive", needs="rows", counted=False, limit=0.1, urgency=2,
        rule="the record's scored positive is no nearer to the query than the 90th percentile of 30 random passages "
        "of the run",
        says="belong to a record whose positive looks no better than a random passage",
        do="read the examples: the labels, the pairing of rows or the encoder's prefixes may be wrong",
    ),
    Finding(
        name="near_positive", needs="rows", counted=False, limit=None, urgency=4,
        rule=f"seen from the query, the negative is at least {NEAR_HARDNESS} of the way from the average passage of "
        f"the run to its positive (hardness h ≥ {NEAR_HARDNESS}); not evaluated where the positive is no nearer than "
        "the average passage",
        says="are nearly as near to the query as the positive, or nearer",
        do="consider a copy without them (secid select --drop near_positive): in the dose experiment, dense negatives "
        "with a hardness below 0.9 had the smallest worst-case loss of all sources, but not significantly",
    ),
    Finding(
        name="low_locality", needs="rows", counted=False, limit=None, urgency=4,
        rule="the negative is nearer to the query than to the positive (ρ < 0.5)",
        says="are nearer to the query than to the positive",
        do="no action is needed: the gate ρ already suppresses them in the score",
    ),
    Finding(
        name="high_coverage", needs="rows", counted=False, limit=None, urgency=4,
        rule="the negative repeats much of the query's wording (c at or above high_coverage)",
        says="repeat much of the query's wording",
        do="no action is needed: the gate λ already suppresses them in the score",
        settings=("high_coverage",),
    ),
    Finding(
        name="valid_but_lexical", needs="rows", counted=False, limit=None, urgency=4,
        rule="π and ρ are high, and so is the coverage: only λ lowers the weight",
        says="have a low weight only because of λ",
        do="no action is needed: --ablate shows the scores without λ",
        settings=("valid", "high_coverage"),
    ),
    Finding(
        name="valid_but_far", needs="rows", counted=False, limit=None, urgency=4,
        rule="π is high and the coverage is not, but ρ is low: only ρ lowers the weight",
        says="have a low weight only because of ρ",
        do="no action is needed: --ablate shows the scores without ρ",
        settings=("valid", "high_coverage", "far"),
    ),
)  # fmt: skip
"""Every finding by name, the most urgent first."""


@dataclass(frozen=True, kw_only=True)
class Caution:
    """A finding about a whole source. It has no column in the triplet table.

    of    : plural noun for the counted items, such as "rows".
    limit : share of these items above which the caution is flagged; None if a setting is the limit.
    says  : predicate for a sentence about these items ("12 rows ...").   do : advice.
    """

    name: str
    of: str
    limit: float | None
    says: str
    do: str


CAUTIONS: Mapping[str, Caution] = {
    caution.name: caution
    for caution in (
        Caution(
            name="malformed_rows", of="rows", limit=None,
            says="cannot be used, or contain a negative that cannot be used",
            do="fix the file; if many rows fail for one reason, name the schema with --format or the columns",
        ),
        Caution(
            name="rows_without_negatives", of="rows", limit=0.05,
            says="are left out because they list no negative",
            do="mine negatives for them, or train on them with in-batch negatives only",
        ),
        Caution(
            name="tokenizer_misfit", of="texts", limit=0.05,
            says="contain words that the tokenizer splits or joins wrongly",
            do=f"score with {flag_of('tokenizer', 'multilingual')}, which separates the words of every script",
        ),
        Caution(
            name="inactive_lexical_gate", of="query words", limit=0.95,
            says="do not occur in the labelled positives (weighted by IDF), so λ has no effect",
            do=f"choose a tokenizer ({flag_of('tokenizer', 'NAME')}) under which positives cover more of their query: "
            "λ is near 1 for every negative",
        ),
        Caution(
            name="changed_since_mined", of="files", limit=0.0,
            says="changed since secid mine: the manifest in the same folder has another hash",
            do="mine again, or keep the files if the change is intended: the manifest no longer describes them",
        ),
        Caution(
            name="eval_query", of="queries", limit=0.0,
            says="occur in the evaluation set, exactly or nearly",
            do="leave their records out; otherwise the evaluation measures memorisation",
        ),
        Caution(
            name="eval_passage", of="texts", limit=0.0,
            says="are relevant to an evaluation query, exactly or nearly",
            do="leave them out: as positives they leak answers, as negatives they train against the right answers",
        ),
    )
}  # fmt: skip
"""All cautions by name. A limit is 0 if a single case is a mistake, and otherwise 5 %, the default of max_bad_fraction.
For inactive_lexical_gate, the limit of 95 % means a mean coverage below 0.05."""

TEXT_FINDINGS: tuple[str, ...] = tuple(name for name, entry in FINDINGS.items() if entry.needs == "texts")
"""Findings that need only the texts."""
BITS: Mapping[str, int] = {name: bit for bit, name in enumerate(FINDINGS)}
"""Bit of each finding in a row's bit mask. Findings that need only the texts come first."""
DEFECTS: tuple[str, ...] = tuple(name for name, entry in FINDINGS.items() if entry.counted)
"""Counted findings."""
FORMAL_FINDINGS: tuple[str, ...] = tuple(name for name, entry in FINDINGS.items() if entry.formal)
"""Formal findings. Each compares negatives with positives."""
DAMAGE_FINDINGS: tuple[str, ...] = tuple(name for name in FORMAL_FINDINGS if FINDINGS[name].counted)
"""Counted formal findings. They are damage in a positive too."""


def known_finding(name: str, where: str, others: Iterable[str] = ()) -> Finding | None:
    """Return the catalogue entry of this name; None for a name in `others`, which the caller handles.

    where : flag, key or command that contains the name. Raises UsageError for an unknown name, and suggests one.
    """
    if name in FINDINGS:
        return FINDINGS[name]
    names = [*FINDINGS, *others]
    if name in names:
        return None
    raise UsageError(
        f"unknown finding {name!r}", where=where, remedy=suggest_name(name, names, f"use one of {', '.join(names)}")
    )
