"""How a run that stopped once its order was clear went."""

from __future__ import annotations

from collections.abc import Mapping

from secid.pages.glossary import terms
from secid.pages.numbers import SPACE, count, listed, nats, percent, plural
from secid.pages.page import Part, Section, Table, foreign, number, text
from secid.pages.sanitize import named, plain
from secid.results import EarlyStop, Run

SHOWN_PAIRS = 8
OTHER_FREQUENCIES = ": the whole files have other ones, at which a close pair may be ordered otherwise."
DECIDED = (
    "Decided speaks of these files, established and the rank groups of the process that made them: other queries could "
    "order a decided pair the other way, so it may share a rank group."
)


def early_told(run: Run, stop: EarlyStop) -> list[str]:
    """What the looks needed, what is decided of the files, why that is not what rank groups say, and what to do."""
    undecided = [f"{named(first)} and {named(second)}" for first, second in stop.undecided]
    tie = "" if stop.tie_nats is None else f" Differences below {nats(stop.tie_nats)}{SPACE}nats count as ties."
    needed = (
        f"Looks at growing samples needed vectors of {count(stop.n_texts_encoded)} of the {count(stop.n_texts)} "
        "distinct queries and passages that scoring without them would need, those from the cache included."
    )
    counted = _limited(run) and run.idf.corpus != "uniform"
    sample = f"all queries of these files at the document frequencies of what {_max_records(run)} takes"
    sure = (
        f"Every decided order is that of {sample if counted else 'these files read whole'}, with a confidence of "
        f"{percent(stop.confidence)}{OTHER_FREQUENCIES if counted else '.'}"
    )
    return [
        f"{needed} {sure}{tie}",
        f"Undecided: {listed(undecided, SHOWN_PAIRS)}.{_more_queries(run, stop)}"
        if undecided
        else "No pair is left undecided.",
        f"{DECIDED}{_whole(run, stop)}",
    ]


def _more_queries(run: Run, stop: EarlyStop) -> str:
    """What decides a pair that the looks left undecided: they saw all that --max-records did not leave out."""
    concerned = {name for pair in stop.undecided for name in pair}
    if any(source.n_not_sampled for source in run.sources if source.name in concerned):
        return f" The looks ended at {_max_records(run)}: more queries may decide."
    return " All queries were seen, so nothing in these files decides."


def _limited(run: Run) -> bool:
    """Whether --max-records left anything out or may have."""
    entry = run.settings.get("max_records")
    is_set = isinstance(entry, Mapping) and entry.get("value") is not None
    return is_set and any(source.n_not_sampled for source in run.sources)


def _max_records(run: Run) -> str:
    """The flag with its number; without, where an edited report holds none."""
    entry = run.settings.get("max_records")
    limit = entry.get("value") if isinstance(entry, Mapping) else None
    return f"--max-records {count(limit)}" if isinstance(limit, int) else "--max-records"


def _whole(run: Run, stop: EarlyStop) -> str:
    """What narrows the intervals of pairs that are open as to the process: the queries that were left out, by what."""
    n_open = sum(not pair.established for pair in run.comparisons)
    if not n_open or not any(source.n_not_sampled for source in run.sources):
        return ""
    all_made = len(stop.looks) >= len(stop.planned_looks)
    how = f"raise {_max_records(run)}" if _limited(run) and all_made else "score without --until-ranked"
    return f" {plural(n_open, 'pair')} open there: to narrow the intervals, {how}."


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
            f"{named(pair.first, 40)}, {named(pair.second, 40)}",
            plain(pair.outcome),
            count(pair.n_queries),
            nats(pair.difference_nats, signed=True),
        )
        for pair in stop.pairs
    )
    return Section(
        anchor="early",
        link="Early stop",
        title="Stopped once the order was clear",
        paragraphs=tuple(early_told(run, stop)),
        parts=(
            Part(
                table=Table(
                    caption="Looks",
                    columns=tuple(map(number, ("queries", "texts needed", "error spent", "pairs decided"))),
                    rows=looks,
                )
            ),
            Part(
                table=Table(
                    caption="Decided pairs",
                    columns=(foreign("pair"), text("outcome"), number("queries"), number("difference (nats)")),
                    rows=pairs,
                )
            ),
        ),
        terms=(
            *terms("queries", "difference"),
            ("texts needed", "distinct texts whose vectors a look used, 0 or more, cached ones too; fewer is cheaper."),
            ("pairs decided", "pairs ordered or tied by then, 0 to all pairs; more is better."),
            (
                "error spent",
                "chance of a wrong order that looks may have used, 0 to 1; less is surer. It ends at 1 − confidence.",
            ),
        ),
    )
