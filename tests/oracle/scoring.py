"""Reference for METHOD 1 and 2: records, lexical coverage, gates, score, diagnostics.

It is written only from docs/method.md, without secid's code: NumPy float64, singular values where secid
factorises a matrix, Python sets where secid counts arrays. Slow and plain on purpose.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile, groupby, pairwise
from typing import Any

import numpy as np

Row = tuple[str, Sequence[str], Sequence[str]]
Record = tuple[str, tuple[str, ...], tuple[str, ...]]
Triplet = tuple[str, str, str]
Vectors = Mapping[str, Any]
Idf = Callable[[str], float]

EPSILON = 1e-3
"""Residuals at most this long have no direction (float32 encoders). Source: METHOD 2.6."""


def merge_rows(rows: Iterable[Row]) -> list[Record]:
    """Return the records of one source: rows with the same (query, first positive) become one.

    rows : (query, positives, negatives), each with at least one positive.
    Records keep the order of first appearance; positives are merged, negatives deduplicated by text.
    Records without negatives stay, but give no triplet. Source: METHOD 1.
    """
    merged: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for query, positives, negatives in rows:
        known_positives, known_negatives = merged.setdefault((query, positives[0]), ({}, {}))
        known_positives.update(dict.fromkeys(positives))
        known_negatives.update(dict.fromkeys(negatives))
    return [(query, tuple(positives), tuple(negatives)) for (query, _), (positives, negatives) in merged.items()]


def triplets(record: Record) -> list[Triplet]:
    """Return (query, first labelled positive, negative) for each negative, if there are any. Source: METHOD 1."""
    query, positives, negatives = record
    return [(query, positives[0], negative) for negative in negatives]


def policy_triplets(record: Record, policy: str, q_vec: Vectors, p_vec: Vectors) -> list[Triplet]:
    """Return the triplets of one record under a positive policy: first, hardest (lowest s_qp), easiest or all.

    The first of equals wins. "all" gives one triplet for each pair of positive and negative, which
    `summary` then weights by n_positives. Raise KeyError for another policy. Source: METHOD 9.
    """
    query, positives, negatives = record
    near = [float(np.dot(np.asarray(q_vec[query], float), np.asarray(p_vec[text], float))) for text in positives]
    by_policy = {
        "first": positives[:1],
        "hardest": (positives[near.index(min(near))],),
        "easiest": (positives[near.index(max(near))],),
        "all": positives,
    }[policy]
    return [(query, positive, negative) for positive in by_policy for negative in negatives]


@lru_cache(maxsize=50_000)
def tokens(text: str, tokenizer: str = "alphanumeric", *, is_passage: bool = False) -> frozenset[str]:
    """Return T(text), the set of tokens.

    tokenizer : alphanumeric; alphanumeric2 (two code points or more); whitespace; trigrams (of the
    lower-cased text, white space collapsed and stripped; a shorter text is its own single token);
    multilingual (of the text in NFKC without joiners, soft hyphens and variation selectors), under which a passage
    also has each letter of scripts without spaces.
    Empty for a text without tokens. Raises KeyError for another tokenizer. Source: METHOD 2, 4.
    """
    if tokenizer == "multilingual":
        spelt = "".join(char for char in text if char == "\u200b" or not _spells_nothing(char))
        text = unicodedata.normalize("NFKC", spelt)
    found = TOKENIZERS[tokenizer](text.lower())
    if not is_passage or tokenizer != "multilingual":
        return found
    return found | {char for char in text if _is_unspaced(char) and unicodedata.category(char)[0] in "LN"}


def _trigrams(lowered: str) -> frozenset[str]:
    collapsed = " ".join(lowered.split())
    if len(collapsed) < 3:
        return frozenset({collapsed} if collapsed else ())
    return frozenset(collapsed[start : start + 3] for start in range(len(collapsed) - 2))


def _multilingual(lowered: str) -> frozenset[str]:
    """Return tokens: runs of letters, digits and marks of one kind of script, or pairs in scripts without spaces."""
    found: set[str] = set()
    wordlike = "".join(char if unicodedata.category(char) in WORDLIKE else " " for char in lowered)
    for word in wordlike.split():
        spelt = "".join(dropwhile(_is_mark, word))  # a mark without a letter is not part of a word
        for unspaced, chars in groupby(spelt, _is_unspaced):
            run = "".join(chars)
            found |= set(map("".join, pairwise(run))) if unspaced and len(run) > 1 else {run}
    return frozenset(token for token in found if not all(map(_is_mark, token)))


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Mc")


def _spells_nothing(char: str) -> bool:
    name = unicodedata.name(char, "")
    return unicodedata.category(char) == "Cf" or "VARIATION SELECTOR" in name or name == "COMBINING GRAPHEME JOINER"


def _is_unspaced(char: str) -> bool:
    return unicodedata.name(char, "").startswith(UNSPACED)


WORDLIKE = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "Mn", "Mc"})
UNSPACED = ("CJK UNIFIED", "IDEOGRAPHIC ITERATION", "COMBINING KATAKANA", "HIRAGANA", "KATAKANA", "THAI")
TOKENIZERS: Mapping[str, Callable[[str], frozenset[str]]] = {
    "alphanumeric": lambda lowered: frozenset(re.findall(r"[^\W_]+", lowered)),
    "alphanumeric2": lambda lowered: frozenset(word for word in re.findall(r"[^\W_]+", lowered) if len(word) >= 2),
    "whitespace": lambda lowered: frozenset(lowered.split()),
    "trigrams": _trigrams,
    "multilingual": _multilingual,
    "wordpieces": lambda lowered: frozenset(re.findall(r"\S{1,3}", lowered)),
}
"""Tokenizers by name. `wordpieces` are those of tests.fake_encoder.PieceEncoder."""


def document_frequencies(
    documents: Iterable[str], tokenizer: str = "alphanumeric", queries: Iterable[str] = ()
) -> tuple[Counter[str], int]:
    """Return the number of distinct documents that contain each token, and the number of distinct documents.

    queries : further documents; those that are not among the documents have the tokens of queries.
    """
    passages = set(documents)
    further = set(queries) - passages
    held = [tokens(text, tokenizer, is_passage=True) for text in passages] + [tokens(t, tokenizer) for t in further]
    return Counter(token for own in held for token in own), len(held)


def idf_table(frequencies: Mapping[str, int], n_documents: int) -> Idf:
    """idf(t) = log((1 + D) / (1 + df(t))) + 1; unseen tokens have df = 0. Source: METHOD 2."""
    return lambda token: math.log((1 + n_documents) / (1 + frequencies.get(token, 0))) + 1


def uniform_idf(_token: str) -> float:
    """idf = 1 for every token. Source: METHOD 4 (uniform weights)."""
    return 1.0


def scored_documents(sources: Iterable[Sequence[Record]]) -> set[str]:
    """Return the distinct positives and negatives of the scored triplets of all `sources`. Source: METHOD 2."""
    return {text for records in sources for record in records for triplet in triplets(record) for text in triplet[1:]}


def scored_queries(sources: Iterable[Sequence[Record]]) -> set[str]:
    """Return the distinct queries of the scored triplets of all `sources`."""
    return {record[0] for records in sources for record in records if record[2]}


def idf_for(
    sources: Mapping[str, Sequence[Record]], name: str, corpus: str = "pooled", tokenizer: str = "alphanumeric"
) -> Idf:
    """Return the idf with which source `name` of the run's `sources` is scored.

    corpus : pooled; own; pooled_with_queries (a text in both roles counts once); uniform. Source: METHOD 4.
    """
    if corpus == "uniform":
        return uniform_idf
    documents = scored_documents([sources[name]] if corpus == "own" else sources.values())
    queries = {
        "pooled": set[str],
        "own": set[str],
        "pooled_with_queries": lambda: scored_queries(sources.values()),
    }[corpus]()
    return idf_table(*document_frequencies(documents, tokenizer, queries))


def coverage(query: str, passage: str, idf: Idf, tokenizer: str = "alphanumeric") -> float:
    """Return c, the idf share of the query's tokens that `passage` contains, in [0, 1]; 0 for a query without tokens.

    Source: METHOD 2.3.
    """
    asked, held = tokens(query, tokenizer), tokens(passage, tokenizer, is_passage=True)
    whole = math.fsum(idf(token) for token in asked)
    shared = math.fsum(idf(token) for token in asked & held)
    return min(1.0, max(0.0, shared / whole)) if whole > 0 else 0.0


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow, elementwise."""
    small = np.exp(-np.abs(x))
    result: np.ndarray = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return result


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x)) without overflow, elementwise."""
    result: np.ndarray = np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
    return result


@dataclass(frozen=True)
class Measured:
    """Every triplet of one source in file order: scalars (N,) float64 and residual directions (N, d) float64.

    triplets : the texts. distance : ||n - p||. direction : u; zero rows for triplets without a direction.
    """

    triplets: tuple[Triplet, ...]
    temperature: float
    s_qp: np.ndarray
    s_qn: np.ndarray
    s_pn: np.ndarray
    consistency: np.ndarray
    locality: np.ndarray
    coverage: np.ndarray
    positive_coverage: np.ndarray
    residual: np.ndarray
    weight: np.ndarray
    distance: np.ndarray
    direction: np.ndarray

    @property
    def queries(self) -> list[str]:
        """Return the query text of each triplet, which is its cluster. Source: METHOD 1, 8."""
        return [query for query, _, _ in self.triplets]


def measure_triplets(
    scored: Sequence[Triplet],
    q_vec: Vectors,
    p_vec: Vectors,
    idf: Idf,
    *,
    tokenizer: str = "alphanumeric",
    temperature: float = 0.05,
    epsilon: float = EPSILON,
) -> Measured:
    """Return gates, weights and residual directions of `scored`.

    q_vec, p_vec : unit vectors (d,) by query and passage text, cast to float64 and not rescaled.
    temperature  : > 0.   epsilon : residuals at most this long get u = 0.
    Raises ValueError without triplets. Source: METHOD 2.1 to 2.6.
    """
    if not scored:
        raise ValueError("no triplet to measure")
    queries, positives, negatives = (
        np.array([table[text] for text in column], dtype=np.float64)
        for table, column in zip((q_vec, p_vec, p_vec), zip(*scored, strict=True), strict=True)
    )
    s_qp, s_qn, s_pn = (
        np.sum(left * right, axis=1)
        for left, right in ((queries, positives), (queries, negatives), (positives, negatives))
    )
    covered = np.array([coverage(query, negative, idf, tokenizer) for query, _, negative in scored])
    positive_covered = np.array([coverage(query, positive, idf, tokenizer) for query, positive, _ in scored])
    difference = negatives - positives
    distance = np.sqrt(np.sum(difference**2, axis=1))
    has_direction = distance > epsilon
    direction = np.zeros_like(difference)
    direction[has_direction] = difference[has_direction] / distance[has_direction, None]
    s_qn, s_pn = np.where(has_direction, s_qn, s_qp), np.where(has_direction, s_pn, 1.0)  # n counts as p
    consistency, locality = sigmoid((s_qp - s_qn) / temperature), sigmoid((s_pn - s_qn) / temperature)
    residual = 1.0 - covered
    return Measured(
        triplets=tuple(scored),
        temperature=temperature,
        s_qp=s_qp,
        s_qn=s_qn,
        s_pn=s_pn,
        consistency=consistency,
        locality=locality,
        coverage=covered,
        positive_coverage=positive_covered,
        residual=residual,
        weight=consistency * locality * residual,
        distance=distance,
        direction=direction,
    )


def measure_source(records: Sequence[Record], q_vec: Vectors, p_vec: Vectors, idf: Idf, **options: Any) -> Measured:
    """Call `measure_triplets` on all triplets of `records`, with the first labelled positive (METHOD 1, 2)."""
    scored = [triplet for record in records for triplet in triplets(record)]
    return measure_triplets(scored, q_vec, p_vec, idf, **options)


def singular_values(weight: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return the singular values, descending, of the rows sqrt(w_i / N) u_i: their squares are the eigenvalues of M.

    weight : (N,) >= 0.   direction : (N, d).   Returns (min(N, d),) float64. Source: METHOD 2.7.
    """
    rows = np.sqrt(weight / len(weight))[:, None] * direction
    return np.linalg.svd(rows, compute_uv=False)


def log_det_nats(singular: np.ndarray, budget: float = 1.0) -> float:
    """log det(I + budget * M) from the singular values of M's rows, in nats. Source: METHOD 2.8, 7."""
    return math.fsum(np.log1p(budget * singular**2))


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean, with an exactly rounded sum. Raise ZeroDivisionError without values."""
    listed = [float(value) for value in values]
    return math.fsum(listed) / len(listed)


def summary(measured: Measured, n_positives: Sequence[int] | None = None) -> dict[str, float]:
    """Return score and diagnostics of one source, by their names in report.json. Source: METHOD 2.

    trace leaves out triplets without a residual direction; weight_mean does not.
    n_positives : for the policy "all", the number of positives |P| of each triplet's record: the
    triplet counts 1/|P| in every sum, so that N stays the number of negatives. Source: METHOD 9.
    """
    share = 1.0 / np.asarray(n_positives if n_positives is not None else [1] * len(measured.triplets))
    n_negatives = round(math.fsum(share))

    def share_mean(values: np.ndarray) -> float:
        return math.fsum(share * values) / n_negatives

    scale = len(share) / n_negatives  # singular_values divides by the number of rows, not of negatives.
    score = log_det_nats(singular_values(measured.weight * share * scale, measured.direction))
    has_direction = np.any(measured.direction != 0, axis=1)
    return {
        "n_triplets": n_negatives,
        "eci_nats": score,
        "eci_per_dimension": score / measured.direction.shape[1],
        "trace": share_mean(measured.weight * has_direction),
        "consistency_mean": share_mean(measured.consistency),
        "locality_mean": share_mean(measured.locality),
        "coverage_mean": share_mean(measured.coverage),
        "positive_coverage_mean": share_mean(measured.positive_coverage),
        "residual_mean": share_mean(measured.residual),
        "weight_mean": share_mean(measured.weight),
        "pair_loss_mean": share_mean(softplus((measured.s_qn - measured.s_qp) / measured.temperature)),
        "inversion_fraction": share_mean(measured.consistency < 0.5),
        "low_locality_fraction": share_mean(measured.locality < 0.5),
        "high_coverage_fraction": share_mean(measured.coverage >= 0.5),
    }


def score_source(
    records: Sequence[Record], q_vec: Vectors, p_vec: Vectors, idf: Idf, **options: Any
) -> dict[str, float]:
    """Return score and diagnostics of `records` (see `measure_triplets` for the options, `summary` for the keys)."""
    return summary(measure_source(records, q_vec, p_vec, idf, **options))
