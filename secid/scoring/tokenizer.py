"""The tokenizer of a run, chosen automatically where the default would misread a source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from secid.progress import Progress
from secid.records import Record
from secid.settings import Resolved, flag_of

if TYPE_CHECKING:
    from secid.pool import Plan
    from secid.pool.tokenizer_fit import Misread, Texts
    from secid.read import Reader


def fitting(plan: Plan, resolved: Resolved, progress: Progress) -> Resolved:
    """Choose BETTER as the tokenizer, with a note, if the default would misread the words of a source.

    A tokenizer that was set, or is a baseline's, stays. Source: METHOD 4.
    """
    from secid.pool.tokenizer_fit import misread

    settings = resolved.values
    if resolved.origin["tokenizer"] != "default":
        return resolved
    fits = [(misread(plan, own, settings.tokenizer, settings.seed), own.name) for own in plan.sources]
    return _chosen(resolved, fits, progress)


def fitting_texts(queries: Texts, passages: Texts, name: str, resolved: Resolved, progress: Progress) -> Resolved:
    """Do the same for distinct texts to be searched. name : what the note calls them."""
    from secid.pool.tokenizer_fit import misread_texts

    settings = resolved.values
    if resolved.origin["tokenizer"] != "default":
        return resolved
    return _chosen(resolved, [(misread_texts(queries, passages, settings.tokenizer, settings.seed), name)], progress)


def fitting_files(readers: Sequence[Reader], resolved: Resolved, progress: Progress) -> Resolved:
    """Do the same for shards by the first rows of each source, since no shard has all rows at hand.

    A default that fits counts as chosen too, so that no shard chooses again by its own rows.
    """
    from secid.pool import SPLITTERS
    from secid.pool.tokenizer_fit import READ_CHARACTERS, SAMPLE_TEXTS, SPLIT_AS, Misread

    split, fits = SPLITTERS[SPLIT_AS[resolved.values.tokenizer]], []
    for reader in readers:
        records = islice((item for item in reader if isinstance(item, Record)), SAMPLE_TEXTS)
        texts = (text[:READ_CHARACTERS] for own in records for text in (own.query, *own.positives[:1]))
        fits.append((Misread.of(texts, split), reader.source.name))
    chosen = _chosen(resolved, fits, progress)
    return chosen.automatic(tokenizer=chosen.values.tokenizer)


def _chosen(resolved: Resolved, fits: Sequence[tuple[Misread, str]], progress: Progress) -> Resolved:
    """Decide by the source with the largest share of misread texts. fits : of each source, with its name."""
    from secid.pages.numbers import percent
    from secid.pages.sanitize import short
    from secid.pages.sections.warnings import MISREADS
    from secid.pool.tokenizer_fit import BETTER, NOTICED_MISREAD, Misread

    fit, name = max(fits, key=lambda pair: pair[0].fraction, default=(Misread(0, {}), ""))
    if fit.effect is None or fit.fraction < NOTICED_MISREAD:
        return resolved
    default = resolved.values.tokenizer
    does = f"{default} {MISREADS[fit.effect]} ({percent(fit.fraction)} of the texts of {short(name)})"
    progress.note(
        f"tokenizer: {BETTER}, chosen automatically, because {does}; to keep {default}: {flag_of('tokenizer', default)}"
    )
    return resolved.automatic(tokenizer=BETTER)
