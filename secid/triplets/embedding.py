"""Unit rows of a plan's texts in memory-mapped files, filled as they are asked for."""

from __future__ import annotations

import mmap
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import distinct
from secid.encode import Cache, Encoder, Role, embed
from secid.errors import NumericalError
from secid.measure.blocks import Vectors
from secid.pool import Plan
from secid.pool.texts import TextStore, pieces
from secid.progress import Progress
from secid.settings import Settings

Index = npt.NDArray[np.int64]

COUNTED = ("n_texts", "n_cached", "n_encoded", "n_tokens", "n_truncated")
PIECE_TEXTS = 32_768
"""Texts embedded together: wide enough that a batch sorted by length pads to nearly its own, yet 100 MB of rows at
768 dimensions."""
PIECE_BYTES = 256 << 20
"""Bytes of text embedded together: more than a piece of passages has."""


CUTS_UNKNOWN = "a vectors file, an endpoint or a function does not say which texts it cut"
PART_BYTES = 256 << 20
"""Of the file, mapped at once by `take`: a system may map far more around a row than the row."""


class MappedRows:
    """(n, d) float32 in a file. values: the array; a row is zero until it is written.

    Pages that were touched stay in the process's memory, as far as there is room, until `release`.
    """

    def __init__(self, path: Path, n: int, d: int, *, new: bool = True) -> None:
        self.values: npt.NDArray[np.float32] = np.memmap(path, np.float32, "w+" if new else "r+", shape=(n, d))

    def take(self, ids: npt.NDArray[np.int64], out: Tensor) -> None:
        """Copies the rows of these rising ids, (n, d), by all threads; parts of the file are given back one by one."""
        n, d = self.values.shape
        rows = torch.from_numpy(self.values)
        at_once = max(1, PART_BYTES // (4 * d))
        cuts = np.searchsorted(ids, np.arange(0, n + at_once, at_once))
        for start, stop in pairwise(cuts.tolist()):
            if stop > start:
                torch.index_select(rows, 0, torch.from_numpy(ids[start:stop]), out=out[start:stop])
                self.release()

    def release(self) -> None:
        """Gives the pages back; the file keeps what was written. Does nothing where the system has no such call."""
        mapped: Any = getattr(self.values, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


class Embedder:
    """Encodes each text of a plan once, when first needed.

    vectors   : rows by id; a row is zero until it has been asked for.
    truncated : (n_passages,) which of the embedded passages were cut at the maximum length; None where the encoder
                does not say (CUTS_UNKNOWN).
    counts    : what embedding took so far, by COUNTED, without n_truncated where the encoder does not say.
    """

    def __init__(self, plan: Plan, encoder: Encoder, settings: Settings, folder: Path, progress: Progress) -> None:
        self._stores: dict[Role, TextStore] = {"query": plan.queries, "passage": plan.passages}
        self._encoder, info = encoder, encoder.info
        self._cache = Cache.open(settings, info.fingerprint, info.name) if settings.cache else None
        self._progress = progress
        self._n_reported = 0
        self._rows: dict[Role, MappedRows] = {
            role: MappedRows(folder / f"{role}.f32", len(store), encoder.dimension)
            for role, store in self._stores.items()
        }
        self._done: dict[Role, npt.NDArray[np.bool_]] = {
            role: np.zeros(len(store), np.bool_) for role, store in self._stores.items()
        }
        self._truncated: dict[Role, npt.NDArray[np.bool_]] = {
            role: np.zeros(len(store), np.bool_) for role, store in self._stores.items()
        }
        self._reports_cuts = info.pooling not in ("precomputed", "unknown")
        counts = [name for name in COUNTED if name != "n_truncated" or self._reports_cuts]
        self.counts: dict[str, float] = dict.fromkeys(counts, 0)
        queries, passages = (torch.from_numpy(self._rows[role].values) for role in ("query", "passage"))
        self.vectors = Vectors(queries, passages, self._gather)

    @property
    def truncated(self) -> npt.NDArray[np.bool_] | None:
        return self._truncated["passage"] if self._reports_cuts else None

    def everything(self) -> None:
        """Embeds all texts of the plan."""
        self.passages(np.arange(len(self._stores["passage"])))

    def passages(self, ids: Index) -> None:
        """Embeds all queries and these passages."""
        self.need(np.arange(len(self._stores["query"])), ids)

    def need(self, queries: Index, passages: Index) -> None:
        """Embeds those of these texts that have no row yet."""
        missing: dict[Role, Index] = {
            "query": distinct(queries[~self._done["query"][queries]]),
            "passage": distinct(passages[~self._done["passage"][passages]]),
        }
        n_texts = sum(map(len, missing.values()))
        if n_texts:
            self._progress.start("encode", n_texts, "texts")
        for role, ids in missing.items():
            for start, stop in pieces(len(ids), PIECE_TEXTS, self._stores[role].lengths[ids], PIECE_BYTES):
                self._embed(role, ids[start:stop])

    def _embed(self, role: Role, ids: Index) -> None:
        texts = self._stores[role].only(ids)
        rows = np.empty((len(ids), self._encoder.dimension), np.float32)
        marks = np.zeros(len(ids), np.bool_)
        try:
            done = embed(
                self._encoder,
                texts,
                texts.keys,
                role,
                rows,
                cache=self._cache,
                progress=self._progress.advance,
                truncated=marks,
            )
            self._rows[role].values[ids] = _unit(rows, texts)
        finally:
            texts.close()
        self._rows[role].release()
        self._truncated[role][ids] = marks
        self._done[role][ids] = True
        for name in self.counts:
            self.counts[name] += getattr(done, name)
        self._report_damage()

    def _gather(self, role: Role, ids: Index, out: torch.Tensor) -> None:
        self._rows[role].take(ids, out)

    def _report_damage(self) -> None:
        """Names each cache segment found damaged, once."""
        damaged = [] if self._cache is None else self._cache.damaged
        for folder in damaged[self._n_reported :]:
            self._progress.note(f"damaged cache segment set aside, its texts are encoded again: {folder}")
        self._n_reported = len(damaged)


def _unit(rows: npt.NDArray[np.float32], texts: TextStore) -> npt.NDArray[np.float32]:
    """Rows of length 1, whatever the encoder gave: not all normalise, and 16 bits leave lengths off by 1e-3.

    Raises NumericalError that names the text of a row of length 0. Source: METHOD 2.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    zero = np.flatnonzero(~(lengths > 0))
    if len(zero):
        place = int(zero[0])
        raise NumericalError(
            f"an embedding has length {lengths[place]:g}: {texts.get(place, place + 1)[0][:80]!r}",
            remedy="leave the text out, or encode again with --dtype float32",
        )
    scaled: npt.NDArray[np.float32] = (rows / lengths[:, None]).astype(np.float32)
    return scaled
