"""Test which rule wins for each field of a recipe, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secid.encode import load, self_test
from secid.encode.locate import ALIASES, DEFAULT_REVISIONS, family_of
from secid.encode.modules import read_repository
from secid.encode.recipe import Recipe, resolve_prefixes
from secid.encode.transformer import TransformerEncoder
from secid.errors import EncoderError
from secid.pages.encoder_page import fact_lines
from secid.records import Fact
from secid.settings import Settings
from tests.snapshots import Snapshot, refusal, situations
from tests.test_architecture import loaded_by

from .conftest import TEXTS, write_json

Tiny = Callable[[str], Path]
KIND = "sentence_transformers.models"
STANDARD = [f"{KIND}.Transformer", f"{KIND}.Pooling", f"{KIND}.Normalize"]
POOLING, DENSE = "1_Pooling/config.json", "2_Dense/config.json"
PROMPTS, SENTENCE = "config_sentence_transformers.json", "sentence_bert_config.json"


def repository(
    folder: Path, modules: list[str] | None = None, prompts: dict[str, Any] | None = None, **config: Any
) -> Path:
    """The configuration files of an encoder, without weights."""
    write_json(folder / "config.json", {"model_type": "bert", "architectures": ["BertModel"], **config})
    if modules is not None:
        places = ["" if place == 0 else f"{place}_{name.rsplit('.', 1)[-1]}" for place, name in enumerate(modules)]
        chain = zip(places, modules, strict=True)
        write_json(
            folder / "modules.json",
            [{"idx": i, "name": str(i), "path": path, "type": name} for i, (path, name) in enumerate(chain)],
        )
    if prompts is not None:
        write_json(folder / PROMPTS, {"prompts": prompts})
    return folder


def prefixes(folder: Path, name: str = "someone/some-model", **settings: Any) -> tuple[str, str]:
    """(query, passage)."""
    chosen = Settings(**settings)
    found = resolve_prefixes(read_repository(folder, name, chosen), chosen)
    return found["query"].text, found["passage"].text


def rule(folder: Path, name: str = "someone/some-model", **settings: Any) -> str:
    chosen = Settings(**settings)
    return resolve_prefixes(read_repository(folder, name, chosen), chosen)["query"].rule


def encoder_in(folder: Path, **settings: Any) -> TransformerEncoder:
    encoder = load(Settings(encoder=str(folder), device="cpu", cache=False, **settings))
    assert isinstance(encoder, TransformerEncoder)
    return encoder


def changed(folder: Path, to: Path, **documents: Any) -> Path:
    """A copy with other fields in its JSON files. documents: fields by file, as in config={...}; None removes it."""
    files = {"config": "config.json", "prompts": PROMPTS, "sentence": SENTENCE, "tokenizer": "tokenizer_config.json",
             "pooling": POOLING, "modules": "modules.json"}  # fmt: skip
    shutil.copytree(folder, to)
    for name, fields in documents.items():
        path = to / files[name]
        if fields is None:
            path.unlink()
        else:
            old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            write_json(path, {**old, **fields} if isinstance(fields, dict) else fields)
    return to


def recipe(folder: Path, **settings: Any) -> Recipe:
    return encoder_in(folder, **settings).recipe


def kinds(found: Recipe) -> set[str]:
    """The kinds of what a recipe says of the encoder."""
    return {fact.kind for fact in found.facts}


def test_repository_files_are_followed(tiny: Tiny, tmp_path: Path) -> None:
    stated = {"word_embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": False}
    folder = changed(
        tiny("bert"),
        tmp_path / "a",
        pooling=stated,
        prompts={"prompts": {"query": "q: ", "passage": "p: ", "corpus": "c: "}},
        sentence={"do_lower_case": True},
    )
    found = recipe(folder)
    assert (found.pooling, found.include_prompt, found.normalize) == ("cls", False, True)
    assert (found.query_prefix, found.passage_prefix, found.max_length) == ("q: ", "p: ", 40)
    assert found.lower_case
    assert {"prefix_not_pooled", "lower_case"} <= kinds(found)
    assert found.rules == {
        "pooling": "1_Pooling/config.json",
        "normalize": "modules.json",
        "query_prefix": f"{PROMPTS} prompts.query",
        "passage_prefix": f"{PROMPTS} prompts.passage",
        "max_length": "sentence_bert_config.json max_seq_length",
        "truncate_dim": "default",
    }


def test_flags_win(tiny: Tiny) -> None:
    flags = {"pooling": "last", "query_prefix": "", "passage_prefix": "x ", "max_length": 9, "normalize": False}
    found = recipe(tiny("bert"), truncate_dim=4, **flags)
    assert {name: getattr(found, name) for name in flags} == flags
    assert found.truncate_dim == 4
    assert set(found.rules.values()) == {"flag"}
    assert encoder_in(tiny("bert"), truncate_dim=4, **flags).encode(TEXTS, "query").shape == (len(TEXTS), 4)


@pytest.mark.parametrize("prompts", [None, {}, {"query": "", "document": ""}])
def test_the_registry_fills_in_omitted_prompts(tmp_path: Path, prompts: dict[str, str] | None) -> None:
    folder = repository(tmp_path, STANDARD, prompts)
    assert prefixes(folder, "intfloat/e5-base-v2") == ("query: ", "passage: ")
    assert rule(folder, "intfloat/e5-base-v2") == "registry: e5"


def test_the_repository_beats_the_registry(tmp_path: Path) -> None:
    folder = repository(tmp_path, STANDARD, {"query": "mine: "})
    assert prefixes(folder, "intfloat/e5-base") == ("mine: ", "passage: ")


def test_a_local_copy_is_recognised_by_its_origin(tmp_path: Path) -> None:
    folder = repository(tmp_path, _name_or_path="intfloat/e5-large")
    assert rule(folder, str(tmp_path)) == "registry: e5 (_name_or_path intfloat/e5-large)"


@pytest.mark.parametrize(
    ("prompts", "default", "expected"),
    [
        ({"document": "d: ", "passage": "p: "}, None, ("", "d: ")),
        ({"query": "q: ", "document": ""}, "query", ("q: ", "")),
        ({"query": "", "document": "p: "}, "document", ("", "p: ")),
        ({"query": "q: ", "document": "", "passage": "p: "}, None, ("q: ", "")),
        ({"query": "q: ", "document": None}, "query", ("q: ", "")),
        ({"query": "", "document": "d: ", "other": "o: "}, "other", ("", "d: ")),
    ],
)
def test_prompts_by_name(
    tmp_path: Path, prompts: dict[str, Any], default: str | None, expected: tuple[str, str]
) -> None:
    """An empty prompt is one, and the default prompt is used for neither role."""
    folder = repository(tmp_path)
    write_json(folder / PROMPTS, {"prompts": prompts, "default_prompt_name": default})
    assert prefixes(folder) == expected


def test_the_default_prompt_is_treated_as_sentence_transformers_does(tiny: Tiny, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    stated = {"prompts": {"query": "q: ", "document": "", "other": "o: "}, "default_prompt_name": "other"}
    folder = changed(tiny("bert"), tmp_path / "a", prompts=stated)
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    ours = encoder_in(folder)
    for role, rows in (("query", model.encode_query(TEXTS)), ("passage", model.encode_document(TEXTS))):
        assert np.abs(ours.encode(TEXTS, role) - rows).max() < 1e-5
        assert np.abs(ours.encode(TEXTS, role) - model.encode(TEXTS)).max() > 1e-3


STELLA = {"s2p_query": "p: ", "s2s_query": "s: "}


def test_prompts_under_other_names_must_be_chosen(tmp_path: Path) -> None:
    folder = repository(tmp_path, STANDARD, {"query": "", **STELLA})
    message = refusal(lambda: prefixes(folder), EncoderError, folder / PROMPTS)
    assert all(part in message for part in ("s2p_query, s2s_query", "--query-prompt s2p_query --passage-prefix ''"))
    assert prefixes(folder, query_prompt="s2p_query", passage_prefix="") == ("p: ", "")
    assert rule(folder, query_prompt="s2p_query", passage_prefix="") == f"flag: {PROMPTS} prompts.s2p_query"
    rest = refusal(lambda: prefixes(folder, query_prompt="s2p_query"), EncoderError, folder / PROMPTS)
    assert ("passages" in rest, "queries" in rest, "--query-prompt" in rest) == (True, False, False)
    unknown = refusal(lambda: prefixes(folder, query_prompt="s2p"), EncoderError, folder / PROMPTS)
    assert "'s2p'" in unknown
    assert all("query (empty), s2p_query, s2s_query" in text for text in (message, rest, unknown))
    refusal(lambda: prefixes(folder, query_prompt="s2p_query", query_prefix="x"), EncoderError, None)


def test_adapters_must_be_chosen(tmp_path: Path) -> None:
    names = ["retrieval.query", "retrieval.passage", "text-matching"]
    prompts = {"retrieval.query": "q: ", "retrieval.passage": "p: "}
    folder = repository(tmp_path, ["custom_st.Transformer", *STANDARD[1:]], prompts, lora_adaptations=names)
    message = refusal(lambda: prefixes(folder, trust_remote_code=True), EncoderError, folder / PROMPTS)
    assert "--query-prompt retrieval.query --passage-prompt retrieval.passage" in message
    chosen = Settings(trust_remote_code=True, query_prompt=names[0], passage_prompt=names[2])
    found = resolve_prefixes(read_repository(folder, "x", chosen), chosen)
    assert [(prefix.text, prefix.task) for prefix in found.values()] == [("q: ", names[0]), ("", names[2])]


def test_no_prefix_and_no_statement_is_a_note(tiny: Tiny, tmp_path: Path) -> None:
    empty = {"prompts": {"query": "", "document": ""}}
    folder = changed(tiny("bert"), tmp_path / "a", prompts=empty)
    assert "no_prefix" in kinds(recipe(folder))
    assert "no_prefix" not in kinds(recipe(folder, query_prefix=""))
    assert "no_prefix" not in kinds(recipe(tiny("bert")))
    assert "no_prefix" not in kinds(recipe(changed(tiny("bert"), tmp_path / "gte-base", prompts=empty)))
    assert "no_prefix" not in kinds(recipe(changed(tiny("qwen3"), tmp_path / "b", prompts=empty)))


def test_without_modules(tiny: Tiny, tmp_path: Path) -> None:
    mean = recipe(changed(tiny("bert"), tmp_path / "a", modules=None))
    assert (mean.pooling, mean.rules["pooling"], mean.normalize) == ("mean", "default", True)
    causal = recipe(changed(tiny("qwen3"), tmp_path / "b", modules=None))
    assert (causal.pooling, causal.rules["pooling"]) == ("last", "default: causal model")
    plain = recipe(changed(tiny("qwen3"), tmp_path / "d", modules=None, config={"architectures": ["Qwen3Model"]}))
    assert (plain.pooling, plain.rules["pooling"]) == ("last", "default: causal model")
    assert set(plain.facts) - set(causal.facts) == {Fact("other_pooling", {"pooling": "mean"})}
    rows = [encoder_in(tmp_path / name).encode(TEXTS, "query") for name in ("b", "d")]
    assert np.abs(rows[0] - rows[1]).max() < 1e-6
    config = {"is_causal": False}
    both_ways = recipe(changed(tiny("qwen3"), tmp_path / "c", modules=None, config=config))
    assert (both_ways.pooling, both_ways.rules["pooling"]) == ("mean", "default")


def test_contriever_is_not_normalised_and_has_a_note(tiny: Tiny, tmp_path: Path) -> None:
    found = recipe(changed(tiny("bert"), tmp_path / "contriever", modules=None))
    assert not found.normalize
    assert found.rules["normalize"] == "registry: contriever"
    assert found.facts[0].kind == "dot_product"


@pytest.mark.parametrize(
    ("family", "sentence", "length", "expected"),
    [
        ("bert", None, 30, (30, "tokenizer_config.json model_max_length")),
        ("bert", None, int(1e30), (64, "config.json max_position_embeddings")),
        ("bert", {"max_seq_length": 1024}, 64, (64, "config.json max_position_embeddings")),
        ("xlm-roberta", None, int(1e30), (64, "config.json max_position_embeddings")),
        ("mpnet", {"max_seq_length": 38}, 64, (38, "sentence_bert_config.json max_seq_length")),
        ("distilbert", {"max_seq_length": 512}, 64, (64, "config.json max_position_embeddings")),
        ("qwen3", {"max_seq_length": 512}, 64, (512, "sentence_bert_config.json max_seq_length")),
    ],
)
def test_max_length(
    tiny: Tiny, tmp_path: Path, family: str, sentence: dict[str, Any] | None, length: int, expected: tuple[int, str]
) -> None:
    folder = changed(tiny(family), tmp_path / "a", sentence=sentence, tokenizer={"model_max_length": length})
    found = recipe(folder)
    assert (found.max_length, found.rules["max_length"]) == expected


def test_a_length_beyond_the_positions_is_refused(tiny: Tiny) -> None:
    message = refusal(lambda: recipe(tiny("bert"), max_length=65), EncoderError, tiny("bert"))
    assert all(part in message for part in ("--max-length 65", "--max-length 64"))
    assert recipe(tiny("bert"), max_length=64).max_length == 64


@pytest.mark.parametrize("stated", [0, -1, "x", 1.5])
def test_a_length_that_is_not_a_number_of_tokens_is_refused(tmp_path: Path, stated: Any) -> None:
    folder = repository(tmp_path)
    write_json(folder / SENTENCE, {"max_seq_length": stated})
    message = refusal(lambda: prefixes(folder), EncoderError, folder / SENTENCE)
    assert all(part in message for part in ("max_seq_length", repr(stated)))


def test_several_poolings_and_new_class_paths(tiny: Tiny, tmp_path: Path) -> None:
    new = "sentence_transformers.sentence_transformer.modules"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{new}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{new}.pooling.Pooling"},
    ]
    pooling = {"word_embedding_dimension": 32, "pooling_mode": ["cls", "lasttoken"]}
    found = encoder_in(changed(tiny("bert"), tmp_path / "a", modules=modules, pooling=pooling))
    assert (found.recipe.pooling, found.recipe.normalize, found.info.dim) == ("cls+last", False, 64)


EACH_HEAD = ("query: dense 32 to 24, Tanh", "document: dense 32 to 48, Tanh", "document: dense 48 to 24, Tanh")


def test_a_router_encodes_each_role_by_its_route(tiny: Tiny, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Router, Transformer

    routes = {
        "query_modules": [Transformer(str(tiny("bert"))), Pooling(32, "mean"), Dense(32, 24)],
        "document_modules": [Transformer(str(tiny("bert"))), Pooling(32, "cls"), Dense(32, 48), Dense(48, 24)],
    }
    model = SentenceTransformer(modules=[Router.for_query_document(**routes), Normalize()], device="cpu")
    model.save_pretrained(str(tmp_path / "router"))
    ours = encoder_in(tmp_path / "router", query_prefix="")
    assert (ours.recipe.pooling, ours.recipe.heads) == ("query: mean; document: cls", EACH_HEAD)
    checks = {check.name: check for check in self_test(ours)}
    assert checks["roles"].outcome == "pass"
    assert float(checks["roles"].fact.values["measured"]) < 1e-5
    chosen = encoder_in(tmp_path / "router", query_prefix="", pooling="max")
    assert np.abs(chosen.encode(TEXTS, "query") - ours.encode(TEXTS, "query")).max() > 1e-3
    for role, rows in (("query", model.encode_query(TEXTS)), ("passage", model.encode_document(TEXTS))):
        assert np.abs(ours.encode(TEXTS, role) - rows).max() < 1e-5
    assert np.abs(ours.encode(TEXTS, "query") - ours.encode(TEXTS, "passage")).max() > 1e-3


def test_what_follows_a_16_bit_model_is_float32(tiny: Tiny) -> None:
    import torch

    model = encoder_in(tiny("gemma3_text"), dtype="bf16").parts.replica.model
    exact = encoder_in(tiny("gemma3_text")).parts.replica.model
    assert next(model[0].parameters()).dtype == torch.bfloat16
    assert torch.equal(model[2].linear.weight, exact[2].linear.weight)
    pooled = model[1](model[0]({"input_ids": torch.tensor([[5, 6, 7]])}))
    assert {pooled["token_embeddings"].dtype, pooled["sentence_embedding"].dtype} == {torch.float32}


def test_the_backbone_of_masked_language_modelling_is_noted(tiny: Tiny, tmp_path: Path) -> None:
    masked = {"architectures": ["BertForMaskedLM"]}
    plain = recipe(changed(tiny("bert"), tmp_path / "a", modules=None, config=masked))
    assert Fact("architecture", {"architecture": "BertForMaskedLM"}) in plain.facts
    assert "architecture" not in kinds(recipe(changed(tiny("bert"), tmp_path / "b", config=masked)))


def test_weights_that_nothing_uses_are_refused_but_for_known_heads(tiny: Tiny, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for name, is_known in (("linear.weight", False), ("classifier.weight", False), ("cls.predictions.bias", True)):
        folder = shutil.copytree(tiny("bert"), tmp_path / name)
        weights = load_file(folder / "model.safetensors")
        save_file({**weights, name: weights["embeddings.LayerNorm.bias"].clone()}, folder / "model.safetensors")
        if is_known:
            assert recipe(folder)
        else:
            assert name in refusal(lambda folder=folder: recipe(folder), EncoderError, folder)


def test_own_code_for_a_known_architecture_is_noted(tiny: Tiny, tmp_path: Path) -> None:
    folder = changed(tiny("bert"), tmp_path / "a", config={"auto_map": {"AutoModel": "modeling_own.Own"}})
    assert "own_code_unused" in kinds(recipe(folder))


REFUSED: dict[str, dict[str, Any]] = {
    "a module of its own code": {"modules": [*STANDARD, "custom.Whitening"]},
    "a transformer of its own code": {"modules": ["custom_st.Transformer", *STANDARD[1:]]},
    "words": {"modules": [f"{KIND}.WordEmbeddings", f"{KIND}.Pooling"]},
    "static vectors": {"modules": [f"{KIND}.StaticEmbedding"]},
    "ColBERT by PyLate": {"modules": [STANDARD[0], "pylate.models.Dense.Dense"]},
    "ColBERT": {"architectures": ["HF_ColBERT"]},
    "SPLADE": {"modules": [STANDARD[0], "sentence_transformers.sparse_encoder.models.SpladePooling"]},
    "a cross-encoder": {"architectures": ["BertForSequenceClassification"]},
    "GritLM": {"auto_map": {"AutoModel": "modeling_gritlm7b.MistralModel"}},
}
DOCUMENTS: dict[str, tuple[str, Any]] = {
    "modules in an object": ("modules.json", {"a": 1}),
    "a module that is a number": ("modules.json", [1]),
    "a module whose place is a letter": ("modules.json", [{"idx": "x"}]),
    "a module outside the folder": ("modules.json", [{"idx": 0, "path": "../other", "type": STANDARD[0]}]),
    "a config that is a list": ("config.json", [1]),
    "prompts in a list": (PROMPTS, {"prompts": ["a"]}),
    "a prompt that is a number": (PROMPTS, {"prompts": {"query": 5}}),
    "a saved cross-encoder": (PROMPTS, {"model_type": "CrossEncoder"}),
    "a saved sparse encoder": (PROMPTS, {"model_type": "SparseEncoder"}),
    "a saved multi-vector encoder": (PROMPTS, {"model_type": "MultiVectorEncoder"}),
    "prompts under other names": (PROMPTS, {"prompts": STELLA}),
    "a task other than encoding": (SENTENCE, {"transformer_task": "text-generation"}),
    "a chat template": (SENTENCE, {"modality_config": {"message": {}}}),
    "query expansion": (SENTENCE, {"query_expansion": {"a": 1}}),
}


def test_what_is_not_understood_is_refused(tiny: Tiny, tmp_path: Path, snapshot: Snapshot) -> None:
    texts = {}
    for number, (name, stated) in enumerate(REFUSED.items()):
        folder = repository(tmp_path / f"kind {number}", **stated)
        file = "modules.json" if "modules" in stated else "config.json"
        texts[name] = refusal(lambda folder=folder: prefixes(folder), EncoderError, folder / file)
    for number, (name, (file, document)) in enumerate(DOCUMENTS.items()):
        folder = repository(tmp_path / f"document {number}", STANDARD)
        assert prefixes(folder) == ("", "")
        write_json(folder / file, document)
        texts[name] = refusal(lambda folder=folder: prefixes(folder), EncoderError, folder / file)
    folder = repository(tmp_path / "lora", STANDARD)
    write_json(folder / "adapter_config.json", {})
    texts["an adapter"] = refusal(lambda: prefixes(folder), EncoderError, folder / "adapter_config.json")
    (folder / "modules.json").write_text("[{", encoding="utf-8")
    message = refusal(lambda: prefixes(folder), EncoderError, folder / "modules.json")
    texts["a file that is cut"] = re.sub("JSON: .*", "JSON: …", message)
    (tmp_path / "empty").mkdir()
    texts["an empty folder"] = refusal(lambda: prefixes(tmp_path / "empty"), EncoderError, tmp_path / "empty")
    texts["no folder"] = refusal(lambda: prefixes(tmp_path / "none"), EncoderError, tmp_path / "none")
    noted = changed(
        tiny("bert"),
        tmp_path / "notes",
        modules=json.loads((tiny("bert") / "modules.json").read_text(encoding="utf-8"))[:2],
        pooling={"include_prompt": False},
        sentence={"max_seq_length": 1024, "do_lower_case": True},
        prompts={"prompts": {}},
        config={"auto_map": {"AutoModel": "modeling_own.Own"}},
    )
    texts["notes"] = "\n".join(fact_lines(recipe(noted, truncate_dim=4).facts))
    places = re.compile(f"{re.escape(str(tmp_path))}/[a-z]+( \\d+)?")
    snapshot("recipes.txt", situations({name: places.sub("FOLDER", text) for name, text in texts.items()}))


def test_an_unreadable_pooling_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    folder = changed(tiny("bert"), tmp_path / "a", pooling={"pooling_mode": "attention"})
    assert "'attention'" in refusal(lambda: recipe(folder), EncoderError, folder)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("intfloat/e5-base", "e5"),
        ("intfloat/multilingual-e5-small", "e5"),
        ("intfloat/multilingual-e5-large-instruct", "e5-instruct"),
        ("BAAI/bge-base-en-v1.5", "bge"),
        ("BAAI/bge-m3", "bge-m3"),
        ("nomic-ai/nomic-embed-text-v1.5", "nomic"),
        ("Snowflake/snowflake-arctic-embed-m-v1.5", "arctic"),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", "arctic-v2"),
        ("Qwen/Qwen3-Embedding-0.6B", "qwen3"),
        ("google/embeddinggemma-300m", "embeddinggemma"),
        ("models/e5-base/", "e5"),
        ("thenlper/gte-base", "gte"),
        ("prdev/mini-gte", "gte"),
        ("me/not-e5-base", None),
    ],
)
def test_families_by_name(name: str, key: str | None) -> None:
    family = family_of(name)
    assert (family.key if family else None) == key


def test_published_prefixes() -> None:
    """The table of FORMATS 2, character by character: a missing space is a wrong number."""
    expected = {
        "e5-base": ("query: ", "passage: "),
        "bge-base": ("Represent this sentence for searching relevant passages: ", ""),
        "nomic": ("search_query: ", "search_document: "),
        "qwen3-0.6b": (
            "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
            "",
        ),
        "embeddinggemma": ("task: search result | query: ", "title: none | text: "),
    }
    for alias, prefixes in expected.items():
        family = family_of(ALIASES[alias])
        assert family is not None
        assert (family.query_prefix, family.passage_prefix) == prefixes


def test_aliases_name_revisions_with_safetensors() -> None:
    assert set(DEFAULT_REVISIONS) <= set(ALIASES.values())
    assert DEFAULT_REVISIONS["BAAI/bge-m3"] == "refs/pr/38"
    assert not any("contriever" in name for name in ALIASES.values())  # its weights are pickle alone


def test_recipes_need_no_torch() -> None:
    assert "torch" not in loaded_by("import secid.encode.recipe, secid.encode.locate, secid.encode")
