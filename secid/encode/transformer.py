"""Encoders of the transformers library: texts to batches to rows, with one worker per core or device.

Source: FORMATS 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from secid.encode.batching import AHEAD, CPU_CHUNK, GPU_CHUNK, Feed, FeedError, Tokens, merge, token_chunks
from secid.encode.device import n_devices
from secid.encode.parts import Parts, quiet
from secid.encode.protocol import EncodedBatch, Float32Rows, Role, gather
from secid.encode.replica import DeviceError, Replica
from secid.encode.transfer import host_rows
from secid.errors import EncoderError, plainly
from secid.results import EncoderInfo

GPU_TOKENISERS = 3
"""Chunks tokenised at once for a GPU: 20 ms of 4,096 texts are Python, in which its own threads would idle."""

ENCODED_AHEAD = 8
"""Encoded batches of each worker that may wait for the consumer: 0.4 s of an H200."""


class TransformerEncoder:
    """A transformer with its recipe. `info` identifies it; `parts` are loaded on first use."""

    def __init__(self, parts: Parts, info: EncoderInfo, batch_tokens: int) -> None:
        self.parts = parts
        self.info = info
        self.recipe = parts.recipe
        self.batch_tokens = batch_tokens
        self._replicas: dict[int, Replica] = {}
        self._lost: dict[int, str] = {}

    @property
    def n_parameters(self) -> int:
        """Number of weights of the model and of the heads after its pooling."""
        return self.parts.n_parameters

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """(n, info.dim) float32 in the order of the texts; unit rows where `info.normalize`."""
        batches = (batch._replace(vectors=host_rows(batch.vectors)) for batch in self.batches(texts, role))
        return gather(batches, len(texts), self.info.dim)

    def reference(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """(n, info.dim) float32 of sentence-transformers' encode_query or encode_document, not scaled.

        One text at a time: `attention.mask` leaves out padding on the left, with which some tokenizers would batch.
        """
        model, recipe = self.parts.replica.model, self.recipe.of(role)
        known = {"query": model.encode_query, "document": model.encode_document}
        encode = known.get(recipe.task, partial(model.encode, task=recipe.task))
        options = {"prompt": recipe.prefix(role), "truncate_dim": recipe.truncate_dim, "batch_size": 1}
        with quiet():
            rows: Float32Rows = encode(list(texts), show_progress_bar=False, **options)
        return rows

    def word_pieces(self, texts: list[str]) -> list[list[int]]:
        """Word-piece ids of each text as the encoder sees it, without prefix and special tokens."""
        return self.parts.tokeniser.pieces(texts)

    def unknown_shares(self, texts: list[str]) -> npt.NDArray[np.float64]:
        """(n,) share of each text's letters that the tokenizer does not know as part of a word."""
        return self.parts.tokeniser.unknown_shares(texts)

    def batches(self, texts: Sequence[str], role: Role) -> Iterator[EncodedBatch]:
        """Batches of similar length as they are ready, longest first within a window; threads tokenise ahead.

        texts : only its length and slices are used, so that texts can be read as they are needed.
        On a CPU one core computes a batch: no barrier after every layer, and the batch fits the core's cache. A GPU
        takes part if there is a window of texts for it. What a failing one had taken is encoded by the others.
        """
        recipe, tokeniser = self.recipe.of(role), self.parts.tokeniser
        prefix = recipe.prefix(role)
        skip = 0 if recipe.include_prompt else tokeniser.prompt_length(prefix)

        def tokenise(chunk: list[str]) -> Tokens:
            return tokeniser.tokens([prefix + text for text in chunk] if prefix else chunk)

        on_cpu = self.parts.replica.device.type == "cpu"
        chunk, n_tokenisers = (CPU_CHUNK, 1) if on_cpu else (GPU_CHUNK, GPU_TOKENISERS)
        chunks = merge([lambda: token_chunks(texts, tokenise, chunk, n_tokenisers)], AHEAD, "secid-tokenise")
        feed = Feed(chunks, self.batch_tokens, tokeniser.padding)
        threads = torch.get_num_threads()
        numbers = self._device_numbers(len(texts))
        errors: list[DeviceError] = []

        def work(number: int) -> Iterator[EncodedBatch]:
            try:
                yield from self._replica(number).work(feed, recipe, skip)
            except DeviceError as error:
                errors.append(error)
                self._lost[number] = f"{self.parts.devices[number]} failed, the other devices go on: {error}"
                if len(errors) == len(numbers):
                    raise EncoderError(
                        f"encoding failed on {self.parts.devices[number]}: {error}",
                        remedy="see `secid doctor`; --device cpu works without a GPU",
                    ) from error.__cause__

        try:
            yield from merge(
                [partial(work, number) for number in numbers], ENCODED_AHEAD * len(numbers), "secid-encode"
            )
        except FeedError as error:
            raise error.__cause__ or error from None
        finally:
            chunks.close()
            self.batch_tokens = feed.budget
            torch.set_num_threads(threads)

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence on each device that failed."""
        return tuple(self._lost.values())

    def _device_numbers(self, n_texts: int) -> list[int]:
        """The device of each worker: once for each GPU that is needed, and as often as there are cores for a CPU."""
        devices = self.parts.devices
        if devices[0].type == "cpu":
            return [*range(len(devices))] * max(torch.get_num_threads() // len(devices), 1)
        usable = [number for number in range(len(devices)) if number not in self._lost] or [0]
        return usable[: n_devices(len(usable), n_texts)]

    def _replica(self, number: int) -> Replica:
        """The model on a device, copied there when it is first needed; cores share one."""
        device, first = self.parts.devices[number], self.parts.replica
        if number == 0 or device.type == "cpu":
            return first
        if number not in self._replicas:
            try:
                self._replicas[number] = first.on(device)
            except RuntimeError as error:
                raise DeviceError(plainly(error)[:200]) from error
        return self._replicas[number]
