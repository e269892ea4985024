"""Which pairs of sources change places with a setting: one sentence for the top of the page."""

from __future__ import annotations

from collections.abc import Iterable

from secid.report.foreign import named, plain
from secid.report.numerals import count, listed, plural
from secid.report.words import SETTINGS
from secid.results import Ablation, Run
from secid.settings import in_words

SHOWN_PAIRS, SHOWN_SETTINGS = 4, 3
NO_PAIR = "no pair of sources could be ordered"


def unstable(run: Run) -> str:
    """Pairs that the settings reorder; how many other weights do: those are other numbers.

    Empty where nothing was varied, or one source has no order. Smaller samples are left out: what a sample leaves
    open, intervals say.
    """
    if len(run.sources) < 2:
        return ""
    settings = [item for item in run.ablations if item.name not in ("sample", "weight")]
    weights = [item for item in run.ablations if item.name == "weight"]
    told = "; ".join(filter(None, (_settings(settings), _weights(weights, len(run.sources)))))
    return f"{told[0].upper()}{told[1:]}." if told else ""


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


def _settings(ablations: list[Ablation]) -> str:
    if not ablations:
        return ""
    found = pairs_by_setting(ablations)
    tried = listed([SETTINGS[item.name][0] if item.name in SETTINGS else f"{plain(item.name)}s" for item in ablations])
    if not _ordering(ablations):
        return f"{NO_PAIR} over the {tried} tried"
    if not found:
        return f"no pair of sources changes places over the {tried} tried"
    return f"other {tried} swap {listed([_pair(pair) for pair in found], SHOWN_PAIRS)}"


def _weights(ablations: list[Ablation], n_sources: int) -> str:
    found = list(pairs_by_setting(ablations))
    if not ablations:
        return ""
    if not _ordering(ablations):
        return f"{NO_PAIR} over other weights"
    if not found:
        return "other weights order all pairs alike"
    return f"other weights reorder {count(len(found))} of {plural(n_sources * (n_sources - 1) // 2, 'pair')}"


def _pair(pair: tuple[str, str]) -> str:
    return f"{named(pair[0])} with {named(pair[1])}"
