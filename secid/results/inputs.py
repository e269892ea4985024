"""Inputs of a run and examples of its rows, and display of results in an interactive session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal

from secid.records import STANDARD_INPUT, Fact, is_object

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
        piped = self.path == STANDARD_INPUT or self.path.startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))
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
    """The text that a negative with a finding repeats. Texts are compared by their normal forms.

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
