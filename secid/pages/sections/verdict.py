"""State the verdict on a run: which sources to train on, and what limits its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from secid.analyses.ablations import ABLATIONS
from secid.analyses.guide import GUIDE
from secid.analyses.profile import FACTORS, PROFILE
from secid.pages.findings import has_collection, same_lines
from secid.pages.glossary import (
    CHECK_OFFER,
    GUIDE_OFFER,
    NOT_RULED_OUT,
    ONE_LABEL,
    REFERENCES,
    SCORE_CAUTION,
    SHORT_HEADS,
    compares,
    equal_numbers_text,
    kind_name,
    listing,
    not_ranked,
    on_own_queries,
    sources_listed,
)
from secid.pages.page import Column, Table, foreign, number, status, text
from secid.pages.sections.ablations import ablations_sentence
from secid.pages.sections.equal_hardness import unranked_line
from secid.pages.sections.guide import suspects_sentences
from secid.pages.sections.ranking import outcome, queries
from secid.pages.statuses import MIN_MAJORITY_SHARE, doubts, status_and_problem, statuses, warning_sentences
from secid.pages.text import budget, capital, count, fraction, listed, named, percent, plain, plural, score_text
from secid.results import ControlResult, Run, SourceReport
from secid.results.catalogue import DEFECTS, FINDINGS

# The answer to which sources to train on: one row a source, the same on every page.

Cell = Callable[[Run, SourceReport], str]


def scored_line(run: Run) -> str:
    """Return a line on what the score is, and on the encoder and its device."""
    score = "ECI_sem = log det(I + M)" if run.budget == 1.0 else f"ECI = log det(I + {budget(run.budget)} · M)"
    where = f"{named(run.encoder.name)} on {plain(run.encoder.device)}"
    line = f"Score: {score} of consistency, locality and lexical residual. Encoder: {where}."
    return f"{line} {sample}" if (sample := _sampled(run)) else line


def answer_table(run: Run, *, full: bool) -> Table:
    """Return a table with a row for each source: ranked ones, then the others, then the reference controls.

    A source to repair has a second row with its score after the repair. A gap separates groups of ranked sources that
    are not compared with each other, and the ranked sources from the rest.
    full : show all columns, with the full names of the gates; otherwise only those that fit a terminal of 80 columns.
    """
    columns = ANSWER_COLUMNS if full else SHORT_COLUMNS
    if not full and len({queries(run, source) for source in run.sources} | {""}) > 2:
        columns = columns | {number("queries"): queries}
    of = {source.name: source for source in run.sources}
    unranked = [source.name for source in run.sources if source.scored.rank is None]
    rows: list[tuple[str, ...]] = []
    breaks = set[int]()
    for group in (*groups(run), unranked):
        breaks |= {len(rows)} if rows and group else set()
        for source in map(of.__getitem__, group):
            rows.append(tuple(cell(run, source) for cell in columns.values()))
            if _shows_repaired(run, source):
                cells = _repaired_cells(source, full)
                rows.append(tuple(cells.get(column.title, "") for column in columns))
    controls = [control for control in run.controls if control.kind in REFERENCES]
    breaks |= {len(rows)} if controls and not unranked else set()
    rows += [tuple(_control_cells(run, control).get(column.title, "") for column in columns) for control in controls]
    return Table(
        caption=listing(run),
        columns=tuple(columns),
        rows=tuple(rows),
        breaks=frozenset(breaks),
        n_controls=len(controls),
    )


def _shows_repaired(run: Run, source: SourceReport) -> bool:
    """Return True if a source to repair has numbers after the repair that cover the queries and budget of its row."""
    known = source.scored.without_flagged.eci_nats is not None
    return source.status == "repair" and known and run.budget == 1.0 and source.scored.on_shared is None


def _repaired_cells(source: SourceReport, full: bool) -> dict[str, str]:
    score, hardness = score_without(source), fraction(source.scored.without_flagged.hardness, 2)
    return {
        "source": f"{plain(source.name)}, repaired" if full else "  repaired",
        "score ± CI": score,
        "score ± CI tie": score,
        "hardness": hardness,
        "hard.": hardness,
    }


def _control_cells(run: Run, control: ControlResult) -> dict[str, str]:
    """Return column title -> cell of a reference control. Its hardness is 0 or 1 by definition."""
    score = control.score
    point = score.at(run.budget)
    means = {name: fraction(getattr(score, f"{name}_mean"), 2) for name in FACTORS}
    shown = score_text(point.nats, point.interval_95, run.budget) if compares(run, control, run.budget) else "–"
    cells = {
        "source": kind_name(control.kind),
        "score ± CI": shown,
        "score ± CI tie": shown,
        "hardness": fraction(float(control.kind == "known_positive"), 2),
        "outscoring": percent(score.inversion_fraction),
        "queries": count(control.n_queries),
        **means,
    }
    return {**cells, **{short: cells[name] for name, short in SHORT_HEADS.items()}}


def below_table(run: Run) -> tuple[str, ...]:
    """Return sentences on sources that are not compared, scores after a repair, and the effect of other settings."""
    every = groups(run)
    within = "; ".join(sources_listed(group) for group in every)
    apart = f"Compare scores only within a group; the groups share too few queries: {within}." if len(every) > 1 else ""
    return (
        *filter(None, [apart]),
        *same_lines(run),
        *(unranked_line(name, reason) for name, reason in not_ranked(run).items()),
        *filter(None, [without_defects(run), ablations_sentence(run, ABLATIONS.of(run) or ())]),
    )


def own_score(run: Run, source: SourceReport) -> str:
    """Format the score that the source is ranked by, with its interval."""
    point = source.in_table(run.budget).score
    return score_text(point.nats, point.interval_95, run.budget)


def score_without(source: SourceReport) -> str:
    """Format ECI_sem without the flagged negatives; "–" if none is flagged."""
    rest = source.scored.without_flagged
    if source.n_flagged and not rest.n_triplets:
        return "none left"
    return score_text(rest.eci_nats, rest.interval_95) if source.n_flagged else "–"


def _as_listed(source: SourceReport) -> str:
    """Format ECI_sem of all negatives of a source, which covers the same queries as `score_without`."""
    return score_text(source.scored.nats, source.scored.interval_95)


def without_defects(run: Run) -> str:
    """Return a sentence with the scores that the sources to repair have without their defects; "" if none changes."""
    scores = [
        f"{named(source.name)} {score_without(source)} ({_as_listed(source)} as listed)"
        for source in run.sources
        if source.status == "repair"
        and not _shows_repaired(run, source)
        and score_without(source) != _as_listed(source)
    ]
    at = "" if run.budget == 1.0 else " at B = 1"
    return f"Score{at} without defects: {', '.join(scores)}." if scores else ""


def gate(name: str) -> Cell:
    """Return a function that formats a source's mean of a gate, over the table's queries, or all without a profile."""

    def cell(run: Run, source: SourceReport) -> str:
        result = PROFILE.of(run)
        profile = next((item for item in result.sources if item.source == source.name), None) if result else None
        value = getattr(source.scored, f"{name}_mean") if profile is None else getattr(profile, name).value
        return fraction(value, 2)

    return cell


ANSWER_COLUMNS: dict[Column, Cell] = {
    foreign("source"): lambda _, source: plain(source.name),
    status("status"): status_and_problem,
    **{number(name): gate(name) for name in FACTORS},
    number("score ± CI"): own_score,
    text("tie"): lambda _, source: source.scored.tie or "–",
    number("hardness"): lambda run, source: fraction(source.in_table(run.budget).hardness_value, 2),
    number("outscoring"): lambda run, source: percent(source.in_table(run.budget).inversion_fraction),
    number("defects"): lambda _, source: percent(source.flagged_share),
    number("queries"): queries,
}
SHORT_COLUMNS: dict[Column, Cell] = {
    foreign("source"): ANSWER_COLUMNS[foreign("source")],
    status("status"): ANSWER_COLUMNS[status("status")],
    **{number(SHORT_HEADS[name]): gate(name) for name in FACTORS},
    text("score ± CI tie"): lambda run, source: f"{own_score(run, source)} {source.scored.tie or '–'}",
    number("hard."): ANSWER_COLUMNS[number("hardness")],
    number("defects"): ANSWER_COLUMNS[number("defects")],
}


# The verdict on a run in a few plain sentences, made from the numbers by rule; the first is the headline.

HARDNESS_SCALE = "0 means as close to the query as random passages, 1 as close as the positives."


def verdict(run: Run) -> tuple[str, ...]:
    """Return the answer in one sentence and the most important caution. Needs at least one source."""
    return (answer(run), cautions(run)[0])


def answer(run: Run) -> str:
    """Return sentences on which sources to repair or not to use, and which of the others have the highest score."""
    sound = [source.name for source in run.sources if source.status == "no_defects"]
    every = [[name for name in group if name in sound] for group in groups(run)]
    if len(every) > 1:
        highest = [line for names in every for line in _highest(run, names, f"Of {sources_listed(names)}, ")]
    else:
        names = [name for group in every for name in group]
        of = "Of the others, " if len(sound) < len(run.sources) else ""
        highest = _highest(run, names, of if len(names) == len(sound) else "Of those ranked without defects, ")
    return " ".join((f"{statuses(run.sources, _one_label(run))}.", *highest))


def _highest(run: Run, names: Sequence[str], of: str) -> list[str]:
    """Return sentences on the sources that no other significantly outscores; [] without a comparison.

    of : start of the first sentence, or "".
    """
    pairs = [pair for pair in run.comparisons if {pair.first, pair.second} <= set(names)]
    compared = {frozenset((pair.first, pair.second)) for pair in pairs}
    lower = {pair.second for pair in pairs if pair.established}
    top = [name for name in names if name not in lower]
    if not pairs:
        return []
    if any(frozenset(pair) not in compared for pair in combinations(top, 2)):
        apart = f"{of}no score is significantly above those of {sources_listed(top)}, which are not all compared."
        return [capital(apart)]
    if len(top) == 1:
        return [f"{of}{named(top[0])} has the highest score."]
    first = (
        f"{of}{sources_listed(top)} tie for the highest score." if lower else f"{of}no two scores differ significantly."
    )
    return [capital(first), *_hardest(run, top)]


def _hardest(run: Run, names: Sequence[str]) -> list[str]:
    """Return a sentence on the hardest of some sources, if its interval is above those of all others; else []."""
    known = {source.name: source.in_table(run.budget).hardness for source in run.sources if source.name in names}
    bounds = [(item.interval_95, name) for name, item in known.items() if item is not None and item.interval_95]
    if len(bounds) < max(2, len(names)):
        return []
    *others, ((low, _), name) = sorted(bounds)
    if any(high >= low for (_, high), _ in others):
        return []
    return [f"The hardest is {named(name)}." if len(others) > 1 else f"The harder one is {named(name)}."]


def groups(run: Run) -> list[list[str]]:
    """Return the ranked sources in groups that are compared with each other, directly or through others.

    Sources without enough shared queries are not compared. If no pair is, all sources form one group.
    """
    names = [source.name for source in run.sources if source.scored.rank is not None]
    group_sets = [{name} for name in names]
    for pair in run.comparisons:
        joined = [group for group in group_sets if group & {pair.first, pair.second}]
        group_sets = [group for group in group_sets if group not in joined] + [set[str]().union(*joined)]
    ordered = [[name for name in names if name in group] for group in group_sets]
    ordered.sort(key=lambda group: names.index(group[0]) if group else len(names))
    return [group for group in ordered if group] if names and run.comparisons else [names]


def cautions(run: Run) -> list[str]:
    """Return the cautions about the answer, the most important first. The last one applies to every run."""
    hard = [
        source.name for source in run.sources if source.in_table(run.budget).inversion_fraction > MIN_MAJORITY_SHARE
    ]
    findings = {source.name: source.finding("weak_positive") for source in run.sources}
    weak = [name for name, item in findings.items() if item and FINDINGS["weak_positive"].exceeded_by(item.share)]
    outscored = f"In {sources_listed(hard)}, most negatives outscore the positive." if hard else ""
    which = "every source" if len(weak) == len(run.sources) else sources_listed(weak)
    facts = [outscored]
    if _one_label(run):  # without a guide, also how to check more
        facts += [ONE_LABEL] if GUIDE.of(run) is not None else [ONE_LABEL, _labels(run)]
    every = (
        *warning_sentences(run),
        _truncated(run),
        " ".join(filter(None, facts)),
        f"In {which}, many positives look no better than random passages." if weak else "",
        doubts(run.sources),
        _unevaluated(run),
        SCORE_CAUTION,
    )
    return list(filter(None, every))


def notes(run: Run) -> tuple[str, ...]:
    """Return the other cautions, and sentences on the rows and queries that the table's numbers cover."""
    every = (
        *cautions(run)[1:],
        "" if _one_label(run) and GUIDE.of(run) is None else _labels(run),
        against_random(run),
        _shared(run),
        _budget(run),
        _hardness(run),
    )
    return tuple(filter(None, every))


def _truncated(run: Run) -> str:
    """Return a sentence on the sources whose negatives the encoder mostly cuts; "" if there are none."""
    shares = {source.name: finding.share for source in run.sources if (finding := source.finding("truncated"))}
    cut = [f"{percent(share)} of {named(name)}" for name, share in shares.items() if share > MIN_MAJORITY_SHARE]
    return (
        f"Most negatives are longer than the encoder reads, so it sees only their start: {listed(cut)}." if cut else ""
    )


def _one_label(run: Run) -> bool:
    """Return True if no query has a second labelled positive, and no guide is evidence on any source."""
    guide = GUIDE.of(run)
    return run.one_positive and not (guide and any(source.is_evidence for source in guide.sources))


def _unevaluated(run: Run) -> str:
    """Return a sentence on counted defects that are not ruled out, because they were not evaluated in every source."""
    names = [name for name in DEFECTS if any(source.finding(name) is None for source in run.sources)]
    if not names:
        return ""
    return f"Not evaluated everywhere, so not ruled out: {listed(names, len(names))}."


def _labels(run: Run) -> str:
    """Return sentences on how false negatives were searched for: only by labels, or also by a guide."""
    if (guide := GUIDE.of(run)) is not None:
        return " ".join(suspects_sentences(guide))
    known = "" if _one_label(run) else f"{NOT_RULED_OUT} "
    return f"{known}{GUIDE_OFFER if has_collection(run) else CHECK_OFFER}"


def _sampled(run: Run) -> str:
    rows = max((source.rows for source in run.sources), key=lambda rows: rows.n_not_sampled)
    every = rows.n_records + rows.n_not_sampled
    if not rows.n_not_sampled:
        return ""
    return f"Sample: up to {count(rows.n_records)} of {count(every)} records per source; text findings cover all rows."


def _shared(run: Run) -> str:
    """Return a sentence on the queries that the table uses, if sources have different queries."""
    shared = next((source.scored.on_shared for source in run.sources if source.scored.on_shared), None)
    if shared is None:
        return ""
    queries = plural(shared.n_queries, "query", "queries")
    return (
        f"Scores, hardness and outscoring cover the {queries} that all sources share. Defects and findings cover all "
        "queries of a source."
    )


def against_random(run: Run) -> str:
    """Return a sentence on where random passages score among the sources."""
    random = outcome(run, "random")
    missing = f" Not compared with random passages: {sources_listed(random.missing)}." if random.missing else ""
    if random.above:
        return f"Random passages score higher than {sources_listed(random.above)}: they are safe and easy.{missing}"
    return (
        f"No source scores significantly above random passages.{missing}"
        if random.compares and not random.below
        else ""
    )


def _budget(run: Run) -> str:
    if run.budget == 1.0:
        return ""
    numbers = equal_numbers_text(run) if run.budget > 1.0 else ""
    return f"Scores are ECI at B = {budget(run.budget)}{f', on {numbers}' if numbers else ''}."


def _hardness(run: Run) -> str:
    shown = {source.name: source.in_table(run.budget).hardness_value for source in run.sources}
    known = sorted((hardness, name) for name, hardness in shown.items() if hardness is not None)
    unknown = [name for name, hardness in shown.items() if hardness is None]
    missing = f"Hardness was not evaluated: {sources_listed(unknown)}." if unknown and known else ""
    if not known or on_own_queries(run) or fraction(known[0][0], 2) == fraction(known[-1][0], 2):
        return missing
    least, most = (f"{fraction(value, 2)} ({named(name)})" for value, name in (known[0], known[-1]))
    return f"Hardness runs from {least} to {most}: {HARDNESS_SCALE} {missing}".rstrip()
