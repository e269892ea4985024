"""Several runs side by side as a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from secid.pages.comparison import HARMLESS, SAME_ENCODER, Change, RunComparison, SourceAcross, comparison_json
from secid.pages.glossary import CAUTION, terms
from secid.pages.names import SHORTEST, distinct, renamed
from secid.pages.numbers import fraction, interval, listed, nats, plural
from secid.pages.page import Page, Part, Section, Table, foreign, text, wrapped
from secid.pages.sanitize import named, plain, short


def page_of_comparison(found: RunComparison) -> Page:
    """The comparison as a page."""
    found = _told_apart(found)
    return Page(
        title="Runs compared",
        subtitle=f"{plural(len(found.runs), 'run')}: {listed([named(label) for label in found.runs], 8)}",
        verdict=(("Changed", _changed(found)), ("Order", _order(found)), ("Scores", _comparable(found))),
        caution=CAUTION,
        sections=(_ranks(found), _differences(found)),
        footer="Made by secid.",
    )


def _told_apart(found: RunComparison) -> RunComparison:
    """The comparison with numbers behind runs, and behind sources, that would read alike once shortened."""
    labels = distinct({label: place for place, label in enumerate(found.runs, 1)})
    names = distinct({item.name: place for place, item in enumerate(found.sources, 1)})
    reversals = (replace(item, run=labels.get(item.run, item.run)) for item in found.reversals)
    of_sources = ("source", "files")
    return replace(
        found,
        runs=tuple(labels.get(label, label) for label in found.runs),
        sources=renamed(found.sources, names),
        reversals=tuple(
            replace(item, first=names.get(item.first, item.first), second=names.get(item.second, item.second))
            for item in reversals
        ),
        changes=tuple(
            replace(item, name=names.get(item.name, item.name)) if item.what in of_sources else item
            for item in found.changes
        ),
    )


def _changed(found: RunComparison) -> str:
    kinds = {
        what: [change.name for change in found.changes if change.what == what]
        for what in ("setting", "encoder", "idf", "secid", "numbers")
    }
    scoring = [name for name in kinds["setting"] if name not in HARMLESS]
    harmless = [name for name in kinds["setting"] if name in HARMLESS]
    parts = [
        f"settings ({listed([_words(name) for name in scoring])})" if scoring else "",
        f"settings that change no source's score ({listed([_words(name) for name in harmless])})" if harmless else "",
        _encoder_told(kinds["encoder"]),
        "the IDF table" if kinds["idf"] else "",
        "the version of secid" if kinds["secid"] else "",
        "how many negatives sources are compared on" if kinds["numbers"] else "",
    ]
    files = [named(item.name) for item in found.sources if item.same_files is False]
    absent = [named(item.name) for item in found.sources if None in item.ranks]
    parts += [
        f"the files of {listed(files)}" if files else "",
        f"which sources took part ({listed(absent)})" if absent else "",
    ]
    told = [part for part in parts if part]
    unknown = [named(item.name) for item in found.sources if item.same_files is None and None not in item.ranks]
    open_files = f"whether the files of {listed(unknown)} are the same is not known" if unknown else ""
    if told:
        return f"The runs differ in {listed(told, 7)}{f'; {open_files}' if unknown else ''}."
    if unknown:
        return f"The runs have the same settings and encoder; {open_files}."
    return "The runs have the same settings, encoder and files."


def _encoder_told(fields: Sequence[str]) -> str:
    if fields and SAME_ENCODER.issuperset(fields):
        return f"the encoder's {listed(list(fields))}"
    return "the encoder" if fields else ""


def _order(found: RunComparison) -> str:
    if all(value is None for value in found.stability[1:]):
        return "The runs share fewer than two sources, so there is no order to compare."
    if not found.reversals:
        return "The sources that the runs share stand in the same order in all of them."
    swapped = list(dict.fromkeys((named(item.first), named(item.second)) for item in found.reversals))
    pairs = [(" and " if len(swapped) == 1 else " with ").join(pair) for pair in swapped]
    n_sure = len({frozenset((item.first, item.second)) for item in found.reversals if item.established})
    where = "in both runs" if len(found.runs) == 2 else f"both in {named(found.runs[0])} and in another run"
    sure = f"{n_sure or 'none'} of these orders {'are' if n_sure > 1 else 'is'} established {where}"
    return f"Against {named(found.runs[0])}, {listed(pairs)} change places; {sure}."


def _comparable(found: RunComparison) -> str:
    if found.unlike:
        of_encoder = {change.name for change in found.changes if change.what == "encoder"}
        told = dict.fromkeys("encoder" if name in of_encoder else plain(name) for name in found.unlike)
        verb = "differs" if len(told) == 1 else "differ"
        return f"Scores in nats do not mean the same in all runs ({listed(list(told))} {verb}): compare ranks."
    return "Scores mean the same in all runs; read their differences with the intervals."


def _ranks(found: RunComparison) -> Section:
    columns = (foreign("source"), text("files"), *(wrapped(short(label, SHORTEST)) for label in found.runs))
    rows = []
    for item in found.sources:
        cells = [short(item.name), _files_told(item, found.runs)]
        for rank, group, score, ends, at in zip(
            item.ranks, item.rank_groups, item.scores_nats, item.intervals_95, found.budgets, strict=True
        ):
            known = rank is not None and score is not None and ends is not None
            cells.append(f"{rank} ({group}) {nats(score)}\n({interval(ends, ' ', at)})" if known and ends else "–")
        rows.append(tuple(cells))
    stability = [
        f"{named(label)}: fewer than two sources in common with {named(found.runs[0])}, so no order to compare."
        if value is None
        else f"{named(label)}: stability {fraction(value)} against {named(found.runs[0])}."
        for label, value in zip(found.runs[1:], found.stability[1:], strict=True)
    ]
    return Section(
        anchor="ranks",
        title="Ranks and scores",
        link="Ranks",
        bullets=tuple(stability),
        parts=(
            Part(
                table=Table(
                    caption="Rank (rank group) and score in nats with 95 % interval by run",
                    columns=columns,
                    rows=tuple(rows),
                )
            ),
        ),
        terms=terms(*_score_terms(found.budgets), "95 % interval", "rank", "rank group", "stability"),
    )


def _score_terms(budgets: Sequence[float]) -> list[str]:
    """The names of the scores that runs of these budgets rank by."""
    return list(dict.fromkeys("ECI_sem" if at == 1.0 else "ECI_B" for at in budgets))


def _files_told(item: SourceAcross, runs: Sequence[str]) -> str:
    lacking = [named(label) for label, rank in zip(runs, item.ranks, strict=True) if rank is None]
    told = {True: "same", False: "changed", None: "" if lacking else "not from files"}[item.same_files]
    return ", ".join(filter(None, (told, f"not in {listed(lacking)}" if lacking else "")))


def _differences(found: RunComparison) -> Section:
    rows = tuple((_what(change), _named(change), *map(_shown, change.values)) for change in found.changes)
    columns = (text("what"), foreign("name"), *(foreign(short(label, SHORTEST)) for label in found.runs))
    table = Table(
        caption="Everything that is not the same in all runs",
        columns=columns,
        rows=rows or (("nothing",) + ("–",) * (len(columns) - 1),),
    )
    return Section(anchor="changes", title="What changed", link="Changes", parts=(Part(table=table),))


WHAT = {"idf": "IDF"}


def _what(change: Change) -> str:
    harmless = change.what == "setting" and change.name in HARMLESS
    return "setting (changes no source's score)" if harmless else WHAT.get(change.what, change.what)


def _named(change: Change) -> str:
    return short(change.name) if change.what in ("source", "files") else _words(change.name)


def _words(name: str) -> str:
    """A setting's or a field's name for a page."""
    return plain(name.replace("_", " "))


DIGEST = re.compile(r"\b[0-9a-f]{32,}\b")
SHOWN_DIGITS = 6
"""Of a hash: enough to tell two apart; report.json has the whole."""


def _shown(value: str) -> str:
    return plain(DIGEST.sub(lambda match: f"{match.group()[:SHOWN_DIGITS]}…", value), 80)


def _html(comparison: RunComparison) -> str:
    from secid.pages.html import render

    return render(page_of_comparison(comparison))


def _markdown(comparison: RunComparison) -> str:
    from secid.pages.markdown import render

    return render(page_of_comparison(comparison))


COMPARISON_FORMATS: Mapping[str, Callable[[RunComparison], str]] = {
    ".html": _html,
    ".json": comparison_json,
    ".md": _markdown,
}
