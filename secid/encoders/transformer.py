"""Encoders of the transformers library at work: from texts to batches to rows.

Source: FORMATS 2 (recipes), METHOD 11 (precision).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secid.encoders.batching import (
    AHEAD,
    TokenBatch,
    Tokens,
    ahead,
    in_parallel,
    longest_first,
    next_batch,
    tokenised,
)
from secid.encoders.pooling import pool
from secid.encoders.protocol import EncodedBatch, Float32Rows, Role, gather
from secid.encoders.recipe import Recipe
from secid.encoders.tokens import Tokeniser
from secid.errors import EncoderError
from secid.results import EncoderInfo

Places = NDArray[np.int64]


class TransformerEncoder:
    """A transformer with its recipe on one device. `info` says exactly which.

    n_parameters : weights of the model and of the heads after its pooling.
    """

    def __init__(
        self,
        model: nn.Module,
        heads: nn.Module,
        tokeniser: Tokeniser,
        recipe: Recipe,
        info: EncoderInfo,
        batch_tokens: int,
        n_parameters: int,
    ) -> None:
        self.info = info
        self.n_parameters = n_parameters
        self.recipe = recipe
        self.model = model
        self._heads = heads
        self._tokeniser = tokeniser
        self._device = torch.device(info.device)
        self.batch_tokens = batch_tokens
        self._skip = {
            role: 0 if recipe.include_prompt else tokeniser.prompt_length(recipe.prefix(role))
            for role in ("query", "passage")
        }

    @property
    def dimension(self) -> int:
        return self.info.dim

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """(n, dimension) float32 in the order of the texts; unit rows where `info.normalize`."""
        return gather(self.batches(texts, role), len(texts), self.dimension)

    def word_pieces(self, texts: list[str]) -> list[list[int]]:
        """Ids of the word pieces that the encoder sees of each text, prefixes and special tokens left out."""
        return self._tokeniser.pieces(texts)

    def batches(self, texts: Sequence[str], role: Role) -> Iterator[EncodedBatch]:
        """Batches of similar length, longest first, tokenised in a thread ahead."""
        prefix, skip = self.recipe.prefix(role), self._skip[role]

        def tokenise(chunk: list[str]) -> Tokens:
            return self._tokeniser.tokens([prefix + text for text in chunk] if prefix else chunk)

        chunks = ahead(tokenised(texts, tokenise), AHEAD)
        if self._device.type == "cpu":
            yield from self._by_workers(chunks, skip)
            return
        yield from self._by_device(chunks, skip)

    def _by_workers(self, chunks: Iterable[tuple[Places, Tokens]], skip: int) -> Iterator[EncodedBatch]:
        """One batch a core, each core alone: no barrier after every layer, and batches that fit its cache."""
        threads = torch.get_num_threads()
        try:
            yield from in_parallel(
                lambda batch: _fetched(batch, self._forward(batch, skip)),
                self._token_batches(chunks),
                threads,
                prepare=lambda: torch.set_num_threads(1),
            )
        finally:
            torch.set_num_threads(threads)

    def _token_batches(self, chunks: Iterable[tuple[Places, Tokens]]) -> Iterator[TokenBatch]:
        for positions, tokens in chunks:
            order = longest_first(tokens)
            while len(order):
                batch = next_batch(tokens, order, self.batch_tokens, self._tokeniser.padding)
                yield batch._replace(positions=positions[batch.positions])
                order = order[len(batch.positions) :]

    def _by_device(self, chunks: Iterable[tuple[Places, Tokens]], skip: int) -> Iterator[EncodedBatch]:
        """Batches one after the other on an accelerator, the next under way before the last is fetched.

        Out of memory, the batch is halved and tried again.
        """
        waiting: tuple[TokenBatch, Tensor] | None = None
        for positions, tokens in chunks:
            order = longest_first(tokens)
            while len(order):
                batch = next_batch(tokens, order, self.batch_tokens, self._tokeniser.padding)
                try:
                    vectors = self._forward(batch, skip)
                except torch.cuda.OutOfMemoryError as error:
                    self._halve_budget(int(batch.lengths[0]), error)
                    continue
                if waiting is not None:
                    yield _fetched(*waiting)
                waiting = batch._replace(positions=positions[batch.positions]), vectors
                order = order[len(batch.positions) :]
        if waiting is not None:
            yield _fetched(*waiting)

    def _halve_budget(self, longest: int, error: Exception) -> None:
        """Half the batch after the device ran out of memory; what is encoded stays encoded."""
        if self.batch_tokens <= longest:
            raise EncoderError(
                f"out of memory on {self.info.device} with a single text of {longest} tokens",
                remedy="give --max-length, a smaller encoder or --device cpu",
            ) from error
        self.batch_tokens = max(self.batch_tokens // 2, 1)
        torch.cuda.empty_cache()

    @torch.inference_mode()
    def _forward(self, batch: TokenBatch, skip: int) -> Tensor:
        """Vectors (b, d) float32, still on the device."""
        ids = self._to_device(batch.ids)
        lengths = self._to_device(batch.lengths)
        mask = (torch.arange(ids.shape[1], device=self._device) < lengths[:, None]).long()
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors: Tensor = self._heads(pool(hidden, lengths, self.recipe.pooling, skip))
        if self.recipe.truncate_dim is not None:
            vectors = vectors[:, : self.recipe.truncate_dim]
        if self.recipe.normalize:
            vectors = nn.functional.normalize(vectors, dim=1)
        return vectors

    def _to_device(self, array: NDArray[np.int64]) -> Tensor:
        tensor = torch.from_numpy(array)
        if self._device.type == "cuda":
            return tensor.pin_memory().to(self._device, non_blocking=True)
        return tensor.to(self._device)


def _fetched(batch: TokenBatch, vectors: Tensor) -> EncodedBatch:
    return EncodedBatch(batch.positions, vectors.cpu().numpy(), batch.truncated, int(batch.lengths.sum()))
