"""Texts whose words the tokenizer cuts up or runs together, on a sample: reading every text would cost time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from secid.arrays import Index, distinct
from secid.pool import SPLITTERS, Plan, PlannedSource, first_sampled
from secid.pool.scripts import Fault, fault
from secid.pool.texts import TextStore

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
    return misread_texts((plan.queries, distinct(planned.query)), (plan.passages, passages), tokenizer, seed)


def misread_texts(queries: Texts, passages: Texts, tokenizer: str, seed: int) -> Misread:
    """Do the same for distinct texts of any origin."""
    if tokenizer not in SPLIT_AS:
        return Misread(0, {})
    texts = chain(_sample(*queries, seed), _sample(*passages, seed))
    return Misread.of(texts, SPLITTERS[SPLIT_AS[tokenizer]])


def _sample(store: TextStore, ids: Index, seed: int) -> Iterator[str]:
    """The beginnings of texts, one by one: some have megabytes."""
    for place in first_sampled(ids, store.keys, seed, SAMPLE_TEXTS)[:, None]:
        yield store.take(place)[0][:READ_CHARACTERS]
