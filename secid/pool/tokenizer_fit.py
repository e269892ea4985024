"""Texts whose words the tokenizer cuts up or runs together, on a sample: reading every text would cost time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from secid.arrays import Index, distinct
from secid.pages.numbers import percent
from secid.pages.sanitize import short
from secid.pages.sections.warnings import MISREADS
from secid.pool import SPLITTERS, Plan, PlannedSource, first_sampled
from secid.pool.scripts import Fault, fault
from secid.pool.texts import TextStore
from secid.progress import Progress
from secid.read import Reader
from secid.records import Record
from secid.settings import Resolved, flag_of

SAMPLE_TEXTS = 250
"""Queries, and as many passages, of each source: a share of 5 % has a standard error of 1 %."""
READ_CHARACTERS = 300
"""Of each text: enough to see its script."""
NOTICED_MISREAD = 0.05
"""Share of texts from which they are reported: fewer are quotations and names."""
BETTER = "multilingual"
"""The tokenizer that does none of this."""
SPLIT_AS = {"alphanumeric": "alphanumeric", "alphanumeric2": "alphanumeric", "whitespace": "whitespace"}
"""Tokenizers of words. The others make pieces of a text, whatever its script."""
Texts = tuple[TextStore, Index]
"""A store, and the ids of its texts that count."""


@dataclass(frozen=True)
class Misread:
    """How many of n_texts sampled texts of a source the tokenizer misreads. counts : by kind of fault."""

    n_texts: int
    counts: dict[Fault, int]

    @staticmethod
    def of(texts: Iterable[str], split: Callable[[str], list[str]]) -> Misread:
        """Split the texts and count the faults."""
        faults = [fault(text, split) for text in texts]
        return Misread(len(faults), dict(Counter(name for name in faults if name is not None)))

    @property
    def n(self) -> int:
        """Number of misread texts."""
        return sum(self.counts.values())

    @property
    def fraction(self) -> float:
        """Share of misread texts in the sample; 0 for an empty sample."""
        return self.n / self.n_texts if self.n_texts else 0.0

    @property
    def effect(self) -> Fault | None:
        """The most frequent fault; None without any."""
        return max(self.counts, key=self.counts.__getitem__, default=None)


def misread(plan: Plan, planned: PlannedSource, tokenizer: str, seed: int) -> Misread:
    """Check the first queries and passages of a source, in the seeded order, under a tokenizer."""
    passages = distinct(np.concatenate([planned.positives, planned.negatives]))
    return _misread((plan.queries, distinct(planned.query)), (plan.passages, passages), tokenizer, seed)


def _misread(queries: Texts, passages: Texts, tokenizer: str, seed: int) -> Misread:
    if tokenizer not in SPLIT_AS:
        return Misread(0, {})
    texts = chain(_sample(*queries, seed), _sample(*passages, seed))
    return Misread.of(texts, SPLITTERS[SPLIT_AS[tokenizer]])


def fitting(plan: Plan, resolved: Resolved, progress: Progress) -> Resolved:
    """Choose BETTER as the tokenizer, with a note, if the default would misread the words of a source.

    A tokenizer that was set, or is a baseline's, stays. Source: METHOD 4.
    """
    settings = resolved.values
    if resolved.origin["tokenizer"] != "default":
        return resolved
    fits = [(misread(plan, own, settings.tokenizer, settings.seed), own.name) for own in plan.sources]
    return _chosen(resolved, fits, progress)


def fitting_texts(queries: Texts, passages: Texts, name: str, resolved: Resolved, progress: Progress) -> Resolved:
    """Do the same for distinct texts to be searched. name : what the note calls them."""
    settings = resolved.values
    if resolved.origin["tokenizer"] != "default":
        return resolved
    return _chosen(resolved, [(_misread(queries, passages, settings.tokenizer, settings.seed), name)], progress)


def fitting_files(readers: Sequence[Reader], resolved: Resolved, progress: Progress) -> Resolved:
    """Do the same for shards by the first rows of each source, since no shard has all rows at hand.

    A default that fits counts as chosen too, so that no shard chooses again by its own rows.
    """
    split, fits = SPLITTERS[SPLIT_AS[resolved.values.tokenizer]], []
    for reader in readers:
        records = islice((item for item in reader if isinstance(item, Record)), SAMPLE_TEXTS)
        texts = (text[:READ_CHARACTERS] for own in records for text in (own.query, *own.positives[:1]))
        fits.append((Misread.of(texts, split), reader.source.name))
    chosen = _chosen(resolved, fits, progress)
    return chosen.automatic(tokenizer=chosen.values.tokenizer)


def _chosen(resolved: Resolved, fits: Sequence[tuple[Misread, str]], progress: Progress) -> Resolved:
    """Decide by the source with the largest share of misread texts. fits : of each source, with its name."""
    fit, name = max(fits, key=lambda pair: pair[0].fraction, default=(Misread(0, {}), ""))
    if fit.effect is None or fit.fraction < NOTICED_MISREAD:
        return resolved
    default = resolved.values.tokenizer
    does = f"{default} {MISREADS[fit.effect]} ({percent(fit.fraction)} of the texts of {short(name)})"
    progress.note(
        f"tokenizer: {BETTER}, chosen automatically, because {does}; to keep {default}: {flag_of('tokenizer', default)}"
    )
    return resolved.automatic(tokenizer=BETTER)


def _sample(store: TextStore, ids: Index, seed: int) -> Iterator[str]:
    """The beginnings of texts, one by one: some have megabytes."""
    for place in first_sampled(ids, store.keys, seed, SAMPLE_TEXTS)[:, None]:
        yield store.take(place)[0][:READ_CHARACTERS]
