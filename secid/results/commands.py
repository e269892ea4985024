"""Commands that act on a run and its findings, as a report prints them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import chain, count
from pathlib import Path

from secid.records import STANDARD_INPUT, has_hidden_characters, is_object
from secid.results.inputs import InputFile
from secid.settings import DEFAULTS, ENCODING_SETTINGS, FIELDS, READING_SETTINGS, flag_of, value_text

PROBE_SETTINGS = ("encoder", *READING_SETTINGS, *ENCODING_SETTINGS, "temperature", "seed")
"""Settings that `secid probe` takes: settings of the files and the encoder, temperature and seed."""
NO_RUN_FOLDER = "RUN"
"""Placeholder in a command for a run folder that was not written."""
STEM_BYTES = 160
"""Maximum bytes of a source's name in a file name. File systems allow 255 bytes, and suffixes such as .left-out.jsonl
make the name longer."""
COPY_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
"""Suffixes of the files that `secid select` and `secid mix` write."""


def repair_command(run: str | None, source: str, defects: tuple[str, ...], first_file: str) -> str:
    """Return the command that writes a copy of a source without its defects.

    run : run folder; None for the placeholder RUN.

    >>> repair_command("secid-runs/x", "bm25", ("false_negative", "repeat"), "data/bm25.jsonl")
    'secid select secid-runs/x --source bm25 --drop false_negative,repeat -o bm25-clean.jsonl'
    """
    suffix = next((ending for ending in COPY_SUFFIXES if first_file.endswith(ending)), COPY_SUFFIXES[0])
    return _on_source("select", run, source, ("--drop", ",".join(defects)), "clean", suffix)


def score_command(files: Sequence[str], encoder: str | None, collection: str | None, flags: Sequence[str]) -> str:
    """Return the command that scores these files; without an encoder, the command that checks them.

    flags : additional flags of `secid score`.

    >>> score_command(["mined/a.jsonl"], "minilm", None, ("--max-length", "128"))
    'secid score mined/a.jsonl --encoder minilm --max-length 128'
    """
    words = ["secid", "score", *files, "--encoder", encoder, *flags] if encoder else ["secid", "check", *files]
    return shlex.join([*words, *(("--collection", collection) if collection else ())])


def probe_command(files: Sequence[str], settings: Mapping[str, object]) -> str | None:
    """Return the command that probes the sources of a score, without --run.

    None if the command cannot be typed, because a source is standard input or has invisible characters in its name.
    files : sources of the score as typed.   settings : its settings as typed, by name; None if not typed.

    >>> probe_command(["a.jsonl", "b=c.jsonl"], {"encoder": "minilm", "max_length": 128, "first_k": 2})
    'secid probe a.jsonl b=c.jsonl --encoder minilm --max-length 128'
    """
    if STANDARD_INPUT in files or any(map(has_hidden_characters, files)):
        return None
    flags = [
        word
        for name, value in settings.items()
        if name in PROBE_SETTINGS and value is not None
        for word in flag_words(name, value)
    ]
    return shlex.join(["secid", "probe", *files, *flags])


def with_run_flag(command: str, run: str | None) -> str:
    """Add --run to the command of a probe. run: run folder, or None to return the command unchanged."""
    return command if run is None else f"{command} {shlex.join(['--run', _shell_path(run)])}"


def flag_words(name: str, value: object) -> tuple[str, ...]:
    """Return a setting as words of a command line."""
    if not FIELDS[name].metadata["group"]:
        return ("--set", f"{name}={value_text(value)}")
    if isinstance(value, bool):
        return (flag_of(name),) if value != getattr(DEFAULTS, name) else ()
    return (flag_of(name), value_text(value))


def flagged_command(run: str | None, source: str, finding: str) -> str:
    """Return the command that writes the negatives with a finding, including their texts.

    >>> flagged_command(None, "-a/b", "hub")
    'secid flagged RUN --source=-a/b --finding hub -o a_b-dad2-hub.jsonl'
    """
    return _on_source("flagged", run, source, ("--finding", finding), finding, ".jsonl")


def unused_name(name: str, suffix: str = "") -> str:
    """Return the name with its suffix. If the working directory has a file with this name, add a number.

    >>> unused_name("bm25-clean", ".jsonl")
    'bm25-clean.jsonl'
    """
    names = chain([f"{name}{suffix}"], (f"{name}-{number}{suffix}" for number in count(2)))
    return next(each for each in names if not Path(each).exists())


def _on_source(command: str, run: str | None, source: str, options: tuple[str, ...], end: str, suffix: str) -> str:
    """Return a command that reads one source of a run and writes a new file, named after the source and `end`."""
    source_words = (f"--source={source}",) if source.startswith("-") else ("--source", source)
    stem = "".join(char if char.isalnum() or char in "_-." else "_" for char in source).lstrip("-") or "source"
    stem = stem.encode()[:STEM_BYTES].decode(errors="ignore")
    if stem != source:  # the sources "a b" and "a_b" need different file names
        stem += f"-{sha256(source.encode()).hexdigest()[:4]}"
    return shlex.join(
        ["secid", command, _shell_path(run), *source_words, *options, "-o", unused_name(f"{stem}-{end}", suffix)]
    )


def with_run_folder(command: str, run: str) -> str:
    """Replace the run folder in a command of this module.

    >>> with_run_folder("secid select RUN --source a -o a.jsonl", "/runs/x y")
    "secid select '/runs/x y' --source a -o a.jsonl"
    """
    words = shlex.split(command)
    return shlex.join([*words[:2], _shell_path(run), *words[3:]])


def _shell_path(run: str | None) -> str:
    return f"./{run}" if run and run.startswith("-") else run or NO_RUN_FOLDER


def no_command(source: str, files: Sequence[InputFile], *, names_files: bool = False) -> str:
    """Return the reason why no command can read a source's rows again; "" if a command can.

    names_files : True if the command names the source's files.
    """
    once = [file.path for file in files if file.read_once]
    if once:
        what = "An object in memory" if is_object(once[0]) else "Standard input"
        return f"{what} cannot be read again, so no command can list or drop its rows. Save it to a file first."
    if has_hidden_characters(source):
        return "The source's name has invisible characters, so it cannot be typed. Rename the source with NAME=FILE."
    if names_files and any(has_hidden_characters(file.path) for file in files):
        return "A file name has invisible characters, so it cannot be typed. Rename the file."
    return ""
