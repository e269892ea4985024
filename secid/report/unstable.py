"""Which pairs of sources change places with a setting: one sentence for the top of the page."""

from __future__ import annotations

from collections.abc import Iterable

from secid.report.foreign import named, plain
from secid.report.numerals import count, listed
from secid.results import Ablation, Run

SHOWN_PAIRS, SHOWN_SETTINGS = 4, 3


def unstable(run: Run) -> str:
    """Pairs that the settings reorder, those of other weights apart: other weights are other numbers.

    Empty where nothing was varied. Smaller samples are left out: what a sample leaves open, intervals say.
    """
    settings = [item for item in run.ablations if item.name not in ("sample", "weight")]
    weights = [item for item in run.ablations if item.name == "weight"]
    return " ".join(filter(None, (_settings(settings), _weights(weights, len(run.sources)))))


def pairs_by_setting(ablations: Iterable[Ablation]) -> dict[tuple[str, str], list[str]]:
    """Pairs of sources that change places somewhere, with the settings at which they do; the shakiest first."""
    found: dict[tuple[str, str], list[str]] = {}
    for item in ablations:
        for row in item.rows:
            for pair in row.swapped:
                found.setdefault(pair, []).append(plain(f"{item.name} {row.setting}"))
    return dict(sorted(found.items(), key=lambda entry: -len(entry[1])))


def _settings(ablations: list[Ablation]) -> str:
    if not ablations:
        return ""
    found = pairs_by_setting(ablations)
    tried = listed([f"{plain(item.name)}s" if item.name != "idf" else "IDF corpora" for item in ablations])
    if not found:
        return f"No pair of sources changes places over the {tried} tried."
    pairs = [f"{_pair(pair)} (at {listed(settings, SHOWN_SETTINGS)})" for pair, settings in found.items()]
    return f"Over the {tried} tried, these change places: {listed(pairs, SHOWN_PAIRS)}."


def _weights(ablations: list[Ablation], n_sources: int) -> str:
    found = list(pairs_by_setting(ablations))
    if not ablations:
        return ""
    if not found:
        return "Other weights order all pairs alike."
    if len(found) <= SHOWN_PAIRS:
        return f"Other weights reorder {listed([_pair(pair) for pair in found], SHOWN_PAIRS)}."
    return f"Other weights reorder {count(len(found))} of {count(n_sources * (n_sources - 1) / 2)} pairs."


def _pair(pair: tuple[str, str]) -> str:
    return f"{named(pair[0])} and {named(pair[1])}"
