"""Prints the time of help texts and of policy errors beside that of an empty Python: median and best of several.

python tests/perf/help_time.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

REPEATS = 20
ASKED_SECONDS = 0.3
POLICIES = {"unknown key": "[gate]\nminimum_record = 1\n", "bad TOML": "[gate\n"}


def seconds(*arguments: str, code: int = 0) -> list[float]:
    """REPEATS runs of Python with these arguments, which must end with this code."""
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found.append(time.perf_counter() - start)
        if done.returncode != code:
            raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}")
    return found


def main() -> None:
    """Prints a line a command."""
    cases: dict[str, tuple[list[str], int]] = {
        "python -c pass": (["-c", "pass"], 0),
        "secid --help": (["-m", "secid", "--help"], 0),
        "secid gate --help": (["-m", "secid", "gate", "--help"], 0),
    }
    with tempfile.TemporaryDirectory() as name:
        gate = ["-m", "secid", "gate", "new.jsonl", "--against", "secid-baseline.json", "--policy"]
        for what, text in POLICIES.items():
            path = Path(name) / f"{what}.toml"
            path.write_text(text, encoding="utf-8")
            cases[f"policy: {what}"] = ([*gate, str(path)], 2)
        cases["policy: no file"] = ([*gate, str(Path(name) / "none.toml")], 2)
        for what, (arguments, code) in cases.items():
            found = seconds(*arguments, code=code)
            print(f"{what:<20} median {median(found):.3f} s, best {min(found):.3f} s")
    print(f"asked for: under {ASKED_SECONDS} s")


if __name__ == "__main__":
    main()
