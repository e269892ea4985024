"""Which rule wins for each field of a recipe, and what is rejected."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from secid.encode.presets import ALIASES, family_of
from secid.encode.recipe import Recipe, resolve_recipe
from secid.errors import EncoderError
from secid.settings import Settings
from tests.snapshots import Snapshot, refusal, situations

from .conftest import write_json

KIND = "sentence_transformers.models"


def repository(
    folder: Path,
    *,
    modules: list[str] | None = None,
    pooling: dict[str, Any] | None = None,
    prompts: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    sentence: dict[str, Any] | None = None,
    tokenizer: dict[str, Any] | None = None,
) -> Path:
    """The configuration files of an encoder, without weights."""
    write_json(folder / "config.json", {"model_type": "bert", "max_position_embeddings": 512, **(config or {})})
    if modules is not None:
        write_json(
            folder / "modules.json",
            [
                {"idx": i, "path": "" if i == 0 else f"{i}_{name.rsplit('.', 1)[-1]}", "type": name}
                for i, name in enumerate(modules)
            ],
        )
        write_json(folder / "1_Pooling" / "config.json", pooling or {"pooling_mode_mean_tokens": True})
    if prompts is not None:
        write_json(folder / "config_sentence_transformers.json", {"prompts": prompts})
    if sentence is not None:
        write_json(folder / "sentence_bert_config.json", sentence)
    if tokenizer is not None:
        write_json(folder / "tokenizer_config.json", tokenizer)
    return folder


STANDARD = [f"{KIND}.Transformer", f"{KIND}.Pooling", f"{KIND}.Normalize"]


def recipe(folder: Path, name: str = "someone/some-model", **settings: Any) -> Recipe:
    return resolve_recipe(folder, name, Settings(**settings))


def test_repository_files_are_followed(tmp_path: Path) -> None:
    folder = repository(
        tmp_path,
        modules=STANDARD,
        pooling={"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "include_prompt": False},
        prompts={"query": "q: ", "passage": "p: ", "corpus": "c: "},
        sentence={"max_seq_length": 128, "do_lower_case": True},
    )
    found = recipe(folder)
    assert (found.pooling, found.include_prompt, found.normalize) == (("cls",), False, True)
    assert (found.query_prefix, found.passage_prefix, found.max_length) == ("q: ", "p: ", 128)
    assert found.lower_case
    assert [name for name in ("include_prompt", "do_lower_case") if any(name in note for note in found.notes)] == [
        "include_prompt",
        "do_lower_case",
    ]
    assert found.rules == {
        "pooling": "1_Pooling/config.json",
        "normalize": "modules.json",
        "query_prefix": "config_sentence_transformers.json prompts.query",
        "passage_prefix": "config_sentence_transformers.json prompts.passage",
        "max_length": "sentence_bert_config.json max_seq_length",
        "truncate_dim": "default",
    }


def test_flags_win(tmp_path: Path) -> None:
    folder = repository(tmp_path, modules=STANDARD, prompts={"query": "q: "}, sentence={"max_seq_length": 128})
    found = recipe(
        folder,
        "intfloat/e5-base",
        pooling="last",
        query_prefix="",
        passage_prefix="x ",
        max_length=7,
        normalize=False,
        truncate_dim=4,
    )
    assert (found.pooling, found.query_prefix, found.passage_prefix) == (("last",), "", "x ")
    assert (found.max_length, found.normalize, found.truncate_dim) == (7, False, 4)
    assert set(found.rules.values()) == {"flag"}


@pytest.mark.parametrize("prompts", [None, {}, {"query": "", "document": ""}])
def test_the_registry_fills_in_omitted_prompts(tmp_path: Path, prompts: dict[str, str] | None) -> None:
    found = recipe(repository(tmp_path, modules=STANDARD, prompts=prompts), "intfloat/e5-base-v2")
    assert (found.query_prefix, found.passage_prefix) == ("query: ", "passage: ")
    assert found.rules["query_prefix"] == "registry: e5"


def test_the_repository_beats_the_registry(tmp_path: Path) -> None:
    found = recipe(repository(tmp_path, modules=STANDARD, prompts={"query": "mine: "}), "intfloat/e5-base")
    assert (found.query_prefix, found.passage_prefix) == ("mine: ", "passage: ")


def test_a_local_copy_is_recognised_by_its_origin(tmp_path: Path) -> None:
    found = recipe(repository(tmp_path, config={"_name_or_path": "intfloat/e5-large"}), str(tmp_path))
    assert found.query_prefix == "query: "
    assert found.rules["query_prefix"] == "registry: e5 (_name_or_path intfloat/e5-large)"


def test_prompt_keys_in_order_and_default_prompt(tmp_path: Path) -> None:
    both = repository(tmp_path / "a", prompts={"document": "d: ", "passage": "p: "})
    assert recipe(both).passage_prefix == "d: "
    fallback = repository(tmp_path / "b")
    write_json(fallback / "config_sentence_transformers.json", {"prompts": {"r": "r: "}, "default_prompt_name": "r"})
    assert (recipe(fallback).query_prefix, recipe(fallback).passage_prefix) == ("r: ", "r: ")


@pytest.mark.parametrize(
    ("prompts", "default", "expected"),
    [
        ({"query": "q: ", "document": ""}, "query", ("q: ", "")),
        ({"query": "", "document": "p: "}, "document", ("", "p: ")),
        ({"query": "q: ", "document": "", "passage": "p: "}, None, ("q: ", "")),
        ({"query": "q: ", "document": None}, "query", ("q: ", "")),
    ],
)
def test_an_empty_prompt_is_a_prompt(
    tmp_path: Path, prompts: dict[str, str | None], default: str | None, expected: tuple[str, str]
) -> None:
    folder = repository(tmp_path)
    write_json(folder / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": default})
    assert (recipe(folder).query_prefix, recipe(folder).passage_prefix) == expected


def test_without_modules(tmp_path: Path) -> None:
    mean = recipe(repository(tmp_path / "a"))
    assert (mean.pooling, mean.rules["pooling"], mean.normalize) == (("mean",), "default", True)
    causal = recipe(repository(tmp_path / "b", config={"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}))
    assert (causal.pooling, causal.rules["pooling"]) == (("last",), "default: causal model")
    both_ways = {"architectures": ["XForCausalLM"], "use_bidirectional_attention": True}
    assert recipe(repository(tmp_path / "c", config=both_ways)).pooling == ("mean",)


def test_contriever_is_not_normalised_and_has_a_note(tmp_path: Path) -> None:
    found = recipe(repository(tmp_path), "facebook/contriever")
    assert not found.normalize
    assert found.rules["normalize"] == "registry: contriever"
    assert "dot products" in found.notes[0]


@pytest.mark.parametrize(
    ("config", "sentence", "tokenizer", "expected"),
    [
        ({}, None, {"model_max_length": 256}, 256),
        ({}, None, {"model_max_length": int(1e30)}, 512),
        ({}, None, None, 512),
        ({}, {"max_seq_length": 1024}, None, 512),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, None, None, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514}, {"max_seq_length": 384}, None, 384),
        ({"model_type": "modernbert", "max_position_embeddings": 8192}, None, {"model_max_length": 9000}, 8192),
        ({"model_type": "qwen3", "max_position_embeddings": None}, None, None, None),
        ({"model_type": "opt", "max_position_embeddings": 64}, {"max_seq_length": 512}, None, 64),
        ({"model_type": "deberta-v2", "max_position_embeddings": 64}, {"max_seq_length": 512}, None, 64),
        (
            {"model_type": "deberta-v2", "max_position_embeddings": 64, "position_biased_input": False},
            {"max_seq_length": 512},
            None,
            512,
        ),
        ({"model_type": "roberta-prelayernorm", "max_position_embeddings": 66}, {"max_seq_length": 512}, None, 64),
    ],
)
def test_max_length(
    tmp_path: Path,
    config: dict[str, Any],
    sentence: dict[str, Any] | None,
    tokenizer: dict[str, Any] | None,
    expected: int | None,
) -> None:
    folder = repository(tmp_path, config=config, sentence=sentence, tokenizer=tokenizer)
    assert recipe(folder).max_length == expected


def test_a_length_beyond_the_positions_is_refused(tmp_path: Path) -> None:
    message = refusal(lambda: recipe(repository(tmp_path), max_length=513), EncoderError, tmp_path)
    assert all(part in message for part in ("--max-length 513", "--max-length 512"))
    assert recipe(repository(tmp_path), max_length=512).max_length == 512


@pytest.mark.parametrize("stated", [0, -1, "x", 1.5])
def test_a_length_that_is_not_a_number_of_tokens_is_refused(tmp_path: Path, stated: Any) -> None:
    folder = repository(tmp_path, sentence={"max_seq_length": stated})
    message = refusal(lambda: recipe(folder), EncoderError, folder)
    assert all(part in message for part in ("max_seq_length", repr(stated), "--max-length"))
    assert recipe(folder, max_length=7).max_length == 7


def test_new_pooling_style(tmp_path: Path) -> None:
    folder = repository(tmp_path, modules=STANDARD, pooling={"pooling_mode": ["cls", "lasttoken"]})
    assert recipe(folder).pooling == ("cls", "last")


def test_a_module_class_is_known_by_its_base_name(tmp_path: Path) -> None:
    new = "sentence_transformers.sentence_transformer.modules"
    folder = repository(tmp_path, modules=[f"{new}.transformer.Transformer", f"{new}.pooling.Pooling"])
    assert recipe(folder).normalize is False


MODULES = {
    "an unknown module": [*STANDARD, "custom.Whitening"],
    "an unknown first module": [f"{KIND}.WordEmbeddings", f"{KIND}.Pooling"],
    "no Pooling": [f"{KIND}.Transformer", f"{KIND}.Normalize"],
    "a module before Pooling": [f"{KIND}.Transformer", f"{KIND}.Normalize", f"{KIND}.Pooling"],
}


POOLING, DENSE = "1_Pooling/config.json", "2_Dense/config.json"
PROMPTS, SENTENCE = "config_sentence_transformers.json", "sentence_bert_config.json"
DOCUMENTS: dict[str, tuple[str, Any]] = {
    "modules in an object": ("modules.json", {"a": 1}),
    "a module that is a number": ("modules.json", [1]),
    "a module whose place is a letter": ("modules.json", [{"idx": "x"}]),
    "a config that is a list": ("config.json", [1]),
    "no pooling mode": (POOLING, {"pooling_mode": None}),
    "a pooling mode that is a list": (POOLING, {"pooling_mode": [["cls"]]}),
    "an unknown pooling mode": (POOLING, {"pooling_mode": "attention"}),
    "an unknown pooling mode of old": (POOLING, {"pooling_mode_new": True}),
    "a pooling config without a mode": (POOLING, {"dimension": 3}),
    "no width": (DENSE, {"out_features": 3}),
    "a width of 0": (DENSE, {"in_features": 3, "out_features": 0}),
    "an unknown activation": (DENSE, {"in_features": 2, "out_features": 2, "activation_function": "custom.Swish"}),
    "an activation of rows": (DENSE, {"in_features": 2, "out_features": 2, "activation_function": "torch.nn.Softmax"}),
    "prompts in a list": (PROMPTS, {"prompts": ["a"]}),
    "a prompt that is a number": (PROMPTS, {"prompts": {"query": 5}}),
    "a task other than encoding": (SENTENCE, {"transformer_task": "text-generation"}),
    "a chat template": (SENTENCE, {"modality_config": {"message": {}}}),
    "query expansion": (SENTENCE, {"query_expansion": {"a": 1}}),
}
TOKEN_HEAD = {"in_features": 2, "out_features": 2, "module_input_name": "token_embeddings"}


def with_dense(folder: Path) -> Path:
    repository(folder, modules=[*STANDARD[:2], f"{KIND}.Dense"])
    write_json(folder / DENSE, {"in_features": 2, "out_features": 2})
    assert recipe(folder).heads
    return folder


def test_what_is_not_understood_is_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    texts = {}
    for number, (name, modules) in enumerate(MODULES.items()):
        folder = repository(tmp_path / f"modules {number}", modules=modules)
        texts[name] = refusal(lambda folder=folder: recipe(folder), EncoderError, folder / "modules.json")
    for number, (name, (file, document)) in enumerate(DOCUMENTS.items()):
        folder = with_dense(tmp_path / f"document {number}")
        write_json(folder / file, document)
        texts[name] = refusal(lambda folder=folder: recipe(folder), EncoderError, folder / file)
        if "pooling=NAME" in texts[name]:
            assert recipe(folder, pooling="cls").pooling == ("cls",)
    folder = with_dense(tmp_path / "heads")
    write_json(folder / DENSE, TOKEN_HEAD)
    texts["a head of token vectors"] = refusal(lambda: recipe(folder), EncoderError, folder / "2_Dense")
    (folder / DENSE).unlink()
    texts["a head without a config"] = refusal(lambda: recipe(folder), EncoderError, folder / "2_Dense")
    short = repository(tmp_path / "short")
    texts["too long"] = refusal(lambda: recipe(short, max_length=513), EncoderError, short)
    (folder / "modules.json").write_text("[{", encoding="utf-8")
    message = refusal(lambda: recipe(folder), EncoderError, folder / "modules.json")
    texts["a file that is cut"] = re.sub("JSON: .*", "JSON: …", message)
    (tmp_path / "empty").mkdir()
    texts["an empty folder"] = refusal(lambda: recipe(tmp_path / "empty"), EncoderError, tmp_path / "empty")
    texts["no folder"] = refusal(lambda: recipe(tmp_path / "none"), EncoderError, tmp_path / "none")
    changed = repository(
        tmp_path / "notes",
        modules=STANDARD[:2],
        pooling={"pooling_mode_mean_tokens": True, "include_prompt": False},
        sentence={"max_seq_length": 1024, "do_lower_case": True},
    )
    texts["notes"] = "\n".join(recipe(changed, truncate_dim=4).notes)
    places = re.compile(f"{re.escape(str(tmp_path))}/[a-z]+( \\d+)?")
    snapshot("recipes.txt", situations({name: places.sub("FOLDER", text) for name, text in texts.items()}))


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
        ("thenlper/gte-base", None),
        ("prdev/mini-gte", None),
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


def test_recipes_need_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, secid.encode.recipe, secid.encode.presets, secid.encode; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    child = subprocess.run([sys.executable, "-c", "import torch; " + code], check=False, capture_output=True)
    assert child.returncode == 1  # the check can fail
