"""Several runs compared, as a page: scores, statuses and findings of each run, and how they differ from the first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from secid.pages.comparison import HARMLESS, SAME_ENCODER, Change, RunComparison, SourceAcross
from secid.pages.findings import STATUS
from secid.pages.formats import formats
from secid.pages.glossary import CAUTION, terms
from secid.pages.numbers import fraction, listed, nats, percent, plural, points, score
from secid.pages.page import Column, Page, Section, Table, foreign, number, status, text
from secid.pages.sanitize import named, plain, short
from secid.results.catalogue import FINDINGS
from secid.results.document import json_of

NAME_CHARACTERS = 30
"""Of a run in the head of a column."""
DIGEST = re.compile(r"\b[0-9a-f]{32,}\b")
SHOWN_DIGITS = 6
"""Of a hash: report.json has the whole."""
NOTICED_CHANGE = 0.01
"""Difference of two shares from which a finding below its limit is shown."""


def page_of_comparison(runs: RunComparison) -> Page:
    """The comparison as a page."""
    return Page(
        title="Runs compared",
        subtitle=f"{plural(len(runs.runs), 'run')}: {listed([named(label) for label in runs.runs], 8)}",
        verdict=tuple(filter(None, (_headline(runs), _order(runs), _changed(runs), _comparable(runs), CAUTION))),
        answer=_scores(runs),
        heat=_findings(runs),
        details=(_differences(runs),),
        footer="Made by secid.",
    )


def _headline(runs: RunComparison) -> str:
    """What changed that matters: statuses of sources, and an order that is significant in both runs."""
    swapped = _swapped(runs, established=True)
    changes = [*_status_changes(runs), *([f"{swapped} change places significantly"] if swapped else [])]
    if changes:
        return f"{listed(changes)}."
    shared = [item for item in runs.sources if None not in item.ranks]
    if len(shared) < 2:
        return "The runs share fewer than two sources, so there is no order to compare."
    order = "no change of order is significant" if runs.reversals else "the order is the same"
    return f"Every shared source keeps its status, and {order}."


def _status_changes(runs: RunComparison) -> list[str]:
    """A clause for each source and run with another status than in the first, and the defect that changed most."""
    clauses = []
    for item in runs.sources:
        before = item.statuses[0]
        for place, after in enumerate(item.statuses):
            if before is None or after is None or after == before:
                continue
            shares = {name: (values[0] or 0.0, values[place] or 0.0) for name, values in item.findings.items()}
            defects = [(abs(new - old), name) for name, (old, new) in shares.items() if FINDINGS[name].counted]
            clause = f"{named(item.name)} changes from “{STATUS[before]}” to “{STATUS[after]}”"
            if len(runs.runs) > 2:
                clause += f" in {named(runs.runs[place])}"
            if defects:
                name = max(defects)[1]
                clause += f" ({plain(name)} {' → '.join(map(percent, shares[name]))})"
            clauses.append(clause)
    return clauses


def _swapped(runs: RunComparison, established: bool) -> str:
    """The pairs of sources in another order than in the first run; established: in both runs."""
    sure = {(item.first, item.second) for item in runs.reversals if item.established}
    pairs = [pair for item in runs.reversals if ((pair := (item.first, item.second)) in sure) == established]
    joint = " with " if len(set(pairs)) > 1 else " and "
    return listed([joint.join(map(named, pair)) for pair in dict.fromkeys(pairs)])


def _order(runs: RunComparison) -> str:
    """Changes of order that are not significant; the headline has the others."""
    swapped = _swapped(runs, established=False)
    return f"{swapped} change places, but not significantly in both runs." if swapped else ""


def _changed(runs: RunComparison) -> str:
    kinds: dict[str, list[str]] = {}
    for change in runs.changes:
        kinds.setdefault(change.what, []).append(change.name)
    settings = kinds.get("setting", [])
    fields = kinds.get("encoder", [])
    encoder = f"the encoder's {listed(fields)}" if SAME_ENCODER.issuperset(fields) else "the encoder"
    lists = {
        "settings ({})": [plain(name) for name in settings if name not in HARMLESS],
        "settings that change no score ({})": [plain(name) for name in settings if name in HARMLESS],
        encoder: fields,
        "the IDF table": kinds.get("idf", []),
        "the version of secid": kinds.get("secid", []),
        "how many negatives sources are compared on": kinds.get("numbers", []),
        "the files of {}": [named(item.name) for item in runs.sources if item.same_files is False],
        "which sources took part ({})": [named(item.name) for item in runs.sources if None in item.ranks],
    }
    parts = [words.format(listed(names)) for words, names in lists.items() if names]
    unknown = [named(item.name) for item in runs.sources if item.same_files is None and None not in item.ranks]
    rest = f"; whether the files of {listed(unknown)} are the same is unknown" if unknown else ""
    if parts:
        return f"The runs differ in {listed(parts, len(parts))}{rest}."
    return f"The runs have the same settings{' and encoder' if unknown else ', encoder and files'}{rest}."


def _comparable(runs: RunComparison) -> str:
    if not runs.unlike:
        return "Scores mean the same in all runs; read their differences with the intervals."
    of_encoder = {change.name for change in runs.changes if change.what == "encoder"}
    names = list(dict.fromkeys("encoder" if name in of_encoder else plain(name) for name in runs.unlike))
    differ = "differs" if len(names) == 1 else "differ"
    return f"Scores do not mean the same in all runs ({listed(names)} {differ}): compare ranks."


def _heads(runs: RunComparison, make: Callable[[str], Column] = number) -> list[Column]:
    """A column a run."""
    return [make(short(label, NAME_CHARACTERS)) for label in runs.runs]


def _difference(values: Sequence[float | None], write: Callable[[float], str]) -> str:
    """The second value minus the first."""
    first, second = values[0], values[1]
    return "–" if first is None or second is None else write(second - first)


def _scores(runs: RunComparison) -> Table:
    two = len(runs.runs) == 2
    rows = []
    for item in runs.sources:
        cells = [_score(item, place, runs.budgets[place]) for place in range(len(runs.runs))]
        scores = [] if runs.unlike else [_difference(item.scores_nats, lambda value: nats(value, signed=True))]
        rows.append((short(item.name), _status(item), *cells, *(scores if two else ()), _hardness(item)))
    columns = (
        *_heads(runs, lambda label: Column(label, "wrapped")),
        *([number("difference")] * (two and not runs.unlike)),
    )
    return Table(
        caption="Rank, and score in nats ± 95 % CI, by run",
        columns=(foreign("source"), status("status"), *columns, text("hardness")),
        rows=tuple(rows),
    )


def _score(item: SourceAcross, place: int, budget: float) -> str:
    rank, value, ends = item.ranks[place], item.scores_nats[place], item.intervals_95[place]
    return "–" if rank is None or value is None or ends is None else f"{rank}. {score(value, ends, budget)}"


def _hardness(item: SourceAcross) -> str:
    return " → ".join(dict.fromkeys("–" if value is None else fraction(value, 2) for value in item.hardness))


def _status(item: SourceAcross) -> str:
    return " → ".join(dict.fromkeys("–" if value is None else STATUS[value] for value in item.statuses))


def _findings(runs: RunComparison) -> Table | None:
    """Shares of each source's findings by run."""
    two = len(runs.runs) == 2
    rows = tuple(
        (
            short(item.name),
            plain(name),
            *map(percent, shares),
            *([_difference(shares, points)] if two else ()),
        )
        for item in runs.sources
        if None not in item.ranks
        for name, shares in item.findings.items()
        if _is_shown(name, [share or 0.0 for share in shares])
    )
    columns = (foreign("source"), text("finding"), *_heads(runs), *([number("difference")] if two else ()))
    caption = "Share of the negatives, of findings above their limit in a run or 1 point apart" + (
        ", and the difference in points" if two else ""
    )
    return Table(caption=caption, columns=columns, rows=rows) if rows else None


def _is_shown(name: str, shares: Sequence[float]) -> bool:
    """Whether a finding with a limit is above it in a run, or changed by a point between runs."""
    limit = FINDINGS[name].limit if name in FINDINGS else None
    return limit is not None and (max(shares) > limit or max(shares) - min(shares) >= NOTICED_CHANGE)


def _differences(runs: RunComparison) -> Section:
    """Settings, encoder, IDF and numbers; which sources and files differ, the verdict and the answer table say."""
    rows = tuple((_what(change), plain(change.name), *map(_shown, change.values)) for change in runs.changes)
    columns = (text("what"), foreign("name"), *_heads(runs, foreign))
    table = Table(caption="Settings, encoder and numbers that are not the same in all runs", columns=columns, rows=rows)
    return Section(
        anchor="changes",
        title="What differs between the runs",
        link="Changes",
        tables=(table,) if rows else (),
        terms=terms(*dict.fromkeys("ECI_sem" if at == 1.0 else "ECI_B" for at in runs.budgets), "hardness"),
    )


def _what(change: Change) -> str:
    harmless = change.what == "setting" and change.name in HARMLESS
    return "setting (changes no score)" if harmless else "IDF" if change.what == "idf" else change.what


def _shown(value: str) -> str:
    return plain(DIGEST.sub(lambda match: f"{match.group()[:SHOWN_DIGITS]}…", value), 80)


COMPARISON_FORMATS = formats(page_of_comparison, json_of)
