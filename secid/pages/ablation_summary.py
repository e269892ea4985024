"""Which pairs of sources change places with a setting: one sentence for the top of the page."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from secid.pages.glossary import SETTINGS
from secid.pages.numbers import count, listed, plural
from secid.pages.sanitize import named, plain
from secid.results import Ablation, Run
from secid.settings import in_words

SHOWN_PAIRS, SHOWN_SETTINGS = 4, 3
NO_PAIR = "no pair of sources could be ordered"


def unstable(run: Run) -> str:
    """Pairs that the settings reorder, by the kind of setting; how many other weights do: those are other numbers.

    Empty where nothing was varied, or one source has no order. Smaller samples are left out: what a sample leaves
    open, intervals say.
    """
    if len(run.sources) < 2:
        return ""
    settings = [item for item in run.ablations if item.name not in ("sample", "weight")]
    weights = [item for item in run.ablations if item.name == "weight"]
    left_open = open_pairs(run)
    told = "; ".join(filter(None, (_settings(settings, left_open), _weights(weights, len(run.sources), left_open))))
    return f"{told[0].upper()}{told[1:]}." if told else ""


def open_pairs(run: Run) -> frozenset[frozenset[str]]:
    """Pairs of sources whose order the run itself leaves open: under another setting it may be either."""
    return frozenset(frozenset((pair.first, pair.second)) for pair in run.comparisons if not pair.established)


def pairs_by_setting(ablations: Iterable[Ablation]) -> dict[tuple[str, str], list[str]]:
    """Pairs of sources that change places somewhere, with the settings at which they do; the shakiest first."""
    found: dict[tuple[str, str], list[str]] = {}
    for item in ablations:
        for row in item.rows:
            for pair in row.swapped:
                found.setdefault(pair, []).append(plain(f"{in_words(item.name)} {in_words(row.setting)}"))
    return dict(sorted(found.items(), key=lambda entry: -len(entry[1])))


def leader_kept(run: Run) -> str:
    """A clause: whether the leader keeps its place, for a run in which no finding says that it does not.

    Only settings that score every source speak for it. Smaller samples are told apart: intervals speak of those.
    """
    if len(run.sources) < 2:
        return "and one source alone has no place to keep"
    tried = [row for item in run.ablations if item.name != "sample" for row in item.rows if row.setting != item.base]
    if not tried:
        return "but whether the order holds under other settings was not tried: add --ablate"
    n_known = sum(row.stability is not None and None not in row.scores.values() for row in tried)
    if not n_known:
        return "but no setting that was tried scores every source, so nothing shows how far the order rests on them"
    leader = run.sources[0].name
    samples = (row for item in run.ablations if item.name == "sample" for row in item.rows)
    lost = [
        plain(row.setting)
        for row in samples
        if any(leader in pair and pair not in row.open_swaps for pair in row.swapped)
    ]
    under = (
        "every setting that was tried"
        if n_known == len(tried)
        else (f"the {n_known} of {plural(len(tried), 'tried setting')} that score every source")
    )
    return f"and the leader keeps its place under {under}" + (f", but not in samples of {listed(lost)}" if lost else "")


def _ordering(ablations: Iterable[Ablation]) -> bool:
    """Whether any setting but the run's own orders at least one pair."""
    return any(row.stability is not None for item in ablations for row in item.rows if row.setting != item.base)


def _settings(ablations: list[Ablation], left_open: Container[frozenset[str]]) -> str:
    """Which kinds of settings swap which pairs, and where; then the kinds that swap none, and those that order none."""
    swapping: dict[tuple[tuple[str, str], ...], list[str]] = {}
    steady: list[str] = []
    unordered: list[str] = []
    for item in ablations:
        plural_name = SETTINGS[item.name][0] if item.name in SETTINGS else f"{plain(item.name)}s"
        pairs = pairs_by_setting([item])
        if pairs:
            rows = [plain(in_words(row.setting)) for row in item.rows if row.swapped]
            swapping.setdefault(tuple(pairs), []).append(f"{plural_name} ({listed(rows, SHOWN_SETTINGS)})")
        else:
            (steady if _ordering([item]) else unordered).append(plural_name)
    told = [f"other {listed(kinds)} swap {_pairs(pairs, left_open)}" for pairs, kinds in swapping.items()]
    if steady:
        tried = listed(steady)
        told.append(f"{tried} swap none" if told else f"no pair of sources changes places over the {tried} tried")
    if unordered:
        told.append(f"{NO_PAIR} over the {listed(unordered)} tried")
    return "; ".join(told)


def _weights(ablations: list[Ablation], n_sources: int, left_open: Container[frozenset[str]]) -> str:
    found = list(pairs_by_setting(ablations))
    if not ablations:
        return ""
    if not _ordering(ablations):
        return f"{NO_PAIR} over other weights"
    if not found:
        return "other weights order all pairs alike"
    n_open = sum(frozenset(pair) in left_open for pair in found)
    some = f" ({_order(n_open) if n_open == len(found) else count(n_open)} open)" if n_open else ""
    return f"other weights reorder {count(len(found))} of {plural(n_sources * (n_sources - 1) // 2, 'pair')}{some}"


def _pairs(pairs: Sequence[tuple[str, str]], left_open: Container[frozenset[str]]) -> str:
    """The first pairs by name; those that are open are so called, all of them at once."""
    is_open = [frozenset(pair) in left_open for pair in pairs]
    each = [" (order open)" if flag and not all(is_open) else "" for flag in is_open]
    told = [f"{named(first)} with {named(second)}{remark}" for (first, second), remark in zip(pairs, each, strict=True)]
    return f"{listed(told, SHOWN_PAIRS)}{f' ({_order(len(pairs))} open)' if all(is_open) else ''}"


def _order(n_pairs: int) -> str:
    return "order" if n_pairs == 1 else "orders"
