"""Score (query, passage) pairs with a cross-encoder of sentence-transformers. Only a guide may be a cross-encoder.

Scores are cached by pair as rows of one number, under the fingerprint of the files. Source: METHOD 10.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secid.arrays import Floats
from secid.encode.cache import Cache
from secid.encode.cache_folder import hash_memory
from secid.encode.locate import ENCODER_FILES, locate, weight_files
from secid.encode.modules import PROMPT_FILE, SAVE_AGAIN, parse_json, read_json
from secid.encode.segment import KeyBytes, files_sha256
from secid.errors import EncoderError, plain_message
from secid.results import EncoderInfo
from secid.settings import Settings, flag_of, with_encoder

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

RERANKED_PAIRS_AT_ONCE = 4096
"""Number of pairs per call. The model sorts these by length, and the cache stores their scores after the call."""
RERANKER_CLASS = "ForSequenceClassification"
LIBRARY_PREFIX = "sentence_transformers."
"""Prefix of module classes that a repository may use without its own code."""
TextPairs = Callable[[NDArray[np.int64]], list[tuple[str, str]]]
"""Function from positions of pairs to their (query, passage) texts."""


class Reranker:
    """A cross-encoder on its device.

    info               : its description, with `pooling` "cross-encoder" and `dim` 1.
    n_cached, n_scored : number of pairs from the cache, and number of pairs that the model scored.
    """

    def __init__(self, model: CrossEncoder, info: EncoderInfo, settings: Settings) -> None:
        self.info, self._model, self._settings = info, model, settings
        self.n_cached = self.n_scored = 0

    def predict(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Return (n,) scores from `CrossEncoder.predict`. Raises EncoderError if a score is not finite."""
        scores = np.asarray(self._model.predict(list(pairs), show_progress_bar=False), np.float64).reshape(-1)
        if len(wrong := np.flatnonzero(~np.isfinite(scores))):
            query, passage = pairs[int(wrong[0])]
            raise EncoderError(
                f"the score of {query[:60]!r} and {passage[:60]!r} is not finite",
                where=self.info.name,
                remedy="use another reranker" if self.info.dtype == "float32" else flag_of("dtype", "float32"),
            )
        return scores

    def scores(self, keys: KeyBytes, texts: TextPairs, tick: Callable[[int], None]) -> Floats:
        """Return (n,) scores of distinct pairs, from the cache if it holds them.

        keys : (n, 16) keys of the pairs.   tick : called with the number of pairs done.
        """
        scores = np.empty(len(keys))
        missing = np.ones(len(keys), np.bool_)
        cache = None
        if self._settings.cache and self.info.fingerprint:
            cache = Cache.open(self._settings, self.info.fingerprint, self.info.name)

            def put(positions: NDArray[np.int64], rows: Any, _: Any) -> None:
                scores[positions] = rows[:, 0]
                tick(len(positions))

            missing = ~cache.lookup(keys, 1, put)
            cache.expect(int(missing.sum()), 1)
        self.n_cached += int((~missing).sum())
        places = np.flatnonzero(missing)
        try:
            for start in range(0, len(places), RERANKED_PAIRS_AT_ONCE):
                part = places[start : start + RERANKED_PAIRS_AT_ONCE]
                rows = self.predict(texts(part)).astype(np.float32)
                scores[part] = rows  # rounded as in the cache, so that a second run gives the same scores
                if cache is not None:
                    cache.add(keys[part], rows[:, None], np.zeros(len(part), np.bool_))
                self.n_scored += len(part)
                tick(len(part))
        finally:
            if cache is not None:
                cache.close()
        return scores


def pair_keys(query: KeyBytes, passage: KeyBytes) -> KeyBytes:
    """Return (n, 16) keys of pairs. query, passage: (n, 16) keys of their texts."""
    both = np.ascontiguousarray(np.concatenate([query, passage], axis=1))
    digests = b"".join([hashlib.blake2b(row, digest_size=16).digest() for row in both])
    return np.frombuffer(digests, np.uint8).reshape(-1, 16)


def load_reranker(name: str, settings: Settings) -> Reranker:
    """Load the cross-encoder with this hub name or folder. The target's recipe settings do not apply to it.

    Raises EncoderError if it is not a cross-encoder, lacks safetensors weights, or needs code or pickle files that are
    not allowed.
    """
    from secid.encode.device import choose_devices, choose_dtype
    from secid.encode.transformer import DTYPE_LABELS

    if "/" not in name and not Path(name).expanduser().is_dir():  # all aliases name dense encoders
        raise EncoderError(
            f"{name!r} is neither a folder nor a hub name (owner/name)",
            where=flag_of("guide_reranker"),
            remedy=f"name a cross-encoder, or name a dense encoder with {flag_of('guide', 'NAME')}",
        )
    settings = with_encoder(settings, name)
    location = locate(settings)
    folder = location.folder
    _refuse_other_models(folder, settings)
    weights = weight_files(folder, settings.allow_pickle)
    if not weights:
        raise EncoderError(
            "no complete safetensors weights",
            where=str(folder),
            remedy=f"{SAVE_AGAIN}, or {flag_of('allow_pickle', True)}",
        )
    device = choose_devices(settings.device)[0]
    dtype = choose_dtype(settings.dtype, device)
    model = _loaded(folder, str(device), {"use_safetensors": not settings.allow_pickle, "dtype": dtype}, settings)
    if model.num_labels != 1:
        raise EncoderError(
            f"returns {model.num_labels} scores per pair, expected 1", where=location.name, remedy="use a reranker"
        )
    weights_sha256 = files_sha256(weights, hash_memory(settings))
    info = EncoderInfo(
        name=location.name,
        revision=location.revision,
        weights_sha256=weights_sha256,
        pooling="cross-encoder",
        query_prefix="",
        passage_prefix="",
        max_length=model.max_seq_length,
        normalize=False,
        dtype=DTYPE_LABELS[dtype],
        device=str(device),
        dim=1,
        fingerprint=_fingerprint(folder, weights_sha256, DTYPE_LABELS[dtype], settings),
        facts=location.facts,
    )
    return Reranker(model, info, settings)


def _loaded(folder: Path, device: str, model: dict[str, Any], settings: Settings) -> CrossEncoder:
    from sentence_transformers import CrossEncoder

    from secid.encode.parts import loading_reports, quiet

    options = {"local_files_only": True, "trust_remote_code": settings.trust_remote_code}
    try:
        with quiet(), loading_reports() as reports:
            loaded: CrossEncoder = CrossEncoder(str(folder), device=device, model_kwargs=model, **options)
    except Exception as error:  # transformers raises many kinds of errors
        raise EncoderError(f"cannot be loaded: {plain_message(error)}", where=str(folder), remedy=SAVE_AGAIN) from error
    missing = sorted({key for _, report in reports for key in report["missing_keys"]})
    if missing:  # the library would initialise them at random
        raise EncoderError(f"the weights lack {', '.join(missing[:3])}", where=str(folder), remedy=SAVE_AGAIN)
    return loaded


def _refuse_other_models(folder: Path, settings: Settings) -> None:
    """Raise EncoderError for a model that is not a cross-encoder, because the library would add a random head to it."""
    config = read_json(folder / "config.json")
    if config is None:
        raise EncoderError("config.json is missing", where=str(folder), remedy="use a folder that holds a reranker")
    architectures = [str(name) for name in config.get("architectures") or ()]
    kind = (read_json(folder / PROMPT_FILE) or {}).get("model_type", "CrossEncoder")
    if kind != "CrossEncoder" or not any(name.endswith(RERANKER_CLASS) for name in architectures):
        raise EncoderError(
            f"not a cross-encoder: {', '.join(architectures) or 'the model'} has no classification head",
            where=str(folder / "config.json"),
            remedy=f"if it is a dense encoder, use {flag_of('guide', 'NAME')}",
        )
    modules = parse_json(folder / "modules.json") or []
    custom_modules = [
        part for part in modules if not (isinstance(part, dict) and str(part.get("type")).startswith(LIBRARY_PREFIX))
    ]
    if (custom_modules or config.get("auto_map")) and not settings.trust_remote_code:
        raise EncoderError(
            "the reranker needs its repository's own code",
            where=str(folder),
            remedy=f"read that code, then use {flag_of('trust_remote_code')}",
        )


def _fingerprint(folder: Path, weights: str, dtype: str, settings: Settings) -> str:
    """Return the SHA-256 of everything that determines a score."""
    patterns = [pattern for pattern in ENCODER_FILES if "safetensors" not in pattern]
    patterns += ["*.py"] if settings.trust_remote_code else []
    names = sorted(_files(folder, patterns))
    versions = [".".join(version(name).split(".")[:2]) for name in ("transformers", "sentence-transformers")]
    contents = [f"{path.relative_to(folder)} {files_sha256([path])}" for path in names]
    return hashlib.sha256("\n".join(["reranker", weights, dtype, *versions, *contents]).encode()).hexdigest()


def _files(folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from (path for path in folder.rglob(pattern) if path.is_file())
