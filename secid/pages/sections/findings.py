"""Findings of all sources in numbers, their rules, and which coincide."""

from __future__ import annotations

from itertools import combinations

from secid.pages.findings import form_table, present_names, share_interval
from secid.pages.glossary import rule_of, terms
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.text import code, count, listed, nats, percent, plain
from secid.results import Run
from secid.results.catalogue import FINDINGS


def findings_section(run: Run) -> Section | None:
    """All findings with their numbers; None for a run that looked for none."""
    evaluated = list(dict.fromkeys(item.name for source in run.sources for item in source.findings))
    if not evaluated:
        return None
    present = present_names(run.sources)
    absent = [plain(name) for name in evaluated if name not in present]
    return Section(
        anchor="numbers",
        link="Findings",
        title="Findings in numbers",
        paragraphs=(f"Evaluated, and in no source: {listed(absent, len(FINDINGS))}.",) if absent else (),
        tables=(*_numbers(run), *form_table(run.sources), _rules(run, evaluated), *_overlaps(run, present)),
        terms=terms("share", "95 % CI", "share of weight", "part of the score"),
    )


def _numbers(run: Run) -> tuple[Table, ...]:
    rows = tuple(
        (
            plain(source.name),
            plain(item.name),
            count(item.n_negatives),
            percent(item.share),
            share_interval(item),
            percent(item.weight_fraction),
            nats(item.score_nats),
        )
        for source in run.sources
        for item in source.findings
        if item.n_negatives
    )
    heads = ("negatives", "share", "95 % CI", "share of weight", "part of the score (nats)")
    columns = (foreign("source"), text("finding"), *map(number, heads))
    return (Table(caption="Findings by source", columns=columns, rows=rows),) if rows else ()


def _rules(run: Run, names: list[str]) -> Table:
    """What each finding is, and from which share it is listed."""
    rows = tuple(
        (
            plain(name),
            plain(rule_of(name, run)),
            percent(FINDINGS[name].limit) if name in FINDINGS else "–",
            code(f"secid explain {name}") if name in FINDINGS else "–",
        )
        for name in names
    )
    columns = (text("finding"), text("rule"), number("listed above"), text("more"))
    return Table(caption="Rules of the findings", columns=columns, rows=rows)


def _overlaps(run: Run, names: list[str]) -> tuple[Table, ...]:
    """Negatives with two findings at once; pairs that no source has are left out."""
    rows = []
    for first, second in combinations(names, 2):
        shared = [source.finding_overlaps.get(first, {}).get(second, 0) for source in run.sources]
        if any(shared):
            rows.append((f"{plain(first)} and {plain(second)}", *map(count, shared)))
    columns = (text("findings"), *(number(plain(source.name)) for source in run.sources))
    table = Table(caption="Negatives with two findings at once", columns=columns, rows=tuple(rows))
    return (table,) if rows else ()
