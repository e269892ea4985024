"""Checks before an encoder is loaded, loading of encoders and guides, and the automatic choice of a tokenizer.

Heavy libraries are imported only when needed, so that errors are reported quickly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from secid.errors import UsageError
from secid.progress import Progress, Silent
from secid.results.commands import probe_command
from secid.results.probe import MIN_HELD_OUT
from secid.settings import Resolved, Settings, SettingsDict, encoder_kind, flag_of, resolve, with_encoder, with_guide

if TYPE_CHECKING:
    from secid.encode import Description, Encoder, EncoderLike
    from secid.findings.lexical_gate import Misread
    from secid.pool import Plan
    from secid.results import EncoderInfo, Run
    from secid.triplets.guide import Guide

# Encoders of a command: checks before loading, loading with a note about the recipe, and a description.


def refuse_no_encoder(encoder: EncoderLike | None, settings: Settings) -> None:
    """Raise UsageError if no encoder is named, and EncoderError for an object that is not an encoder."""
    if encoder is not None and not isinstance(encoder, str):
        from secid.encode import refuse_no_encoder_object

        refuse_no_encoder_object(encoder)
    if encoder is None and settings.encoder is None:
        raise UsageError(
            "no encoder given",
            remedy="name one with --encoder: e5-base, a local folder, or minilm (needs the offline extra)",
        )


def start_command(
    encoder: EncoderLike | None, settings: SettingsDict, progress: Progress | None, *, in_shards: bool = False
) -> tuple[Resolved, Progress]:
    """Resolve the settings of a command, including the encoder's name, and start its progress. Return both.

    in_shards : True if the command supports the setting `shard`; otherwise a shard raises UsageError.
    """
    resolved = resolve({**settings, "encoder": encoder if isinstance(encoder, str) else None})
    if resolved.values.shard is not None and not in_shards:
        raise UsageError(
            "needs a folder for states, which only the command `secid score` takes",
            where=flag_of("shard"),
            remedy=f"run secid score … {flag_of('shard', resolved.values.shard)} --state-dir DIR",
        )
    watcher = progress or Silent()
    watcher.start("load libraries", None, "")
    return resolved, watcher


def refuse_missing(
    encoder: EncoderLike | None, settings: Settings, progress: Progress, others: Sequence[str] = ()
) -> None:
    """Raise EncoderError if the target, the guide or another encoder does not exist, before torch is imported.

    Encoders on the hub are downloaded here. Raises UsageError if the guide is the target encoder.
    """
    target = None
    if encoder is None or isinstance(encoder, str):
        target = _refuse_missing_one(settings, progress)
    for name in (*others, *filter(None, [settings.guide_reranker])):
        _refuse_missing_one(with_encoder(settings, name), progress)
    if settings.guide is not None:
        folder = _refuse_missing_one(with_encoder(settings, settings.guide), progress)
        if folder is not None and folder == target:
            raise guide_is_target()


def _refuse_missing_one(settings: Settings, progress: Progress) -> Path | None:
    """Return the folder of the model `settings.encoder`; None for other kinds. Raises EncoderError if it is missing."""
    from secid.encode import load
    from secid.encode.locate import locate

    name = settings.encoder or ""
    progress.start(f"load {name}", None, "")
    kind = encoder_kind(name)
    if kind == "vectors" and not Path(name).is_file():
        load(settings)
    return locate(settings).folder.resolve() if kind == "model" else None


def guide_is_target() -> UsageError:
    return UsageError(
        "is the target encoder, which cannot find its own false negatives",
        where=flag_of("guide"),
        remedy="name another encoder, or a reranker",
    )


def load_noted(encoder: EncoderLike | None, settings: Settings, progress: Progress) -> tuple[Encoder, EncoderInfo]:
    """Load the encoder, unless it is an object, and show its recipe as a note. Return the encoder and the recipe."""
    from secid.encode import ignored, load
    from secid.pages.encoder_page import fact_lines
    from secid.pages.glossary import recipe_line

    progress.start(f"load {settings.encoder or 'encoder'}", None, "")
    loaded = load(settings, progress, encoder)
    info = replace(loaded.info, facts=(*loaded.info.facts, *ignored(settings, encoder)))
    for line in (recipe_line(info), *fact_lines(info.facts)):
        progress.note(line)
    return loaded, info


def load_guide(settings: Settings, target: Encoder, progress: Progress) -> Guide | None:
    """Load the guide in the settings, with its own recipe; return None without a guide.

    Raises UsageError if the guide is the target encoder itself, or if settings contradict each other.
    """
    from secid.encode import load
    from secid.encode.reranker import load_reranker
    from secid.pages.encoder_page import fact_lines
    from secid.pages.glossary import recipe_line

    name, reranker = settings.guide, settings.guide_reranker
    if name is not None and reranker is not None:
        raise UsageError(
            f"cannot be combined with {flag_of('guide')}", where=flag_of("guide_reranker"), remedy="omit one of them"
        )
    if name is None and reranker is None:
        if settings.guide_sample is not None:
            remedy = f"name a guide by {flag_of('guide', 'NAME')} or {flag_of('guide_reranker', 'NAME')}"
            raise UsageError("has no effect without a guide", where=flag_of("guide_sample"), remedy=remedy)
        return None
    progress.start(f"load {name or reranker}", None, "")
    if reranker is not None:
        return load_reranker(reranker, settings)
    guide = load(with_guide(settings), progress)
    if _identity(guide.info) == _identity(target.info):
        raise guide_is_target()
    for line in (recipe_line(guide.info), *fact_lines(guide.info.facts)):
        for prefix in ("query_prefix", "passage_prefix"):
            line = line.replace(f"{flag_of(prefix)} ", f"{flag_of(f'guide_{prefix}')}=")
        progress.note(f"guide: {line}")
    return guide


def _identity(info: EncoderInfo) -> str:
    """Return a key of the model: the hash of its weights if known. The same weights are not a second opinion."""
    return info.weights_sha256 or info.fingerprint or info.name


def command_of_probe(
    words: Sequence[str], encoder: EncoderLike | None, values: Settings, typed_settings: SettingsDict, run: Run
) -> str | None:
    """Return the command that probes the sources of a run.

    words : sources as typed.   values : resolved settings.   typed_settings : settings as typed.
    None if a source cannot be read again or has too few queries, or if the encoder cannot be trained.
    """
    name = values.encoder if encoder is None else encoder
    once = any(file.read_once for source in run.sources for file in source.files)
    few = min(source.n_queries for source in run.sources) < MIN_HELD_OUT
    if once or few or not isinstance(name, str) or encoder_kind(name) != "model":
        return None
    return probe_command(words, {"encoder": encoder, **typed_settings})


def refuse_invalid_combinations(settings: Settings, others: Sequence[str]) -> None:
    """Raise UsageError for a setting that would have no effect, or that contradicts another setting."""
    if settings.tie is not None and settings.until_ranked is None:
        raise UsageError(
            f"has no effect without {flag_of('until_ranked')}",
            where=flag_of("tie"),
            remedy=f"add {flag_of('until_ranked', 0.95)}",
        )
    if settings.block and not settings.ablate:
        raise UsageError(
            f"has no effect without {flag_of('ablate')}", where=flag_of("block"), remedy="use secid ablate"
        )
    if settings.positives == "all" and settings.budget != 1.0:
        raise UsageError(
            f"sources cannot be cut to equal size with {flag_of('positives', 'all')}",
            where=flag_of("budget"),
            remedy="use budget 1, or another positive policy",
        )
    if others and settings.until_ranked is not None:
        raise UsageError(
            "several encoders would use different samples",
            where=flag_of("until_ranked"),
            remedy="name one encoder, or omit the flag",
        )


def refuse_one_encoder_twice(encoders: Sequence[EncoderLike | None]) -> None:
    """Raise UsageError if two names refer to the same encoder, before anything is read or encoded."""
    from secid.encode import is_sentence_transformer
    from secid.encode.locate import full_name

    names: dict[str, str] = {}
    for encoder in encoders:
        if is_sentence_transformer(encoder):
            continue  # its name ends in "(in memory)", and its weights may differ from the model of that name
        typed = encoder if isinstance(encoder, str) or encoder is None else encoder.info.name
        name = full_name(typed or "")
        if name in names:
            raise UsageError(
                f"{names[name]} and {typed} are the same encoder", where="--encoder", remedy="name each encoder once"
            )
        names[name] = typed or ""


def describe_encoder(
    encoder: EncoderLike | None = None, *, progress: Progress | None = None, **settings: Unpack[SettingsDict]
) -> Description:
    """Return an encoder's resolved recipe, the rule that set each part of it, and its self-test.

    encoder  : as for `score`.   settings : settings of the encoder, such as pooling or query_prefix.
    Returns the result that `secid encoder --json` prints; `unsettled` lists the checks that did not pass.
    Raises SecidError if the encoder cannot be loaded.

    >>> import secid
    >>> secid.describe_encoder("minilm", max_length=64).info.max_length
    64
    """
    resolved, progress = start_command(encoder, settings, progress)
    values = resolved.values
    if encoder is None and values.encoder is None:
        raise UsageError(
            "no encoder given", remedy="name e5-base, a local folder or minilm, as in secid encoder e5-base"
        )
    from secid.encode import describe, ignored, load

    progress.start(f"load {values.encoder or 'encoder'}", None, "")
    loaded = load(values, progress, encoder)
    progress.start("self-test", None, "")
    description, facts = describe(loaded), ignored(values, encoder)
    return replace(description, info=replace(description.info, facts=(*description.info.facts, *facts)))


# The tokenizer of a run. It is chosen automatically if the default would misread a source.


def choose_tokenizer(plan: Plan, resolved: Resolved, progress: Progress) -> Resolved:
    """Choose another tokenizer, with a note, if the default would misread the words of a source. Source: METHOD 4.

    A tokenizer that was set, or that comes from a baseline, is kept.
    """
    from secid.findings.lexical_gate import misread

    settings = resolved.values
    if resolved.origin["tokenizer"] != "default":
        return resolved
    fits = [(misread(plan, source, settings.tokenizer, settings.seed), source.name) for source in plan.sources]
    return with_better_tokenizer(resolved, fits, progress)


def with_better_tokenizer(resolved: Resolved, fits: Sequence[tuple[Misread, str]], progress: Progress) -> Resolved:
    """Choose a tokenizer by the source with the largest share of misread texts. fits: (misreadings, name) by source."""
    from secid.findings.lexical_gate import MIN_MISREAD_SHARE, MULTILINGUAL, Misread
    from secid.pages.statuses import MISREADS
    from secid.pages.text import percent, short

    fit, name = max(fits, key=lambda pair: pair[0].fraction, default=(Misread(0, {}), ""))
    if fit.effect is None or fit.fraction < MIN_MISREAD_SHARE:
        return resolved
    default = resolved.values.tokenizer
    share = f"{percent(fit.fraction)} of the texts of {short(name)}"
    progress.note(
        f"tokenizer: {MULTILINGUAL}, chosen automatically because {default} {MISREADS[fit.effect]} ({share}); "
        f"to keep {default}: {flag_of('tokenizer', default)}"
    )
    return resolved.automatic(tokenizer=MULTILINGUAL)
