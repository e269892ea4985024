"""Twelve families, laid out as their repositories are: rows equal those of sentence-transformers and transformers."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from secid.encode import load
from secid.settings import Settings

from .conftest import TEXTS, hub_cache, write_json

Tiny = Callable[[str], Path]
TOLERANCE = 1e-5
NOTICED = 1e-3
KIND = "sentence_transformers.models"
SEARCH = "Represent this sentence for searching relevant passages: "
TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query"


@dataclass(frozen=True)
class Published:
    """A repository's own configuration, at the sizes of a tiny model.

    base: of `save_tiny`.   dense: output sizes of Dense modules.   expected: prefixes that training uses.
    """

    name: str
    base: str
    pooling: str
    expected: tuple[str, str]
    ends: bool = True
    dense: tuple[int, ...] = ()
    prompts: dict[str, str] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    lower: bool = False
    max_length: int = 48
    flags: dict[str, str] = field(default_factory=dict)


QWEN_PROMPTS = {"query": f"{TASK}\nQuery:", "document": ""}
GEMMA_PROMPTS = {
    "query": "task: search result | query: ",
    "document": "title: none | text: ",
    "BitextMining": "task: search result | query: ",
    "Clustering": "task: clustering | query: ",
}
JINA_PROMPTS = {
    "retrieval.query": "Represent the query for retrieving evidence documents: ",
    "retrieval.passage": "Represent the document for retrieval: ",
    "separation": "",
    "classification": "",
    "text-matching": "",
}
STELLA_PROMPTS = {
    "s2p_query": f"{TASK}.\nQuery: ",
    "s2s_query": "Instruct: Retrieve semantically similar text.\nQuery: ",
}
FAMILIES = {
    "e5": Published("intfloat/e5-base-v2", "bert", "mean", ("query: ", "passage: ")),
    "e5-instruct": Published("intfloat/multilingual-e5-large-instruct", "xlm-roberta", "mean",
        (f"{TASK}\nQuery: ", "")),
    "bge": Published("BAAI/bge-base-en-v1.5", "bert", "cls", (SEARCH, ""), lower=True),
    "bge-m3": Published("BAAI/bge-m3", "xlm-roberta", "cls", ("", "")),
    "gte": Published("thenlper/gte-base", "bert", "mean", ("", "")),
    "nomic": Published("nomic-ai/nomic-embed-text-v1.5", "nomic_bert", "mean", ("search_query: ", "search_document: "),
        ends=False,
        config={"auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}}),
    "qwen3": Published("Qwen/Qwen3-Embedding-0.6B", "qwen3", "lasttoken", (QWEN_PROMPTS["query"], ""),
        prompts=QWEN_PROMPTS),
    "jina": Published("jinaai/jina-embeddings-v3-merged", "jina_embeddings_v3", "mean",
        (JINA_PROMPTS["retrieval.query"], JINA_PROMPTS["retrieval.passage"]), prompts=JINA_PROMPTS,
        flags={"query_prompt": "retrieval.query", "passage_prompt": "retrieval.passage"}),
    "arctic": Published("Snowflake/snowflake-arctic-embed-m-v1.5", "bert", "cls", (SEARCH, ""),
        prompts={"query": SEARCH}),
    "mxbai": Published("mixedbread-ai/mxbai-embed-large-v1", "bert", "cls", (SEARCH, ""), ends=False,
        prompts={"query": SEARCH, "passage": ""}),
    "stella": Published("NovaSearch/stella_en_1.5B_v5", "qwen2", "mean", (STELLA_PROMPTS["s2p_query"], ""), ends=False,
        dense=(24,), max_length=120, prompts=STELLA_PROMPTS,
        config={"is_causal": False, "auto_map": {"AutoModel": "modeling_qwen.Qwen2Model"}},
        flags={"query_prompt": "s2p_query", "passage_prefix": ""}),
    "embeddinggemma": Published("google/embeddinggemma-300m", "gemma3_text", "mean",
        (GEMMA_PROMPTS["query"], GEMMA_PROMPTS["document"]), dense=(48, 32), prompts=GEMMA_PROMPTS),
}  # fmt: skip


def save_published(tiny: Tiny, published: Published, home: Path) -> Path:
    """The snapshot in a hub cache under `home`."""
    folder = shutil.copytree(tiny(published.base), home / "source")
    for path in (*folder.glob("[0-9]_*"), folder / "config_sentence_transformers.json"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    stated = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", {**stated, **published.config})
    chain = [("", "Transformer"), ("1_Pooling", "Pooling")]
    pooling = {
        "word_embedding_dimension": 32,
        "pooling_mode_cls_token": published.pooling == "cls",
        "pooling_mode_mean_tokens": published.pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_weightedmean_tokens": False,
        "pooling_mode_lasttoken": published.pooling == "lasttoken",
        "include_prompt": True,
    }
    write_json(folder / "1_Pooling" / "config.json", pooling)
    width = 32
    for place, out in enumerate(published.dense, 2):
        chain.append((f"{place}_Dense", "Dense"))
        identity = "torch.nn.modules.linear.Identity"
        sizes = {"in_features": width, "out_features": out, "bias": False, "activation_function": identity}
        write_json(folder / f"{place}_Dense" / "config.json", sizes)
        torch.manual_seed(place)
        save_file({"linear.weight": torch.randn(out, width) / 4}, folder / f"{place}_Dense" / "model.safetensors")
        width = out
    if published.ends:
        chain.append((f"{len(chain)}_Normalize", "Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"{KIND}.{kind}"} for i, (path, kind) in enumerate(chain)
    ]
    write_json(folder / "modules.json", modules)
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": published.max_length, "do_lower_case": published.lower}
    )
    versions = {"sentence_transformers": "2.7.0", "transformers": "4.41.2", "pytorch": "2.3.0"}
    document: dict[str, Any] = {"__version__": versions}
    if published.prompts is not None:
        document |= {"prompts": published.prompts, "default_prompt_name": None}
    write_json(folder / "config_sentence_transformers.json", document)
    return hub_cache(home, published.name, folder)


def loaded(folder: Path, **settings: Any) -> Any:
    return load(Settings(encoder=str(folder), device="cpu", cache=False, **settings))


def rows_of(encoder: Any) -> tuple[np.ndarray, np.ndarray]:
    return encoder.encode(TEXTS, "query"), encoder.encode(TEXTS, "passage")


def sentence_transformers_rows(folder: Path, published: Published) -> tuple[np.ndarray, np.ndarray]:
    """Encode as training with sentence-transformers does, in other batches than ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        stated = published.prompts or {}
        prompts = [None if text in stated.values() and not published.flags else text for text in published.expected]
        options = {"batch_size": 2, "show_progress_bar": False, "normalize_embeddings": published.ends}
        queries = model.encode_query(TEXTS, prompt=prompts[0], **options)
        return np.asarray(queries), np.asarray(model.encode_document(TEXTS, prompt=prompts[1], **options))


def plain_rows(folder: Path, published: Published) -> tuple[np.ndarray, np.ndarray]:
    """The recipe written out over plain transformers, one text at a time, so that nothing is padded."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def row(text: str) -> torch.Tensor:
        inputs = tokenizer(text, truncation=True, max_length=published.max_length, return_tensors="pt")
        states = model(**inputs, use_cache=False).last_hidden_state[0]
        pooled = {"mean": states.mean(dim=0), "lasttoken": states[-1]}[published.pooling]
        for place in range(len(published.dense)):
            pooled = load_file(folder / f"{place + 2}_Dense" / "model.safetensors")["linear.weight"] @ pooled
        return pooled / pooled.norm() if published.ends else pooled

    with torch.inference_mode():
        both = [torch.stack([row(prefix + text) for text in TEXTS]).numpy() for prefix in published.expected]
    return both[0], both[1]


def distance(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_equals_sentence_transformers(tiny: Tiny, tmp_path: Path, family: str) -> None:
    published = FAMILIES[family]
    folder = save_published(tiny, published, tmp_path)
    encoder = loaded(folder, **published.flags)
    info = encoder.info
    assert info.name == published.name
    assert (info.query_prefix, info.passage_prefix) == published.expected
    assert (info.normalize, info.max_length) == (published.ends, published.max_length)
    expected = sentence_transformers_rows(folder, published)
    assert distance(rows_of(encoder), expected) <= TOLERANCE
    if published.expected[0]:
        flags = {name: value for name, value in published.flags.items() if name != "query_prompt"}
        without = loaded(folder, **{**flags, "query_prefix": ""}).encode(TEXTS, "query")
        assert np.abs(without - expected[0]).max() > NOTICED


@pytest.mark.parametrize("family", ["qwen3", "stella", "embeddinggemma"])
def test_a_family_equals_plain_transformers(tiny: Tiny, tmp_path: Path, family: str) -> None:
    published = FAMILIES[family]
    folder = save_published(tiny, published, tmp_path)
    expected = plain_rows(folder, published)
    assert distance(rows_of(loaded(folder, **published.flags)), expected) <= TOLERANCE
    assert distance(rows_of(loaded(folder, **{**published.flags, "pooling": "max"})), expected) > NOTICED


def test_causal_models_keep_no_keys_and_values(tiny: Tiny, tmp_path: Path) -> None:
    folder = save_published(tiny, FAMILIES["qwen3"], tmp_path)
    encoder = loaded(folder)
    assert not encoder.parts.replica.model[0].auto_model.config.use_cache  # type: ignore[attr-defined]
