"""A check on the terminal: one screen, findings of all sources together. The page and the JSON have the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from rich.console import Console

from secid.pages.check_page import (
    TO_REPAIR,
    Problem,
    answer,
    caution_words,
    evaluation_words,
    left_out,
    numbers_to_drop,
    problems,
    verdict,
)
from secid.pages.findings import advice, match_words, repeated_rows, says
from secid.pages.numbers import capital, count, listed, percent, plural
from secid.pages.sanitize import named, plain
from secid.pages.terminal import SHOWN_FINDINGS, command, print_table, write
from secid.results import SourceFinding, TripletExample
from secid.results.catalogue import CAUTIONS, FINDINGS
from secid.results.check import Check, CheckedSource, SourceCaution

Item = TypeVar("Item")
SHOWN_SOURCES = 3
"""Sources that a finding names."""
MOST_ROWS = 10
"""Sources in the table; of more, only those with a finding above its limit."""
EXAMPLE_CHARACTERS = 60


def print_check(console: Console, check: Check) -> None:
    """Prints verdict, table, the most urgent findings, and the commands that repair the sources."""
    headline, *others = verdict(check)
    write(console, headline, "bold")
    write(console, " ".join(others))
    console.print()
    rows = check.sources if len(check.sources) <= MOST_ROWS else [one for one in check.sources if problems(one)]
    if rows:
        print_table(console, answer(rows[:MOST_ROWS]))
    write(console, _folded("Rows of the page alone", rows[MOST_ROWS:]))
    write(console, _folded("Nothing above its limit", [one for one in check.sources if one not in rows]))
    groups = _groups(check.sources)
    if groups:
        console.print()
        n_more = len(groups) - SHOWN_FINDINGS
        write(console, f"Findings ({count(n_more)} more in the page)" if n_more > 0 else "Findings", "bold")
    for group in groups[:SHOWN_FINDINGS]:
        _print_group(console, group)
    for line in left_out(check.sources):
        write(console, line, "yellow")
    console.print()
    if check.save:
        write(console, f"{TO_REPAIR}:")
        write(console, numbers_to_drop(check.sources), indent=2)
        repairs = [source.repair for source in check.sources if source.repair]
        for line in (check.save, *repairs[:SHOWN_FINDINGS]):
            command(console, line, indent=2)
        if len(repairs) > SHOWN_FINDINGS:
            write(console, f"The page has {plural(len(repairs) - SHOWN_FINDINGS, 'more such command')}.", indent=2)
    write(console, "For all examples, lengths and overlaps, add -o check.html.")


def _folded(what: str, sources: Sequence[CheckedSource]) -> str:
    """A line for sources without a row; "" for none."""
    names = _listed([named(source.name) for source in sources])
    n = sum(source.n_triplets for source in sources)
    return f"{what}: {plural(len(sources), 'source')} ({names}; {plural(n, 'negative')})." if sources else ""


def _groups(sources: Sequence[CheckedSource]) -> list[list[Problem]]:
    """The findings of all sources by name, the most urgent first, in each the source with the largest share first."""
    every = sorted((one for source in sources for one in problems(source)), key=lambda one: (one.item.name, one.place))
    groups = [list(group) for _, group in groupby(every, key=lambda one: one.item.name)]
    return sorted(groups, key=lambda group: group[0].place)


def _print_group(console: Console, group: Sequence[Problem]) -> None:
    """A finding with its sources, what to do, and one example; of a caution the details of the worst source."""
    worst = group[0]
    if isinstance(worst.item, SourceCaution):
        caution = CAUTIONS[worst.item.name]
        items = [*_items(group, SourceCaution)]
        if caution.of == "files":
            shares = [f"{plural(item.n, 'file')} of {named(name)}" for name, item in items]
        else:
            shares = [f"{percent(item.fraction)} of {named(name)}" for name, item in items]
            shares[0] = shares[0].replace(" of ", f" of the {caution.of} of ", 1)
        words = caution_words(worst.item)
        detail = f" ({named(worst.source.name)}: {words})" if words else ""
        what = f"{_listed(shares)} {caution.says}{detail}. {capital(caution.do)}."
        examples = [(item.path, item.line, evaluation_words(item)) for item in worst.item.examples[:1]]
    else:
        finding = FINDINGS[worst.item.name]
        shares = [
            f"{count(item.n_negatives)} of {named(name)} ({percent(item.share)}{_beside(item)})"
            for name, item in _items(group, SourceFinding)
        ]
        shares[0] = shares[0].replace(" of ", " negative of " if worst.item.n_negatives == 1 else " negatives of ", 1)
        predicate = says(worst.item) if len(group) == 1 else finding.says
        rows = sum(item.n_rows or 0 for _, item in _items(group, SourceFinding))
        also = f", and {repeated_rows(rows)}" if rows else ""
        what = f"{_listed(shares)} {predicate}{also}. {advice(worst.item)}"
        examples = [(item.path, item.line, _quoted(item)) for item in worst.item.examples[:1]]
    write(console, f"{worst.item.name}: {what}", mark="- ")
    for path, line, words in examples:
        write(console, f"{plain(path)}:{line}{words}", indent=2)


def _beside(item: SourceFinding) -> str:
    """The share of the positives that have a formal finding."""
    return f"; {percent(item.positives.share)} of its positives" if item.positives else ""


def _quoted(example: TripletExample) -> str:
    """The negative, and what it is near to."""
    text, match = plain(example.negative, EXAMPLE_CHARACTERS), match_words(example.match)
    return (f": “{text}”" if text else "") + (f" ({match})" if match else "")


def _listed(shares: Sequence[str]) -> str:
    return listed(shares, SHOWN_SOURCES)


def _items(group: Sequence[Problem], kind: type[Item]) -> Iterator[tuple[str, Item]]:
    """The items of this kind, each with the name of its source."""
    for one in group:
        if isinstance(one.item, kind):
            yield one.source.name, one.item
