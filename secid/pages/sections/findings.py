"""What is wrong with each source: findings, buckets, examples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import combinations

from secid.pages.charts.shares import buckets
from secid.pages.findings import findings, limits
from secid.pages.glossary import bucket_name, terms
from secid.pages.numbers import count, listed, nats, percent
from secid.pages.page import Cases, Chart, Part, Section, Table, described, number, text
from secid.pages.sanitize import named, plain, short
from secid.pages.verdict import warnings
from secid.results import Bucket, Run


def findings_section(run: Run) -> Section:
    """Findings with remedies, shares of all buckets, and examples."""
    found = findings(run)
    told = {name for item in found for name in (item.source, *item.others)}
    clear = [source.name for source in run.sources if source.name not in told and not _warned(run, source.name)]
    bullets = warnings(run)
    if clear:
        own = "its own" if len(clear) == 1 else "their own"
        bullets.append(f"{listed([named(name) for name in clear], 8)}: no finding of {own} above the limits.")
    return Section(
        anchor="findings",
        link="Findings",
        title="What is wrong with each source, and what to do",
        paragraphs=(f"{limits()[0].upper()}{limits()[1:]}.",),
        bullets=tuple(bullets),
        parts=_shares(run),
        terms=terms(
            "share", "share of weight", "part of the score", "negatives in two buckets", "cosine", "IDF of a word"
        )
        if any(source.buckets for source in run.sources)
        else (),
        cases=tuple(
            Cases(
                source=short(source.name),
                bucket=bucket_name(bucket.name),
                rule=plain(bucket.rule),
                n_triplets=bucket.n_triplets,
                examples=bucket.examples,
            )
            for source in run.sources
            for bucket in source.buckets
            if bucket.examples
        ),
    )


def _warned(run: Run, name: str) -> bool:
    """Whether a warning on the run names the source, as a word of its own."""
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for text in run.warnings)


def _shares(run: Run) -> tuple[Part, ...]:
    rules = {bucket.name: bucket.rule for source in run.sources for bucket in source.buckets}
    if not rules:
        return ()
    shares = {source.name: {bucket.name: bucket.fraction for bucket in source.buckets} for source in run.sources}
    used = [name for name in rules if any(by_bucket.get(name, 0.0) > 0 for by_bucket in shares.values())]
    table = Table(
        caption="Share of each source's negatives by bucket",
        columns=(text("bucket"), *(number(short(name)) for name in shares)),
        rows=tuple(
            (bucket_name(name), *(percent(by_bucket.get(name)) for by_bucket in shares.values())) for name in rules
        ),
    )
    meanings = Table(
        caption="What each bucket holds",
        columns=(text("bucket"), text("rule")),
        rows=tuple((bucket_name(name), plain(rule)) for name, rule in rules.items()),
    )
    empty = [bucket_name(name) for name in rules if name not in used]
    note = f"Empty for all sources, so not drawn: {listed(empty, 12)}." if empty else ""
    title = "Share of negatives by bucket and source"
    description = described(
        (source, ", ".join(f"{bucket_name(name)} {percent(by_bucket.get(name))}" for name in used))
        for source, by_bucket in shares.items()
    )
    chart = Chart(title=title, description=description, draw=lambda: buckets(used, shares, title, description))
    return (
        Part(table=table, chart=chart if used else None, note=note),
        Part(table=meanings),
        _by_bucket(run, rules, "Share of each source's weight by bucket", lambda item: percent(item.weight_fraction)),
        _by_bucket(run, rules, "Part of each source's score by bucket, in nats", lambda item: nats(item.score_nats)),
        *_overlaps(run, rules),
    )


def _by_bucket(run: Run, names: Iterable[str], caption: str, told: Callable[[Bucket], str]) -> Part:
    """One number of every bucket and source."""
    found = {(source.name, bucket.name): told(bucket) for source in run.sources for bucket in source.buckets}
    rows = tuple(
        (bucket_name(name), *(found.get((source.name, name), "–") for source in run.sources)) for name in names
    )
    columns = (text("bucket"), *(number(short(source.name)) for source in run.sources))
    return Part(table=Table(caption=caption, columns=columns, rows=rows, folded=True))


def _overlaps(run: Run, names: Iterable[str]) -> tuple[Part, ...]:
    """Negatives in two buckets at once; pairs of buckets that share none anywhere are left out."""
    rows = []
    for first, second in combinations(names, 2):
        shared = [source.bucket_overlaps.get(first, {}).get(second, 0) for source in run.sources]
        if any(shared):
            rows.append((f"{bucket_name(first)} and {bucket_name(second)}", *map(count, shared)))
    columns = (text("buckets"), *(number(short(source.name)) for source in run.sources))
    table = Table(caption="Negatives in two buckets at once", columns=columns, rows=tuple(rows), folded=True)
    return (Part(table=table),) if rows else ()
