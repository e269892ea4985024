"""Score as anyone would without secid: encode each source with sentence-transformers, then use NumPy.

It uses secid's readers, so it need not detect the schemas of files.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from secid.encode.recipe import Recipe
from secid.encode.transformer import load_transformer
from secid.read import open_source, resolve_sources
from secid.records import Record
from secid.settings import Settings

WORD = re.compile(r"[^\W_]+")
TEMPERATURE, SMALLEST = 0.05, 1e-3


class Scored(NamedTuple):
    """A record as secid scores it. Source: METHOD 1."""

    query: str
    positive: str
    negatives: list[str]


def recipe_of(encoder: str) -> Recipe:
    """Return the encoder's location and prefixes."""
    return load_transformer(Settings(encoder=encoder, device="cpu")).recipe


def load_plain(encoder: str, device: str = "cpu", dtype: torch.dtype = torch.float32) -> SentenceTransformer:
    """Load the same encoder in sentence-transformers, with the same maximum length."""
    recipe = recipe_of(encoder)
    folder = recipe.folder if (recipe.folder / "modules.json").is_file() else recipe.folder.parent
    folder = folder if (folder / "modules.json").is_file() else recipe.folder
    model = SentenceTransformer(str(folder), device=device, model_kwargs={"torch_dtype": dtype})
    model.max_seq_length = recipe.max_length
    return model


def read_records(path: Path) -> list[Scored]:
    """Read records: rows with the same query and positive form one record, with distinct negatives."""
    settings = Settings()
    merged: dict[tuple[str, str], dict[str, None]] = {}
    for source in resolve_sources([str(path)]):
        for row in open_source(source, settings):
            if isinstance(row, Record):
                merged.setdefault((row.query, row.positives[0]), {}).update(dict.fromkeys(row.negatives))
    return [Scored(query, positive, list(negatives)) for (query, positive), negatives in merged.items()]


def plain_scores(paths: list[Path], encoder: str, **encode: Any) -> dict[str, float]:
    """Return ECI_sem by source: distinct texts per source, sentence-transformers' defaults, NumPy."""
    model, recipe = load_plain(encoder), recipe_of(encoder)
    sources = {path.name.split(".")[0]: read_records(path) for path in paths}
    idf = _idf({text for rows in sources.values() for row in rows for text in (row.positive, *row.negatives)})
    scores = {}
    for name, rows in sources.items():
        queries = list(dict.fromkeys(row.query for row in rows))
        passages = list(dict.fromkeys(text for row in rows for text in (row.positive, *row.negatives)))
        q = _encode(model, [recipe.query_prefix + text for text in queries], **encode)
        p = _encode(model, [recipe.passage_prefix + text for text in passages], **encode)
        places = {text: place for place, text in enumerate(passages)}
        rows_q = {text: place for place, text in enumerate(queries)}
        scores[name] = _score(rows, q, p, rows_q, places, idf)
    return scores


def _encode(model: SentenceTransformer, texts: list[str], **encode: Any) -> np.ndarray:
    rows = model.encode(texts, show_progress_bar=False, **encode).astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _idf(documents: set[str]) -> dict[str, float]:
    counts = Counter(token for text in documents for token in set(WORD.findall(text.lower())))
    return {token: math.log((1 + len(documents)) / (1 + n)) + 1 for token, n in counts.items()} | {
        "": math.log(1 + len(documents)) + 1
    }


def _score(
    rows: list[Scored],
    q: np.ndarray,
    p: np.ndarray,
    query_place: dict[str, int],
    passage_place: dict[str, int],
    idf: dict[str, float],
) -> float:
    flat = [(row, text) for row in rows for text in row.negatives]
    qs = q[[query_place[row.query] for row, _ in flat]]
    ps = p[[passage_place[row.positive] for row, _ in flat]]
    ns = p[[passage_place[text] for _, text in flat]]
    qp, qn, pn = (qs * ps).sum(1), (qs * ns).sum(1), (ps * ns).sum(1)
    tokens = {text: frozenset(WORD.findall(text.lower())) for row, text in flat for text in (row.query, text)}
    covered = np.array([_coverage(tokens[row.query], tokens[text], idf) for row, text in flat])
    weight = _sigmoid((qp - qn) / TEMPERATURE) * _sigmoid((pn - qn) / TEMPERATURE) * (1 - covered)
    u = ns - ps
    length = np.linalg.norm(u, axis=1, keepdims=True)
    u = np.where(length > SMALLEST, u / np.maximum(length, SMALLEST), 0.0)
    matrix = (u * weight[:, None]).T @ u / len(flat)
    return float(np.linalg.slogdet(np.eye(len(matrix)) + matrix)[1])


def _coverage(query: frozenset[str], negative: frozenset[str], idf: dict[str, float]) -> float:
    unseen = idf[""]
    whole = sum(idf.get(token, unseen) for token in query)
    return sum(idf.get(token, unseen) for token in query & negative) / whole if whole else 0.0


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * values))
