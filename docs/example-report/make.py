"""Make the example report from the fixtures, check that it is current (--check), or draw its picture (--picture).

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
from secid.pages.formats import RUN_FORMATS
from secid.results import Run

FOLDER = Path(__file__).resolve().parent
REPOSITORY = FOLDER.parents[1]
DIGITS = 6
"""Significant digits: another processor adds in another order, which changes the seventh digit."""
TOLERANCE = 0.01
"""Relative tolerance of a check: other versions of torch change the sixth digit of scores, and far more in numbers
derived from small differences of scores (z, p, queries needed)."""
ABSOLUTE_TOLERANCE = 1e-5
EXACT_COUNTS = 1000
"""Maximum count that is compared exactly."""


def example() -> Run:
    """Return the run over the fixtures, without parts that depend on the machine."""
    sources = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "fixtures" / "sources").iterdir())
    with contextlib.chdir(REPOSITORY):
        document = json.loads(to_json(api.score(sources, "minilm", ablate=True, threads=1)))
    for part in ("analyses", "not_evaluated"):  # the cost is known only if no text was in the cache
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
    """Return the text of every page by file name."""
    return {f"report{suffix}": render(run) for suffix, render in RUN_FORMATS.items()}


def differences(new: Any, old: Any, place: str = "report") -> list[str]:
    """List the places where two documents differ by more than rounding."""
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
    """List the differences between the committed report and a new run."""
    old = json.loads((FOLDER / "report.json").read_text(encoding="utf-8"))
    return differences(json.loads(to_json(example())), old)


def main(arguments: list[str]) -> int:
    """Write the pages, list differences, or draw the picture of the README."""
    if arguments == ["--picture"]:
        page, picture = FOLDER / "report.html", FOLDER / "report.png"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,1100"]
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
