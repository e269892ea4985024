"""Encode without a model: each text's row is drawn from its own hash, which needs no weights and no time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

import numpy as np

from secid.encode import Role
from secid.results import EncoderInfo


class HashEncoder:
    """Encoder whose unit rows come from the hash of (role, text). rotation : (d, d) orthogonal matrix for every row.

    Texts with the same first word lie nearer to each other, so that scores of sources differ.
    """

    def __init__(self, dimension: int = 16, rotation: np.ndarray | None = None, name: str = "hash") -> None:
        self.dimension = dimension
        self.rotation = rotation
        self.n_encoded = 0
        self.info = EncoderInfo(
            name=name,
            revision=None,
            weights_sha256=None,
            pooling="none",
            query_prefix="",
            passage_prefix="",
            max_length=None,
            normalize=True,
            dtype="float32",
            device="cpu",
            dim=dimension,
            fingerprint=f"{name}-{dimension}",
        )

    def encode(self, texts: Sequence[str], role: Role) -> np.ndarray:
        self.n_encoded += len(texts)
        rows = np.array([self.row(text, role) for text in texts]).reshape(len(texts), self.dimension)
        return rows.astype(np.float32)

    def row(self, text: str, role: Role) -> np.ndarray:
        """Return the float64 unit row of a text, before rounding to float32."""
        subject = text.split(" ", 1)[0]
        row = _drawn(f"subject {subject}", self.dimension) + 0.7 * _drawn(f"{role} {text}", self.dimension)
        row /= np.linalg.norm(row)
        return row if self.rotation is None else row @ self.rotation

    def table(self, texts: Sequence[str], role: Role) -> dict[str, np.ndarray]:
        """Return rows as the score uses them (float32, scaled to exact unit length), for an independent computation."""
        rows = self.encode(texts, role).astype(np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return dict(zip(texts, rows, strict=True))


@lru_cache(maxsize=20_000)
def _drawn(seed: str, dimension: int) -> np.ndarray:
    """Return the unit row of a seed, read-only. Tests encode the same texts again and again."""
    number = int.from_bytes(blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
    row = np.random.default_rng(number).standard_normal(dimension)
    row /= np.linalg.norm(row)
    row.flags.writeable = False
    return row


class PieceEncoder(HashEncoder):
    """Hash encoder whose word pieces are runs of up to three characters of a lower-cased word."""

    def word_pieces(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        lists = [[_number(piece) for piece in re.findall(r"\S{1,3}", text.lower())] for text in texts]
        return np.array([*chain(*lists)], np.int64), np.array(list(map(len, lists)))

    def unknown_shares(self, texts: list[str]) -> np.ndarray:
        """Return the share of unknown letters, as for a tokenizer without Cyrillic."""
        return np.array([len(re.findall("[а-яА-Я]", text)) / max(1, sum(map(str.isalpha, text))) for text in texts])


def _number(piece: str) -> int:
    return int.from_bytes(piece.encode("utf-32-le"), "little") % (2**61 - 1)
