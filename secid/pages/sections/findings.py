"""What is wrong with each source: findings, their shares and examples."""

from __future__ import annotations

import re
from itertools import combinations

from secid.pages.charts.shares import finding_bars
from secid.pages.findings import limits, notices, share_interval
from secid.pages.glossary import in_plain_words, rule_of, terms
from secid.pages.numbers import count, listed, nats, percent
from secid.pages.page import Cases, Chart, Part, Section, Table, described, number, text
from secid.pages.sanitize import named, plain, short
from secid.pages.verdict import warnings
from secid.results import Run, SourceResult
from secid.results.catalogue import FINDINGS

MOST_NAMES = len(FINDINGS)


def findings_section(run: Run) -> Section:
    """What stands out with remedies, all findings with their shares, and examples."""
    named_sources = {name for item in notices(run) for name in (item.source, *item.others)}
    clear = [
        source.name for source in run.sources if source.name not in named_sources and not _warned(run, source.name)
    ]
    bullets = warnings(run)
    if clear:
        own = "its own" if len(clear) == 1 else "their own"
        bullets.append(f"{listed([named(name) for name in clear], 8)}: no finding of {own} above the limits.")
    bullets += _absences(run)
    return Section(
        anchor="findings",
        link="Findings",
        title="What is wrong with each source, and what to do",
        paragraphs=(limits(),),
        bullets=tuple(bullets),
        parts=_parts(run),
        terms=terms(
            *("share", "95 % CI of the share", "share of weight", "part of the score"),
            *("negatives with both", "cosine", "IDF of a word"),
        )
        if any(source.findings for source in run.sources)
        else (),
        cases=tuple(
            Cases(
                source=short(source.name),
                finding=in_plain_words(finding.name),
                n_negatives=finding.n_negatives,
                describes=finding.name not in FINDINGS or FINDINGS[finding.name].limit is None,
                examples=finding.examples,
            )
            for source in run.sources
            for finding in source.findings
            if finding.examples
        ),
    )


def _warned(run: Run, name: str) -> bool:
    """Whether a warning on the run names the source, as a word of its own."""
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for text in run.warnings)


def _parts(run: Run) -> tuple[Part, ...]:
    """The shares of all sources as a chart, a table a source, the rules, and which findings coincide."""
    names = list(dict.fromkeys(item.name for source in run.sources for item in source.findings))
    if not names:
        return ()
    present = [name for name in names if any(_has(source, name) for source in run.sources)]
    return (
        *([_shares(run, present)] if present else []),
        *(_of_source(source, present) for source in run.sources if _has_any(source)),
        _rules(run, names),
        *_overlaps(run, present),
    )


def _has(source: SourceResult, name: str) -> bool:
    finding = source.finding(name)
    return finding is not None and finding.n_negatives > 0


def _has_any(source: SourceResult) -> bool:
    return any(item.n_negatives for item in source.findings)


def _shares(run: Run, names: list[str]) -> Part:
    """Bars, and the numbers behind them."""
    shares = {source.name: {item.name: item.share for item in source.findings} for source in run.sources}
    title = "Share of negatives by finding and source"
    table = Table(
        caption="Share of each source's negatives by finding",
        columns=(text("finding"), *(number(short(name)) for name in shares)),
        rows=tuple((in_plain_words(name), *(percent(own.get(name)) for own in shares.values())) for name in names),
        folded=True,
        drawn=True,
    )
    description = described(
        (source, ", ".join(f"{in_plain_words(name)} {percent(own.get(name))}" for name in names))
        for source, own in shares.items()
    )
    chart = Chart(title=title, description=description, draw=lambda: finding_bars(names, shares, title, description))
    return Part(table=table, chart=chart)


COLUMNS = ("negatives", "share", "95 % CI of the share", "share of weight", "part of the score (nats)")


def _of_source(source: SourceResult, present: list[str]) -> Part:
    """Findings that the source has; below them those that only others have. present: those that any source has."""
    rows = tuple(
        (
            in_plain_words(item.name),
            count(item.n_negatives),
            percent(item.share),
            share_interval(item),
            percent(item.weight_fraction),
            nats(item.score_nats),
        )
        for item in source.findings
        if item.n_negatives
    )
    absent = [name for name in present if source.finding(name) is not None and not _has(source, name)]
    unknown = [name for name in present if source.finding(name) is None]
    columns = (text("finding"), *map(number, COLUMNS))
    return Part(
        table=Table(caption=f"Findings of {named(source.name)}", columns=columns, rows=rows),
        note=" ".join([*_names("Looked for and not found", absent), *_names("Not looked for", unknown)]),
    )


def _absences(run: Run) -> list[str]:
    """What no source has, apart from what was not looked for."""
    every = [item for source in run.sources for item in source.findings]
    looked_for, present = {item.name for item in every}, {item.name for item in every if item.n_negatives}
    clean = [named(item.name) for item in run.sources if item.findings and not _has_any(item)]
    return [
        *_names("Looked for and found in no source", [name for name in FINDINGS if name in looked_for - present]),
        *_names("Looked for in no source", [name for name in FINDINGS if every and name not in looked_for]),
        *([f"None of the findings that were looked for: {listed(clean, MOST_NAMES)}."] if clean and present else []),
    ]


def _names(words: str, names: list[str]) -> list[str]:
    return [f"{words}: {listed([in_plain_words(name) for name in names], MOST_NAMES)}."] if names else []


def _rules(run: Run, names: list[str]) -> Part:
    """What each finding is, and from which share it stands out."""
    rows = tuple(
        (in_plain_words(name), plain(rule_of(name, run)), percent(FINDINGS[name].limit) if name in FINDINGS else "–")
        for name in names
    )
    columns = (text("finding"), text("rule"), text("limit"))
    return Part(table=Table(caption="What each finding is", columns=columns, rows=rows, folded=True))


def _overlaps(run: Run, names: list[str]) -> tuple[Part, ...]:
    """Negatives that have two findings at once; pairs that no source has are left out."""
    rows = []
    for first, second in combinations(names, 2):
        shared = [source.finding_overlaps.get(first, {}).get(second, 0) for source in run.sources]
        if any(shared):
            rows.append((f"{in_plain_words(first)} and {in_plain_words(second)}", *map(count, shared)))
    columns = (text("findings"), *(number(short(source.name)) for source in run.sources))
    table = Table(caption="Negatives with two findings at once", columns=columns, rows=tuple(rows), folded=True)
    return (Part(table=table),) if rows else ()
