"""What is wrong with each source: findings, buckets, examples."""

from __future__ import annotations

from secid.report.charts.shares import buckets
from secid.report.findings import findings
from secid.report.foreign import named, plain, short
from secid.report.numerals import listed, percent
from secid.report.page import Cases, Chart, Part, Section, Table, number, text
from secid.report.verdict import WARNING_LIMIT
from secid.report.words import bucket_name, terms
from secid.results import Run


def findings_section(run: Run) -> Section:
    """Findings with remedies, shares of all buckets, and examples."""
    found = findings(run)
    clear = [source.name for source in run.sources if source.name not in {item.source for item in found}]
    bullets = [f"{plain(text, WARNING_LIMIT).rstrip('.')}." for text in run.warnings]
    bullets += [f"{item.text}; {item.remedy}." for item in found]
    if clear:
        bullets.append(f"{listed([named(name) for name in clear], 8)}: no finding above the limits that are told.")
    return Section(
        anchor="findings",
        link="Findings",
        title="What is wrong with each source, and what to do",
        bullets=tuple(bullets),
        parts=_shares(run),
        terms=terms("share") if any(source.buckets for source in run.sources) else (),
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


def _shares(run: Run) -> tuple[Part, ...]:
    rules = {bucket.name: bucket.rule for source in run.sources for bucket in source.buckets}
    if not rules:
        return ()
    shares = {source.name: {bucket.name: bucket.fraction for bucket in source.buckets} for source in run.sources}
    used = [name for name in rules if any(by_bucket.get(name, 0.0) > 0 for by_bucket in shares.values())]
    table = Table(
        caption="Share of each source's negatives by bucket",
        columns=(text("bucket"), text("rule"), *(number(short(name)) for name in shares)),
        rows=tuple(
            (bucket_name(name), plain(rule), *(percent(by_bucket.get(name)) for by_bucket in shares.values()))
            for name, rule in rules.items()
        ),
    )
    empty = [bucket_name(name) for name in rules if name not in used]
    note = f"Empty for all sources, so not drawn: {listed(empty, 12)}." if empty else ""
    title = "Share of negatives by bucket and source"
    description = "; ".join(
        f"{bucket_name(name)}: "
        + ", ".join(f"{short(source, 30)} {percent(shares[source].get(name))}" for source in list(shares)[:20])
        for name in used
    )
    chart = Chart(title=title, description=description, draw=lambda: buckets(used, shares, title, description))
    return (Part(table=table, chart=chart if used else None, note=note), *_weights(run, rules))


def _weights(run: Run, rules: dict[str, str]) -> tuple[Part, ...]:
    """Where the score comes from."""
    by_source = {
        source.name: {bucket.name: bucket.weight_fraction for bucket in source.buckets} for source in run.sources
    }
    return (
        Part(
            table=Table(
                caption="Share of each source's weight by bucket (0 to 100 %): what of the score rests on it",
                columns=(text("bucket"), *(number(short(name)) for name in by_source)),
                rows=tuple(
                    (bucket_name(name), *(percent(by_bucket.get(name)) for by_bucket in by_source.values()))
                    for name in rules
                ),
                folded=True,
            )
        ),
    )
