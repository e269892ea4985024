"""Sources, records and defects: the interface between the readers and the pool.

Readers yield a stream of `Record | Defect`. For each source, every row of a file becomes part of exactly one record or
defect, so read = used + skipped can be asserted. Rows without defects come as a `Block` of records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, islice, repeat
from operator import add
from typing import Any, NamedTuple
from unicodedata import category

Scalar = str | int | float | bool | None
NO_FIELDS: Mapping[str, Scalar] = {}
STANDARD_INPUT = "-"
"""Path of standard input."""


@dataclass(frozen=True, slots=True)
class Fact:
    """The kind of a statement, and the numbers and names in it. Results store facts; pages write the sentences."""

    kind: str
    values: Mapping[str, str | int | float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Source:
    """One way of finding negatives, as named on the command line. secid ranks sources.

    paths : the source's files (shards in sorted order); ("-",) is standard input.
    data  : rows in memory (read.objects.ObjectSpec), with `path_of_object` as the only path; None for files.
    """

    name: str
    paths: tuple[str, ...]
    data: Any = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[Source], tuple[str, tuple[str, ...]]]:
        """Pickle the source without its rows in memory, since another process gets the texts separately."""
        return Source, (self.name, self.paths)


def path_of_object(name: str) -> str:
    """Return the placeholder path of a source that is a Python object."""
    return f"<{name}>"


def is_object(path: str) -> bool:
    """Return True if a path is the placeholder of a Python object."""
    return path.startswith("<") and path.endswith(">")


HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of invisible characters."""
JOINERS = "\u200c\u200d"
"""Zero-width joiners, which are allowed in names because words in Persian and Indic scripts need them."""


def has_hidden_characters(name: str) -> bool:
    """Return True if a name contains invisible characters, such as control, bidi or unassigned characters."""
    return any(category(char) in HIDDEN_CATEGORIES and char not in JOINERS for char in name)


SURROGATE = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """Replace every lone surrogate by U+FFFD. Python puts them in file names for bytes that are not UTF-8."""
    return SURROGATE.sub("\ufffd", text)


class Extras(NamedTuple):
    """The cells and other columns of a row, to copy it in another schema.

    columns   : columns that hold no text of the record, as read.   query : cell of the query.
    positives, negatives : (position in the row's list, cell) of each usable passage.
    n_listed  : (positives, negatives) that the row lists, usable or not; 0 if they were not counted.
    """

    columns: Mapping[str, Any]
    query: Any
    positives: Sequence[tuple[int, Any]]
    negatives: Sequence[tuple[int, Any]]
    n_listed: tuple[int, int] = (0, 0)


class Record(NamedTuple):
    """A query with its labelled positives and explicit negatives (METHOD 1): one row, or all labelled pairs of a query.

    positives and negatives hold at least one text each, in file order; no text is empty. Duplicate negatives, and
    negatives equal to a positive, are still included: the pool counts them across all rows.

    line     : 1-based line of a text file, or 1-based row of a table or array.
    split    : key of the source in a file that holds several sources ("bm25"), else "".
    dropped  : (reason, count) of negatives that the reader skipped in this row. A skipped positive counts as
               "unusable_positive" if the row has others.
    fields   : scalar columns other than the texts, kept only for a run with slices.
    n_rows   : number of rows combined in this record; above 1 only for labelled pairs.
    extras   : other columns of the row, if they were requested from the reader. For labelled pairs, a column holds the
               value that all pairs share, or else the list of their values.
    """

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    path: str
    line: int
    split: str = ""
    dropped: tuple[tuple[str, int], ...] = ()
    fields: Mapping[str, Scalar] = NO_FIELDS
    n_rows: int = 1
    extras: Extras | None = None


class Block(NamedTuple):
    """Consecutive records of a file, stored as columns. They have no splits, fields or dropped passages.

    passages : positives and then negatives of each row, row by row.   n_positives, n_negatives : counts per row.
    """

    queries: Sequence[str]
    passages: Sequence[str]
    n_positives: Sequence[int]
    n_negatives: Sequence[int]
    path: str
    lines: Sequence[int]

    @staticmethod
    def of(record: Record) -> Block:
        query, positives, negatives, path, line, *_ = record
        return Block((query,), positives + negatives, (len(positives),), (len(negatives),), path, (line,))

    def only(self, keep: Sequence[bool]) -> Block:
        """Return a block with only the flagged rows. keep: one flag per row."""
        of_passages = chain.from_iterable(map(repeat, keep, map(add, self.n_positives, self.n_negatives)))
        return Block(
            list(compress(self.queries, keep)),
            list(compress(self.passages, of_passages)),
            list(compress(self.n_positives, keep)),
            list(compress(self.n_negatives, keep)),
            self.path,
            list(compress(self.lines, keep)),
        )

    def records(self) -> Iterator[Record]:
        """Yield the rows one by one."""
        passages = iter(self.passages)
        for query, n_p, n_n, line in zip(self.queries, self.n_positives, self.n_negatives, self.lines, strict=True):
            yield Record(query, tuple(islice(passages, n_p)), tuple(islice(passages, n_n)), self.path, line)


class Defect(NamedTuple):
    """A row, or several (n_rows), without a usable record. reason: key of SKIP_REASONS.

    fact  : the exact fault, of a kind in FAULTS, with texts already shortened; None if the reason is specific enough.
    split : as in Record; None if the row is too broken to know its split. It then counts against every source of the
            file.
    query, dropped : query of the row, and (reason, count) of its passages, if no passage is usable.
    """

    reason: str
    path: str
    line: int
    fact: Fact | None
    split: str | None = None
    n_rows: int = 1
    query: str = ""
    dropped: tuple[tuple[str, int], ...] = ()


class Reason(NamedTuple):
    """Description of a reason to skip a row. malformed: True if it counts for on_bad and max_bad_fraction."""

    text: str
    malformed: bool


SKIP_REASONS: Mapping[str, Reason] = {
    "broken_line": Reason("not valid JSON, CSV or text: cut, mis-encoded or malformed", True),
    "wrong_type": Reason("a field has the wrong type for its schema", True),
    "string_for_list": Reason("a string where a list of texts is expected", True),
    "missing_field": Reason("a required field is absent or null", True),
    "empty_query": Reason("the query is empty or white space", True),
    "no_positive": Reason("no labelled positive, or only empty ones", True),
    "no_negatives": Reason("no explicit negative", False),
    "empty_negative": Reason("a negative is empty or white space", True),
    "unusable_positive": Reason(
        "one of several positives could not be used: empty, not text, unknown id, unexpected column", True
    ),
    "text_not_found": Reason("an id has no text in the collection", True),
    "too_large": Reason("a row larger than the reader's limit", True),
    "too_deep": Reason("JSON nested deeper than the reader's limit", True),
    "duplicate_key": Reason("a JSON object has the same key twice", True),
    "late_column": Reason("negatives in a column missing or empty in the rows that the schema was inferred from", True),
    "none_relevant": Reason("no passage of the query is labelled or judged relevant", False),
    "judged_relevant": Reason("a passage of a run that is judged relevant, so it cannot be a negative", False),
    "repeated_passage": Reason("a passage that a run lists more than once for a query; its best rank counts", False),
    "extra_columns": Reason("the row has more or fewer columns than the header or the other rows", True),
}
"""Every reason to skip a row (Defect) or a single negative (Record.dropped)."""

FAULTS: Mapping[str, str] = {
    "type": "{of}: got {got}, expected {expected}",
    "absent": "{of}: absent or null",
    "empty": "{of}: empty",
    "empty_list": "an empty list",
    "string": "{text!r}",
    "unknown_id": "{of} {id}",
    "id": "{of} {id}",
    "shape": "a row of another shape ({error})",
    "label": "label {label!r} is not a number",
    "label_threshold": "label {label} is neither 0 nor 1, and there is no --positive-score",
    "label_count": "{n_labels} labels for {n_passages} passages",
    "one_label": "all rows of the query ({n}) have one label",
    "late_columns": "its negatives are in {columns}",
    "left_out": "{n} of the row's {of} left out",
    "field_count": "{n} fields, {expected} expected",
    "repeated_header": "the header again",
    "repeated_key": "key {key!r} appears twice",
    "size": "{of} over {mib} MiB",
    "depth": "nested about a thousand levels deep",
    "nul_byte": "NUL byte",
    "not_utf8": "not valid UTF-8",
    "syntax": "{parser}",
    "python_quotes": "{parser}; single quotes are Python's, not JSON's",
    "half_surrogate": "half of a surrogate pair, which is not a character",
}
"""Description of a row's exact fault, by kind. {parser} is the message of the parser that rejected the row."""


def fact_sentence(table: Mapping[str, str], fact: Fact) -> str:
    """Return a fact's sentence, from a table of templates by kind; "" for an unknown kind or missing values."""
    try:
        return table[fact.kind].format_map(fact.values)
    except KeyError:
        return ""


def fault_text(fact: Fact | None) -> str:
    """Describe the exact fault of a row in a few words; "" if there is no fact."""
    text = "" if fact is None else fact_sentence(FAULTS, fact)
    if not fact or not text or "n_lines" not in fact.values:
        return text
    return f"{text}; a quotation mark joins {fact.values['n_lines']} lines"
