"""Encoders turn texts of a role into rows. torch is imported only when a model is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secid.encode.cache import Cache
from secid.encode.cache_folder import CacheFolder
from secid.encode.encoder import (
    MODEL_FIELDS,
    EncodedBatch,
    Encoder,
    Role,
    StreamingEncoder,
    embed,
    from_callable,
    is_sentence_transformer,
    unused_flags,
)
from secid.encode.selftest import Description, batch_noise, describe, self_test, smallest_distance
from secid.errors import EncoderError
from secid.progress import Progress, Silent
from secid.records import Fact
from secid.settings import RECIPE_FIELDS, Settings, encoder_kind

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    EncoderLike = str | Encoder | SentenceTransformer
    """Types that the API accepts as an encoder."""

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
    "is_sentence_transformer",
    "load",
    "refuse_no_encoder_object",
    "self_test",
    "smallest_distance",
]


def ignored(settings: Settings, encoder: object) -> tuple[Fact, ...]:
    """Return facts about settings that an encoder object ignores, because they were fixed when it was built."""
    if encoder is None or isinstance(encoder, str) or is_sentence_transformer(encoder):
        return ()
    return unused_flags(settings, "unused_by_object", (*RECIPE_FIELDS, *MODEL_FIELDS))


def refuse_no_encoder_object(encoder: object) -> None:
    """Raise EncoderError if an object is neither a name nor an encoder."""
    known = encoder is None or isinstance(encoder, str) or is_sentence_transformer(encoder)
    if not known and not (hasattr(encoder, "info") and hasattr(encoder, "encode")):
        raise EncoderError(
            f"not an encoder: {type(encoder).__name__}",
            remedy="pass a name, folder, file or address as text, a SentenceTransformer, or the result of "
            "secid.encode.from_callable(function, 'name')",
        )


def load(settings: Settings, progress: Progress | None = None, encoder: EncoderLike | None = None) -> Encoder:
    """Load the encoder that `settings.encoder` names: an alias, hub name, local folder, vectors file or http endpoint.

    progress : receives a note if an endpoint does not answer the first request.
    encoder  : object to use instead: a SentenceTransformer, or an Encoder, which is returned unchanged.
    Raises EncoderError, with a remedy, if the encoder cannot be found, loaded or trusted.
    """
    refuse_no_encoder_object(encoder)
    if is_sentence_transformer(encoder):
        from secid.encode.transformer import load_in_memory

        return load_in_memory(encoder, settings)
    if encoder is not None and not isinstance(encoder, str):
        return encoder
    kind = encoder_kind(settings.encoder or "")
    if kind == "endpoint":
        from secid.encode.endpoint import load_endpoint

        return load_endpoint(settings, progress or Silent())
    if kind == "vectors":
        from secid.encode.precomputed import load_precomputed

        return load_precomputed(settings)
    from secid.encode.transformer import load_transformer

    return load_transformer(settings)
