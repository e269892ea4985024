"""Tiny encoders with random weights, saved in the hub's layout."""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.notes import Notes

TEXTS = [
    "a",
    "what causes tides",
    "the moon moves the water",
    "glaciers are bodies of dense ice that move under their own weight",
    "bread rises because yeast turns sugar into gas " * 4,
]

FAMILIES = ("bert", "xlm-roberta", "distilbert", "mpnet", "modernbert", "nomic_bert", "qwen3", "gemma3_text")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the user's keys, so that no test can send them."""
    monkeypatch.delenv("SECID_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


SHA = "0123456789abcdef0123456789abcdef01234567"


def hub_cache(home: Path, name: str, source: Path) -> Path:
    """Make a hub cache that has `source` under `name`, in huggingface_hub's layout."""
    repository = home / "hub" / f"models--{name.replace('/', '--')}"
    shutil.copytree(source, repository / "snapshots" / SHA)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(SHA, encoding="utf-8")
    return repository / "snapshots" / SHA


def write_json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")


def _tokenizer(special: list[str], template: str, **roles: str) -> Any:
    """Return a WordPiece tokenizer over letters. Special tokens have the first ids, in order."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    letters = string.ascii_lowercase + string.digits + string.punctuation
    words = ["the", "moon", "water", "ice", "bread", "query", "passage", "search", "##er", "##es"]
    more = (
        "represent sentence searching relevant passages instruct given web retrieve answer evidence similar retrieval "
        "retrieving documents document semantically text task result title none this for that"
    )
    vocabulary = [*special, *letters, *(f"##{letter}" for letter in letters), *words, *more.split(" ")]
    ids = {word: place for place, word in enumerate(vocabulary)}
    core = Tokenizer(WordPiece(ids, unk_token=roles["unk_token"]))
    core.normalizer, core.pre_tokenizer = Lowercase(), BertPreTokenizer()
    core.post_processor = TemplateProcessing(single=template, special_tokens=[(word, ids[word]) for word in special])
    names = ["input_ids", "attention_mask"]  # older sentence-transformers pass all of these to a model
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=64, model_input_names=names, **roles)


def _bert_like() -> Any:
    return _tokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        "[CLS] $A [SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def _roberta_like() -> Any:
    return _tokenizer(
        ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        "<s> $A </s>",
        bos_token="<s>",
        cls_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


def _decoder_like(template: str, **more: str) -> Any:
    return _tokenizer(
        ["<pad>", "<eos>", "<bos>", "<unk>"],
        template,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
        **more,
    )


def _model(family: str, vocabulary: int) -> Any:
    import transformers as t

    common: dict[str, Any] = {
        "vocab_size": vocabulary, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64, "initializer_range": 0.3,
    }  # fmt: skip
    if family == "bert":
        return t.BertModel(t.BertConfig(**common, pad_token_id=0))
    if family == "xlm-roberta":
        longer = {**common, "max_position_embeddings": 66}
        return t.XLMRobertaModel(t.XLMRobertaConfig(**longer, pad_token_id=1, bos_token_id=0, eos_token_id=2))
    if family == "distilbert":
        return t.DistilBertModel(
            t.DistilBertConfig(
                vocab_size=vocabulary,
                dim=32,
                n_layers=2,
                n_heads=4,
                hidden_dim=48,
                max_position_embeddings=64,
                initializer_range=0.3,
            )
        )
    if family == "mpnet":
        return t.MPNetModel(t.MPNetConfig(**{**common, "max_position_embeddings": 66}, pad_token_id=1))
    if family == "modernbert":
        return t.ModernBertModel(
            t.ModernBertConfig(
                **common,
                pad_token_id=0,
                bos_token_id=2,
                eos_token_id=3,
                cls_token_id=2,
                sep_token_id=3,
                initializer_cutoff_factor=2.0,
            )
        )
    if family == "nomic_bert":
        return t.NomicBertModel(t.NomicBertConfig(**common, pad_token_id=0))
    if family == "jina_embeddings_v3":
        longer = {**common, "max_position_embeddings": 66}
        return t.JinaEmbeddingsV3Model(
            t.JinaEmbeddingsV3Config(**longer, pad_token_id=1, bos_token_id=0, eos_token_id=2)
        )
    if family == "qwen2":
        return t.Qwen2Model(t.Qwen2Config(**common, num_key_value_heads=2, pad_token_id=0, eos_token_id=1))
    if family == "qwen3":
        return t.Qwen3Model(t.Qwen3Config(**common, num_key_value_heads=2, head_dim=8, pad_token_id=0, eos_token_id=1))
    return t.Gemma3TextModel(
        t.Gemma3TextConfig(
            **common,
            num_key_value_heads=2,
            head_dim=8,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=2,
            use_bidirectional_attention=True,
            sliding_window=16,
        )
    )


def _tokenizer_of(family: str) -> Any:
    if family in ("xlm-roberta", "mpnet", "jina_embeddings_v3"):
        return _roberta_like()
    if family in ("qwen2", "qwen3"):
        return _decoder_like("$A <eos>", padding_side="left")
    if family == "gemma3_text":
        return _decoder_like("<bos> $A <eos>")
    return _bert_like()


POOLING: Mapping[str, str] = {"modernbert": "cls", "qwen3": "lasttoken"}


def save_tiny(folder: Path, family: str) -> Path:
    """Save a tiny encoder of a family, with all files of its repositories."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(7)
    tokenizer = _tokenizer_of(family)
    model = _model(family, len(tokenizer)).eval()
    if family == "qwen3":
        model.config.architectures = ["Qwen3ForCausalLM"]
    model.save_pretrained(folder)
    if family == "qwen3":  # as in the published files; save_pretrained writes the class that was saved
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        write_json(folder / "config.json", {**config, "architectures": ["Qwen3ForCausalLM"]})
    tokenizer.save_pretrained(folder)
    kind = "sentence_transformers.models"
    modules = [("", f"{kind}.Transformer"), ("1_Pooling", f"{kind}.Pooling")]
    if family == "gemma3_text":
        for place, (wide, narrow) in enumerate(((32, 48), (48, 32)), 2):
            dense = folder / f"{place}_Dense"
            activation = "torch.nn.modules.linear.Identity" if place == 3 else "torch.nn.modules.activation.Tanh"
            write_json(
                dense / "config.json",
                {"in_features": wide, "out_features": narrow, "bias": False, "activation_function": activation},
            )
            save_file({"linear.weight": torch.randn(narrow, wide) / 4}, dense / "model.safetensors")
            modules.append((dense.name, f"{kind}.Dense"))
    modules.append((f"{len(modules)}_Normalize", f"{kind}.Normalize"))
    write_json(
        folder / "modules.json",
        [{"idx": i, "name": str(i), "path": path, "type": name} for i, (path, name) in enumerate(modules)],
    )
    write_json(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": 32, "pooling_mode": POOLING.get(family, "mean"), "include_prompt": True},
    )
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": False})
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {"query": "search query: ", "document": "passage: "}, "default_prompt_name": None},
    )
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return tiny(family), the folder of a tiny encoder, saved once per session. Copy it before you damage it."""
    saved: dict[str, Path] = {}

    def get(family: str) -> Path:
        if family not in saved:
            saved[family] = save_tiny(tmp_path_factory.mktemp("tiny") / family, family)
        return saved[family]

    return get


def text_keys(texts: list[str], role: str) -> Any:
    """Return keys as a plan makes them, (n, 16) uint8."""
    import hashlib

    import numpy as np

    digests = b"".join(hashlib.blake2b(f"{role}\0{text}".encode(), digest_size=16).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint8).reshape(len(texts), 16)


def embedder(encoder: Any, texts: list[str], work: Path, role: str = "passage", **settings: Any) -> Any:
    """Return an embedder of stores with these distinct texts in one role, none in the other. work : for its files."""
    from secid.pool.texts import TextSpool
    from secid.settings import Settings
    from secid.triplets.embedding import Embedder

    stores = {}
    work.mkdir(exist_ok=True)
    for name, own in (("query", texts if role == "query" else []), ("passage", texts if role == "passage" else [])):
        spool = TextSpool(name, work / f"{name}.texts")
        spool.add(own)
        stores[name] = spool.store()[0]
    return Embedder(stores["query"], stores["passage"], encoder, Settings(**settings), work, Notes())


def embedded(encoder: Any, texts: list[str], work: Path, role: str = "passage", **settings: Any) -> Any:
    """Embed these texts, and return rows (n, d), counts and notes."""
    own = embedder(encoder, texts, work, role, **settings)
    own.everything()
    own.close()
    rows = own.vectors.queries if role == "query" else own.vectors.passages
    return SimpleNamespace(rows=rows.numpy(), notes=own._progress.notes, truncated=own.truncated, **own.counts)
