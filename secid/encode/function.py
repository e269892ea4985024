"""Any Python function as an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from secid.encode.protocol import Float32Rows, Role
from secid.encode.rows import Rows, as_rows, finish_rows
from secid.errors import EncoderError, SecidError
from secid.records import Fact
from secid.results import EncoderInfo

EncodeFunction = Callable[[list[str], Role], Any]


class FunctionEncoder:
    """Passes texts and role to the function unchanged; checks and scales what it returns."""

    def __init__(self, function: EncodeFunction, info: EncoderInfo) -> None:
        self._function = function
        self.info = info

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """(n, info.dim) float32, unit rows. Raises EncoderError if the function returns anything else."""
        if not texts:
            return np.empty((0, self.info.dim), np.float32)
        rows = _answer(self._function, list(texts), role, self.info.dim, self.info.name)
        return finish_rows(rows, None, self.info.normalize)


def from_callable(
    function: EncodeFunction, name: str, *, fingerprint: str = "", normalize: bool = True
) -> FunctionEncoder:
    """An encoder of `function(texts, role)`, which returns one vector per text and adds its own prefixes.

    name        : its name in reports.
    fingerprint : identifies exactly this function, including its weights, so that its rows can be cached;
                  without one nothing is cached.
    Raises EncoderError if the function does not return (n, d) numbers.
    """
    if not name:
        raise EncoderError("an encoder function needs a name", remedy="from_callable(function, 'my-encoder')")
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


def _answer(function: EncodeFunction, texts: list[str], role: Role, dimension: int | None, name: str) -> Rows:
    """The function's rows for these texts. Raises EncoderError if it fails or returns anything else."""
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
            remedy="it is called with a list of texts and their role, first with the single text 'dimension', and must "
            "accept any text",
        ) from error
    return as_rows(_plain(values), len(texts), dimension, name)


def _plain(values: Any) -> Any:
    """Tensors of any kind, with gradients or on a device, as arrays; other values as they are."""
    if hasattr(values, "detach"):  # works without importing torch
        return values.detach().cpu().float().numpy()
    return [_plain(value) for value in values] if isinstance(values, list | tuple) else values
