"""Wrong use and bad input: exit code 2, nothing on stdout, and a message that says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from secid.cli.app import INTERNAL, WRONG_USE
from tests.cli.conftest import FIXTURES, child_environment, listing
from tests.tiny_bert import save_in_hub_cache

BROKEN = FIXTURES / "broken"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["score"], ["Missing argument"]),
        (["scoer"], ["No such command", "score"]),
        (["score", "small.jsonl", "--bogus", "1"], ["no such option: --bogus", "`secid score -h` lists its options"]),
        (["score", "small.jsonl", "--budgett", "1"], ["no such option: --budgett", "did you mean --set budget=VALUE?"]),
        (["score", "small.jsonl", "--maxlength", "9"], ["no such option: --maxlength", "did you mean --max-length?"]),
        (["score", "small.jsonl", "--temperature", "warm"], ["--temperature", "valid number"]),
        (["score", "small.jsonl", "--temperature", "0"], ["--temperature", "at least 1e-06"]),
        (["score", "small.jsonl", "--first-k", "3"], ["--first-k", "--set first_k=VALUE"]),
        (["score", "small.jsonl", "--set", "first_k=0"], ["--set first_k", "at least 1"]),
        (["score", "small.jsonl", "--set", "tie=1", "--set", "tie=2"], ["--set", "tie is set twice"]),
        (["check", "small.jsonl", "--set", "batch_tokens=512"], ["--set", "batch_tokens", "max_bad_fraction"]),
        (["score", "small.jsonl", "--set", "tokenizer=words"], ["--set tokenizer", "alphanumeric"]),
        (["score", "small.jsonl", "--encoder", "TINY", "--set", "controls=rnadom"], ["unknown control", "random"]),
        (["score", "small.jsonl", "--encoder", "TINY", "--device", "tpu"], ["--device", "cuda:N"]),
        (["score", "small.jsonl", "--encoder", "TINY", "--max-length", "4096"], ["--max-length 4096", "128 or less"]),
        (["score", "small.jsonl", "--encoder", "TINY", "--format", "tsv2"], ["tsv2", "format"]),
        (["score", "small.jsonl", "--encoder", "TINY", "--query-column", "text"], ["text", "query"]),
        (["score", "small.jsonl", "--encoder", "./nowhere"], ["nowhere", "neither a folder"]),
        (["score", "small.jsonl", "--encoder", "e6-base"], ["e6-base", "alias", "e5-base"]),
        (["score", "nothing/*.jsonl", "--encoder", "TINY"], ["nothing/*.jsonl: matches no file"]),
        (["score", "smal.jsonl", "--encoder", "TINY"], ["no such file", "small.jsonl"]),
        (["score", "small.jsonl", "small.jsonl", "--encoder", "TINY"], ["named twice"]),
        (
            ["score", "small=small.jsonl", "small=small.jsonl", "--encoder", "TINY"],
            ["named 'small'", "other=small.jsonl"],
        ),
        (
            ["check", "small.jsonl", "--encoder", "minilm"],
            ["--encoder", "does not use it", "remove it"],
        ),
        (["flagged", "small.jsonl"], ["small.jsonl", "not a run folder", "secid score"]),
        (["flagged", "none"], ["none: cannot read the report"]),
        (["mix", "run", "--write", "m.jsonl"], ["no such option", "--write"]),
        (["report", "run", "--to", "page.html"], ["no such option", "--to"]),
        (["score", str(BROKEN / "empty.jsonl"), "--encoder", "TINY"], ["empty.jsonl", "no row"]),
        (["score", str(BROKEN / "llamaindex.json"), "--encoder", "TINY"], ["llamaindex.json", "no negatives"]),
        (["score", str(BROKEN / "cut.parquet"), "--encoder", "TINY"], ["cut.parquet"]),
    ],
    ids=lambda value: " ".join(value[:4]).replace(str(FIXTURES), "") if isinstance(value, list) else None,
)
def test_wrong_use_is_reported_and_exits_2(arguments, said, tiny, source, invoke):
    outcome = invoke(*[str(tiny) if word == "TINY" else word for word in arguments])
    assert outcome.code == WRONG_USE
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    for words in said:
        assert words in outcome.err
    assert listing(".") == [source.name]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("temperture = 0.1", ["secid.toml", "temperture", "did you mean 'temperature'?"]),
        ("seed = 'many'", ["secid.toml", "seed = 'many'", "whole number"]),
        ("max_bad_fraction = 5", ["secid.toml", "max_bad_fraction = 5", "at most 1"]),
        ("seed = ", ["secid.toml", "not valid TOML"]),
    ],
)
def test_a_wrong_settings_file_is_told(text, said, source, tmp_path, invoke):
    (tmp_path / "secid.toml").write_text(text, encoding="utf-8")
    outcome = invoke("score", source, "--encoder", "minilm")
    assert outcome.code == WRONG_USE
    for words in said:
        assert words in outcome.err


def test_a_wrong_variable_is_told(source, invoke, monkeypatch):
    monkeypatch.setenv("SECID_SED", "1")
    outcome = invoke("score", source, "--encoder", "minilm")
    assert outcome.code == WRONG_USE
    assert "SECID_SED: unknown setting 'sed'" in outcome.err
    assert "did you mean 'seed'?" in outcome.err


def test_a_hub_name_without_cache_and_network_is_reported_in_two_lines(tmp_path, source, invoke, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "empty" / "hub"))
    outcome = invoke("score", source, "--encoder", "e5-base", "--quiet")
    assert outcome.code == WRONG_USE
    assert outcome.out == ""
    (message, remedy) = [line for line in outcome.err.splitlines() if not line.startswith("small:")]
    assert message.startswith("secid: intfloat/e5-base: ")
    assert "Error" not in message
    assert "OfflineMode" not in message
    assert "--encoder minilm" in remedy


def test_a_page_that_cannot_be_written_is_refused_before_any_work(source, invoke):
    outcome = invoke(
        "gate", "--against", "none.json", source, "--encoder", "no/such-encoder", "--out", "small.jsonl/a.json"
    )
    assert outcome.code == WRONG_USE
    assert "small.jsonl/a.json: " in outcome.err


def test_a_hub_name_in_the_cache_is_used_with_its_family_s_prefixes(tmp_path, source, invoke, monkeypatch):
    """The weights are a tiny BERT's; the path is that of the real E5."""
    save_in_hub_cache(tmp_path / "hf", "intfloat/e5-base")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    outcome = invoke("score", source, "--encoder", "e5-base", "--run", "run")
    assert outcome.code == 0, outcome.err
    assert "intfloat/e5-base: mean pooling, query prefix 'query: ', passage prefix 'passage: '" in outcome.err
    import secid

    encoder = secid.read_run(tmp_path / "run").encoder
    assert (encoder.name, encoder.revision) == ("intfloat/e5-base", "0123456789abcdef0123456789abcdef01234567")
    assert encoder.rules["query_prefix"] == "registry: e5"


def test_a_file_name_that_is_too_long_is_not_an_internal_error(source, invoke):
    outcome = invoke("check", source, "-o", f"{'x' * 260}.html")
    assert outcome.code == WRONG_USE
    assert "255" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_mistake_of_ours_exits_3_and_asks_for_a_report(tiny, source, invoke, monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("secid.api.score", broken)
    outcome = invoke("score", source, "--encoder", tiny)
    assert outcome.code == INTERNAL
    assert "ZeroDivisionError: planted" in outcome.err
    assert "secid doctor" in outcome.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", [["schema", "report"], ["--version"]])
def test_a_full_output_is_not_an_internal_error(words):
    """The first is more than a buffer holds, the second is written at the end."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "secid", *words], stdout=full, stderr=subprocess.PIPE, env=child_environment()
        )
    assert done.returncode == WRONG_USE
    assert done.stderr.decode().splitlines()[0].startswith("secid: cannot write: ")
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_run_folder_that_cannot_be_made_is_told(tiny, source, tmp_path, invoke):
    (tmp_path / "file").write_text("", encoding="utf-8")
    outcome = invoke("score", source, "--encoder", tiny, "--run", "file/run")
    assert outcome.code == WRONG_USE
    assert "file/run: " in outcome.err
