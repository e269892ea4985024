"""`secid ablate`."""

from __future__ import annotations

from typing import Any

from secid.cli.options import ENCODER, METHOD, READING, STUDY, takes_settings
from secid.cli.score import Encoders, Force, Json, Out, Quiet, RunOption, Sources, Strict, score_and_print


@takes_settings(*METHOD, *READING, *ENCODER, *(name for name in STUDY if name != "ablate"))
def ablate(
    sources: Sources,
    encoder: Encoders = None,
    run: RunOption = None,
    force: Force = False,
    strict: Strict = False,
    json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Score, and see whether the order survives other temperatures, tokenizers, IDF corpora, weights and samples.

    The same as `secid score --ablate`.
    Example: secid ablate negatives/*.parquet --encoder e5-base --encoder e5-large
    """
    settings["ablate"] = True
    score_and_print(sources, encoder, run, force, strict, json, out or [], quiet, settings)
