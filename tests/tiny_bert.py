"""Make a BERT small enough to save and run in a moment: random weights, real files, the real loading code."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PUNCTUATION = ".,;:!?'\"()-"
MAX_TOKENS = 128


def save_tiny_bert(folder: Path, *, width: int = 32, layers: int = 2, seed: int = 0) -> Path:
    """Write a complete encoder folder. Words are split into letters, so that different texts get different rows."""
    from transformers import BertConfig, BertModel  # here, so that fast tests do not import it with their conftest.py

    folder.mkdir(parents=True, exist_ok=True)
    words = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), *PUNCTUATION]
    tokenizer = Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", words.index("[CLS]")), ("[SEP]", words.index("[SEP]"))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    stated = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": MAX_TOKENS, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated), encoding="utf-8")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(words),
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=4 * width,
            max_position_embeddings=MAX_TOKENS,
            initializer_range=0.2,  # with the usual 0.02 all texts point in nearly the same direction
        )
        BertModel(config).save_pretrained(folder)
    return folder


def save_in_hub_cache(home: Path, name: str, *, revision: str = "0123456789abcdef0123456789abcdef01234567") -> Path:
    """Save the same encoder in the layout of the hub's cache. home : the folder for HF_HOME."""
    repository = home / "hub" / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision, encoding="utf-8")
    return save_tiny_bert(repository / "snapshots" / revision)
