"""A SentenceTransformer that is in memory: saved to a temporary folder, and loaded as that folder would be.

So the recipe is read by the same rules as that of any folder, the vectors are the same, and the fingerprint is of the
weights as they are now. The price is writing and reading the weights once a command, and a second copy in memory.
"""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secid.encode.locate import Location, full_name
from secid.errors import EncoderError, plainly
from secid.files import work_folder
from secid.records import Fact
from secid.settings import Settings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from typing_extensions import TypeIs

    from secid.encode.transformer import TransformerEncoder


def is_sentence_transformer(encoder: object) -> TypeIs[SentenceTransformer]:
    """Whether it is a model of sentence-transformers, of any kind; imports nothing."""
    return any(kind.__module__.startswith("sentence_transformers.") for kind in type(encoder).__mro__)


def load_in_memory(model: Any, settings: Settings) -> TransformerEncoder:
    """The encoder that the model is now. Its folder stays until the encoder is no longer used.

    Raises EncoderError for a model that cannot be saved, and what loading a folder raises.
    """
    from secid.encode.loading import load_transformer
    from secid.encode.parts import quiet

    origin = _origin(model)
    name = f"{Path(origin).name if Path(origin).is_dir() else origin} (in memory)"
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder())
        try:
            with quiet():
                model.save(str(folder), create_model_card=False)
        except OSError:
            raise
        except Exception as error:
            raise EncoderError(
                f"cannot be saved ({plainly(error)[:200]})", where=name, remedy="save it to a folder and name that"
            ) from error
        try:
            encoder = load_transformer(settings, Location(folder, origin, None, (Fact("in_memory"),)))
        except EncoderError as error:
            error.where = error.where and error.where.replace(str(folder), name)
            raise
        encoder.info = replace(encoder.info, name=name)
        weakref.finalize(encoder.parts, stack.pop_all().close)  # weights are read again where a text is not cached
    return encoder


def _origin(model: Any) -> str:
    """What its weights were first loaded from: prefixes of a family are known by that name."""
    configs = (getattr(part, "config", None) for part in model.modules())
    names = (str(getattr(config, "_name_or_path", None) or "") for config in configs)
    return full_name(next(filter(None, names), "")) or type(model).__name__
