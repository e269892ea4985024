"""What a run was made with: versions and machine, for reports and bug reports."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from secid.errors import SecidError
from secid.settings import resolve, value_text
from secid.version import VERSION

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow", "typer", "rich", "pydantic")
SECRETS = ("HF_TOKEN", "SECID_API_KEY", "OPENAI_API_KEY")
"""Variables whose value never enters a report; that they are set explains many a failure."""


def environment() -> dict[str, Any]:
    """Python, platform, cores and versions of the packages that numbers depend on."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "packages": {name: package_version(name) for name in PACKAGES},
    }


def package_version(name: str) -> str | None:
    """Version of an installed package; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def diagnosis(settings_directory: Path | None = None) -> dict[str, dict[str, Any]]:
    """What a bug report needs, by section: versions, devices, caches, settings that are not defaults.

    settings_directory : as in `settings.resolve`. Settings that cannot be resolved are reported, not raised,
    so that the command works when nothing else does. Secrets are reported as set or not set.
    """
    facts = environment()
    return {
        "secid": {
            "version": VERSION,
            **{name: facts[name] for name in ("python", "platform", "processors")},
        },
        "packages": {name: value or "not installed" for name, value in facts["packages"].items()},
        "devices": _devices(),
        "encoders": _encoders(),
        **_settings(settings_directory),
    }


def _devices() -> dict[str, Any]:
    import torch

    devices: dict[str, Any] = {"cpu": f"{torch.get_num_threads()} threads"}
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(number)
        devices[f"cuda:{number}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if torch.version.cuda is None:
        devices["cuda"] = "not in this build of torch"
    elif not torch.cuda.is_available():
        devices["cuda"] = f"no device seen (torch is built for CUDA {torch.version.cuda})"
    devices["mps"] = "yes" if torch.backends.mps.is_available() else "no"
    return devices


def _encoders() -> dict[str, Any]:
    from huggingface_hub import constants

    from secid.encode.locate import offline_minilm

    try:
        offline = "installed, weights as published" if offline_minilm() else "not installed"
    except SecidError as error:
        offline = str(error)
    return {
        "offline minilm": offline,
        "hub cache": constants.HF_HUB_CACHE,
        "hub offline": "yes" if constants.HF_HUB_OFFLINE else "no",
        **{name: "set" if os.environ.get(name) else "not set" for name in SECRETS},
    }


def _settings(directory: Path | None) -> dict[str, dict[str, Any]]:
    from secid.encode import CacheFolder

    try:
        resolved = resolve({}, directory=directory)
        cache = CacheFolder.of(resolved.values).info()
    except SecidError as error:
        return {"settings": {"error": str(error)}}
    rows = sum(use.n_rows for use in cache.encoders)
    return {
        "cache": {
            "folder": cache.folder,
            "size": f"{cache.n_bytes / 1e9:.3f} of {cache.limit_bytes / 1e9:g} GB",
            "content": f"embeddings: {rows:,}, encoders: {len(cache.encoders)}, damaged segments: {cache.n_damaged}",
        },
        "settings": {
            name: f"{value_text(entry['value'])} from {entry['from']}"
            for name, entry in resolved.document().items()
            if entry["from"] != "default"
        }
        or {"changed": "none"},
    }
