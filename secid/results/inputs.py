"""Inputs of a run, the commands that act on its findings, and the display of results in an interactive session."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from typing import Literal
from unicodedata import category

from secid.records import Fact, is_object
from secid.settings import DEFAULTS, ENCODING, FIELDS, READING, flag_of, value_text

# Inputs of a run: encoder, counted documents, files, and example rows.


@dataclass(frozen=True)
class EncoderInfo:
    """The resolved recipe of the target encoder: enough to load exactly this encoder again.

    rules: for each recipe field, the rule that set it ("flag", "1_Pooling/config.json",
    "registry: e5", "default", ...).   facts: notes for readers of the report, of the kinds of pages.encoder.FACTS.
    """

    name: str
    revision: str | None
    weights_sha256: str | None
    pooling: str
    query_prefix: str
    passage_prefix: str
    max_length: int | None
    normalize: bool
    dtype: str
    device: str
    dim: int
    fingerprint: str
    rules: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class IdfInfo:
    """The table of inverse document frequencies behind the coverage gate."""

    corpus: str
    tokenizer: str
    n_texts: int
    n_tokens: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file of a source, and how it was read.

    container : "jsonl, gz", "tsv without header", "parquet", ...
    schema    : name of the schema, as `--format` takes it; "empty" if the file has no row.
    mapping   : "query=anchor, positive=positive, negatives=negative_1…negative_10".
    sha256, n_bytes : hash and number of the bytes on disk, known when the file has been read.
    """

    path: str
    container: str
    schema: str
    mapping: str
    sha256: str = ""
    n_bytes: int = 0

    @property
    def read_once(self) -> bool:
        """True if no later command can read it again: standard input, a shell's pipe or a Python object."""
        piped = self.path == "-" or self.path.startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))
        return piped or is_object(self.path)


@dataclass(frozen=True)
class Example:
    """One skipped row or unusual negative, with its place so that a user can find it.

    fact : the exact fault of a row, of a kind in records.FAULTS. For a text of the evaluation set "evaluation_text":
           text, id, and if the two texts differ also similarity and evaluation_text. None if the reason says it all.
    """

    reason: str
    path: str
    line: int
    fact: Fact | None = None


@dataclass(frozen=True, kw_only=True)
class Match:
    """The text that a negative with a finding repeats. Texts are compared by their normal forms.

    kind : one of
        positive : it repeats a labelled positive of its query, in the row at path and line; without a row if no row
                   that was read has it (a sample, or a baseline).
        earlier  : it repeats the n-th negative, from 1, of the row at path and line in the same record.
        copies   : it is the first of n copies in its record.
        queries  : it is a negative of n queries of its source.
    text : text of that positive, as in TripletExample; "" if it has no row.
    """

    kind: Literal["positive", "earlier", "copies", "queries"]
    path: str | None = None
    line: int | None = None
    n: int | None = None
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class TripletExample:
    """One triplet shown on a page, which shortens the texts. path, line: the row that first lists the negative.

    s_query_positive to weight: None without an encoder.   matched_terms: query terms in the negative, with IDF.
    match: text that it repeats, for false_negative, repeat and hub.   findings: names of all its findings.
    """

    path: str
    line: int
    query: str
    positive: str
    negative: str
    s_query_positive: float | None = None
    s_query_negative: float | None = None
    s_positive_negative: float | None = None
    consistency: float | None = None
    locality: float | None = None
    coverage: float | None = None
    residual: float | None = None
    weight: float | None = None
    matched_terms: tuple[tuple[str, float], ...] = ()
    match: Match | None = None
    findings: tuple[str, ...] = ()


# Display of results in an interactive session.


class Displayable:
    """A result that prints as a few lines and, in a notebook, as its page.

    secid.notebook makes both. It lies above the results, so it is imported by name, and only when needed.
    Dataclasses that inherit this have repr=False.
    """

    def __repr__(self) -> str:
        return str(import_module("secid.notebook").text_of(self))

    def _repr_html_(self) -> str | None:
        html: str | None = import_module("secid.notebook").html_of(self)
        return html


PROBE_SETTINGS = ("encoder", *READING, *ENCODING, "temperature", "seed")
"""Settings that `secid probe` takes: those of the files and the encoder, temperature and seed."""
STANDARD_INPUT = "-"
NO_RUN_FOLDER = "RUN"
"""Placeholder in a command for a run folder that was not written."""
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
JOINERS = "\u200c\u200d"
"""Zero-width joiners, which are allowed in names: words in Persian and Indic scripts need them."""
STEM_BYTES = 160
"""Longest part of a file's name that comes from a source's name. File systems allow 255 bytes, and temporary files and
OUT.left-out.jsonl add to the name."""
COPY_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
"""Suffixes of the files that `secid select` and `secid mix` write."""


def repair_command(run: str | None, source: str, defects: tuple[str, ...], first_file: str) -> str:
    """Return the command that writes a copy of a source without its defects.

    run : the run folder; None to write RUN instead.

    >>> repair_command("secid-runs/x", "bm25", ("false_negative", "repeat"), "data/bm25.jsonl")
    'secid select secid-runs/x --source bm25 --drop false_negative,repeat -o bm25-clean.jsonl'
    """
    suffix = next((ending for ending in COPY_SUFFIXES if first_file.endswith(ending)), COPY_SUFFIXES[0])
    return _on_source("select", run, source, ("--drop", ",".join(defects)), "clean", suffix)


def score_command(files: Sequence[str], encoder: str | None, collection: str | None, flags: Sequence[str]) -> str:
    """Return the command that scores these files, or checks them without an encoder. flags : further flags of a score.

    >>> score_command(["mined/a.jsonl"], "minilm", None, ("--max-length", "128"))
    'secid score mined/a.jsonl --encoder minilm --max-length 128'
    """
    words = ["secid", "score", *files, "--encoder", encoder, *flags] if encoder else ["secid", "check", *files]
    return shlex.join([*words, *(("--collection", collection) if collection else ())])


def probe_command(files: Sequence[str], given: Mapping[str, object]) -> str | None:
    """Return the command that probes the files of a score, without its run folder; None if it cannot be typed again.

    files, given : the sources and settings of that score as typed; None for a setting that was not typed.

    >>> probe_command(["a.jsonl", "b=c.jsonl"], {"encoder": "minilm", "max_length": 128, "first_k": 2})
    'secid probe a.jsonl b=c.jsonl --encoder minilm --max-length 128'
    """
    if STANDARD_INPUT in files or any(map(has_hidden_characters, files)):
        return None
    flags = [
        word
        for name, value in given.items()
        if name in PROBE_SETTINGS and value is not None
        for word in flag_words(name, value)
    ]
    return shlex.join(["secid", "probe", *files, *flags])


def with_run_flag(command: str, run: str | None) -> str:
    """Return the command of a probe with the run folder that it adds to; unchanged without one."""
    return command if run is None else f"{command} {shlex.join(['--run', _shell_path(run)])}"


def flag_words(name: str, value: object) -> tuple[str, ...]:
    """Return a setting as the words of a command line."""
    if not FIELDS[name].metadata["group"]:
        return ("--set", f"{name}={value_text(value)}")
    if isinstance(value, bool):
        return (flag_of(name),) if value != getattr(DEFAULTS, name) else ()
    return (flag_of(name), value_text(value))


def flagged_command(run: str | None, source: str, finding: str) -> str:
    """Return the command that writes the rows that have a finding, with their texts.

    >>> flagged_command(None, "-a/b", "hub")
    'secid flagged RUN --source=-a/b --finding hub -o a_b-dad2-hub.jsonl'
    """
    return _on_source("flagged", run, source, ("--finding", finding), finding, ".jsonl")


def unused_name(name: str, suffix: str = "") -> str:
    """Return the name with its suffix, and with a number if the working directory has a file of that name.

    >>> unused_name("bm25-clean", ".jsonl")
    'bm25-clean.jsonl'
    """
    names = chain([f"{name}{suffix}"], (f"{name}-{number}{suffix}" for number in count(2)))
    return next(each for each in names if not Path(each).exists())


def _on_source(command: str, run: str | None, source: str, options: tuple[str, ...], end: str, suffix: str) -> str:
    """Return a command on one source of a run that writes a new file, named after the source and `end`."""
    source_words = (f"--source={source}",) if source.startswith("-") else ("--source", source)
    stem = "".join(char if char.isalnum() or char in "_-." else "_" for char in source).lstrip("-") or "source"
    stem = stem.encode()[:STEM_BYTES].decode(errors="ignore")
    if stem != source:  # "a b" and "a_b" are two sources, and need two files
        stem += f"-{sha256(source.encode()).hexdigest()[:4]}"
    return shlex.join(
        ["secid", command, _shell_path(run), *source_words, *options, "-o", unused_name(f"{stem}-{end}", suffix)]
    )


def with_run_folder(command: str, run: str) -> str:
    """Return a command of this module with another path of its run folder.

    >>> with_run_folder("secid select RUN --source a -o a.jsonl", "/runs/x y")
    "secid select '/runs/x y' --source a -o a.jsonl"
    """
    words = shlex.split(command)
    return shlex.join([*words[:2], _shell_path(run), *words[3:]])


def _shell_path(run: str | None) -> str:
    return f"./{run}" if run and run.startswith("-") else run or NO_RUN_FOLDER


def has_hidden_characters(name: str) -> bool:
    """Return whether a name holds invisible characters: control, bidi or unassigned ones."""
    return any(category(char) in HIDDEN and char not in JOINERS for char in name)


def no_command(source: str, files: Sequence[InputFile], *, names_files: bool = False) -> str:
    """Return the reason why no command can act on the rows of a source; "" if one can.

    names_files : the command also names the source's files, because it reads them again.
    """
    once = [file.path for file in files if file.read_once]
    if once:
        what = "An object in memory" if is_object(once[0]) else "Standard input"
        return f"{what} cannot be read again, so no command can list or drop its rows: save it to a file."
    if has_hidden_characters(source):
        return "Its name holds control characters, so no command can name it: rename it with NAME=FILE."
    if names_files and any(has_hidden_characters(file.path) for file in files):
        return "A file name holds control characters, so no command can name it: rename the file."
    return ""
