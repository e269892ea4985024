"""The verdict on a run, which sources to train on, and what makes the scores less than they seem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from secid.analyses.guide import GUIDE
from secid.pages.findings import STATUS, damaged_positives, has_collection, ranked, statuses_line
from secid.pages.glossary import (
    CAUTION,
    NOT_RULED_OUT,
    ONE_LABEL,
    SUSPECTS,
    TO_CHECK,
    equal_numbers_text,
    on_own_queries,
    sources_listed,
)
from secid.pages.page import Column, Table, foreign, number, status, text
from secid.pages.sections.guide import suspects_sentences
from secid.pages.sections.ranking import outcome, queries
from secid.pages.text import (
    budget,
    count,
    fraction,
    letter,
    listed,
    named,
    percent,
    plain,
    plural,
    score_text,
)
from secid.results import Run, SourceReport
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.results.sources import TableNumbers
from secid.settings import flag_of

# The answer to which sources to train on: one row a source, the same on every page.

Cell = Callable[[Run, SourceReport], str]


def answer_table(run: Run, *, full: bool) -> Table:
    """The columns that fit a terminal of 80 columns; full: also the score without defects, and the top problem."""
    columns = COLUMNS | MORE_COLUMNS if full else COLUMNS
    if full and any(source.scored.on_shared for source in run.sources):  # those scores are of all queries
        columns = {column: cell for column, cell in columns.items() if cell is not score_without_defects}
    rows = tuple(tuple(cell(run, source) for cell in columns.values()) for source in run.sources)
    return Table(caption="Sources by score", columns=tuple(columns), rows=rows)


def own_score(run: Run, source: SourceReport) -> str:
    """The score that the source is ranked by, with its interval."""
    point = source.in_table(run.budget).score
    return score_text(point.nats, point.interval_95, run.budget)


def score_without(source: SourceReport) -> str:
    """ECI_sem without the flagged negatives; "–" where none is flagged."""
    rest = source.scored.without_flagged
    if source.n_flagged and not rest.n_triplets:
        return "none left"
    return score_text(rest.eci_nats, rest.interval_95) if source.n_flagged else "–"


def score_without_defects(_: Run, source: SourceReport) -> str:
    """Return `score_without` as a cell."""
    return score_without(source)


def _tie(run: Run, source: SourceReport) -> str:
    return letter(source.scored.rank_group) if run.comparisons else "–"


def _top_problem(run: Run, source: SourceReport) -> str:
    return next((item.name for _, item in ranked(run, source)), "none")


COLUMNS: dict[Column, Cell] = {
    foreign("source"): lambda _, source: plain(source.name),
    status("status"): lambda _, source: STATUS[source.status],
    number("score ± CI"): own_score,
    text("tie"): _tie,
    number("hardness"): lambda run, source: fraction(source.in_table(run.budget).hardness_value, 2),
    number("outscoring"): lambda run, source: percent(source.in_table(run.budget).inversion_fraction),
    number("defects"): lambda _, source: percent(source.flagged_share),
    number("queries"): queries,
}
MORE_COLUMNS: dict[Column, Cell] = {
    number("n"): lambda run, source: count(source.in_table(run.budget).n_triplets),
    number("score without defects"): score_without_defects,
    text("top problem"): _top_problem,
}


# What makes the scores of a run less than they seem, a sentence for each warning.

WARNED_NAMES = 4
MISREADS: Mapping[str, str] = {
    "cut": "splits words at vowel signs and other marks",
    "fused": "makes one word of a whole sentence in scripts without spaces",
    "decomposed": "takes decomposed letters (NFD) for other letters than composed ones",
}
"""What a tokenizer does to words, by the kind of a warning or caution."""


def warning_sentences(run: Run) -> tuple[str, ...]:
    """The warnings of a run, in its order; those of a kind that only a newer secid knows are left out."""
    of_run = [SENTENCES[item.kind](item.source or "", item.values) for item in run.warnings if item.kind in SENTENCES]
    return (*merged_sentences(run), *of_run, *damaged_positives(run.sources))


def merged_sentences(run: Run) -> tuple[str, ...]:
    """What of a merged run is of a sample of the queries."""
    if run.merged is None or run.merged.sampled_queries is None:
        return ()
    sentence = (
        f"Merged from {plural(run.merged.n_shards, 'shard')}: the table, its intervals and comparisons, the findings "
        "and the overlap of sources are of all rows; hardness, languages, random_like, weak_positive and the other "
        f"parts are of {count(run.merged.sampled_queries)} queries of each source. RUN in a command stands for the run "
        "folder of a shard."
    )
    return (sentence,)


def _filled(kind: str, source: str, values: Mapping[str, Any]) -> str:
    """The sentence of a warning with its values."""
    return TEMPLATES[kind].format(source=named(source), **{name: _written(value) for name, value in values.items()})


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        own = [f"{named(name)} has {listed([named(each) for each in of])}" for name, of in value.items()]
        return listed(own, WARNED_NAMES)
    if isinstance(value, str):
        return named(value)
    return count(value) if isinstance(value, int) else f"{value:.2g}"


TEMPLATES: Mapping[str, str] = {
    "noisy_encoder": "The encoder is not batch-invariant: positive and negative closer than {distance} count as the "
    "same (limit {limit}), so scores and ranks mean little.",
    "few_queries": "Too few queries for an interval: {source} has {n_queries}; its order is not established.",
    "few_shared_queries": "Of {n_pairs} pairs {n_apart} share too few queries to be compared, such as {first} and "
    "{second} ({n_shared_queries} shared): score sources of the same queries.",
    "own_queries": "Queries in every source: {n_common}; the largest source has {n_largest}. So each row of the table "
    "is of the source's own queries, marked *: compare sources by their pairs, not by these rows.",
    "traces_compared": "Of {n_pairs} pairs {n_traces} are compared by tr M: the sources share too many different sets "
    "of queries to score each.",
    "unequal_sizes": f"The sources differ in size, and with {flag_of('positives', 'all')} they are not cut to equal "
    "numbers, so the order beyond B = 1 favours the larger ones; rank at B = 1, or with "
    f"{flag_of('positives', 'first')}.",
    "no_slice_value": "No row of {source} has a value of {column}: all are in the slice without one.",
    "mixed_slice_values": "Records of {source} whose rows differ in {column}: {n_records}. Each counts under the value "
    "of its first row, so the order of rows matters.",
    "no_common_slice_value": "Some sources share no slice: write the values of {column} the same way in all "
    "({sources}).",
    "inactive_lexical_gate": "The lexical gate is inactive for {source}: under {tokenizer} the labelled positives "
    "cover {coverage} of their queries on average.",
}
"""Sentences of warnings by kind, with their values by name."""


def _inactive(source: str, values: Mapping[str, Any]) -> str:
    low = _filled("inactive_lexical_gate", source, values)
    best, positives = values["best"], fraction(values["best_positives"], 2)
    if not values["helps"]:
        return f"{low} No tokenizer that leaves words whole helps (most: {plain(best)}, {positives})."
    apart = "" if values["for_all"] else " in a run of its own"
    negatives = fraction(values["best_negatives"], 2)
    return f"{low} Use {flag_of('tokenizer', best)}{apart}: positives then cover {positives}, negatives {negatives}."


def _misread(_: str, values: Mapping[str, Any]) -> str:
    shares = [f"{percent(share)} of the texts of {named(name)}" for name, share in values["sources"].items()]
    does = MISREADS.get(values["effect"], "misreads words")
    where = listed(shares, WARNED_NAMES)
    return f"Use {flag_of('tokenizer', values['best'])}: {plain(values['tokenizer'])} {does} ({where})."


def _chosen(_: str, values: Mapping[str, Any]) -> str:
    apart = sorted(values["sources"].items(), key=lambda item: -abs(item[1][1] - item[1][2]))
    parts = [
        f"{named(name)} has {count(n)} of the {count(values['n_queries'])} queries (hardness of the other sources: "
        f"{fraction(on_them, 2)} on these, {fraction(on_rest, 2)} on the rest)"
        for name, (n, on_them, on_rest) in apart
    ]
    return f"{listed(parts, WARNED_NAMES)}."


SENTENCES: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    **{kind: partial(_filled, kind) for kind in TEMPLATES},
    "inactive_lexical_gate": _inactive,
    "misread_words": _misread,
    "chosen_queries": _chosen,
}


# The verdict on a run in a few plain sentences, made from the numbers by rule; the first is the headline.

SHOWN_WARNINGS = 3
NO_ORDER = "the score cannot tell hard negatives from easy ones here, so do not choose by rank."
SCALE = "0 means as close to the query as random passages, 1 as close as the positives."
INVERTED = 0.5
"""A source whose outscoring share is above this is named in the headline."""


def verdict(run: Run) -> tuple[str, ...]:
    """Which sources to repair or to leave, what the score says here and what it does not. Needs at least one source."""
    warnings = warning_sentences(run)
    n_more = len(warnings) - SHOWN_WARNINGS
    more = f"report.json has {plural(n_more, 'more warning')}."
    sentences = (
        headline(run),
        *warnings[:SHOWN_WARNINGS],
        *([more] if n_more > 0 else []),
        _unevaluated(run),
        _labels(run),
        _sampled(run),
        _shared(run),
        ranking(run),
        _budget(run),
        _hardness(run),
        CAUTION,
    )
    return tuple(filter(None, sentences))


def headline(run: Run) -> str:
    """State the statuses, the sources whose negatives mostly outscore the positive, and unchecked false negatives."""
    hard = [source for source in run.sources if most_outscore(source.in_table(run.budget))]
    weak = [source.name for source in hard if _has_weak_positives(source)]
    outscored = f"Most negatives outscore the positive: {sources_listed([source.name for source in hard])}."
    why = f"Many positives look no better than random passages: {sources_listed(weak)}."
    label = ONE_LABEL if _one_label(run) else ""
    return " ".join(filter(None, (statuses_line(run.sources), outscored if hard else "", why if weak else "", label)))


def _has_weak_positives(source: SourceReport) -> bool:
    """Return True if more positives than its limit allows look no better than random passages."""
    finding = source.finding("weak_positive")
    return finding is not None and finding.share > (FINDINGS["weak_positive"].limit or 0.0)


def most_outscore(source: TableNumbers) -> bool:
    """Return True if the hardness is above 1, or more than half of the negatives outscore their positive."""
    return (source.hardness_value or 0.0) > 1.0 or source.inversion_fraction > INVERTED


def _one_label(run: Run) -> bool:
    """Return True if no query has a second labelled positive and no guide was used."""
    return GUIDE.of(run) is None and run.one_positive


def _unevaluated(run: Run) -> str:
    """Counted defects that were not evaluated in some source: nothing is called free of them."""
    names = [name for name in DEFECTS if any(source.finding(name) is None for source in run.sources)]
    if not names:
        return ""
    return f"Not evaluated everywhere, so not ruled out: {listed(names, len(names))}."


def _labels(run: Run) -> str:
    """How far false negatives can be found: by labels alone, or what a guide suspects."""
    if (guide := GUIDE.of(run)) is not None:
        return " ".join(suspects_sentences(guide))
    known = "" if _one_label(run) else f"{NOT_RULED_OUT} "
    return f"{known}{SUSPECTS if has_collection(run) else TO_CHECK}"


def _sampled(run: Run) -> str:
    if not any(source.rows.n_not_sampled for source in run.sources):
        return ""
    return (
        "Scores, hardness, and findings that need tokens or the encoder are of the sampled queries; findings of the "
        "texts are of every row."
    )


def _shared(run: Run) -> str:
    """Name the queries that the table uses, if sources have different ones."""
    shared = next((source.scored.on_shared for source in run.sources if source.scored.on_shared), None)
    if shared is None:
        return ""
    queries = plural(shared.n_queries, "query", "queries")
    return (
        f"Scores, hardness and outscoring are over the {queries} that all sources share; defects and findings are over "
        "all queries of a source."
    )


def ranking(run: Run) -> str:
    """What the order by score is worth here: nothing where random passages score above sources."""
    random = outcome(run, "random")
    missing = f" Not compared with random passages: {sources_listed(random.missing)}." if random.missing else ""
    if random.above:
        return f"Random passages score higher than {sources_listed(random.above)}: {NO_ORDER}{missing}"
    if random.compares and not random.below:
        return f"No source scores significantly above random passages.{missing}"
    if len(run.sources) == 1:
        return "One source alone has no rank: read its score against the controls."
    leader = run.sources[0].name
    first = f"{named(leader)} ranks first"
    pairs = [pair for pair in run.comparisons if leader in (pair.first, pair.second)]
    ahead = [pair.first for pair in pairs if pair.second == leader and pair.established]
    if ahead:
        return f"{first}, but on the queries that both have it is significantly below {sources_listed(ahead)}."
    tied = [pair.second if pair.first == leader else pair.first for pair in pairs if not pair.established]
    if tied:
        return f"{first}, statistically tied with {sources_listed(tied)}."
    if len(pairs) < len(run.sources) - 1:
        return f"{first}, but not every source could be compared with it."
    return f"{first}, significantly above every other source."


def _budget(run: Run) -> str:
    if run.budget == 1.0:
        return ""
    numbers = equal_numbers_text(run) if run.budget > 1.0 else ""
    return f"Scores are ECI at B = {budget(run.budget)}{f', on {numbers}' if numbers else ''}."


def _hardness(run: Run) -> str:
    """The hardest and the easiest source, and those without a number; "" where all numbers are the same."""
    shown = {source.name: source.in_table(run.budget).hardness_value for source in run.sources}
    known = sorted((hardness, name) for name, hardness in shown.items() if hardness is not None)
    unknown = [name for name, hardness in shown.items() if hardness is None]
    missing = f"Hardness was not evaluated: {sources_listed(unknown)}." if unknown and known else ""
    if not known or on_own_queries(run) or fraction(known[0][0], 2) == fraction(known[-1][0], 2):
        return missing
    least, most = (f"{fraction(value, 2)} ({named(name)})" for value, name in (known[0], known[-1]))
    return f"Hardness runs from {least} to {most}: {SCALE} {missing}".rstrip()
