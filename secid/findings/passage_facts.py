"""What the text findings need to know of each distinct text, gathered in one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.findings.normal_form import Flags, FormKeys, Index, Keys
from secid.findings.runs import Sieve, kept_of, n_slots_for, runs_of, short_keys
from secid.pool.texts import TextStore, pieces

CHUNK_TEXTS = 2048
"""Texts worked on at once: enough to hide the cost of a numpy call, at most some MB."""
BYTES_PER_RUN = 6
"""Bytes of a text per run, roughly: a word and a space. Only the size of the sieve follows from it."""
KEPT_EVERY = 4
"""A baseline keeps every fourth run of a positive, chosen by its key: a quarter of the size."""

PLACEHOLDERS = frozenset(
    ("n a", "na", "nan", "none", "null", "nil", "empty", "todo", "tbd", "text", "passage", "removed", "deleted")
)
"""Normal forms of what is written where a text was meant to be."""
FEW_WORDS = 2
"""Words of the longest placeholder."""

Tick = Callable[[int], None]


@dataclass(frozen=True)
class PassageFacts:
    """Facts of n distinct passages, by id.

    form     : (n,) uint64 hash of the normal form, the same on every machine; EMPTY_FORM for "".
    number   : (n,) a number below n_forms that equal forms share.
    unspaced : (n,) mostly in scripts without spaces, so that its runs are of characters.
    empty    : (n,) no letter or digit, or a placeholder.
    n_runs   : (n,) int32 runs, repeated ones included.   n_kept : (n,) those that a baseline would keep.
    sieve    : (n, slots / 64) uint64, which slots the runs fill: `runs.Sieve`.
    """

    form: Keys
    number: Index
    n_forms: int
    unspaced: Flags
    empty: Flags
    n_runs: npt.NDArray[np.int32]
    n_kept: npt.NDArray[np.int32]
    sieve: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.form)


@dataclass(frozen=True)
class QueryFacts:
    """Facts of distinct queries, by id. form, number : as in PassageFacts."""

    form: Keys
    number: Index
    n_forms: int


def query_facts(store: TextStore, tick: Tick = lambda n: None) -> QueryFacts:
    """Facts of all queries. tick: called with the number of texts done."""
    form = np.zeros(len(store), np.uint64)
    for start, stop in pieces(len(store), CHUNK_TEXTS, store.lengths):
        form[start:stop] = FormKeys.of(store.packed(start, stop)).hashes()
        tick(stop - start)
    return QueryFacts(form, *_numbered(form))


def passage_facts(store: TextStore, tick: Tick = lambda n: None) -> PassageFacts:
    """Facts of all passages. tick: called with the number of texts done."""
    n = len(store)
    form, unspaced, empty = np.zeros(n, np.uint64), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    n_runs, n_kept = np.zeros(n, np.int32), np.zeros(n, np.int32)
    sieve = Sieve(n, n_slots_for(float(store.lengths.mean()) / BYTES_PER_RUN if n else 0.0))
    for start, stop in pieces(n, CHUNK_TEXTS, store.lengths):
        part, forms = slice(start, stop), FormKeys.of(store.packed(start, stop))
        form[part], unspaced[part], empty[part] = forms.hashes(), forms.unspaced, _empty(forms)
        runs, owners = runs_of(forms)
        keys = short_keys(runs)
        sieve.fill(start, stop, keys, owners)
        n_runs[part] = np.bincount(owners, minlength=stop - start)
        n_kept[part] = np.bincount(owners[kept_of(keys, KEPT_EVERY)], minlength=stop - start)
        tick(stop - start)
    return PassageFacts(form, *_numbered(form), unspaced, empty, n_runs, n_kept, sieve.bits)


def is_empty(form: str) -> bool:
    """True where a normal form has no letter or digit, is a single letter of ASCII, or a placeholder.

    A single letter of another script may be a word (水), a digit may be an answer, and two letters are one (UK, 나무).
    """
    content = [char for char in form if char.isalnum()]
    return not content or form in PLACEHOLDERS or (len(content) == 1 and content[0].isascii() and content[0].isalpha())


def _empty(forms: FormKeys) -> Flags:
    """(n,) which texts are empty: of those with a letter or digit, only ones of few words can be."""
    empty = ~forms.with_content
    for place in np.flatnonzero(forms.with_content & (forms.n_words <= FEW_WORDS)).tolist():
        empty[place] = is_empty(forms.form(place))
    return empty


def _numbered(forms: Keys) -> tuple[Index, int]:
    """A number for each distinct form, in the order of their hashes, and how many there are."""
    values, numbers = np.unique(forms, return_inverse=True)
    return numbers.astype(np.int64, copy=False), len(values)
