"""Encodes texts as they are asked for, each once, and keeps their unit rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import Index, distinct
from secid.encode import Cache, Encoder, Role, StreamingEncoder, embed
from secid.encode.device import gpu_of, gpu_with_room
from secid.encode.transfer import host_rows
from secid.errors import EncoderError
from secid.measure.blocks import Vectors
from secid.pool.texts import StoredTexts, TextStore
from secid.progress import Progress
from secid.results import EncoderInfo
from secid.settings import Settings
from secid.triplets.rows import DeviceRows, FileRows

CachedRows = Callable[[Index, npt.NDArray[np.float32], npt.NDArray[np.bool_]], None]
"""Takes positions (n,), their rows (n, d), and whether each text was cut."""
COUNTED = ("n_texts", "n_cached", "n_encoded", "n_bytes", "n_tokens", "n_truncated")
CUTS_UNKNOWN = "cuts_unknown"


class Embedder:
    """Encodes each text of two stores once, when first needed.

    vectors   : rows by id; a row is zero until it has been asked for.
    truncated : (n_passages,) which of the embedded passages were cut at the maximum length; None where the encoder
                does not say (CUTS_UNKNOWN).
    counts    : what embedding took so far, by COUNTED, without n_truncated where the encoder does not say.
    """

    def __init__(
        self,
        queries: TextStore,
        passages: TextStore,
        encoder: Encoder,
        settings: Settings,
        folder: Path,
        progress: Progress,
    ) -> None:
        self._stores: dict[Role, TextStore] = {"query": queries, "passage": passages}
        self._first: dict[Role, int] = {"query": 0, "passage": len(queries)}  # rows of all texts are in one table
        n, d, info = len(queries) + len(passages), encoder.info.dim, encoder.info
        self._encoder, self._progress, self._n_failures = encoder, progress, 0
        self._cache = _cache(info, settings)
        device = gpu_with_room(info.device, 4 * n * d)
        self._rows = FileRows(folder / "rows.f32", n, d) if device is None else DeviceRows(device, n, d)
        self._done, self._truncated = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self._reports_cuts = info.pooling not in ("precomputed", "unknown")
        counts = [name for name in COUNTED if name != "n_truncated" or self._reports_cuts]
        self.counts: dict[str, float] = dict.fromkeys(counts, 0)
        self.vectors = self._vectors(gpu_of(info.device), d)

    @property
    def truncated(self) -> npt.NDArray[np.bool_] | None:
        return self._truncated[self._first["passage"] :] if self._reports_cuts else None

    def everything(self) -> None:
        """Embeds all texts."""
        self.passages(np.arange(len(self._stores["passage"])))

    def passages(self, ids: Index) -> None:
        """Embeds all queries and these passages."""
        self.need(np.arange(len(self._stores["query"])), ids)

    def need(self, queries: Index, passages: Index) -> None:
        """Embeds those of these texts that have no row yet: what the cache holds first, then each role in one stream.

        However it ends, what was encoded stays in the cache.
        """
        asked: dict[Role, Index] = {"query": queries, "passage": passages}
        missing = {role: self._missing(role, ids) for role, ids in asked.items()}
        n_texts = sum(map(len, missing.values()))
        if not n_texts:
            return
        self._rows.reserve(n_texts)
        self.counts["n_texts"] += n_texts
        try:
            if self._cache is not None:
                self._progress.start("read the cache", None, "texts")  # apart: it says nothing of the time to encode
                self._look_up(self._cache, missing)
                missing = {role: self._missing(role, ids) for role, ids in missing.items()}
                n_texts = sum(map(len, missing.values()))
                self._cache.expect(n_texts, self._encoder.info.dim)
                self._say()
            if n_texts:
                self._progress.start("encode", n_texts, "texts")
            for role, ids in missing.items():
                self._encode(role, ids)
        except BaseException:  # also on Ctrl-C, and this error is the one reported
            if self._cache is not None:
                with suppress(Exception):
                    self._cache.flush()
                if n := self._cache.n_written:
                    self._progress.note(f"the cache has kept the {n:,} texts that this run encoded: the next continues")
            raise
        if self._cache is not None:
            self._cache.seal()
        self._say()

    def has(self, passages: Index) -> npt.NDArray[np.bool_]:
        """(n,) which of these passages have a row."""
        return self._done[passages + self._first["passage"]]

    def cached(self, keys: npt.NDArray[np.uint8], put: CachedRows) -> npt.NDArray[np.bool_]:
        """Hands over the rows of passages outside the stores that the cache holds; (n,) which they are."""
        if self._cache is None:
            return np.zeros(len(keys), np.bool_)
        return self._cache.lookup(keys, self._encoder.info.dim, put)

    def may_add(self, n_texts: int, share: float) -> bool:
        """Whether so many further texts are few: up to this share of its own, of an encoder that runs here."""
        return not n_texts or (self._reports_cuts and n_texts <= share * len(self._done))

    def add_passages(self, texts: Sequence[str], keys: npt.NDArray[np.uint8]) -> Tensor:
        """(n, d) rows of passages outside the stores, encoded and put in the cache."""
        self._progress.start("encode the corpus", len(texts), "texts")
        rows = torch.empty(len(texts), self._encoder.info.dim)
        if self._cache is not None:
            self._cache.expect(len(texts), self._encoder.info.dim)
        with closing(embed(self._encoder, texts, "passage")) as batches:
            for batch in batches:
                if self._cache is not None:
                    self._cache.add(keys[batch.positions], batch.vectors, batch.truncated)
                rows[torch.from_numpy(batch.positions)] = torch.from_numpy(host_rows(batch.vectors))
                self._progress.advance(len(batch.positions))
        return rows

    def close(self) -> None:
        """Returns when what was encoded is in the cache. Nothing can be embedded afterwards."""
        if self._cache is not None:
            self._cache.close()
        self._say()

    def _missing(self, role: Role, ids: Index) -> Index:
        return distinct(ids[~self._done[ids + self._first[role]]])

    def _look_up(self, cache: Cache, missing: dict[Role, Index]) -> None:
        rows = np.concatenate([ids + self._first[role] for role, ids in missing.items()])
        keys = np.concatenate([self._stores[role].keys[ids] for role, ids in missing.items()])

        put = self._rows.writer(rows)

        def copy(positions: Index, values: npt.NDArray[np.float32], truncated: npt.NDArray[np.bool_]) -> None:
            put(positions, values)
            self._mark(rows[positions], truncated)

        self.counts["n_cached"] += int(cache.lookup(keys, self._encoder.info.dim, copy).sum())
        self._say()

    def _encode(self, role: Role, ids: Index) -> None:
        if not len(ids):
            return
        store, rows = self._stores[role], ids + self._first[role]
        put = self._rows.writer(rows)
        with closing(embed(self._encoder, StoredTexts(store, ids), role)) as batches:
            for batch in batches:
                if self._cache is not None:
                    self._cache.add(store.keys[ids[batch.positions]], batch.vectors, batch.truncated)
                put(batch.positions, batch.vectors)
                self._mark(rows[batch.positions], batch.truncated)
                self.counts["n_encoded"] += len(batch.positions)
                self.counts["n_bytes"] += int(store.lengths[ids[batch.positions]].sum())
                self.counts["n_tokens"] += batch.n_tokens
        if n_missing := len(self._missing(role, ids)):
            raise EncoderError(f"no row came back for {n_missing} of {len(ids)} texts", where=self._encoder.info.name)

    def _mark(self, places: Index, truncated: npt.NDArray[np.bool_]) -> None:
        self._truncated[places] = truncated
        self._done[places] = True
        if self._reports_cuts:
            self.counts["n_truncated"] += int(truncated.sum())
        self._progress.advance(len(places))

    def _vectors(self, gpu: torch.device | None, d: int) -> Vectors:
        rows = self._rows
        if isinstance(rows, DeviceRows):
            return Vectors(rows.values[: self._first["passage"]], rows.values[self._first["passage"] :])

        def take(role: Role, ids: Index, out: Tensor) -> None:
            rows.take(ids + self._first[role], out)

        return Vectors(torch.empty(0, d), torch.empty(0, d), take, device=gpu)

    def _say(self) -> None:
        """Passes on the cache's notes, and each failure of a device once."""
        while self._cache is not None and self._cache.notes:
            self._progress.note(self._cache.notes.pop(0))
        failures = self._encoder.failures if isinstance(self._encoder, StreamingEncoder) else ()
        for failure in failures[self._n_failures :]:
            self._progress.note(failure)
        self._n_failures = len(failures)


def _cache(info: EncoderInfo, settings: Settings) -> Cache | None:
    """The cache of an encoder that can be identified; a vectors file needs none."""
    if not settings.cache or not info.fingerprint or info.pooling == "precomputed":
        return None
    return Cache.open(settings, info.fingerprint, info.name, half=info.dtype in ("bf16", "fp16"))


def rows_of_ids(vectors: Vectors, role: Role, ids: Index, n_rows: int) -> Iterator[Tensor]:
    """The rows of these ids in their order, (n_rows, d) or fewer at once, from a file or where they are."""
    rows = vectors.queries if role == "query" else vectors.passages
    if vectors.gather is None:
        places = torch.from_numpy(ids).to(rows.device)
        for start in range(0, len(ids), n_rows):
            yield rows.index_select(0, places[start : start + n_rows])
        return
    for start in range(0, len(ids), n_rows):
        rising = distinct(ids[start : start + n_rows])
        read = torch.empty(len(rising), vectors.dimension)
        vectors.gather(role, rising, read)
        rows = read.index_select(0, torch.from_numpy(np.searchsorted(rising, ids[start : start + n_rows])))
        yield rows.to(vectors.computes_on)
