"""Compare the processor time of `secid check` with json.loads, and of a start to the first vector with transformers.

python -m tests.perf.check_and_start [--triplets 50000] [--repeats 3] [--folder DIR] [--encoder minilm]

Every measurement runs in a separate process. The kinds alternate, so that noise affects all of them. Medians.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.perf.plain import recipe_of
from tests.perf.read_plan_lex import write_files

JSON_LOADS = "import json, sys\nfor line in open(sys.argv[1], encoding='utf-8'): json.loads(line)"
TRANSFORMERS = """
import sys, torch
from transformers import AutoModel, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained(sys.argv[1]), AutoModel.from_pretrained(sys.argv[1]).eval()
with torch.inference_mode():
    model(**tokenizer(["a goat"], return_tensors="pt"))
"""
SECID = """
import sys
import secid.cli.app, secid.scoring.run
from secid.encode.transformer import load_transformer
from secid.settings import Settings
load_transformer(Settings(encoder=sys.argv[1], device="cpu")).encode(["a goat"], "query")
"""
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": ""}
"""Threads wait as they do under the command, and modules are compiled once, as in an installed package."""


def processor_seconds(*arguments: str) -> float:
    """Return user plus system time of a Python process and its children. Raise CalledProcessError if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=os.environ | ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triplets", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keeps the files for the next time")
    parser.add_argument("--encoder", default="minilm")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        many, few = (str(write_files(folder, n)["jsonl"]) for n in (arguments.triplets, 20))
        check = ["-m", "secid", "check", "--set", "threads=1"]
        commands = {
            "nothing": ["-c", "pass"],
            "json.loads": ["-c", JSON_LOADS, many],
            "check, 20 triplets": [*check, few],
            f"check, {arguments.triplets:,} triplets": [*check, many],
            "first vector, transformers": ["-c", TRANSFORMERS, str(recipe_of(arguments.encoder).folder)],
            "first vector, secid": ["-c", SECID, arguments.encoder],
        }
        runs = [[processor_seconds(*command) for command in commands.values()] for _ in range(arguments.repeats)]
    seconds = [statistics.median(values) for values in zip(*runs, strict=True)]
    for name, median in zip(commands, seconds, strict=True):
        print(f"{name:32}{median:8.2f} s")
    nothing, loads, start, whole, plain, own = seconds
    ratios = [used / (loads - nothing) for used in (whole, whole - start)]
    print(f"check / json.loads: {ratios[0]:.1f}, without its start {ratios[1]:.1f}")
    print(f"start to the first vector / transformers: {own / plain:.2f}")


if __name__ == "__main__":
    main()
