"""Show all findings in numbers, their rules, and how often two occur together."""

from __future__ import annotations

from itertools import combinations

from secid.pages.findings import form_table, present_names, share_interval
from secid.pages.glossary import rule_of, terms
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.text import code, count, listed, nats, percent, plain
from secid.results import Run
from secid.results.catalogue import FINDINGS


def findings_section(run: Run) -> Section | None:
    """Show all findings in numbers. None if no finding was evaluated."""
    evaluated = list(dict.fromkeys(item.name for source in run.sources for item in source.findings))
    if not evaluated:
        return None
    present = present_names(run.sources)
    absent = [plain(name) for name in evaluated if name not in present]
    return Section(
        anchor="numbers",
        title="Failure buckets in numbers",
        paragraphs=(f"Evaluated and not found in any source: {listed(absent, len(FINDINGS))}.",) if absent else (),
        tables=(_numbers(run), form_table(run.sources), _rules(run, evaluated), _overlaps(run, present)),
        terms=terms("share", "95 % CI", "share of weight", "part of the score"),
    )


def _numbers(run: Run) -> Table:
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
    columns = (foreign("source"), text("failure bucket"), *map(number, heads))
    return Table(caption="Failure buckets by source", columns=columns, rows=rows)


def _rules(run: Run, names: list[str]) -> Table:
    rows = tuple(
        (
            plain(name),
            plain(rule_of(name, run)),
            percent(FINDINGS[name].limit) if name in FINDINGS else "–",
            code(f"secid explain {name}") if name in FINDINGS else "–",
        )
        for name in names
    )
    columns = (text("failure bucket"), text("rule"), number("listed above"), text("more"))
    return Table(caption="Rules of the failure buckets", columns=columns, rows=rows)


def _overlaps(run: Run, names: list[str]) -> Table:
    """Return a table with the number of negatives that have both of two findings. Pairs without any are left out."""
    rows = []
    for first, second in combinations(names, 2):
        shared = [source.finding_overlaps.get(first, {}).get(second, 0) for source in run.sources]
        if any(shared):
            rows.append((f"{plain(first)} and {plain(second)}", *map(count, shared)))
    columns = (text("failure buckets"), *(number(plain(source.name), is_name=True) for source in run.sources))
    return Table(caption="Negatives in two failure buckets at once", columns=columns, rows=tuple(rows))
