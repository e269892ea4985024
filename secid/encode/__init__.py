"""Encoders: texts and a role in, rows out. torch is imported only when a model is loaded."""

from __future__ import annotations

from secid.encode.cache import Cache
from secid.encode.cache_folder import CacheFolder
from secid.encode.describe import Description, describe
from secid.encode.embed import embed
from secid.encode.function import from_callable
from secid.encode.protocol import EncodedBatch, Encoder, Role, StreamingEncoder
from secid.encode.rows import MODEL_FIELDS, unused_flags
from secid.encode.selftest import batch_noise, self_test, smallest_distance
from secid.progress import Progress, Silent
from secid.records import Fact
from secid.settings import RECIPE_FIELDS, Settings, encoder_kind

__all__ = [
    "Cache",
    "CacheFolder",
    "Description",
    "EncodedBatch",
    "Encoder",
    "Role",
    "StreamingEncoder",
    "batch_noise",
    "describe",
    "embed",
    "from_callable",
    "ignored",
    "load",
    "self_test",
    "smallest_distance",
]


def ignored(settings: Settings) -> tuple[Fact, ...]:
    """The settings that an encoder object ignores, because they were fixed when it was built."""
    return unused_flags(settings, "unused_by_object", (*RECIPE_FIELDS, *MODEL_FIELDS))


def load(settings: Settings, progress: Progress | None = None) -> Encoder:
    """The encoder that `settings.encoder` names: alias, hub name, local folder, vectors file or http endpoint.

    progress : receives a note if an endpoint does not answer at once.
    Raises EncoderError, in one line and with a remedy, if it cannot be found, loaded or trusted.
    """
    kind = encoder_kind(settings.encoder or "")
    if kind == "endpoint":
        from secid.encode.endpoint import load_endpoint

        return load_endpoint(settings, progress or Silent())
    if kind == "vectors":
        from secid.encode.precomputed import load_precomputed

        return load_precomputed(settings)
    from secid.encode.loading import load_transformer

    return load_transformer(settings)
