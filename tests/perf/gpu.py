"""E5-base's architecture in bf16 on a GPU: our encoder, sentence-transformers, and the measure stage's share.

    python -m tests.perf.gpu --texts 200000

Weights are random and texts are made of random words, in lengths as MS MARCO's passages have them (in word pieces:
median about 75, spread as a log-normal of sigma 0.4, at most 512): speed depends on neither meaning nor weights. The
peak is what a large bf16 matrix product reaches on the same device in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
import transformers
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel

import secid
from secid.encoders import load
from secid.settings import Settings

VOCABULARY = 30_522
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MEDIAN_TOKENS, SIGMA, LONGEST = 75, 0.4, 512
MATRIX = 8192
ST_BATCHES = (32, 128, 512, 1024)
NEGATIVES = 10


def save_e5_base(folder: Path) -> Path:
    """12 layers of 768, 12 heads, 512 positions; a word is one word piece."""
    words = [*SPECIAL, *(f"w{number}" for number in range(VOCABULARY - len(SPECIAL)))]
    tokenizer = Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", words.index("[CLS]")), ("[SEP]", words.index("[SEP]"))]
    )
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    stated = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LONGEST, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated), encoding="utf-8")
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=VOCABULARY)).save_pretrained(folder)
    return folder


def texts_of(n: int) -> list[str]:
    """Texts of random words, lengths drawn as told above."""
    generator = np.random.default_rng(0)
    lengths = np.minimum(generator.lognormal(np.log(MEDIAN_TOKENS - 2), SIGMA, n).astype(int) + 1, LONGEST - 2)
    words = generator.integers(0, VOCABULARY - len(SPECIAL), int(lengths.sum()))
    ends = np.cumsum(lengths)
    return [
        " ".join(f"w{word}" for word in words[end - length : end]) for end, length in zip(ends, lengths, strict=True)
    ]


def floating_operations(lengths: np.ndarray, config: BertConfig) -> float:
    """Multiplications and additions of the matrix products for these texts without padding."""
    d, layers, inner = config.hidden_size, config.num_hidden_layers, config.intermediate_size
    dense = 2.0 * layers * (4 * d * d + 2 * d * inner) * lengths.sum()
    attention = 4.0 * layers * d * (lengths.astype(np.float64) ** 2).sum()
    return float(dense + attention)


def seconds_of(function: Callable[[], object], repeats: int) -> float:
    """Median wall time, the device's queue emptied before and after; one call goes before, uncounted."""
    function()
    found = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return median(found)


def peak_operations() -> float:
    """Floating-point operations a second of a large bf16 product."""
    left, right = (torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def product() -> None:
        for _ in range(20):
            left @ right

    return 20 * 2.0 * MATRIX**3 / seconds_of(product, 5)


def whole_run(folder: Path, encoder: Path, n_queries: int) -> dict[str, dict[str, float]]:
    """Stage times of a score over one source of n_queries with ten negatives each."""
    texts = texts_of(n_queries * (2 + NEGATIVES))
    with (folder / "made.jsonl").open("w", encoding="utf-8") as file:
        for number in range(n_queries):
            query, positive, *negatives = texts[number::n_queries]
            row = {"query": " ".join(query.split()[:8]) + f" w{number}", "pos": [positive], "neg": negatives}
            file.write(json.dumps(row) + "\n")
    run = secid.score([folder / "made.jsonl"], str(encoder), device="cuda", cache=False, controls="none")
    return dict(run.timing)


def main() -> None:
    """Prints rates, shares and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=20_000, help="of the whole run, with ten negatives each")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch-tokens", type=int, help="padded tokens of one of our batches")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit(f"no CUDA device: torch {torch.__version__} sees none, so nothing was measured")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = save_e5_base(Path(name) / "e5-base-architecture")
        texts = texts_of(options.texts)
        own = load(Settings(encoder=str(folder), device="cuda", dtype="bf16", batch_tokens=options.batch_tokens))
        lengths = np.array([text.count(" ") + 3 for text in texts])
        operations = floating_operations(lengths, BertConfig())
        own.encode(texts[:2000], "passage")
        seconds = seconds_of(lambda: own.encode(texts, "passage"), options.repeats)
        peak = peak_operations()
        print(f"{len(texts):,} texts, {lengths.mean():.0f} tokens on average")
        print(f"secid: {len(texts) / seconds:,.0f} texts/s, {lengths.sum() / seconds:,.0f} tokens/s")
        reached = operations / seconds
        print(f"matrix products: {reached / 1e12:.0f} of {peak / 1e12:.0f} TFLOP/s, {reached / peak:.0%}")
        plain = SentenceTransformer(str(folder), device="cuda", model_kwargs={"torch_dtype": torch.bfloat16})
        part = texts[: max(1, len(texts) // 4)]
        ours_part = seconds_of(lambda: own.encode(part, "passage"), 1)
        for size in ST_BATCHES:
            theirs = seconds_of(lambda size=size: plain.encode(part, batch_size=size, show_progress_bar=False), 1)
            print(
                f"sentence-transformers, batch {size}: {len(part) / theirs:,.0f} texts/s; "
                f"secid on these texts {theirs / ours_part:.2f} times as fast"
            )
        stages = whole_run(Path(name), folder, options.queries)
        total = sum(stage["seconds"] for stage in stages.values())
        print(f"a whole run of {options.queries * NEGATIVES:,} triplets: {total:.1f} s")
        for stage, entry in stages.items():
            print(f"  {stage:<10} {entry['seconds']:8.2f} s, {entry['seconds'] / total:.1%}")


if __name__ == "__main__":
    main()
