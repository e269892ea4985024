"""Read vectors computed elsewhere, from a .npz or .parquet file that maps texts to rows.

The column (array) `text_sha256` (hex SHA-256 of the UTF-8 text) or `text` assigns a text to each row. Without either
column, line i of NAME.jsonl in the same folder holds the text of row i, as a JSON string or an object with "text". A
column `role` (query or passage) distinguishes two vectors of one text.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secid.encode.encoder import MODEL_FIELDS, Float32Rows, Role, as_rows, cut_dimension, finish_rows, unused_flags
from secid.encode.segment import KeyBytes, Words, file_sha256, find_keys, key_words, sha256_keys
from secid.errors import EncoderError, is_encryption_error, plain_message
from secid.records import Fact
from secid.results import EncoderInfo
from secid.settings import RECIPE_FIELDS, Settings

VECTOR_NAMES = ("vector", "vectors", "embedding", "embeddings")
TEXT_NAMES = ("text", "texts")
SHA256 = "text_sha256"
READ_ARRAYS = (*VECTOR_NAMES, *TEXT_NAMES, SHA256, "role")

FIXED_BY_FILE = (*(name for name in RECIPE_FIELDS if name not in ("normalize", "truncate_dim")), *MODEL_FIELDS)
"""Settings that have no effect, because they were fixed when the rows were computed."""

STORED_UNIT_TOLERANCE = 1e-3
"""Maximum difference between 1 and the length of a normalised row. Half precision changes lengths by a few 1e-4."""

VECTOR_REMEDY = "write one vector per text, all of one length, as float32 or float16"
COUNT_REMEDY = "write one text, or its hash, for each vector, and one role if there are roles"
LINE_REMEDY = "write each text as a JSON string on its own line"

HEX_VALUES = np.full(256, 16, np.uint8)
"""Value of each hexadecimal digit by its code; 16 for other characters."""
HEX_VALUES[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]

HALF_ROUNDING = 2.0**-11
"""Maximum relative rounding error of a half-precision number, and so of a unit row."""


class VectorTable(NamedTuple):
    """Contents of a file.

    vectors : (n, d).   keys : (n, 16) uint8 text keys.   roles : (n,) str, or None if the file has no roles.
    rule    : column or file that the keys come from.
    """

    vectors: NDArray[Any]
    keys: KeyBytes
    roles: NDArray[np.str_] | None
    rule: str


class PrecomputedEncoder:
    """Encoder that looks up rows by text.

    rounding : maximum error of a unit row due to the file's number format.
    bad      : numbers of the rows that are NaN, infinite or zero. Encoding the text of such a row is an error.
    """

    def __init__(self, table: VectorTable, info: EncoderInfo, truncate_dim: int | None, bad: NDArray[np.int64]) -> None:
        self.info = info
        self.rounding = HALF_ROUNDING if table.vectors.dtype == np.float16 else 0.0
        self._vectors = table.vectors
        self._truncate_dim, self._bad = truncate_dim, bad
        of_queries = _index(table, "query", info.name)
        of_passages = of_queries if table.roles is None else _index(table, "passage", info.name)
        self._index = {"query": of_queries, "passage": of_passages}

    def stored(self) -> Float32Rows:
        """Return all rows, (n, info.dim) float32, in the form that `encode` returns. The self-test checks them."""
        return self._finish(self._vectors)

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """Return (n, info.dim) float32. Raises EncoderError, which names the text, if a text has no usable vector."""
        high, low, rows = self._index[role]
        places = find_keys(*key_words(sha256_keys(texts)), high, low)
        missing = np.flatnonzero(places < 0)
        if len(missing):
            raise EncoderError(
                f"{len(missing)} of {len(texts)} {role} texts have no vector, "
                f"starting with {texts[int(missing[0])][:80]!r}",
                where=self.info.name,
                remedy="add vectors for the exact texts that secid reads: with the title in front, without a prefix",
            )
        wrong = np.flatnonzero(np.isin(rows[places], self._bad))
        if len(wrong):
            raise EncoderError(
                f"row {rows[places[wrong[0]]]} of the file, the vector of {texts[int(wrong[0])][:80]!r}, is NaN, "
                f"infinite or zero ({len(self._bad):,} such rows)",
                where=self.info.name,
                remedy="compute these vectors again",
            )
        return self._finish(self._vectors[rows[places]])

    def _finish(self, rows: NDArray[Any]) -> Float32Rows:
        """Truncate and scale rows. Rows of float64 are always scaled before rounding."""
        return finish_rows(rows, self._truncate_dim, self.info.normalize or rows.dtype == np.float64)


def load_precomputed(settings: Settings) -> PrecomputedEncoder:
    """Load the vectors file that `settings.encoder` names.

    Raises EncoderError if the file cannot be read, lacks vectors or keys, or holds two vectors for one text.
    """
    path = Path(settings.encoder or "").expanduser()
    if not path.is_file():
        raise EncoderError("no such file", where=str(path), remedy="give a .npz or .parquet file of vectors")
    table = _read_npz(path) if path.suffix == ".npz" else _read_parquet(path)
    lengths = np.sqrt(np.einsum("ij,ij->i", table.vectors, table.vectors, dtype=np.float64))
    unit = bool((np.abs(lengths - 1) <= STORED_UNIT_TOLERANCE).all())
    bad = np.flatnonzero(~((lengths > 0) & (lengths < np.inf)))
    normalize = settings.normalize if settings.normalize is not None else unit or settings.truncate_dim is not None
    sha256 = file_sha256(path)
    keys = hashlib.sha256(table.keys.tobytes()).hexdigest()  # texts may be in a separate file
    identity = json.dumps([sha256, keys, table.rule, normalize, settings.truncate_dim])
    raw = () if unit else (Fact("stored_raw_rows"),)
    info = EncoderInfo(
        name=str(path),
        revision=None,
        weights_sha256=sha256,
        pooling="precomputed",
        query_prefix="",
        passage_prefix="",
        max_length=None,
        normalize=normalize,
        dtype="fp16" if table.vectors.dtype == np.float16 else "float32",
        device="file",
        dim=cut_dimension(table.vectors.shape[1], settings.truncate_dim),
        fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
        rules={
            "rows": table.rule,
            "normalize": "flag" if settings.normalize is not None else "stored rows",
            "truncate_dim": "default" if settings.truncate_dim is None else "flag",
        },
        facts=(*unused_flags(settings, "unused_by_file", FIXED_BY_FILE), *raw),
    )
    return PrecomputedEncoder(table, info, settings.truncate_dim, bad)


def _index(table: VectorTable, role: str, where: str) -> tuple[Words, Words, NDArray[np.int64]]:
    """Return (high words, low words, row numbers) of a role's keys, sorted by key.

    Raises EncoderError if a text has two different vectors.
    """
    rows = np.arange(len(table.keys)) if table.roles is None else np.flatnonzero(table.roles == role)
    high, low = key_words(table.keys[rows])
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    repeats = np.flatnonzero((high[1:] == high[:-1]) & (low[1:] == low[:-1]))
    for place in repeats:
        first, second = rows[order[place]], rows[order[place + 1]]
        if not np.array_equal(table.vectors[first], table.vectors[second]):
            raise EncoderError(
                f"rows {first} and {second} differ but share a text", where=where, remedy="keep one vector per text"
            )
    return high, low, rows[order]


NPZ_ERRORS = (
    OSError, ValueError, TypeError, EOFError, MemoryError, RuntimeError, SyntaxError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""Errors that NumPy and its libraries raise for a damaged .npz."""


def _read_npz(path: Path) -> VectorTable:
    try:
        with zipfile.ZipFile(path) as archive:  # np.load would accept other kinds of files too
            members = [name.removesuffix(".npy") for name in archive.namelist()]
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name in READ_ARRAYS}
    except NPZ_ERRORS as error:
        raise EncoderError(
            f"cannot be read: {plain_message(error)}", where=str(path), remedy="write it with np.savez"
        ) from error
    name = _vectors_of(members, path)
    vectors = arrays[name]
    if vectors.ndim != 2 or vectors.shape[1] == 0 or vectors.dtype.kind != "f":
        raise EncoderError(
            f"{name} has shape {vectors.shape} and type {vectors.dtype}, expected (n, d) floats",
            where=str(path),
            remedy=VECTOR_REMEDY,
        )
    wrong = [f"{key} has shape {array.shape}" for key, array in arrays.items() if key != name and array.ndim != 1]
    if wrong:
        raise EncoderError(f"{', '.join(wrong)}, expected one value per vector", where=str(path), remedy=COUNT_REMEDY)
    columns = {key: array if key == SHA256 else array.tolist() for key, array in arrays.items() if key != name}
    return _table(path, vectors, columns, members)


def _read_parquet(path: Path) -> VectorTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = "it is encrypted" if is_encryption_error(error) else plain_message(error)
        raise EncoderError(f"cannot be read: {reason}", where=str(path), remedy="write the file again") from error
    name = _vectors_of(table.column_names, path)
    column = table.column(name).combine_chunks()
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(column.type) for is_kind in kinds):
        message = f"{name} is of type {column.type}, expected a list of floats"
        raise EncoderError(message, where=str(path), remedy=VECTOR_REMEDY)
    if column.null_count or len(table) == 0:
        message = f"{name} has {len(table)} rows, {column.null_count} of them null"
        raise EncoderError(message, where=str(path), remedy=VECTOR_REMEDY)
    numbers = column.flatten().to_numpy(zero_copy_only=False)
    if len(numbers) % len(table) or len({*np.diff(_offsets(column))}) > 1:
        raise EncoderError(f"{name} contains vectors of different lengths", where=str(path), remedy=VECTOR_REMEDY)
    vectors = numbers.reshape(len(table), -1)
    if vectors.dtype.kind != "f":
        raise EncoderError(f"{name} contains {vectors.dtype}, expected floats", where=str(path), remedy=VECTOR_REMEDY)
    names = [key for key in (SHA256, "role", *TEXT_NAMES) if key in table.column_names]
    return _table(path, vectors, {key: table.column(key).to_pylist() for key in names}, table.column_names)


def _offsets(column: Any) -> NDArray[np.int64]:
    import pyarrow as pa

    if pa.types.is_fixed_size_list(column.type):
        return np.arange(len(column) + 1, dtype=np.int64) * int(column.type.list_size)
    return np.asarray(column.offsets, dtype=np.int64)


def _vectors_of(present: Collection[str], path: Path) -> str:
    """Return the name of the array of vectors. Raises EncoderError unless exactly one array has such a name."""
    matches = [name for name in VECTOR_NAMES if name in present]
    if len(matches) != 1:
        raise EncoderError(
            f"expected one array of vectors named {', '.join(VECTOR_NAMES)}, "
            f"got {', '.join(sorted(present)) or 'nothing'}",
            where=str(path),
            remedy='name the array of vectors "vector", and the array of texts "text" (or "text_sha256")',
        )
    return matches[0]


def _table(path: Path, vectors: NDArray[Any], columns: dict[str, Any], present: Iterable[str]) -> VectorTable:
    if len(vectors) == 0:
        raise EncoderError("contains no vectors", where=str(path), remedy=VECTOR_REMEDY)
    keys, rule = _keys(path, columns, present)
    if len(keys) != len(vectors):
        message = f"{len(vectors)} vectors but {len(keys)} texts ({rule})"
        raise EncoderError(message, where=str(path), remedy=COUNT_REMEDY)
    as_rows(vectors[:1], 1, None, str(path))
    roles = np.asarray(columns["role"], dtype=np.str_) if "role" in columns else None
    if roles is not None and not set(roles.tolist()) <= {"query", "passage"}:
        message = f"got roles {sorted(set(roles.tolist()))[:5]}, expected query and passage"
        raise EncoderError(message, where=str(path), remedy="correct the roles, or leave them out")
    if roles is not None and len(roles) != len(vectors):
        message = f"{len(vectors)} vectors but {len(roles)} roles"
        raise EncoderError(message, where=str(path), remedy=COUNT_REMEDY)
    return VectorTable(vectors, keys, roles, rule)


def _keys(path: Path, columns: dict[str, Any], present: Iterable[str]) -> tuple[KeyBytes, str]:
    """Return the keys of the rows, and the column or file that they come from. Raises EncoderError without either."""
    if SHA256 in columns:
        return _sha256_column(np.asarray(columns[SHA256], np.str_), path), SHA256
    for name in TEXT_NAMES:
        if name in columns:
            wrong = [place for place, text in enumerate(columns[name]) if not isinstance(text, str)]
            if wrong:
                raise EncoderError(
                    f"{name} of row {wrong[0]} is {columns[name][wrong[0]]!r}, expected a string",
                    where=str(path),
                    remedy="write each text as a string",
                )
            return sha256_keys(columns[name]), name
    text_file = path.with_suffix(".jsonl")
    if not text_file.is_file():
        raise EncoderError(
            f"no column assigns texts to rows; the file has {', '.join(sorted(present))}",
            where=str(path),
            remedy=f"add a column text_sha256 or text, or write the texts in row order to {text_file.name}",
        )
    return sha256_keys(_lines(text_file)), f"row order of {text_file.name}"


def _sha256_column(values: NDArray[np.str_], path: Path) -> KeyBytes:
    """Return the first halves of hexadecimal SHA-256 as (n, 16) uint8. Raises EncoderError for an invalid value."""
    width = values.itemsize // 4  # number of characters
    codes = np.ascontiguousarray(values, f"=U{width}").view(np.uint32).reshape(len(values), width)
    digits = HEX_VALUES[np.minimum(codes[:, :64], 255)]
    is_valid = (digits < 16).all(axis=1) & (width >= 64) & ~codes[:, 64:].any(axis=1)
    if not is_valid.all():
        wrong = int(is_valid.argmin())
        raise EncoderError(
            f"text_sha256 of row {wrong} is {str(values[wrong])!r}, expected 64 hexadecimal digits",
            where=str(path),
            remedy="write the hexadecimal SHA-256 of each text in UTF-8",
        )
    return digits[:, :32:2] << np.uint8(4) | digits[:, 1:32:2]


def _lines(path: Path) -> list[str]:
    texts = []
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                value = json.loads(line.decode("utf-8-sig"))
            except ValueError as error:  # JSON or UTF-8
                message = f"not valid JSON: {error}"
                raise EncoderError(message, where=f"{path}:{number}", remedy=LINE_REMEDY) from error
            text = value.get("text") if isinstance(value, dict) else value
            if not isinstance(text, str):
                message = f'got {str(value)[:60]}, expected a JSON string or an object with "text"'
                raise EncoderError(message, where=f"{path}:{number}", remedy=LINE_REMEDY)
            texts.append(text)
    return texts
