"""Encoders of the transformers library: texts to batches to rows, with one worker per core or device.

Source: FORMATS 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from secid.encode.batching import AHEAD, CPU_CHUNK, GPU_CHUNK, Feed, Tokens, merged, tokenised
from secid.encode.parts import Parts
from secid.encode.protocol import EncodedBatch, Float32Rows, Role, gather
from secid.encode.replica import Replica
from secid.results import EncoderInfo


class TransformerEncoder:
    """A transformer with its recipe. `info` identifies it; `parts` are loaded on first use."""

    def __init__(self, parts: Parts, info: EncoderInfo, batch_tokens: int) -> None:
        self.parts = parts
        self.info = info
        self.recipe = parts.recipe
        self.batch_tokens = batch_tokens

    @property
    def dimension(self) -> int:
        return self.info.dim

    @property
    def n_parameters(self) -> int:
        """Number of weights of the model and of the heads after its pooling."""
        return self.parts.n_parameters

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """(n, dimension) float32 in the order of the texts; unit rows where `info.normalize`."""
        return gather(self.batches(texts, role), len(texts), self.dimension)

    def word_pieces(self, texts: list[str]) -> list[list[int]]:
        """Word-piece ids of each text as the encoder sees it, without prefix and special tokens."""
        return self.parts.tokeniser.pieces(texts)

    def unknown_shares(self, texts: list[str]) -> npt.NDArray[np.float64]:
        """(n,) share of each text's letters that the tokenizer does not know as part of a word."""
        return self.parts.tokeniser.unknown_shares(texts)

    def batches(self, texts: Sequence[str], role: Role) -> Iterator[EncodedBatch]:
        """Batches of similar length as they are ready, roughly longest first; a thread tokenises ahead.

        On a CPU one core computes a batch: no barrier after every layer, and the batch fits the core's cache.
        """
        recipe, tokeniser = self.recipe.of(role), self.parts.tokeniser
        prefix = recipe.prefix(role)
        skip = 0 if recipe.include_prompt else tokeniser.prompt_length(prefix)
        workers = self._workers()

        def tokenise(chunk: list[str]) -> Tokens:
            return tokeniser.tokens([prefix + text for text in chunk] if prefix else chunk)

        chunk = CPU_CHUNK if workers[0].device.type == "cpu" else GPU_CHUNK
        chunks = merged([lambda: tokenised(texts, tokenise, chunk)], AHEAD, "secid-tokenise")
        feed = Feed(chunks, self.batch_tokens, tokeniser.padding)
        threads = torch.get_num_threads()
        try:
            yield from merged(
                [partial(worker.work, feed, recipe, skip) for worker in workers], 2 * len(workers), "secid-encode"
            )
        finally:
            chunks.close()
            self.batch_tokens = feed.budget
            torch.set_num_threads(threads)

    def _workers(self) -> tuple[Replica, ...]:
        """One replica per worker thread: each once on a GPU, and as often as its share of the cores on a CPU."""
        replicas = self.parts.replicas
        if replicas[0].device.type != "cpu":
            return replicas
        return replicas * max(torch.get_num_threads() // len(replicas), 1)
