"""Texts whose words the tokenizer cuts up or runs together, on a sample: reading every text would cost time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from secid.arrays import distinct
from secid.pages.numbers import percent
from secid.pages.sanitize import named
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


@dataclass(frozen=True)
class Misread:
    """What the tokenizer does to n_texts sampled texts of a source. counts: how many, by what is done to them."""

    n_texts: int
    counts: dict[Fault, int]

    @property
    def n(self) -> int:
        """Texts that are misread in any way."""
        return sum(self.counts.values())

    @property
    def fraction(self) -> float:
        """Their share of the sample."""
        return self.n / self.n_texts if self.n_texts else 0.0

    @property
    def effect(self) -> Fault | None:
        """What is done to most of them; None where there are none."""
        return max(self.counts, key=self.counts.__getitem__, default=None)


def misread(plan: Plan, planned: PlannedSource, tokenizer: str, seed: int) -> Misread:
    """The first texts of a source in the seeded order, queries and passages, under a tokenizer."""
    if tokenizer not in SPLIT_AS:
        return Misread(0, {})
    split = SPLITTERS[SPLIT_AS[tokenizer]]
    passages = distinct(np.concatenate([planned.positives, planned.negatives]))
    texts = chain(_sample(plan.queries, distinct(planned.query), seed), _sample(plan.passages, passages, seed))
    faults = [fault(text, split) for text in texts]
    return Misread(len(faults), dict(Counter(name for name in faults if name is not None)))


def fitting(plan: Plan, resolved: Resolved, progress: Progress) -> Resolved:
    """The settings with BETTER as the tokenizer where the default would misread the words of a source; noted once.

    A tokenizer that anyone set stays, and so does the baseline's. Source: METHOD 4.
    """
    settings = resolved.values
    if resolved.origin["tokenizer"] != "default":
        return resolved
    found = [
        (fit.fraction, fit.effect, planned.name)
        for planned in plan.sources
        if (fit := misread(plan, planned, settings.tokenizer, settings.seed)).effect is not None
    ]
    return _chosen(resolved, found, progress)


def fitting_files(readers: Sequence[Reader], resolved: Resolved, progress: Progress) -> Resolved:
    """The same for shards, by the first rows of each source: no shard has all rows at hand.

    Where the default fits, it counts as chosen too, so that no shard chooses again by its own rows.
    """
    split, found = SPLITTERS[SPLIT_AS[resolved.values.tokenizer]], []
    for reader in readers:
        records = islice((item for item in reader if isinstance(item, Record)), SAMPLE_TEXTS)
        texts = [text[:READ_CHARACTERS] for own in records for text in (own.query, *own.positives[:1])]
        effects = Counter(name for text in texts if (name := fault(text, split)) is not None)
        if effects:
            found.append((effects.total() / len(texts), effects.most_common(1)[0][0], reader.source.name))
    chosen = _chosen(resolved, found, progress)
    return chosen.automatic(tokenizer=chosen.values.tokenizer)


def _chosen(resolved: Resolved, found: Sequence[tuple[float, Fault | None, str]], progress: Progress) -> Resolved:
    """found: the share of a source's texts that are misread, how most of them are, and its name."""
    fraction, effect, name = max(found, key=lambda one: one[0], default=(0.0, None, ""))
    if effect is None or fraction < NOTICED_MISREAD:
        return resolved
    default = resolved.values.tokenizer
    does = f"{default} {MISREADS[effect]} ({percent(fraction)} of the texts of {named(name)})"
    progress.note(
        f"tokenizer: {BETTER}, chosen automatically, because {does}; to keep {default}: {flag_of('tokenizer', default)}"
    )
    return resolved.automatic(tokenizer=BETTER)


def _sample(store: TextStore, ids: npt.NDArray[np.int64], seed: int) -> Iterator[str]:
    """The beginnings of texts, one by one: some have megabytes."""
    for place in first_sampled(ids, store.keys, seed, SAMPLE_TEXTS)[:, None]:
        yield store.take(place)[0][:READ_CHARACTERS]
