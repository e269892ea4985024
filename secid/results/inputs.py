"""Inputs of a run, commands that act on its findings, and display of results in an interactive session."""

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
from secid.settings import DEFAULTS, ENCODING_SETTINGS, FIELDS, READING_SETTINGS, flag_of, value_text

# Inputs of a run: encoder, IDF documents, files and example rows.


@dataclass(frozen=True)
class EncoderInfo:
    """The resolved recipe of an encoder, which is enough to load exactly this encoder again.

    rules : origin of each recipe field ("flag", "1_Pooling/config.json", "registry: e5", "default", ...).
    facts : notes for readers of the report, of the kinds in pages.encoder_page.FACTS.
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
    """The table of inverse document frequencies that the coverage gate uses."""

    corpus: str
    tokenizer: str
    n_texts: int
    n_tokens: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file of a source, and how it was read.

    container : format of the file, such as "jsonl, gz", "tsv without header" or "parquet".
    schema    : name of the schema, as in `--format`; "empty" if the file has no row.
    mapping   : columns of the schema, such as "query=anchor, positive=positive, negatives=negative_1…negative_10".
    sha256, n_bytes : hash and size of the file on disk; "" and 0 until it has been read.
    """

    path: str
    container: str
    schema: str
    mapping: str
    sha256: str = ""
    n_bytes: int = 0

    @property
    def read_once(self) -> bool:
        """True if the file cannot be read again: standard input, a shell's pipe or a Python object."""
        piped = self.path == "-" or self.path.startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))
        return piped or is_object(self.path)


@dataclass(frozen=True)
class Example:
    """One skipped row or unusual negative, with its file and line.

    fact : exact fault of a row, of a kind in records.FAULTS; None if the reason is specific enough. For a text of the
           evaluation set, the kind is "evaluation_text", with the values text and id, and also similarity and
           evaluation_text if the two texts differ.
    """

    reason: str
    path: str
    line: int
    fact: Fact | None = None


@dataclass(frozen=True, kw_only=True)
class Match:
    """What a negative with a finding repeats. Texts are compared by their normal forms.

    kind : "positive": the negative repeats a labelled positive of its query. The row at path and line has this
           positive. In a sample, or with a baseline, path and line may be None because that row was not read.
           "earlier": the negative repeats an earlier one of its record: number n, from 1, of the row at path and line.
           "copies": the negative is the first of n copies in its record.
           "queries": the negative occurs with n queries of its source.
    text : text of the positive, as in TripletExample; "" without a row.
    """

    kind: Literal["positive", "earlier", "copies", "queries"]
    path: str | None = None
    line: int | None = None
    n: int | None = None
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class TripletExample:
    """One triplet to show on a page. Pages shorten the texts.

    path, line : row that lists the negative first.
    s_query_positive to weight : numbers of the triplet; None without an encoder.
    matched_terms : query terms that occur in the negative, with their IDF.
    match    : what the negative repeats, for false_negative, repeat and hub.
    findings : names of all findings of the negative.
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
    """A result that is displayed as a few lines of text, and in a notebook as its page.

    secid.notebook does both. Results may not import it, because it is in a higher layer. So it is imported by name when
    it is needed. Dataclasses that inherit from this class need repr=False.
    """

    def __repr__(self) -> str:
        return str(import_module("secid.notebook").text_of(self))

    def _repr_html_(self) -> str | None:
        html: str | None = import_module("secid.notebook").html_of(self)
        return html


PROBE_SETTINGS = ("encoder", *READING_SETTINGS, *ENCODING_SETTINGS, "temperature", "seed")
"""Settings that `secid probe` takes: settings of the files and the encoder, temperature and seed."""
STANDARD_INPUT = "-"
NO_RUN_FOLDER = "RUN"
"""Placeholder in a command for a run folder that was not written."""
HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of invisible characters."""
JOINERS = "\u200c\u200d"
"""Zero-width joiners, which are allowed in names because words in Persian and Indic scripts need them."""
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


def has_hidden_characters(name: str) -> bool:
    """Return True if a name contains invisible characters, such as control, bidi or unassigned characters."""
    return any(category(char) in HIDDEN_CATEGORIES and char not in JOINERS for char in name)


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
