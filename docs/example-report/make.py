"""Makes the example report from the fixtures, checks that it is current (--check), or draws its picture (--picture).

The picture is the first screen of the page in headless Chromium, 1100 pixels wide.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from secid import api
from secid.analyses.registry import from_json, to_json
from secid.pages.formats import FORMATS
from secid.results import Run

FOLDER = Path(__file__).resolve().parent
REPOSITORY = FOLDER.parents[1]
DIGITS = 6
"""Significant digits kept: another processor adds in another order and differs in the seventh."""
TOLERANCE = 0.01
"""Relative difference that a check forgives: other versions of torch move scores in the sixth digit, and what is
derived from small differences of scores (z, p, queries needed) far more."""
ABSOLUTE_TOLERANCE = 1e-5
EXACT_COUNTS = 1000
"""Counts up to this are compared exactly."""


def example() -> Run:
    """The run over the fixtures without what changes from machine to machine."""
    sources = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "fixtures" / "sources").iterdir())
    with contextlib.chdir(REPOSITORY):
        document = json.loads(to_json(api.score(sources, "minilm", ablate=True, threads=1)))
    for part in ("analyses", "not_evaluated"):  # what encoding cost is only known where nothing was in the cache
        document[part].pop("cost", None)
    document |= {"timing": {}, "environment": {"machine": "left out of the example"}}
    document["settings"]["threads"] = {"value": None, "from": "default"}
    return from_json(json.dumps(_rounded(document)))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def pages(run: Run) -> dict[str, str]:
    """File name -> text of every page."""
    return {f"report{suffix}": render(run) for suffix, render in FORMATS.items()}


def differences(new: Any, old: Any, place: str = "report") -> list[str]:
    """Where two documents differ by more than rounding."""
    if isinstance(old, int | float) and (isinstance(new, float) or (type(new) is int and abs(new) > EXACT_COUNTS)):
        close = abs(new - old) <= ABSOLUTE_TOLERANCE + TOLERANCE * max(abs(new), abs(old))
        return [] if close else [f"{place}: {old} is now {new}"]
    if isinstance(new, dict) and isinstance(old, dict) and new.keys() == old.keys():
        return [line for key in new for line in differences(new[key], old[key], f"{place}.{key}")]
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [
            line
            for number, pair in enumerate(zip(new, old, strict=True))
            for line in differences(*pair, f"{place}.{number}")
        ]
    return [] if new == old else [f"{place}: {old!r} is now {new!r}"]


def check() -> list[str]:
    """What the committed report says otherwise than a run of today."""
    old = json.loads((FOLDER / "report.json").read_text(encoding="utf-8"))
    return differences(json.loads(to_json(example())), old)


def main(arguments: list[str]) -> int:
    """Writes the pages, names what is not current, or draws the picture of the README."""
    if arguments == ["--picture"]:
        page, picture = FOLDER / "report.html", FOLDER / "report.png"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,950"]
        subprocess.run(["chromium", *options, f"--screenshot={picture}", page.as_uri()], check=True)
        return 0
    if arguments == ["--check"]:
        found = check()
        sys.stdout.write(("\n".join(found[:20]) or "current") + "\n")
        return 1 if found else 0
    for name, text in pages(example()).items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
