"""Commands that act on the findings of a source, ready to paste into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from unicodedata import category

from secid.records import is_object
from secid.results.inputs import InputFile
from secid.settings import DEFAULTS, ENCODING, FIELDS, READING, flag_of, value_text

OF_PROBE = ("encoder", *READING, *ENCODING, "temperature", "seed")
"""Settings that `secid probe` takes: those of the files and the encoder, and what a loss and a draw need."""
STANDARD_INPUT = "-"
NO_RUN_FOLDER = "RUN"
"""Stands in a command for a run folder that was not written."""
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
JOINERS = "\u200c\u200d"
"""Zero-width joiners spell words in Persian and Indic scripts; alone they do nothing."""
STEM_BYTES = 160
"""Of a file's name from a source's: file systems allow 255, and temporary files and OUT.left-out.jsonl add to it."""
COPY_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
"""Suffixes of the files that `secid select` and `secid mix` write."""


def repair_command(run: str | None, source: str, defects: tuple[str, ...], first_file: str) -> str:
    """The command that writes a copy of a source without its defects.

    run : the run folder; RUN in its place where there is none.

    >>> repair_command("secid-runs/x", "bm25", ("false_negative", "repeat"), "data/bm25.jsonl")
    'secid select secid-runs/x --source bm25 --drop false_negative,repeat -o bm25-clean.jsonl'
    """
    suffix = next((known for known in COPY_SUFFIXES if first_file.endswith(known)), COPY_SUFFIXES[0])
    return _on_source("select", run, source, ("--drop", ",".join(defects)), "clean", suffix)


def score_command(files: Sequence[str], encoder: str | None, collection: str | None, flags: Sequence[str]) -> str:
    """The command that scores these files, or checks them where no encoder is named. flags : further words of a score.

    >>> score_command(["mined/a.jsonl"], "minilm", None, ("--max-length", "128"))
    'secid score mined/a.jsonl --encoder minilm --max-length 128'
    """
    words = ["secid", "score", *files, "--encoder", encoder, *flags] if encoder else ["secid", "check", *files]
    return shlex.join([*words, *(("--collection", collection) if collection else ())])


def probe_command(files: Sequence[str], given: Mapping[str, object]) -> str | None:
    """The command that probes the files of a score, without its run folder; None where it cannot be typed again.

    files, given : the sources and settings of that score as they were typed, None for what was not.

    >>> probe_command(["a.jsonl", "b=c.jsonl"], {"encoder": "minilm", "max_length": 128, "first_k": 2})
    'secid probe a.jsonl b=c.jsonl --encoder minilm --max-length 128'
    """
    if STANDARD_INPUT in files or any(map(hidden, files)):
        return None
    flags = [
        word for name, value in given.items() if name in OF_PROBE and value is not None for word in typed(name, value)
    ]
    return shlex.join(["secid", "probe", *files, *flags])


def beside_run(command: str, run: str | None) -> str:
    """The command of a probe with the run folder that it adds to; as it is without one."""
    return command if run is None else f"{command} {shlex.join(['--run', _typed(run)])}"


def typed(name: str, value: object) -> tuple[str, ...]:
    """A setting as the words of a command line."""
    if not FIELDS[name].metadata["group"]:
        return ("--set", f"{name}={value_text(value)}")
    if isinstance(value, bool):
        return (flag_of(name),) if value != getattr(DEFAULTS, name) else ()
    return (flag_of(name), value_text(value))


def flagged_command(run: str | None, source: str, finding: str) -> str:
    """The command that writes the rows that have a finding, with their texts.

    >>> flagged_command(None, "-a/b", "hub")
    'secid flagged RUN --source=-a/b --finding hub -o a_b-b5e0-hub.jsonl'
    """
    return _on_source("flagged", run, source, ("--finding", finding), finding, ".jsonl")


def unused(name: str, suffix: str = "") -> str:
    """The name with its suffix, and with a number where the working directory has a file of that name.

    >>> unused("bm25-clean", ".jsonl")
    'bm25-clean.jsonl'
    """
    names = chain([f"{name}{suffix}"], (f"{name}-{number}{suffix}" for number in count(2)))
    return next(each for each in names if not Path(each).exists())


def _on_source(command: str, run: str | None, source: str, options: tuple[str, ...], end: str, suffix: str) -> str:
    """A command on one source of a run that writes a file named after both, which does not exist yet."""
    named = (f"--source={source}",) if source.startswith("-") else ("--source", source)
    stem = "".join(char if char.isalnum() or char in "_-." else "_" for char in source).lstrip("-") or "source"
    stem = stem.encode()[:STEM_BYTES].decode(errors="ignore")
    if stem != source:  # "a b" and "a_b" are two sources, and need two files
        stem += f"-{sha256(source.encode()).hexdigest()[:4]}"
    return shlex.join(["secid", command, _typed(run), *named, *options, "-o", unused(f"{stem}-{end}", suffix)])


def in_folder(command: str, run: str) -> str:
    """A command of these, on the same run under another name of its folder.

    >>> in_folder("secid select RUN --source a -o a.jsonl", "/runs/x y")
    "secid select '/runs/x y' --source a -o a.jsonl"
    """
    words = shlex.split(command)
    return shlex.join([*words[:2], _typed(run), *words[3:]])


def _typed(run: str | None) -> str:
    return f"./{run}" if run and run.startswith("-") else run or NO_RUN_FOLDER


def hidden(name: str) -> bool:
    """Whether a name holds characters that no line shows: control, bidi or unassigned ones."""
    return any(category(char) in HIDDEN and char not in JOINERS for char in name)


def no_command(source: str, files: Sequence[InputFile], *, names_files: bool = False) -> str:
    """Why no command can act on the rows of a source; "" where one can.

    names_files : whether the command names its files too, as one that reads them again does.
    """
    once = [file.path for file in files if file.read_once]
    if once:
        what = "An object in memory" if is_object(once[0]) else "Standard input"
        return f"{what} cannot be read again, so no command can list or drop its rows: save it to a file."
    if hidden(source):
        return "Its name holds control characters, so no command can name it: give it another with NAME=FILE."
    if names_files and any(hidden(file.path) for file in files):
        return "A file name holds control characters, so no command can name it: rename the file."
    return ""
