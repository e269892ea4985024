"""Kills `secid score` at random moments of its whole life, and checks what every next run makes of what is left.

    python -m tests.perf.kill_and_resume --kills 50

After each kill: every finished segment of the cache is whole, none was lost, no text is in two segments, and
the run folder is either absent or a whole report equal to that of an undisturbed run. A run that ends before its
kill must have read from the cache exactly what was there; then the cache is emptied and the next series begins.
Last, two runs at once on one empty cache. Any breach ends the script with an AssertionError.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kills import ROOT, Killable, differences, kill
from tests.tiny_bert import save_tiny_bert

WIDTH, LAYERS = 128, 4
"""Slow enough that encoding the fixtures takes about as long as importing torch."""


@dataclass
class Tally:
    """What was seen."""

    kills: int = 0
    before_encoding: int = 0
    while_encoding: int = 0
    after_encoding: int = 0
    finished: int = 0
    rows_reused: int = 0


def undisturbed(job: Killable) -> float:
    """Runs once and empties the cache; returns the seconds it took."""
    start = time.monotonic()
    child = job.start("undisturbed")
    _, err = child.communicate()
    assert child.returncode == 0, err
    seconds = time.monotonic() - start
    shutil.rmtree(job.cache)
    return seconds


def kill_many(job: Killable, n_kills: int, seconds: float, generator: random.Random) -> Tally:
    """Starts and kills until n_kills have hit a running process."""
    expected = job.report("undisturbed")
    assert expected is not None
    n_texts = expected["timing"]["encode"]["n_texts"]
    tally, kept = Tally(), 0
    while tally.kills < n_kills:
        moment = generator.uniform(0, 1.1 * seconds)
        child = job.start("killed")
        time.sleep(moment)
        killed, rows, report = kill(child), job.n_rows(), job.report("killed")
        assert rows >= kept, "a finished segment is gone"
        print(f"{'killed' if killed else 'ended '} at {moment:5.2f} s: {kept} rows before, {rows} of {n_texts} after")
        if killed:
            tally.kills += 1
            tally.before_encoding += rows == 0
            tally.while_encoding += 0 < rows < n_texts
            tally.after_encoding += rows == n_texts
        if report is None:
            assert killed, "a run that was left in peace wrote no report"
            kept = rows
            continue
        assert differences(expected, report) == []
        assert (report["timing"]["encode"]["n_cached"], rows) == (kept, n_texts), "not resumed"
        tally.finished += 1
        tally.rows_reused += kept
        shutil.rmtree(job.cache)
        shutil.rmtree(job.folder / "runs" / "killed")
        kept = 0
    return tally


def two_at_once(job: Killable) -> None:
    """Two runs that start together on one empty cache."""
    shutil.rmtree(job.cache, ignore_errors=True)
    children = [job.start("left"), job.start("right")]
    for child in children:
        _, err = child.communicate()
        assert child.returncode == 0, err
    for run in ("left", "right"):
        assert differences(job.report("undisturbed"), job.report(run)) == []


def main() -> None:
    """Prints each kill and the tally."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=ROOT / "fixtures" / "sources", help="folder of sources")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder = save_tiny_bert(folder / "encoder", width=WIDTH, layers=LAYERS)
        job = Killable(folder, encoder, sorted(options.data.iterdir()))
        seconds = undisturbed(job)
        print(f"undisturbed: {seconds:.1f} s")
        tally = kill_many(job, options.kills, seconds, random.Random(options.seed))
        print(
            f"{tally.kills} kills: {tally.before_encoding} before the first segment, {tally.while_encoding} between "
            f"segments, {tally.after_encoding} after the last; {tally.finished} runs reached their end, on "
            f"{tally.rows_reused} rows of killed ones, all with the report of the undisturbed run"
        )
        two_at_once(job)
        print("two runs at once on one empty cache: both with the report of the undisturbed run")


if __name__ == "__main__":
    main()
