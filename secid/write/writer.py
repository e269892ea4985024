"""Write rows in a trainer's schema. All commands that write training rows use this module.

    st-ntuple      anchor, positive, negative_1 … negative_K; if rows differ in their number of negatives, one triplet
                   (anchor, positive, negative) per row
    flagembedding  query, pos, neg; pos_scores and neg_scores if every passage has a score; pos_ids and neg_ids
                   if any passage has an id; other scalar columns
    tevatron       query_id, query, positive_passages, negative_passages of {docid, title, text}; other scalar columns
    nvidia         question_id, query, pos_doc, neg_doc of {id, text}; other scalar columns

For mined negatives, the last three schemas also hold score, rank, margin and miner: as neg_scores, neg_ranks,
neg_margins and neg_miners, or as keys of each object. A missing value is null.

The suffix decides between JSON lines and Parquet. Every row has every column, as the loaders of both formats expect.
Values are written unchanged. Two kinds of columns are omitted, and reported: those with values that do not fit one
Parquet type, and those that would make secid read the file differently.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from io import TextIOWrapper
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast, get_args

from secid.errors import InputError, OutputError, UsageError
from secid.files import partial_files, write_error
from secid.read.detect import detect
from secid.read.reader import HEAD_ROWS
from secid.records import Scalar
from secid.results.commands import COPY_SUFFIXES
from secid.settings import Settings
from secid.write.rows import ID_COLUMNS, PROVENANCE, QUERY_ID, SCORE_COLUMNS, CopyRow, Passage

Schema = Literal["st-ntuple", "flagembedding", "tevatron", "nvidia"]
SCHEMAS: tuple[Schema, ...] = get_args(Schema)
COPY_SCHEMAS: Mapping[str, Schema] = {"triplet": "st-ntuple", **{name: name for name in SCHEMAS[1:]}}
"""Schema as read -> schema of a copy, if the user does not set --as. Any other schema becomes flagembedding."""
WRITE_BATCH_ROWS = 1024
"""Number of rows per Parquet batch."""
TEXT_COLUMNS: Mapping[Schema, tuple[str, ...]] = {
    "st-ntuple": ("anchor", "positive"),
    "flagembedding": ("query", "pos", "neg", *SCORE_COLUMNS, *ID_COLUMNS, *PROVENANCE.values()),
    "tevatron": (QUERY_ID, "query", "positive_passages", "negative_passages"),
    "nvidia": ("question_id", "query", "pos_doc", "neg_doc"),
}
"""Columns that each schema defines. Some are optional."""
PASSAGE_ID_KEYS: Mapping[Schema, str] = {"tevatron": "docid", "nvidia": "id"}
"""Schema whose passages are objects -> key of a passage's id. NeMo AutoModel's inline loader reads the texts of
`nvidia` from query, pos_doc and neg_doc (docs.nvidia.com/nemo/automodel, Retrieval Dataset, inline-text JSONL)."""
QUERY_IDS = (QUERY_ID, "query-id", "qid", "question_id", "_id", "id")
"""Columns that may hold the query id. The first one with a value in a row counts."""
NOT_FINITE = "NaN or infinity"
EXACT_LIMIT, INT64_LIMIT = 2**53, 2**63
"""Limits below which 64-bit floats and 64-bit integers hold every whole number exactly."""
VALUE_KINDS = {type(None): "null", str: "text", bool: "bool"}
PARQUET_TYPES: Mapping[str, Set[str]] = {
    "string": {"text"},
    "bool": {"bool"},
    "int64": {"int", "long"},
    "float64": {"int", "float", NOT_FINITE},
}
"""Parquet type -> kinds of values that it holds unchanged."""
PASSAGE_IDS, SCORES, FURTHER_POSITIVES = "ids of passages", "scores of passages", "further positives"
POSITIVE_SCORES = "scores of positives"
MINED = "rank, margin and miner of negatives"
"""PASSAGE_IDS to MINED: names of contents that only some schemas can hold."""


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """Contents of a written file.

    layout      : "n-tuple" or "triplets" for st-ntuple, else "".
    n_made_ids  : number of rows for which a query id or passage id was generated.
    not_held    : name of a content that the file lacks -> number of source rows with it (for further positives, the
                  number of positives).
    """

    schema: Schema
    layout: str
    n_rows: int
    n_negatives: int
    n_made_ids: int
    not_held: dict[str, int]


def schema_of(requested: str | None, formats: Collection[str]) -> Schema:
    """Return the schema to write. requested: the user's --as, or None. formats: schemas of the source's files.

    Raises UsageError for an unknown schema.
    """
    if requested is not None and requested not in SCHEMAS:
        raise UsageError(f"unknown schema {requested!r}", where="--as", remedy=f"use one of {', '.join(SCHEMAS)}")
    schemas = {COPY_SCHEMAS.get(name, "flagembedding") for name in formats}
    return requested or (schemas.pop() if len(schemas) == 1 else "flagembedding")


def suffix_of(out: Path) -> str:
    """Return the suffix of a path, which decides the container. Raises OutputError for an unknown suffix."""
    for suffix in COPY_SUFFIXES:
        if out.name.endswith(suffix):
            return suffix
    raise OutputError("unknown suffix", where=str(out), remedy=f"end the name in {', '.join(COPY_SUFFIXES)}")


@contextmanager
def new_files(*paths: Path) -> Iterator[list[Path]]:
    """Yield temporary paths for new files. At the end of the block, all files appear together, or none does.

    Raises OutputError if a file already exists or cannot be written.
    """
    for path in paths:
        if not path.parent.is_dir():
            raise OutputError("no such directory", where=str(path.parent), remedy="create it first")
        if path.exists() or path.is_symlink():
            raise OutputError("already exists", where=str(path), remedy="name a new file: secid overwrites none")
    with partial_files(paths) as partials:
        yield partials
        with ExitStack() as placed:
            for partial, path in zip(partials, paths, strict=True):
                with writing(path):
                    partial.replace(path)
                placed.callback(path.unlink)
            placed.pop_all()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise an OSError of the block as an OutputError that names the path. The block must write only `path`."""
    try:
        yield
    except OSError as error:
        raise write_error(error, path) from error


@dataclass
class _Survey:
    """Statistics of all rows, which determine the columns of the file.

    n_scored      : number of rows whose passages all have a score.
    n_without_ids : number of rows that lack the id of the query or of a passage.
    numbers       : distinct numbers of negatives per row.
    contents      : name of a column or other content -> number of rows with a value.
    unsupported   : name of content that no schema can hold -> number of rows with it.
    unwritable    : column -> number of values that JSON cannot hold.
    """

    n_rows: int = 0
    n_negatives: int = 0
    n_scored: int = 0
    n_without_ids: int = 0
    numbers: set[int] = field(default_factory=set)
    kinds: dict[str, set[str]] = field(default_factory=dict)
    contents: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    unwritable: Counter[str] = field(default_factory=Counter)

    def take(self, row: CopyRow) -> None:
        passages = (*row.positives, *row.negatives)
        has_ids = [bool(passage.id) for passage in passages]
        self.n_rows += 1
        self.n_negatives += len(row.negatives)
        self.n_scored += all(passage.score is not None for passage in passages)
        self.n_without_ids += not (_query_id(row) and all(has_ids))
        self.numbers.add(len(row.negatives))
        for name, value in _columns(row).items():
            kind = _kind(value)
            self.kinds.setdefault(name, set()).add(kind)
            self.contents[name] += value is not None
            self.unwritable[name] += kind == NOT_FINITE
        self.contents[PASSAGE_IDS] += any(has_ids)
        self.contents[SCORES] += any(passage.score is not None for passage in passages)
        self.contents[POSITIVE_SCORES] += any(passage.score is not None for passage in row.positives)
        self.contents[MINED] += any(passage.miner for passage in row.negatives)
        self.contents[FURTHER_POSITIVES] += len(row.positives) - 1
        self.unsupported.update(row.unsupported)


def write_rows(rows: Callable[[], Iterable[CopyRow]], schema: Schema, out: Path, suffix: str) -> WrittenFile:
    """Write rows to the new file `out`, in the container of the suffix.

    rows : function that returns the same rows at each call. It is called to determine the columns, to test how secid
           reads the first rows, and to write the file.
    Memory does not grow with the number of rows.
    """
    survey = _Survey()
    for row in rows():
        survey.take(row)
    equal = len(survey.numbers) == 1
    mined = [*PROVENANCE, "score"] if survey.contents[MINED] else []
    scored, with_ids = survey.n_scored == survey.n_rows and not mined, bool(survey.contents[PASSAGE_IDS])
    parquet = suffix == ".parquet"

    def documents(names: Collection[str]) -> Iterator[dict[str, Any]]:
        for row in rows():
            columns = _columns(row)
            others = {name: _json_value(columns.get(name), parquet) for name in names}
            if schema == "st-ntuple":
                yield from _tuples(row, equal)
            elif schema == "flagembedding":
                yield {**_lists(row, scored, with_ids, mined), **others}
            else:
                yield {**_objects(row, schema, mined), **others}

    types = {} if schema == "st-ntuple" else {name: type_of(kinds) for name, kinds in survey.kinds.items()}
    fixed = {*TEXT_COLUMNS[schema], *([QUERY_ID] if schema in PASSAGE_ID_KEYS else ())}
    names = [name for name, kind in types.items() if name not in fixed and (kind or not parquet)]
    names = _harmless_columns(list(islice(documents(names), HEAD_ROWS)), names)
    is_writable = {
        PASSAGE_IDS: schema != "st-ntuple",
        SCORES: (scored and schema == "flagembedding") or (bool(mined) and schema != "st-ntuple"),
        POSITIVE_SCORES: not mined or schema == "st-ntuple",  # in these files, part of SCORES
        MINED: schema != "st-ntuple",
        FURTHER_POSITIVES: schema != "st-ntuple",
        **dict.fromkeys((*names, *([QUERY_ID] if schema in PASSAGE_ID_KEYS else ())), True),
    }
    not_held = survey.unsupported + Counter(
        {name: n for name, n in survey.contents.items() if not is_writable.get(name)}
    )
    if not parquet:
        not_held += Counter({f"{NOT_FINITE} in {name}": survey.unwritable[name] for name in names})
    return WrittenFile(
        schema=schema,
        layout=("n-tuple" if equal else "triplets") if schema == "st-ntuple" else "",
        n_rows=_write(documents(names), {name: types[name] for name in names}, out, suffix),
        n_negatives=survey.n_negatives,
        n_made_ids=survey.n_without_ids if schema in PASSAGE_ID_KEYS else 0,
        not_held=dict(sorted(not_held.items())),
    )


def _harmless_columns(head: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Return the columns of `names` that do not change how secid reads the file. head: the file's first rows."""

    def reading(names_read: Collection[str]) -> object:
        left_out = set(names).difference(names_read)
        try:
            binding = detect([{k: v for k, v in row.items() if k not in left_out} for row in head], Settings(), "")
        except InputError:
            return None
        return binding.schema, binding.text_columns, binding.query_ids, binding.passage_ids

    alone = reading(())
    if reading(names) == alone:
        return list(names)
    harmless: list[str] = []
    for name in names:
        if reading((*harmless, name)) == alone:
            harmless.append(name)
    return harmless


def _columns(row: CopyRow) -> Mapping[str, Scalar]:
    return {QUERY_ID: row.query_id, **row.columns} if row.query_id else row.columns


def _query_id(row: CopyRow) -> str:
    columns = _columns(row)
    return next((str(columns[name]) for name in QUERY_IDS if columns.get(name) not in (None, "")), "")


def _kind(value: Scalar) -> str:
    """Return the kind of a value: a value of VALUE_KINDS, "float", NOT_FINITE, "int", "long" or "huge"."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return VALUE_KINDS[type(value)]
    if isinstance(value, float):
        return "float" if isfinite(value) else NOT_FINITE
    return "int" if abs(value) <= EXACT_LIMIT else "long" if -INT64_LIMIT <= value < INT64_LIMIT else "huge"


def type_of(kinds: Set[str]) -> str:
    """Return the Parquet type that holds all these kinds of values unchanged; "" if no type does."""
    needed = kinds - {"null"}
    return next((name for name, accepted in PARQUET_TYPES.items() if needed <= accepted), "")


def _json_value(value: Scalar, parquet: bool) -> Scalar:
    """Return the value, or None for NaN and infinity in JSON, which cannot hold them."""
    return None if not parquet and _kind(value) == NOT_FINITE else value


def _tuples(row: CopyRow, equal: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of st-ntuple. sentence-transformers reads columns by position, and no cell may be empty."""
    start = {"anchor": row.query, "positive": row.positives[0].text}
    texts = [passage.text for passage in row.negatives]
    if equal and len(texts) > 1:
        yield {**start, **{f"negative_{number}": text for number, text in enumerate(texts, 1)}}
    else:
        yield from ({**start, "negative": text} for text in texts)


def _lists(row: CopyRow, scored: bool, with_ids: bool, mined: Collection[str]) -> dict[str, Any]:
    """Return a row of flagembedding.

    scored, with_ids : whether to write scores and passage ids.   mined : fields of mined negatives to write.
    """
    lists: dict[str, list[Any]] = {}
    for side, (texts, scores, ids) in zip(
        (row.positives, row.negatives), zip(("pos", "neg"), SCORE_COLUMNS, ID_COLUMNS, strict=True), strict=True
    ):
        lists[texts] = [passage.text for passage in side]
        if scored:
            lists[scores] = [passage.score for passage in side]
        if with_ids:
            lists[ids] = [passage.id or None for passage in side]
    columns = {**PROVENANCE, "score": SCORE_COLUMNS[1]}
    lists |= {columns[name]: [_or_none(getattr(passage, name)) for passage in row.negatives] for name in mined}
    return {"query": row.query, **{name: lists[name] for name in TEXT_COLUMNS["flagembedding"] if name in lists}}


def _or_none(value: Any) -> Any:
    return None if value == "" else value


def _objects(row: CopyRow, schema: Schema, mined: Collection[str]) -> dict[str, Any]:
    """Return a row of tevatron or nvidia. For nvidia, texts include titles, because its trainer reads no titles."""
    query_id, query, *roles = TEXT_COLUMNS[schema]

    def passage(item: Passage, extra: Collection[str]) -> dict[str, Any]:
        titled = {"title": item.title} if schema == "tevatron" else {}
        text = item.text.removeprefix(f"{item.title} ") if titled and item.title else item.text
        more = {name: getattr(item, name) for name in extra}
        return {PASSAGE_ID_KEYS[schema]: item.id or _made_id(item.text), **titled, "text": text, **more}

    return {
        query_id: _query_id(row) or _made_id(row.query),
        query: row.query,
        roles[0]: [passage(item, ()) for item in row.positives],
        roles[1]: [passage(item, mined) for item in row.negatives],
    }


def _made_id(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _write(documents: Iterator[dict[str, Any]], types: Mapping[str, str], out: Path, suffix: str) -> int:
    if suffix == ".parquet":
        return _write_parquet(documents, types, out)
    n_rows = 0
    with (
        out.open("wb") as raw,
        _open_container(raw, suffix) as file,
        TextIOWrapper(file, "utf-8", newline="\n") as lines,
    ):
        for document in documents:
            lines.write(json.dumps(document, ensure_ascii=False) + "\n")
            n_rows += 1
    return n_rows


def _open_container(raw: BinaryIO, suffix: str) -> BinaryIO:
    """Open the container. A gzip file gets no name and no time, so that the same rows give the same bytes."""
    return cast("BinaryIO", gzip.GzipFile("", "wb", fileobj=raw, mtime=0)) if suffix.endswith(".gz") else raw


def _write_parquet(documents: Iterator[dict[str, Any]], types: Mapping[str, str], out: Path) -> int:
    # pyarrow is imported only for Parquet files, because the import takes 0.1 s.
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = next(documents)
    numbers = {"rank": pa.int64(), "margin": pa.float64(), "score": pa.float64()}

    def passages(role: str) -> pa.DataType:
        fields = next((list(cell) for cell in first.get(role, ())), [])
        return pa.list_(pa.struct([(name, numbers.get(name, pa.string())) for name in fields]))

    special = {
        **dict.fromkeys(("pos", "neg", *ID_COLUMNS, PROVENANCE["miner"]), pa.list_(pa.string())),
        **dict.fromkeys((*SCORE_COLUMNS, PROVENANCE["margin"]), pa.list_(pa.float64())),
        PROVENANCE["rank"]: pa.list_(pa.int64()),
        **{role: passages(role) for name in PASSAGE_ID_KEYS for role in TEXT_COLUMNS[name][2:] if role not in types},
    }
    others = {name: pa.type_for_alias(kind) for name, kind in types.items()}
    schema = pa.schema([(name, others.get(name) or special.get(name, pa.string())) for name in first])
    n_rows = 0
    everything = chain([first], documents)
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        while batch := list(islice(everything, WRITE_BATCH_ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))
            n_rows += len(batch)
    return n_rows
