"""Collect the examples of all findings of a run, each row once, for a table that the reader can browse."""

from __future__ import annotations

from math import isfinite

from secid.pages.page import ExampleRow, showing_equal_positive
from secid.pages.text import code, plain, plural
from secid.results import Run, TripletExample


def example_rows(run: Run) -> tuple[ExampleRow, ...]:
    """Return every example of the run once: the first example of all findings, then the second, and so on."""
    findings_of: dict[tuple[str, str, int, str, str], list[tuple[str, TripletExample]]] = {}
    parts = [(source.name, finding) for source in run.sources for finding in source.findings]
    for place in range(max((len(finding.examples) for _, finding in parts), default=0)):
        for name, finding in parts:
            for example in finding.examples[place : place + 1]:
                key = (name, example.path, example.line, example.positive, example.negative)
                findings_of.setdefault(key, []).append((finding.name, example))
    rows = []
    for (name, *_), listed_as in findings_of.items():
        example = max((one for _, one in listed_as), key=lambda one: (_margin(one) is not None, one.match is not None))
        shown = showing_equal_positive(example)
        names = dict.fromkeys(map(plain, (*(name for name, _ in listed_as), *example.findings)))
        rows.append(
            ExampleRow(
                source=plain(name),
                findings=tuple(names),
                example=shown,
                margin=_margin(shown),
            )
        )
    return tuple(rows)


def _margin(example: TripletExample) -> float | None:
    positive, negative = example.s_query_positive, example.s_query_negative
    if positive is None or negative is None or not isfinite(positive - negative):
        return None
    return positive - negative


def rows_note(run: Run) -> str:
    """Return a note that the rows are examples, and how to keep more of them."""
    n = run.settings["examples"]["value"] if "examples" in run.settings else None
    more = f"{code('--set examples=N')} keeps more."
    if isinstance(n, int):
        return f"The run keeps at most {plural(n, 'example')} of each finding in a source; {more}"
    return f"The run keeps some examples of each finding in a source; {more}"
