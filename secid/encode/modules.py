"""The files in which a repository states its recipe: modules.json and the folders it names.

Classes are matched by base name, because their import paths changed over the years. Anything unknown is
rejected, never skipped. Source: FORMATS 2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secid.errors import EncoderError
from secid.settings import flag_of

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Head:
    """One module after pooling. kind: dense, layer_norm or normalize.

    folder     : of its weights; None for normalize.
    activation : name of a torch.nn class, for dense only.
    """

    kind: str
    folder: Path | None = None
    in_features: int = 0
    out_features: int = 0
    bias: bool = True
    activation: str = "Identity"
    residual: bool = False


# Class names as sentence-transformers writes them now and wrote them before 2024.
POOLING_BOOLEANS: Mapping[str, str] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}
POOLING_NAMES: Mapping[str, str] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
ACTIVATIONS = frozenset(
    {"Identity", "Tanh", "GELU", "ReLU", "SiLU", "Sigmoid", "Mish", "ELU", "LeakyReLU", "Softplus", "Hardtanh"}
)
"""Activations of torch.nn that need no arguments and act on each number alone."""


AGAIN = "download the encoder again"


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in the file; None without a file. Raises EncoderError if it contains anything else."""
    document = _parsed(path)
    if document is not None and not isinstance(document, dict):
        raise EncoderError("expected a JSON object", where=str(path), remedy=AGAIN)
    return document


def _parsed(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # JSON or UTF-8
        raise EncoderError(f"not valid JSON: {error}", where=str(path), remedy=AGAIN) from error


def read_modules(folder: Path) -> list[dict[str, Any]]:
    """modules.json in order; [] if there is none. Raises EncoderError for an unknown class."""
    path = folder / "modules.json"
    try:
        modules = sorted(_parsed(path) or [], key=lambda module: int(module.get("idx", 0)))
    except (TypeError, ValueError, AttributeError) as error:
        raise EncoderError("expected a list of modules, each with its idx", where=str(path), remedy=AGAIN) from error
    for position, module in enumerate(modules):
        base = base_name(module)
        is_known = base == "Transformer" if position == 0 else base in {"Pooling", "Dense", "Normalize", "LayerNorm"}
        if not is_known:
            raise EncoderError(
                f"module {position} has the unknown type {module.get('type')!r}",
                where=str(path),
                remedy="known: Transformer, then Pooling, Dense, LayerNorm, Normalize; "
                "or encode the texts yourself and use --encoder vectors.npz",
            )
    names = [base_name(module) for module in modules]
    if modules and names.count("Pooling") != 1:
        raise EncoderError(f"expected one Pooling module, got {names.count('Pooling')}", where=str(path))
    if modules and names[1] != "Pooling":
        raise EncoderError(f"{names[1]} comes before Pooling, which is not supported", where=str(path))
    return modules


def base_name(module: Json) -> str:
    return str(module.get("type", "")).rsplit(".", 1)[-1]


def pooling_modes(config: Json, path: Path) -> tuple[str, ...]:
    """Modes of a Pooling config, new style (`pooling_mode`) or old (`pooling_mode_*` booleans)."""
    if "pooling_mode" in config:
        value = config["pooling_mode"]
        names = (value,) if isinstance(value, str) else tuple(map(str, value or ()))
        unknown = [item for item in names if item not in POOLING_NAMES]
        modes = tuple(POOLING_NAMES[item] for item in names if item in POOLING_NAMES)
    else:
        active = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        unknown = [key for key in active if key not in POOLING_BOOLEANS]
        modes = tuple(mode for key, mode in POOLING_BOOLEANS.items() if key in active)
    if unknown or not modes:
        raise EncoderError(
            f"unknown pooling {', '.join(unknown)}" if unknown else "no pooling mode is set",
            where=str(path),
            remedy=f"known: {', '.join(POOLING_NAMES)}; {flag_of('pooling', 'NAME')} overrides the file",
        )
    return modes


def read_heads(folder: Path, modules: list[dict[str, Any]]) -> tuple[Head, ...]:
    return tuple(_head(folder, module) for module in modules[2:])


def _head(folder: Path, module: Json) -> Head:
    kind, place = base_name(module), folder / str(module.get("path", ""))
    if kind == "Normalize":  # its folder is often missing, and has no settings
        return Head("normalize")
    config = read_json(place / "config.json")
    if config is None:
        raise EncoderError(f"the {kind} module has no config.json", where=str(place))
    if kind == "LayerNorm":
        width = _width(config, "dimension", place)
        return Head("layer_norm", place, width, width)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise EncoderError(f"Dense with {key} = {config[key]!r} is not supported", where=str(place))
    full = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = full.rsplit(".", 1)[-1]
    if not full.startswith("torch.nn.") or activation not in ACTIVATIONS:
        raise EncoderError(f"unknown activation {full!r}", where=str(place / "config.json"))
    return Head(
        "dense",
        place,
        _width(config, "in_features", place),
        _width(config, "out_features", place),
        bool(config.get("bias", True)),
        activation,
        bool(config.get("use_residual", False)),
    )


def _width(config: Json, key: str, place: Path) -> int:
    width = config.get(key)
    if not isinstance(width, int) or width < 1:
        raise EncoderError(f"{key} is {width!r}, expected a number of features", where=str(place / "config.json"))
    return width
