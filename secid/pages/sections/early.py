"""How a run that stopped once its order was clear went."""

from __future__ import annotations

from collections.abc import Mapping

from secid.pages.glossary import terms
from secid.pages.numbers import count, listed, nats, percent, plural
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.sanitize import named, plain
from secid.results import EarlyStop, Run

SHOWN_PAIRS = 8


def early_sentences(run: Run, stop: EarlyStop) -> list[str]:
    """What the looks needed, what is decided of these files, and what would decide more."""
    pairs = [f"{named(first)} and {named(second)}" for first, second in stop.undecided]
    tie = "" if stop.tie_nats is None else f" Differences below {nats(stop.tie_nats)} nats count as ties."
    counted = _limit(run) is not None and run.idf.corpus != "uniform"
    files = f"these files, with the document frequencies of {_max_records(run)}" if counted else "these files"
    needed = (
        f"Scoring stopped after {count(stop.n_texts_encoded)} of {count(stop.n_texts)} distinct texts, cached ones "
        f"included. With {percent(stop.confidence)} confidence every decided order is that of all queries of "
        f"{files}.{tie}"
    )
    return [
        needed,
        f"Undecided: {listed(pairs, SHOWN_PAIRS)}.{_more_queries(run, stop)}" if pairs else "Every pair is decided.",
        f"An order decided for these files may still be a tie for the process that made them.{_whole(run, stop)}",
    ]


def _more_queries(run: Run, stop: EarlyStop) -> str:
    """What decides a pair that the looks left undecided."""
    concerned = {name for pair in stop.undecided for name in pair}
    if any(source.n_not_sampled for source in run.sources if source.name in concerned):
        return f" The looks ended at {_max_records(run)}: more queries may decide."
    return " All queries were scored: only other files could decide."


def _limit(run: Run) -> int | None:
    """The number of --max-records, where it left anything out or may have."""
    entry = run.settings.get("max_records")
    limit = entry.get("value") if isinstance(entry, Mapping) else None
    return limit if isinstance(limit, int) and any(source.n_not_sampled for source in run.sources) else None


def _max_records(run: Run) -> str:
    """The flag with its number; without, where there is none."""
    limit = _limit(run)
    return "--max-records" if limit is None else f"--max-records {count(limit)}"


def _whole(run: Run, stop: EarlyStop) -> str:
    """What narrows the intervals of tied pairs: the queries that were left out, by what."""
    n_tied = sum(not pair.established for pair in run.comparisons)
    if not n_tied or not any(source.n_not_sampled for source in run.sources):
        return ""
    all_looks = len(stop.looks) >= len(stop.planned_looks)
    how = f"raise {_max_records(run)}" if _limit(run) is not None and all_looks else "score without --until-ranked"
    return f" {plural(n_tied, 'pair')} tied in this way: to narrow the intervals, {how}."


def early_section(run: Run) -> Section | None:
    """Looks and decided pairs; None for a run that read everything at once."""
    stop = run.early_stop
    if stop is None:
        return None
    looks = tuple(
        (count(look.n_queries), count(look.n_texts_encoded), f"{look.alpha:.4f}", count(look.n_decided))
        for look in stop.looks
    )
    pairs = tuple(
        (
            f"{named(pair.first)}, {named(pair.second)}",
            plain(pair.outcome),
            count(pair.n_queries),
            nats(pair.difference_nats, signed=True),
        )
        for pair in stop.pairs
    )
    look_columns = tuple(map(number, ("queries", "texts needed", "error spent", "pairs decided")))
    pair_columns = (foreign("pair"), text("outcome"), number("queries"), number("difference (nats)"))
    return Section(
        anchor="early",
        link="Early stop",
        title="Stopped once the order was clear",
        paragraphs=tuple(early_sentences(run, stop)),
        tables=(
            Table(caption="Looks", columns=look_columns, rows=looks),
            Table(caption="Decided pairs", columns=pair_columns, rows=pairs),
        ),
        terms=(
            *terms("queries", "difference"),
            ("error spent", "chance of a wrong order that the looks may have used, from 0 to 1 − confidence."),
        ),
    )
