"""The verdict on a run in a few plain sentences, made from the numbers by rule; the first is the headline."""

from __future__ import annotations

from collections.abc import Sequence

from secid.analyses.guide import GUIDE
from secid.pages.findings import has_collection, statuses_line
from secid.pages.glossary import (
    CAUTION,
    NO_GUIDE,
    ONE_LABEL,
    SUSPECTS,
    TO_CHECK,
    equal_numbers,
    names_of,
    on_own_queries,
)
from secid.pages.numbers import budget, fraction, listed, plural
from secid.pages.sanitize import code, named
from secid.pages.sections.controls import Outcome, outcome
from secid.pages.sections.guide import suspects_sentences
from secid.pages.sections.warnings import warning_sentences
from secid.results import Run
from secid.results.catalogue import DEFECTS
from secid.results.sources import TableNumbers

SHOWN_NAMES, SHOWN_WARNINGS = 4, 3
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
        _only_labels(run),
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
    hard = [source.name for source in run.sources if most_outscore(source.in_table(run.budget))]
    outscored = f"Most negatives outscore the positive in {names_of(hard, len(run.sources))}." if hard else ""
    return " ".join(filter(None, (statuses_line(run.sources), outscored, ONE_LABEL if _one_label(run) else "")))


def most_outscore(source: TableNumbers) -> bool:
    """Return True if the hardness is above 1, or more than half of the negatives outscore their positive."""
    return (source.hardness or 0.0) > 1.0 or source.inversion_fraction > INVERTED


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
    if _one_label(run):
        return SUSPECTS if has_collection(run) else TO_CHECK
    return NO_GUIDE


def _only_labels(run: Run) -> str:
    """What adds labels where those of a single source are all there are."""
    if len(run.sources) > 1 or GUIDE.of(run) is not None or has_collection(run) or _one_label(run):
        return ""
    return f"The only labels are this source's own: {code('--collection DIR')} or further files add labelled positives."


def _sampled(run: Run) -> str:
    if not any(source.n_not_sampled for source in run.sources):
        return ""
    return (
        "Scores, hardness, and findings that need tokens or the encoder are of the sampled queries; findings of the "
        "texts are of every row."
    )


def _shared(run: Run) -> str:
    """Name the queries that the table uses, if sources have different ones."""
    shared = next((source.on_shared for source in run.sources if source.on_shared), None)
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
    alone = len(run.sources) == 1
    if random is not None and random.above:
        rank = "" if alone else ", so do not choose by rank"
        which = named(run.sources[0].name) if alone else names_of(random.above, random.n)
        what = f"the score cannot tell hard negatives from easy ones here{rank}"
        return f"Random passages score higher than {which}: {what}.{_not_compared(random)}"
    if random is not None and random.compares and not random.below:
        what = "The source does not score" if alone else "No source scores"
        return f"{what} significantly above random passages.{_not_compared(random)}"
    if alone:
        return "One source alone has no rank: read its score against the controls."
    return _leader(run)


def _not_compared(random: Outcome) -> str:
    return f" They were {random.not_compared}." if random.missing else ""


def _leader(run: Run) -> str:
    """Who scores highest, and who is tied with it."""
    leader = run.sources[0].name
    first = f"{_names([leader])} {'ranks first by pairwise comparisons' if on_own_queries(run) else 'scores highest'}"
    pairs = [pair for pair in run.comparisons if leader in (pair.first, pair.second)]
    ahead = [pair.first for pair in pairs if pair.second == leader and pair.established]
    if ahead:
        return f"{first}, but is significantly below {_names(ahead)} on the queries that both have."
    tied = [pair.second if pair.first == leader else pair.first for pair in pairs if not pair.established]
    if tied:
        others = _names(tied) if len(tied) < len(run.sources) - 1 else "every other source"
        return f"{first}, but is statistically tied with {others}."
    if len(pairs) < len(run.sources) - 1:
        return f"{first}, but not every source could be compared with it."
    return f"{_names([leader])} scores significantly above every other source."


def _budget(run: Run) -> str:
    if run.budget == 1.0:
        return ""
    numbers = equal_numbers(run) if run.budget > 1.0 else ""
    return f"Scores are ECI at B = {budget(run.budget)}{f', on {numbers}' if numbers else ''}."


def _hardness(run: Run) -> str:
    """The hardest and the easiest source; "" where their numbers are the same."""
    shown = {source.name: source.in_table(run.budget).hardness for source in run.sources}
    known = sorted((hardness, name) for name, hardness in shown.items() if hardness is not None)
    unknown = [name for name, hardness in shown.items() if hardness is None]
    missing = f" Hardness was not evaluated for {_names(unknown)}." if unknown else ""
    if not known or on_own_queries(run):
        return ""
    scale = "0 means as close to the query as random passages, 1 as close as the positives"
    (least, easiest), (most, hardest) = known[0], known[-1]
    if len(known) == 1:
        return f"The hardness of {_names([hardest])} is {fraction(most, 2)}: {scale}.{missing}"
    if fraction(least, 2) == fraction(most, 2):
        return missing.strip()
    return (
        f"Hardness runs from {fraction(least, 2)} ({_names([easiest])}) to {fraction(most, 2)} ({_names([hardest])}): "
        f"{scale}.{missing}"
    )


def _names(names: Sequence[str]) -> str:
    return listed([named(name) for name in names], SHOWN_NAMES)
