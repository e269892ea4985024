"""report.md: the run for a pull request or a step summary. Foreign text cannot act as markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from secid.report.foreign import markdown as safe
from secid.report.words import EXPLANATIONS, recipe_line, verdict
from secid.results import Run, SourceResult

MEASURES = (
    ("eci_nats", "ECI_sem (nats)"),
    ("trace", "tr M"),
    ("consistency_mean", "mean π"),
    ("locality_mean", "mean ρ"),
    ("coverage_mean", "mean c"),
    ("positive_coverage_mean", "mean c of positives"),
    ("inversion_fraction", "P(π < ½)"),
)


def to_markdown(run: Run) -> str:
    """The page as Markdown text."""
    parts = [
        "# Sources of hard negatives, ranked",
        safe(verdict(run)),
        table(["#", "source", *(title for _, title in MEASURES), "triplets"], [_row(s) for s in run.sources]),
        "\n".join(f"- **{title}**: {EXPLANATIONS[name]}" for name, title in MEASURES),
        "## What was read",
        table(
            ["source", "schema", "rows read", "used", "records", "queries", "triplets", "left out"],
            [_read_row(source) for source in run.sources],
        ),
        _examples(run),
        "## Encoder and settings",
        safe(recipe_line(run)),
        _settings(run),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells are Markdown already."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _row(source: SourceResult) -> list[str]:
    return [
        str(source.rank),
        safe(source.name, 80),
        *(f"{getattr(source, name):.4f}" for name, _ in MEASURES),
        str(source.n_triplets),
    ]


def _read_row(source: SourceResult) -> list[str]:
    left_out = [f"{count} {reason}" for reason, count in {**source.skipped, **source.dropped_negatives}.items()]
    counts = (source.n_read, source.n_used, source.n_records, source.n_queries, source.n_triplets)
    return [safe(source.name, 80), safe(source.schema), *map(str, counts), safe(", ".join(left_out)) or "nothing"]


def _examples(run: Run) -> str:
    rows = [
        [safe(source.name, 80), safe(item.reason), safe(f"{item.path}:{item.line}"), safe(item.detail, 160)]
        for source in run.sources
        for item in source.examples
    ]
    return table(["source", "reason", "where", "what"], rows) if rows else ""


def _settings(run: Run) -> str:
    rows = [
        [safe(name), safe(str(entry["value"])), safe(entry["from"])]
        for name, entry in run.settings.items()
        if entry["from"] != "default"
    ]
    changed = table(["setting", "value", "set by"], rows) if rows else "All settings are defaults."
    return f"{changed}\n\nIDF over {run.idf.n_texts} texts ({safe(run.idf.corpus)}), table {run.idf.sha256[:12]}."
