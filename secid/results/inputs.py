"""What a run read, and with what, and how a result shows itself in an interactive session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal

from secid.records import Fact, is_object

# What a run read, and with what: encoder, documents counted, files, rows shown.


@dataclass(frozen=True)
class EncoderInfo:
    """The resolved recipe of the target encoder: enough to load exactly it again.

    rules: for each recipe field, which rule set it ("flag", "1_Pooling/config.json",
    "registry: e5", "default", ...).   facts: what a reader should know of it, of the kinds of pages.encoder.FACTS.
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
    """One file a source was read from, and what was understood of it.

    container : "jsonl, gz", "tsv without header", "parquet", ...
    schema    : name of the shape, as `--format` takes it; "empty" where the file has no row.
    mapping   : "query=anchor, positive=positive, negatives=negative_1…negative_10".
    sha256, n_bytes : of its bytes as they lie on disk, known once it is read.
    """

    path: str
    container: str
    schema: str
    mapping: str
    sha256: str = ""
    n_bytes: int = 0

    @property
    def read_once(self) -> bool:
        """Whether it is standard input, a shell's pipe or a Python object, which no later command can read again."""
        piped = self.path == "-" or self.path.startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))
        return piped or is_object(self.path)


@dataclass(frozen=True)
class Example:
    """One skipped row or odd negative, shown so that it can be found again.

    fact : what exactly is wrong with a row, of the kinds of records.FAULTS; of a text of the evaluation set
           "evaluation_text": text, id, and where the two differ similarity and evaluation_text. None where the reason
           says it.
    """

    reason: str
    path: str
    line: int
    fact: Fact | None = None


@dataclass(frozen=True, kw_only=True)
class Match:
    """What a negative with a finding repeats. Texts are compared by their normal forms.

    positive : a labelled positive of its query, in the row at path and line; without a row where none of those read
               has it (a sample, or a baseline).
    earlier  : the n-th negative, from 1, of the row at path and line, which belongs to the same record.
    copies   : it is the first of n in its record.
    queries  : it is a negative of n queries of its source.
    """

    kind: Literal["positive", "earlier", "copies", "queries"]
    path: str | None = None
    line: int | None = None
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class TripletExample:
    """One triplet shown on a page, texts cut by the page. path, line: the row that first lists the negative.

    s_query_positive to weight: None without an encoder.   matched_terms: query terms in the negative, with IDF.
    match: what it repeats, for false_negative, repeat and hub.
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


# How a result shows itself in an interactive session.


class Shown:
    """A result that prints as a few lines and, in a notebook, as its page.

    Both are made by secid.notebook, which is above the results; so it is imported by its name, and only then.
    Dataclasses that inherit this have repr=False.
    """

    def __repr__(self) -> str:
        return str(import_module("secid.notebook").text_of(self))

    def _repr_html_(self) -> str | None:
        html: str | None = import_module("secid.notebook").html_of(self)
        return html
