"""Use Python objects as encoders: any function, or a SentenceTransformer in memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secid.encode.encoder import Float32Rows, Role, VectorRows, as_rows, finish_rows
from secid.encode.locate import Location, full_name
from secid.errors import EncoderError, SecidError, plain_message
from secid.files import work_folder
from secid.records import Fact
from secid.results import EncoderInfo
from secid.settings import Settings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from typing_extensions import TypeIs

    from secid.encode.transformer import TransformerEncoder

# Any Python function as an encoder.

EncodeFunction = Callable[[list[str], Role], Any]


class FunctionEncoder:
    """Encoder that passes texts and their role to a function unchanged, and checks and scales the returned rows."""

    def __init__(self, function: EncodeFunction, info: EncoderInfo) -> None:
        self._function = function
        self.info = info

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """Return (n, info.dim) float32; unit rows if `info.normalize`.

        Raises EncoderError if the function does not return one row of numbers per text.
        """
        if not texts:
            return np.empty((0, self.info.dim), np.float32)
        rows = _answer(self._function, list(texts), role, self.info.dim, self.info.name)
        return finish_rows(rows, None, self.info.normalize)


def from_callable(
    function: EncodeFunction, name: str, *, fingerprint: str = "", normalize: bool = True
) -> FunctionEncoder:
    """Return an encoder that calls a function.

    function    : `function(texts, role)` returns one vector per text, and adds its own prefixes.
    name        : name in reports.
    fingerprint : text that identifies exactly this function with its weights, so that its rows can be cached. Without
                  a fingerprint, nothing is cached.
    normalize   : whether to scale rows to unit length.
    Raises EncoderError if the function does not return (n, d) numbers.
    """
    if not name:
        raise EncoderError("an encoder function needs a name", remedy="write from_callable(function, 'my-encoder')")
    probe = _answer(function, ["dimension"], "passage", None, name)
    info = EncoderInfo(
        name=name,
        revision=None,
        weights_sha256=None,
        pooling="unknown",
        query_prefix="",
        passage_prefix="",
        max_length=None,
        normalize=normalize,
        dtype="unknown",
        device="unknown",
        dim=probe.shape[1],
        fingerprint=fingerprint,
        rules={"query_prefix": "function", "passage_prefix": "function", "normalize": "caller"},
        facts=() if fingerprint else (Fact("no_fingerprint"),),
    )
    return FunctionEncoder(function, info)


def _answer(function: EncodeFunction, texts: list[str], role: Role, dimension: int | None, name: str) -> VectorRows:
    """Return the function's rows for these texts. Raises EncoderError if it fails or returns anything else."""
    try:
        values = function(texts, role)
    except SecidError:
        raise
    except Exception as error:
        batch = f"{len(texts):,} {role} text{'s' * (len(texts) > 1)}, starting with {texts[0][:40]!r}"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise EncoderError(
            f"the encoder function failed on {batch}: {reason}",
            where=name,
            remedy="accept any list of texts with its role; the first call has the single text 'dimension'",
        ) from error
    return as_rows(_plain(values), len(texts), dimension, name)


def _plain(values: Any) -> Any:
    """Return tensors as arrays, even if they have gradients or are on a device. Return other values unchanged."""
    if hasattr(values, "detach"):  # works without importing torch
        return values.detach().cpu().float().numpy()
    return [_plain(value) for value in values] if isinstance(values, list | tuple) else values


# A SentenceTransformer in memory is saved to a temporary folder, and loaded from there.
#
# Therefore the recipe follows the same rules as for any folder, the vectors are the same, and the fingerprint matches
# the present weights. The cost is writing and reading the weights once per command, and a second copy in memory.


def is_sentence_transformer(encoder: object) -> TypeIs[SentenceTransformer]:
    """Return True if the encoder is a model of sentence-transformers. Import nothing."""
    return any(kind.__module__.startswith("sentence_transformers.") for kind in type(encoder).__mro__)


def load_in_memory(model: Any, settings: Settings) -> TransformerEncoder:
    """Return an encoder with the model's present weights. Its temporary folder exists as long as the encoder does.

    Raises EncoderError if the model cannot be saved, or if the saved folder cannot be loaded.
    """
    from secid.encode.parts import quiet
    from secid.encode.transformer import load_transformer

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
                f"cannot be saved ({plain_message(error)[:200]})",
                where=name,
                remedy="save it to a folder, and name the folder",
            ) from error
        try:
            encoder = load_transformer(settings, Location(folder, origin, None, (Fact("in_memory"),)))
        except EncoderError as error:
            error.where = error.where and error.where.replace(str(folder), name)
            raise
        encoder.info = replace(encoder.info, name=name)
        weakref.finalize(encoder.parts, stack.pop_all().close)  # weights may be read from the folder again
    return encoder


def _origin(model: Any) -> str:
    """Return the name that the weights were first loaded from. It shows the family, which determines the prefixes."""
    configs = (getattr(part, "config", None) for part in model.modules())
    names = (str(getattr(config, "_name_or_path", None) or "") for config in configs)
    return full_name(next(filter(None, names), "")) or type(model).__name__
