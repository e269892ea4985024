"""Tokenise texts in bulk, and cut token ids into batches by a token budget."""

from __future__ import annotations

import queue
import threading
import unicodedata
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from secid.encode.modules import SAVE_AGAIN, VECTORS_REMEDY
from secid.encode.recipe import Recipe
from secid.encode.word_cache import Frame, Tokens, WordCache, splits_at_spaces
from secid.errors import EncoderError

# Texts → batches of token ids. Texts are sorted by length in windows and tokenised while the device works on earlier
# batches. A token budget limits a batch.
#
# Padding is the main cost, because the model computes every text at the length of the longest text in its batch.

T = TypeVar("T")

WINDOW_TEXTS = 32_768
"""Number of texts to sort by length together. The next window is read and sorted while the current one is encoded."""
WINDOW_CHARACTERS = 64 << 20
"""Number of characters at which a window ends early, for texts as long as books."""
READ_TEXTS = 1024
"""Number of texts to read at once."""

CPU_CHUNK = 1024
"""Texts to tokenise at once for a CPU: enough to keep the tokenizer's threads busy, but encoding starts soon."""

GPU_CHUNK = 4096
"""Texts to tokenise at once for a GPU, whose batches are a hundred times as large. For SciFact's passages (512 tokens,
batches of 131,072 tokens), padding is 6 % with chunks of 4,096 texts, 11 % with 1,024 and 5 % with a single chunk."""

CHUNKS_AHEAD = 4
"""Number of tokenised chunks to keep ready for the device."""


class TokenBatch(NamedTuple):
    """One padded batch. ids (b, longest) int64; positions, lengths (b,) int64; truncated (b,) bool."""

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    lengths: NDArray[np.int64]
    truncated: NDArray[np.bool_]


def longest_first(tokens: Tokens) -> NDArray[np.int64]:
    """Return (n,) int64, the positions of the texts by number of tokens, longest first."""
    return np.argsort(-tokens.lengths, kind="stable")


def next_batch(tokens: Tokens, order: NDArray[np.int64], budget: int, padding: int) -> TokenBatch:
    """Return a batch with the first texts of `order`: at most `budget` padded tokens, but at least one text.

    order : (n,) int64, n >= 1, positions in `tokens`, longest first. The batch holds some of these positions.
    """
    longest = int(tokens.lengths[order[0]])
    positions = order[: max(budget // longest, 1)]
    lengths = tokens.lengths[positions]
    columns = np.arange(longest)
    mask = columns < lengths[:, None]
    ids = np.full((len(positions), longest), padding, dtype=np.int64)
    ids[mask] = tokens.ids[(tokens.starts()[positions, None] + columns)[mask]]
    return TokenBatch(ids, positions, lengths, tokens.truncated[positions])


def halves(batch: TokenBatch) -> tuple[TokenBatch, TokenBatch]:
    """Split a batch of two or more texts into the longer and the shorter texts. Each half is as wide as its longest."""
    middle = len(batch.positions) // 2
    first = TokenBatch(batch.ids[:middle], batch.positions[:middle], batch.lengths[:middle], batch.truncated[:middle])
    ids = batch.ids[middle:, : int(batch.lengths[middle])]
    return first, TokenBatch(ids, batch.positions[middle:], batch.lengths[middle:], batch.truncated[middle:])


class BatchQueueError(Exception):
    """Error while reading or tokenising the texts, not on a device. `__cause__` is the original error."""


class BatchQueue:
    """Cut a stream of tokenised chunks into batches for any number of threads. Each text is handed out once.

    The batches, and so the rows, do not depend on the number of threads (docs/decisions/encoder-workers.md).
    For each batch that it took, a thread calls `done` or `give_back`.
    budget : maximum number of padded tokens in the next batch; `shrink` lowers it.
    """

    def __init__(self, chunks: Iterator[tuple[NDArray[np.int64], Tokens]], budget: int, padding: int) -> None:
        self.budget = budget
        self._batches = self._cut(chunks, padding)
        self._returned: list[TokenBatch] = []
        self._n_taken = 0
        self._changed = threading.Condition()
        self._error: Exception | None = None

    def take(self, wait: bool = True) -> TokenBatch | None:
        """Return the next batch, or None if no batch is left.

        wait : whether to wait for batches that other threads hold, because one of them may be given back.
        Raises BatchQueueError in every thread after reading or tokenising the texts has failed.
        """
        with self._changed:
            while True:
                batch = self._returned.pop() if self._returned else self._next()
                if batch is not None:
                    self._n_taken += 1
                    return batch
                if not wait or not self._n_taken:
                    return None
                self._changed.wait()

    def _next(self) -> TokenBatch | None:
        try:
            if self._error is None:
                return next(self._batches, None)
        except Exception as error:
            self._error = error
        raise BatchQueueError from self._error

    def done(self, n: int = 1) -> None:
        """Report that n batches are encoded, or lost to an error that ends the stream."""
        with self._changed:
            self._n_taken -= n
            self._changed.notify_all()

    def give_back(self, batch: TokenBatch, *parts: TokenBatch) -> None:
        """Return a batch to the queue, whole or as these parts of it, for any thread to take."""
        with self._changed:
            self._returned.extend(reversed(parts or (batch,)))
            self._n_taken -= 1
            self._changed.notify_all()

    def shrink(self, size: int) -> None:
        """Halve the budget until it is below `size`, the padded tokens of a batch that did not fit on a device."""
        with self._changed:
            while self.budget >= size and self.budget > 1:
                self.budget //= 2

    def _cut(self, chunks: Iterator[tuple[NDArray[np.int64], Tokens]], padding: int) -> Iterator[TokenBatch]:
        for positions, tokens in chunks:
            order = longest_first(tokens)
            while len(order):
                batch = next_batch(tokens, order, self.budget, padding)
                yield batch._replace(positions=positions[batch.positions])
                order = order[len(batch.positions) :]


def merged_items(producers: Sequence[Callable[[], Iterable[T]]], size: int, name: str) -> Generator[T, None, None]:
    """Yield the items of all producers as they arrive. Each producer runs in its own thread.

    size : maximum number of items that may wait.
    An error of a producer is raised here and stops the others. Leaving the loop early stops the threads.
    """
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=size)
    stopped = threading.Event()

    def put(kind: str, value: Any) -> None:
        while not stopped.is_set():
            try:
                ready.put((kind, value), timeout=0.1)
            except queue.Full:
                continue
            return

    def run(producer: Callable[[], Iterable[T]]) -> None:
        try:
            for item in producer():
                put("item", item)
                if stopped.is_set():
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    threads = [threading.Thread(target=run, args=(producer,), name=name, daemon=True) for producer in producers]
    try:
        for thread in threads:
            thread.start()
        running = len(threads)
        while running:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "item":
                yield value
            else:
                running -= 1
    finally:
        stopped.set()
        for thread in threads:
            if thread.is_alive():  # Ctrl-C may arrive before the last one has started
                thread.join()


def text_windows(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield (position of the first text, texts) of each window. `texts` is read only by slices."""
    window: list[str] = []
    start = size = 0
    for place in range(0, len(texts), READ_TEXTS):
        part = texts[place : place + READ_TEXTS]
        window.extend(part)
        size += sum(map(len, part))
        if len(window) >= WINDOW_TEXTS or size >= WINDOW_CHARACTERS:
            yield start, window
            start, window, size = start + len(window), [], 0
    if window:
        yield start, window


def token_chunks(
    texts: Sequence[str], tokenise: Callable[[list[str]], Tokens], chunk: int, n_threads: int
) -> Iterator[tuple[NDArray[np.int64], Tokens]]:
    """Yield (positions, tokens) of each chunk, longest texts first within a window.

    n_threads : number of chunks to tokenise at once. While one is converted to arrays, the tokenizer's own threads work
                on the next.
    """
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="secid-tokenise")
    ahead: deque[tuple[NDArray[np.int64], Future[Tokens]]] = deque()
    try:
        for start, window in text_windows(texts):
            lengths = np.fromiter(map(len, window), np.int64, len(window))
            order = np.argsort(-lengths, kind="stable")  # longest first, so that memory runs out early or never
            for first in range(0, len(order), chunk):
                places = order[first : first + chunk]
                part = [window[place] for place in places.tolist()]
                ahead.append((start + places, pool.submit(tokenise, part)))
                if len(ahead) > n_threads:
                    positions, tokens = ahead.popleft()
                    yield positions, tokens.result()
        for positions, tokens in ahead:
            yield positions, tokens.result()
    finally:
        pool.shutdown(cancel_futures=True)


# The tokenizer of an encoder, used in bulk and without padding. Its Rust core returns ids as lists.

OTHER_KIND, LETTER_KIND, IDEOGRAPH_KIND, MARK_KIND = range(4)
IDEOGRAPHS = ((0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
LAST_ASCII = 0x7F


class Tokeniser:
    """Turn texts into token ids with special tokens, cut at the recipe's maximum length.

    A copy of the tokenizer's Rust core is used, so that truncation and padding are set only once.
    """

    def __init__(self, core: Any, special_ids: frozenset[int], padding: int, unknown: int | None = None) -> None:
        self._core = core
        self._special_ids = special_ids
        self._unknown = unknown
        self.padding = padding
        self._frame = Frame.of(core) if splits_at_spaces(core) else None
        self._words = WordCache(core)

    def tokens(self, texts: list[str]) -> Tokens:
        """Return the token ids of each text. Raises EncoderError if a text has none."""
        tokens = self._read(texts)
        if not bool((tokens.lengths > 0).all()):
            place = int(np.flatnonzero(tokens.lengths == 0)[0])
            raise EncoderError(
                f"the tokenizer returns no token for the text {texts[place][:80]!r}", remedy="remove the text"
            )
        return tokens

    def _read(self, texts: list[str]) -> Tokens:
        if self._frame is not None:
            return self._words.framed(texts, self._frame)
        encodings = self._core.encode_batch_fast(texts)  # like encode_batch, but without offsets
        lists = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        ids = np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=int(lengths.sum()))
        truncated = np.fromiter(
            (bool(encoding.overflowing) for encoding in encodings), dtype=np.bool_, count=len(lists)
        )
        return Tokens(ids, lengths, truncated)

    def word_pieces(self, texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ids of all texts, cut and without special tokens, and (n,) the number of ids of each text."""
        tokens = self._read(texts)
        is_text = ~np.isin(tokens.ids, list(self._special_ids))
        before = np.concatenate([[0], np.cumsum(is_text)])
        ends = np.cumsum(tokens.lengths)
        return tokens.ids[is_text], before[ends] - before[ends - tokens.lengths]

    def unknown_shares(self, texts: list[str]) -> npt.NDArray[np.float64]:
        """Return (n,), the share of each text's letters that the tokenizer does not know as part of a word.

        Only letters beyond ASCII can be unknown: letters that become an unknown token, are dropped, are split into
        bytes, or are alone in their piece. A single ideograph is a word, so it is known. Letters beyond the maximum
        length do not count. The share is 0 for a text without letters.
        """
        encodings = self._core.encode_batch(texts, add_special_tokens=False)
        return np.array([_unknown_share(text, e, self._unknown) for text, e in zip(texts, encodings, strict=True)])

    def prompt_length(self, prompt: str) -> int:
        """Count the tokens of a prefix, without a final special token. `include_prompt: false` excludes them."""
        if not prompt:
            return 0
        ids = self._core.encode(prompt).ids
        return len(ids) - int(bool(ids) and ids[-1] in self._special_ids)


def load_tokeniser(recipe: Recipe, trust_remote_code: bool) -> Tokeniser:
    """Load the tokenizer of a recipe. Raises EncoderError if it cannot be loaded or is not supported."""
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Lowercase, Sequence
    from transformers import AutoTokenizer

    where = str(recipe.folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(recipe.folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise EncoderError(
            f"the tokenizer cannot be loaded: {' '.join(str(error).split())[:300]}", where=where, remedy=SAVE_AGAIN
        ) from error
    if not tokenizer.is_fast:
        raise EncoderError(
            "only tokenizers with a tokenizer.json are supported",
            where=where,
            remedy="save one with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)",
        )
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise EncoderError("the tokenizer has no vocabulary: its files are missing", where=where, remedy=SAVE_AGAIN)
    if tokenizer.pad_token_id is None:  # sentence-transformers pads even a single text
        raise EncoderError(
            "the tokenizer has no padding token",
            where=where,
            remedy="in transformers: tokenizer.pad_token = tokenizer.eos_token; tokenizer.save_pretrained(FOLDER)",
        )
    core = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    core.no_padding()
    core.no_truncation()
    if recipe.max_length is not None:
        overhead = max(len(core.encode(prefix).ids) for prefix in (recipe.query_prefix, recipe.passage_prefix))
        if recipe.max_length <= overhead:
            raise EncoderError(
                f"a maximum length of {recipe.max_length} tokens leaves no room for the text: special tokens and "
                f"prefix take {overhead}",
                where=where,
                remedy=f"use --max-length {overhead + 1} or more",
            )
        core.enable_truncation(recipe.max_length, direction=tokenizer.truncation_side)
    if recipe.lower_case:
        core.normalizer = Lowercase() if core.normalizer is None else Sequence([Lowercase(), core.normalizer])
    if any(core.encode("a").type_ids):
        raise EncoderError(
            "the tokenizer uses token types other than 0, which is not supported", where=where, remedy=VECTORS_REMEDY
        )
    return Tokeniser(core, frozenset(tokenizer.all_special_ids), tokenizer.pad_token_id, tokenizer.unk_token_id)


@cache
def _kind(character: str) -> int:
    category = unicodedata.category(character)[0]
    if category == "L":
        return IDEOGRAPH_KIND if any(low <= ord(character) <= high for low, high in IDEOGRAPHS) else LETTER_KIND
    return MARK_KIND if category == "M" else OTHER_KIND


def _unknown_share(text: str, encoding: Any, unknown: int | None) -> float:
    """Return one text's share for `Tokeniser.unknown_shares`. unknown: id of the unknown token, or None."""
    kinds = np.fromiter(map(_kind, text), np.int64, len(text))
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    starts, ends = offsets.T

    def inside(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        sums = np.concatenate([[0], np.cumsum(flags)])
        return np.asarray(sums[ends] - sums[starts])

    def covering(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        changes = np.zeros(len(text) + 1, np.int64)
        np.add.at(changes, starts[flags], 1)
        np.add.at(changes, ends[flags], -1)
        return np.asarray(np.cumsum(changes)[:-1])

    known = (inside(kinds != OTHER_KIND) > 1) | (inside(kinds == IDEOGRAPH_KIND) > 0)
    if unknown is not None:
        known &= np.array(encoding.ids, np.int64) != unknown
    n_read = int(ends.max(initial=0)) if encoding.overflowing else len(text)
    letters = ((kinds == LETTER_KIND) | (kinds == IDEOGRAPH_KIND))[:n_read]
    split = covering(np.ones(len(starts), np.bool_)) > 1
    strange = letters & ((covering(known) == 0) | split)[:n_read] & (np.array([*map(ord, text)]) > LAST_ASCII)[:n_read]
    return float(strange.sum() / max(1, letters.sum()))
