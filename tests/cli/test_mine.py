"""`secid mine`: what it writes and prints, what it refuses, and what is left after a kill."""

from __future__ import annotations

import errno
import json
import os
import random
import shlex
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest

import secid
from secid import api
from secid.errors import BadRecordsError, InputError, OutputError, UsageError
from secid.files import locked
from secid.results.document import json_of
from secid.tools.mining import questions as module
from tests.cli.conftest import ROOT, listing, write_rows
from tests.fake_encoder import HashEncoder
from tests.kills import die_between_names, die_with_a_file_written, fork
from tests.oracle.test_mining import collection

FIXTURES = ROOT / "fixtures" / "collection"
PAIRS = [
    {"anchor": f"question {n} of subject {n % 3}", "positive": f"answer {n} on subject {n % 3} in full", "lang": "en"}
    for n in range(12)
]


needs_sigkill = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX signal")


def lines(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def mine(specs: list[str], out: str = "out", encoder: Any = None, **options: Any) -> Any:
    return secid.mine(specs, out, encoder, **{"collection": str(FIXTURES), "k": 4, **options})


def test_prints_what_the_api_returns(invoke, tiny):
    specs = ["near=dense:relative=none", "lex=bm25"]
    code, out, err = invoke("mine", *specs, "-k", 3, "--collection", FIXTURES, "--encoder", tiny, "-o", "a", "--json")
    assert code == 0, err
    other = secid.mine(specs, "b", str(tiny), k=3, collection=str(FIXTURES))
    typed, returned = json.loads(out), json.loads(json_of(other))
    folders = typed.pop("folder"), returned.pop("folder")
    assert folders == ("a", "b")
    assert typed.pop("next_command").replace(" a/", " b/") == returned.pop("next_command")
    for own, source in zip(typed["sources"], returned["sources"], strict=True):
        assert own.pop("path").replace("a/", "b/") == source.pop("path")
    assert typed == returned


def test_the_table_has_a_row_for_each_source_and_ends_with_the_next_command(invoke):
    code, out, _ = invoke("mine", "lex=bm25", "any=random", "-k", 3, "--collection", FIXTURES, "-o", "mined")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("lex ", "any "))] == ["lex", "any"]
    command = f"  secid check mined/lex.jsonl mined/any.jsonl --collection {FIXTURES}"
    assert out.splitlines()[-2:] == ["Next:", command]
    assert listing("mined") == [".manifest.json", "any.jsonl", "lex.jsonl"]


def test_score_check_and_select_read_the_files_at_once(invoke, tiny):
    mine(["near=dense:relative=none", "lex=bm25"], "mined", str(tiny))
    assert invoke("check", "mined/near.jsonl", "mined/lex.jsonl").code == 0
    run = api.score(["mined/near.jsonl", "mined/lex.jsonl"], str(tiny), collection=str(FIXTURES), run="run")
    assert {source.name: source.rows.n_read for source in run.sources} == {"near": 66, "lex": 66}
    api.select("run", "copy.jsonl", source="near", top=2)
    before = {row["query_id"]: row for row in lines("mined/near.jsonl")}
    for row in lines("copy.jsonl"):
        own = before[row["query_id"]]
        places = [own["neg_ids"].index(key) for key in row["neg_ids"]]
        for name in ("neg", "neg_scores", "neg_ranks", "neg_margins", "neg_miners"):
            assert row[name] == [own[name][place] for place in places]


def test_without_an_encoder_no_margin_is_known():
    mined = mine(["lex=bm25"])
    assert mined.encoder is None
    assert (mined.sources[0].s_query_negative, mined.sources[0].inverted_share) == (None, None)
    row = lines("out/lex.jsonl")[0]
    assert set(row["neg_margins"]) == {None}
    assert all(score > 0 for score in row["neg_scores"])


@pytest.mark.parametrize("schema", ["flagembedding", "tevatron"])
def test_parquet_holds_what_json_lines_hold(schema):
    mine(["near=dense"], "a", HashEncoder(), schema=schema)
    mine(["near=dense"], "b", HashEncoder(), schema=schema, parquet=True)
    assert pq.read_table("b/near.parquet").to_pylist() == lines("a/near.jsonl")


def test_pairs_keep_their_columns_and_their_own_passages_are_the_candidates():
    write_rows(Path("pairs.jsonl"), PAIRS)
    mined = secid.mine(["any=random"], "out", pairs="pairs.jsonl", k=3)
    assert (mined.n_rows, mined.n_candidates) == (12, 12)
    rows = lines("out/any.jsonl")
    assert [(row["query"], row["pos"], row["lang"]) for row in rows] == [
        (row["anchor"], [row["positive"]], "en") for row in PAIRS
    ]
    assert all(row["pos"][0] not in row["neg"] and len(set(row["neg"])) == 3 for row in rows)


def test_negatives_of_pairs_are_candidates_and_those_of_a_collection_replace_them():
    write_rows(Path("rows.jsonl"), [{"query": "q a", "pos": ["good a"], "neg": ["bad a", "bad b"]}])
    assert secid.mine(["any=random"], "own", pairs="rows.jsonl", k=2).n_candidates == 3
    assert sorted(lines("own/any.jsonl")[0]["neg"]) == ["bad a", "bad b"]
    with_collection = secid.mine(
        ["any=random"], "other", pairs="rows.jsonl", k=2, corpus=str(FIXTURES / "corpus.jsonl")
    )
    assert with_collection.n_candidates == 290


def test_qrels_of_the_collection_label_the_queries_of_pairs():
    queries, corpus = collection(Path("beir"))
    query, positives = queries["q3"]
    write_rows(Path("rows.jsonl"), [{"query": query, "pos": [corpus["d50"]]}])
    secid.mine(["near=dense"], "out", HashEncoder(), pairs="rows.jsonl", k=60, collection="beir")
    assert corpus["d50"] not in positives
    assert not set(positives) & set(lines("out/near.jsonl")[0]["neg"])


def test_a_split_restricts_the_queries_and_not_the_labels():
    queries, _ = collection(Path("beir"))
    qrels = Path("beir/qrels/test.tsv")
    head, *rest = qrels.read_text(encoding="utf-8").splitlines()
    own = [line for line in rest if line.startswith("q0\t")]
    assert len(own) == 2
    qrels.write_text("\n".join([head, own[0]]), encoding="utf-8")
    Path("beir/qrels/train.tsv").write_text("\n".join([head, own[1], *rest]), encoding="utf-8")
    mined = secid.mine(["near=dense"], "out", HashEncoder(), split="test", k=50, collection="beir")
    assert mined.n_rows == 1
    (row,) = lines("out/near.jsonl")
    assert row["pos"] == queries["q0"][1][:1]
    assert queries["q0"][1][1] not in row["neg"]


def test_a_judgement_of_a_query_of_the_same_normal_form_is_a_label_too():
    beir(
        corpus="".join(f'{{"_id": "{n}", "text": "alpha beta number {n}"}}\n' for n in (1, 2, 3)),
        queries='{"_id": "a", "text": "Alpha beta"}\n{"_id": "b", "text": "alpha beta?"}\n',
        qrels__test="query-id\tcorpus-id\tscore\na\t1\t1\n",
        qrels__train="query-id\tcorpus-id\tscore\nb\t2\t1\n",
    )
    secid.mine(["lex=bm25"], "out", collection="beir", split="test", k=3)
    assert [row["neg_ids"] for row in lines("out/lex.jsonl")] == [["3"]]


def test_the_order_of_judgements_changes_no_negative_and_each_margin_holds_for_every_positive():
    collection(Path("beir"))
    qrels = Path("beir/qrels/test.tsv")
    head, *rest = qrels.read_text(encoding="utf-8").splitlines()
    files = []
    for out, rows in (("a", rest), ("b", rest[::-1])):
        qrels.write_text("\n".join([head, *rows]), encoding="utf-8")
        secid.mine(["rel=dense:relative=0.05"], out, HashEncoder(), collection="beir", k=4)
        kept = ("query_id", "neg_ids", "neg_margins")
        files.append(sorted(json.dumps([row[name] for name in kept]) for row in lines(f"{out}/rel.jsonl")))
    assert files[0] == files[1]
    several = 0
    for row in lines("a/rel.jsonl"):
        query = HashEncoder().encode([row["query"]], "query")[0].astype(float)
        scores = [HashEncoder().encode(row[side], "passage").astype(float) @ query for side in ("pos", "neg")]
        assert all(s_qn < s_qp - 0.05 * abs(s_qp) for s_qp in scores[0] for s_qn in scores[1])
        several += len(row["pos"]) > 1
    assert several > 3


def test_a_cap_leaves_no_passage_unused_while_a_random_source_is_short():
    """This also holds beyond the first candidates drawn for a row."""
    rows = [{"anchor": f"question {n} of a thing", "positive": f"answer {n} to it"} for n in range(1_000)]
    write_rows(Path("pairs.jsonl"), rows)
    (source,) = secid.mine(["any=random"], "out", pairs="pairs.jsonl", k=1, max_reuse=1).sources
    assert source.n_passages >= 999
    assert source.n_short <= 1
    assert {tuple(row["neg_ranks"]) for row in lines("out/any.jsonl")} == {(None,)}


def test_few_candidates_are_said_to_be_few():
    write_rows(Path("pairs.jsonl"), PAIRS[:3])
    mined = secid.mine(["any=random"], "out", pairs="pairs.jsonl", k=5)
    assert mined.sources[0].short == {"few_candidates": 3}


def beir(**files: str) -> str:
    for name, text in files.items():
        path = Path("beir") / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".tsv" if "qrels" in name else ".jsonl").write_text(text, encoding="utf-8")
    return "beir"


CORPUS = '{"_id": "d1", "text": "one text"}\n{"_id": "d2", "text": "two texts"}\n'
QUERIES = '{"_id": "q1", "text": "a query"}\n'
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\n"


WHOLE = {"corpus": CORPUS, "queries": QUERIES, "qrels__test": QRELS}


@pytest.mark.parametrize(
    ("files", "options", "error", "named"),
    [
        ({"corpus": CORPUS, "queries": QUERIES}, {}, InputError, "qrels"),
        ({**WHOLE, "qrels__test": QRELS.replace("\t1\n", "\t0\n")}, {}, InputError, "test.tsv"),
        ({**WHOLE, "qrels__test": QRELS.replace("d1", "d9")}, {}, InputError, "'d9'"),
        ({**WHOLE, "qrels__test": QRELS.replace("q1", "q9")}, {}, InputError, "'q9'"),
        ({"corpus": "", "queries": QUERIES, "qrels__test": QRELS}, {}, InputError, "corpus"),
        (WHOLE, {"split": "dev"}, UsageError, "test.tsv"),
        (WHOLE, {"max_reuse": 0}, UsageError, "--max-reuse"),
        (WHOLE, {"on_short": "pad"}, UsageError, "'pad'"),
        (WHOLE, {"prompt": "{query}"}, UsageError, "llm"),
        (WHOLE, {"schema": "dpr"}, UsageError, "tevatron"),
        (WHOLE, {"tokenizer": "wordpieces"}, UsageError, "trigrams"),
        (WHOLE, {}, InputError, "for any of 1 row: no other candidate shares a token with the query (1)"),
        ({"corpus": CORPUS}, {"pairs": "gone.jsonl"}, InputError, "gone.jsonl"),
    ],
)
def test_what_cannot_be_mined_is_refused_and_nothing_is_written(files, options, error, named):
    folder = beir(**files)
    with pytest.raises(error) as caught:
        secid.mine(["lex=bm25"], "out", collection=folder, **options)
    assert named in str(caught.value)
    assert not Path("out").exists()


def test_a_drop_of_every_row_is_refused_with_what_to_do(invoke):
    write_rows(Path("pairs.jsonl"), PAIRS)
    code, _, err = invoke(
        "mine", "lex=bm25", "--pairs", "pairs.jsonl", "-k", 30, "--on-short", "drop", "-o", "out", "-q"
    )
    assert code == 2
    assert "each of 12 rows has fewer than 30 negatives, so --on-short drop drops all" in " ".join(err.split())
    assert "--on-short keep" in err
    assert not Path("out").exists()


def test_no_collection_and_no_pairs_is_refused():
    with pytest.raises(UsageError) as caught:
        secid.mine(["lex=bm25"], "out")
    assert "--collection" in str(caught.value)


def test_a_folder_that_holds_something_is_refused_before_any_work(monkeypatch):
    Path("out").mkdir()
    Path("out/mine.jsonl").write_text("", encoding="utf-8")
    monkeypatch.setattr(module, "open_noting_bad_rows", None)
    for out in ("out", "out/mine.jsonl"):
        with pytest.raises(OutputError) as caught:
            mine(["lex=bm25"], out)
        assert caught.value.where == out


def test_malformed_pairs_are_counted_and_too_many_refused_with_the_first_line():
    write_rows(Path("pairs.jsonl"), [{"anchor": " ", "positive": "p"}, *PAIRS])
    options = {"pairs": "pairs.jsonl", "k": 2}
    for more, remedy in (({}, "skip such rows with --set max_bad_fraction"), ({"on_bad": "fail"}, "--set on_bad=skip")):
        with pytest.raises(BadRecordsError, match=remedy) as caught:
            secid.mine(["any=random"], "out", **options, **more)
        assert "1 of 13 rows malformed" in str(caught.value)
        assert "first: pairs.jsonl:1: empty_query" in str(caught.value)
    assert secid.mine(["any=random"], "out", **options, max_bad_fraction=0.5).skipped == {"empty_query": 1}


def test_passages_without_text_and_repeated_ones_are_no_candidates_and_are_counted(invoke):
    added = [{"_id": "e1", "title": "", "text": " "}, {"_id": "e2", "text": ""}, json.loads(CORPUS.splitlines()[0])]
    beir(
        **{
            **WHOLE,
            "corpus": CORPUS + "".join(json.dumps({**row, "_id": f"x{n}"}) + "\n" for n, row in enumerate(added)),
        }
    )
    code, out, _ = invoke("mine", "any=random", "--collection", "beir", "-k", 1, "-o", "out", "--json")
    assert code == 0
    assert json.loads(out)["n_candidates"] == len(CORPUS.splitlines())
    assert json.loads(out)["skipped"] == {"empty_passages": 2, "repeated_passages": 1}


def test_rows_of_a_collection_that_cannot_be_read_are_noted_and_counted(invoke):
    beir(**{**WHOLE, "corpus": CORPUS + "{broken\n", "queries": QUERIES + "[]\n" + "{broken\n"})
    code, out, err = invoke("mine", "any=random", "--collection", "beir", "-k", 1, "-o", "out", "--json")
    assert code == 0
    assert json.loads(out)["skipped"] == {"unreadable_passages": 1, "unreadable_queries": 2}
    assert "1 unreadable row among the collection's passages is left out: beir/corpus.jsonl:3: " in err
    assert "beir/queries.jsonl:2: " in err


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked there")
def test_a_second_run_into_a_folder_is_refused_while_the_first_writes(monkeypatch):
    Path("out").mkdir()
    with locked(Path("out")), pytest.raises(OutputError, match="another run") as caught:
        mine(["lex=bm25"])
    assert caught.value.where == "out"
    assert listing("out") == []
    mine(["lex=bm25"])


def test_ids_that_were_made_are_counted(invoke):
    write_rows(Path("pairs.jsonl"), PAIRS)
    words = ["mine", "any=random", "--pairs", "pairs.jsonl", "-k", 3, "-o"]
    assert "12 rows lack an id" in " ".join(invoke(*words, "out", "--as", "tevatron")[1].split())
    assert "an id" not in invoke(*words, "other")[1]


def test_rows_that_stay_short_are_counted():
    write_rows(Path("pairs.jsonl"), PAIRS)
    (source,) = secid.mine(["lex=bm25"], "out", pairs="pairs.jsonl", k=20, on_short="random").sources
    own = [20 - len(row["neg"]) for row in lines("out/lex.jsonl")]
    assert (source.n_still_short, source.n_lacking) == (sum(n > 0 for n in own), sum(own))
    assert source.n_still_short == 12


def test_what_outscores_its_positive_is_what_score_says(tiny):
    """In a row with several positives the first one counts, although a margin holds for all of them."""
    collection(Path("beir"))
    source = secid.mine(["near=dense:relative=none"], "out", str(tiny), collection="beir", k=4).sources[0]
    run = api.score(["out/near.jsonl"], str(tiny), collection="beir")
    assert any(len(row["pos"]) > 1 for row in lines("out/near.jsonl"))
    assert 0 < source.inverted_share == pytest.approx(run.sources[0].score.inversion_fraction)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_full_disk_leaves_nothing_and_a_folder_that_was_there_stays(monkeypatch, is_there):
    if is_there:
        Path("deep/out").mkdir(parents=True)
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("secid.tools.mining.find.write_rows", Mock(side_effect=full))
    with pytest.raises(OutputError) as caught:
        mine(["lex=bm25"], "deep/out")
    assert caught.value.where == "deep/out/lex.jsonl"
    assert listing("deep/out" if is_there else ".") == []


def test_a_file_that_cannot_get_its_name_takes_the_others_with_it(monkeypatch):
    replace, names = Path.replace, list[str]()

    def second_fails(partial: Path, target: Path) -> Path:
        names.append(target.name)
        if len(names) == 2:
            raise OSError(errno.EIO, "Input/output error")
        return replace(partial, target)

    monkeypatch.setattr(Path, "replace", second_fails)
    with pytest.raises(OutputError) as caught:
        mine(["lex=bm25", "any=random"])
    assert (caught.value.where, names) == ("out/any.jsonl", ["lex.jsonl", "any.jsonl"])
    assert listing(".") == []


def test_the_manifest_names_each_file_with_its_hash_and_no_path():
    mined = mine(["lex=bm25", "near=dense", "free=dense:relative=none"], encoder=HashEncoder())
    manifest = json.loads(Path("out/.manifest.json").read_text(encoding="utf-8"))
    assert {name: file["sha256"] for name, file in manifest["files"].items()} == {
        f"{source.name}.jsonl": source.sha256 for source in mined.sources
    }
    common = {"method": "dense", "ranks": [1, 200], "pick": "top"}
    assert manifest["files"]["near.jsonl"]["method"] == {"typed": "dense", "relative": 0.05, **common}
    assert manifest["files"]["free.jsonl"]["method"] == {"typed": "dense:relative=none", **common}
    assert str(ROOT) not in json.dumps(manifest)


def test_the_manifest_is_the_result_without_paths_and_machine_and_with_hashes():
    mined = json.loads(json_of(mine(["near=dense"], encoder=HashEncoder())))
    manifest = json.loads(Path("out/.manifest.json").read_text(encoding="utf-8"))
    assert len(manifest.pop("candidates_sha256")) == 64
    assert manifest.pop("prompt_sha256") is None
    (source,) = mined.pop("sources")
    assert manifest.pop("files") == {Path(source.pop("path")).name: source}
    for name in ("device", "facts", "rules"):
        del mined["encoder"][name]
    assert {"fingerprint", "pooling", "query_prefix", "max_length", "dtype"} <= mined["encoder"].keys()
    assert mined.keys() - manifest.keys() == {"folder", "next_command"}
    assert manifest == {name: mined[name] for name in manifest}


def test_the_next_command_typed_back_scores_the_files(invoke, tiny):
    flags = ["--max-length", "48", "--query-prefix", "query: ", "--set", "pooling=cls", "--temperature", "0.1"]
    given = ["--collection", FIXTURES, "--encoder", tiny, *flags]
    code, out, err = invoke("mine", "near=dense:relative=none", "lex=bm25", "-k", 3, *given, "-o", "out dir")
    assert code == 0, err
    words = shlex.split(out[out.index("secid score") :])
    code, out, err = invoke(*words[1:], "--json")
    assert code == 0, err
    run = json.loads(out)
    assert sorted(source["name"] for source in run["sources"]) == ["lex", "near"]
    manifest = json.loads(Path("out dir/.manifest.json").read_text(encoding="utf-8"))
    assert run["encoder"]["fingerprint"] == manifest["encoder"]["fingerprint"]
    assert run["settings"]["temperature"]["value"] == 0.1


def test_rows_of_one_query_are_counted_as_rows(invoke):
    write_rows(Path("pairs.jsonl"), [{**row, "anchor": "one question"} for row in PAIRS])
    words = ["mine", "any=random", "--collection", FIXTURES, "--pairs", "pairs.jsonl", "-k", 3, "-o", "out"]
    code, out, _ = invoke(*words)
    assert code == 0
    assert out.splitlines()[0] == "1 source, 36 negatives for 12 rows of 1 query from 290 candidates"


@pytest.mark.parametrize("positive", [["a text"], "a text"])
def test_a_single_id_is_that_of_the_only_positive(positive):
    write_rows(Path("pairs.jsonl"), [{"query": "a text of a query", "pos": positive, "pos_ids": "d7"}])
    mined = secid.mine(["lex=bm25"], "out", pairs="pairs.jsonl", corpus=str(FIXTURES / "corpus.jsonl"), k=2)
    assert mined.sources[0].not_held == {}
    assert lines("out/lex.jsonl")[0]["pos_ids"] == ["d7"]


def test_pairs_of_ids_without_names_are_refused_with_the_flags_that_read_them(invoke):
    qrels = Path(FIXTURES / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    write_rows(Path("ids.jsonl"), [dict(zip(("left", "right"), line.split("	"), strict=False)) for line in qrels])
    words = ["mine", "lex=bm25", "--pairs", "ids.jsonl", "--collection", FIXTURES, "-k", 3, "-o", "out", "-q"]
    code, _, err = invoke(*words)
    assert code == 2
    assert "--negative-column" not in err
    assert err.strip().endswith("name the columns: --query-column NAME --positive-column NAME")
    assert invoke(*words, "--query-column", "left", "--positive-column", "right").code == 0


def test_a_cache_of_another_recipe_is_not_used_and_a_dead_endpoint_ends_the_run(invoke, tiny):
    words = ["mine", "near=dense:relative=none", "--collection", FIXTURES, "-k", 3, "-q"]
    for out, length in (("a", 64), ("b", 4)):
        assert invoke(*words, "--encoder", tiny, "--max-length", length, "-o", out).code == 0
    assert lines("a/near.jsonl") != lines("b/near.jsonl")
    assert invoke(*words, "--encoder", tiny, "--max-length", 64, "--set", "cache=off", "-o", "c").code == 0
    assert lines("a/near.jsonl") == lines("c/near.jsonl")
    code, _, err = invoke(*words, "--encoder", "http://127.0.0.1:9/v1", "-o", "d")
    assert code == 2
    assert "127.0.0.1:9" in err
    assert not Path("d").exists()


def mine_and_die(folder: Path, run: Any) -> None:
    """Run a child process that is killed while it mines."""
    words = ["mine", "lex=bm25", "any=random", "--collection", FIXTURES, "-k", 4, "-o", "out"]
    child = fork(words, folder, folder / "said", run)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL


@needs_sigkill
def test_what_a_kill_leaves_does_not_stop_the_next_run(tmp_path):
    mine_and_die(tmp_path, die_with_a_file_written)
    assert Path("out").is_dir()
    assert [name for name in listing("out") if not name.endswith(".partial")] == []
    for path in Path("out").iterdir():
        os.utime(path, (time.time() - 100,) * 2)
    mine(["lex=bm25", "any=random"])
    assert listing("out") == [".manifest.json", "any.jsonl", "lex.jsonl"]
    mine(["lex=bm25", "any=random"], "whole")
    assert Path("out/any.jsonl").read_bytes() == Path("whole/any.jsonl").read_bytes()


MULTILINGUAL = {
    "Hindi": "नौका हर सुबह पुराने बंदरगाह से निकलती है और रात को लौटती है",
    "Thai": "เรือออกจากท่าเรือเก่าทุกเช้าและกลับมาตอนกลางคืน",
    "Chinese": "渡船每天早上离开旧港口晚上回来",
}


def in_script(script: str, path: str) -> str:
    """Write rows in a script, without near copies among the passages. Return the path."""
    parts = [MULTILINGUAL[script][place : place + 5] for place in range(0, len(MULTILINGUAL[script]), 5)]
    passages = ["".join(random.Random(n).sample(parts, len(parts))) for n in range(16)]
    write_rows(
        Path(path), [{"query": own[:9], "pos": [own], "neg": [passages[n + 8]]} for n, own in enumerate(passages[:8])]
    )
    return path


@pytest.mark.parametrize("script", MULTILINGUAL)
def test_bm25_splits_texts_by_a_tokenizer_that_fits_their_script(script, invoke, tiny):
    arguments = ("mine", "lex=bm25", "-k", 2, "--pairs", in_script(script, "pairs.jsonl"), "--encoder", tiny, "--json")
    code, out, err = invoke(*arguments, "-o", "chosen")
    assert code == 0, err
    document = json.loads(out)
    assert document["settings"]["tokenizer"] == "multilingual"
    assert shlex.split(document["next_command"])[-2:] == ["--set", "tokenizer=multilingual"]
    assert "chosen automatically" in err
    assert "pairs.jsonl" in err
    assert "\ufffd" not in err
    assert invoke(*arguments, "-o", "set", "--set", "tokenizer=multilingual").code == 0
    assert Path("chosen/lex.jsonl").read_bytes() == Path("set/lex.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("miner", "flags"), [("lex=bm25", ("--set", "tokenizer=alphanumeric")), ("any=random", ()), ("lex=bm25", None)]
)
def test_no_tokenizer_is_chosen_where_one_is_set_or_none_is_used_or_the_default_fits(miner, flags, invoke):
    pairs = in_script("Hindi", "pairs.jsonl") if flags is not None else write_rows(Path("english.jsonl"), PAIRS)
    code, out, err = invoke("mine", miner, "-k", 2, "--pairs", pairs, "-o", "out", "--json", *(flags or ()))
    assert code == 0, err
    assert json.loads(out)["settings"]["tokenizer"] == "alphanumeric"
    assert "chosen automatically" not in err


@needs_sigkill
@pytest.mark.parametrize("n", [1, 2])
def test_a_kill_between_the_files_and_the_manifest_does_not_stop_the_next_run(tmp_path, n):
    mine_and_die(tmp_path, partial(die_between_names, n))
    assert [name for name in listing("out") if not name.startswith(".")] == ["any.jsonl", "lex.jsonl"][2 - n :]
    written = Path("out/lex.jsonl").read_bytes()
    Path("out/lex.jsonl").write_bytes(written + b"\n")
    with pytest.raises(OutputError, match=r"lex\.jsonl"):  # it is not what that run wrote
        mine(["lex=bm25", "any=random"])
    Path("out/lex.jsonl").write_bytes(written)
    mine(["any=random"])
    assert [name for name in listing("out") if not name.endswith(".partial")] == [".manifest.json", "any.jsonl"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"absolute_margin": -0.005}, ",absolute=-0.005"),
        ({"relative_margin": 0.001, "max_score": 0.99}, ",relative=0.001,maximum=0.99"),
    ],
)
def test_sentence_transformers_mines_the_same(tiny, theirs, ours):
    """Both agree if each query has one positive and no candidate is a copy. sentence-transformers applies a margin
    against the lowest positive of a query and ranks after it, and leaves short pairs out.
    """
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, util

    corpus = [row["text"] for row in lines(FIXTURES / "corpus.jsonl")]
    queries = [row["text"] for row in lines(FIXTURES / "queries.jsonl")]
    write_rows(Path("pairs.jsonl"), [{"query": q, "positive": p} for q, p in zip(queries, corpus, strict=False)])
    settings = {"corpus": str(FIXTURES / "corpus.jsonl"), "titles": False}
    mined = secid.mine([f"near=dense:ranks=1-290{ours}"], "out", str(tiny), pairs="pairs.jsonl", k=3, **settings)
    assert mined.sources[0].excluded.keys() <= {"false_negative"}
    own = {row["query"]: row["neg"] for row in lines("out/near.jsonl") if len(row["neg"]) == 3}
    dataset = Dataset.from_dict({"query": queries, "positive": corpus[: len(queries)]})
    model = SentenceTransformer(str(tiny), device="cpu")
    found = util.mine_hard_negatives(
        dataset, model, corpus=corpus, range_max=290, num_negatives=3, output_format="n-tuple", verbose=False, **theirs
    )
    columns = [found[f"negative_{n}"] for n in (1, 2, 3)]
    assert len(own) > 20
    assert own == {query: list(texts) for query, *texts in zip(found["query"], *columns, strict=True)}


def test_a_file_that_was_changed_since_it_was_mined_is_a_caution(invoke):
    mine(["lex=bm25", "any=random"])
    paths = ["out/lex.jsonl", "out/any.jsonl"]

    def changed() -> list[int]:
        return [facts.caution("changed_since_mined").n for facts in api.check(paths).texts.values()]

    assert changed() == [0, 0]
    row, *others = Path(paths[0]).read_text(encoding="utf-8").splitlines(keepends=True)
    Path(paths[0]).write_text("".join([*others, row]), encoding="utf-8")
    assert changed() == [1, 0]
    assert invoke("check", *paths, "--fail-on", "changed_since_mined").code == 1
    assert invoke("check", paths[1], "--fail-on", "changed_since_mined").code == 0
    Path(paths[0]).rename("out/other.jsonl")  # which the manifest does not name
    assert api.check(["out/other.jsonl"]).texts["other"].caution("changed_since_mined").n == 0


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"files": {"lex.jsonl": 1}}', '{"files": {"lex.jsonl": {}}}', "[" * 10**5]
)
def test_a_file_that_is_not_secid_s_manifest_says_nothing(text):
    mine(["lex=bm25"])
    Path("out/.manifest.json").write_text(text, encoding="utf-8")
    assert api.check(["out/lex.jsonl"]).texts["lex"].caution("changed_since_mined").n == 0


def test_a_sweep_prints_what_the_api_returns_and_writes_nothing(invoke, tiny):
    options = ["--collection", FIXTURES, "--encoder", tiny, "-k", 3, "--sweep"]
    code, out, err = invoke("mine", "near=dense:absolute=0.01", "lex=bm25", *options, "--json")
    assert code == 0, err
    other = secid.mine_sweep(["near=dense:absolute=0.01", "lex=bm25"], str(tiny), collection=str(FIXTURES), k=3)
    assert json.loads(out) == json.loads(json_of(other))
    assert listing(".") == []


def test_a_sweep_is_of_what_is_mined():
    specs = ["own=dense:relative=0.01,ranks=2-90", "far=dense:ranks=11-50,relative=0.0"]
    options = {"collection": str(FIXTURES), "k": 7, "max_reuse": 3}
    mined, sweep = secid.mine(specs, "out", HashEncoder(), **options), secid.mine_sweep(specs, HashEncoder(), **options)
    for source, swept in zip(mined.sources, sweep.sources, strict=True):
        names = ("n_negatives", "n_short", "n_missing", "s_query_negative", "consistency", "inverted_share")
        assert [getattr(source, name) for name in names] == [getattr(swept.own, name) for name in names]
    (same,) = [each for each in sweep.sources[0].variants if each.method == sweep.sources[1].own.method]
    assert same == sweep.sources[1].own


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["near=dense"], None),
        (["lex=bm25", "--sweep"], "--sweep"),
        (["near=dense", "--sweep", "-o", "x"], "--out"),
        (["near=dense", "--sweep", "--parquet"], "--parquet"),
        (["near=dense", "--sweep", "--as", "tevatron"], "--as"),
        (["near=dense", "--sweep", "--on-short", "drop"], "--on-short"),
        (["near=dense", "--sweep", "--concurrency", "4"], "--concurrency"),
        (["near=dense", "-o", "x", "--guide", "y"], "--guide"),
        (["near=dense", "-o", "x", "--guide-sample", "100"], "--guide-sample"),
        (["near=dense", "--sweep", "--guide-sample", "100"], "--guide-sample"),
    ],
    ids=str,
)
def test_flags_that_do_not_go_together_are_refused(invoke, tiny, words, where):
    code, out, err = invoke("mine", *words, "--collection", FIXTURES, "--encoder", tiny, "--quiet")
    assert (code, out) == (2, "")
    assert where is None or err.startswith(f"secid: {where}: ")
    assert listing(".") == []


def test_a_guide_that_is_the_encoder_is_refused(tiny):
    with pytest.raises(UsageError) as error:
        secid.mine_sweep(["near=dense"], str(tiny), collection=str(FIXTURES), guide=str(tiny))
    assert error.value.where == "--guide"


def test_scores_of_positives_are_counted_where_no_column_takes_them(invoke):
    rows = [{"query": row["anchor"], "pos": [row["positive"]], "neg": ["other"], "pos_scores": [0.9]} for row in PAIRS]
    write_rows(Path("pairs.jsonl"), [{**row, "neg_scores": [0.1]} for row in rows])
    mined = secid.mine(["lex=bm25", "any=random"], "out", pairs="pairs.jsonl", k=3)
    assert [source.not_held for source in mined.sources] == [{"scores of positives": 12}] * 2


@pytest.mark.parametrize("schema", ["flagembedding", "tevatron"])
def test_the_files_of_a_run_have_equal_columns(schema, tiny):
    mine(["lex=bm25", "any=random"], schema=schema, parquet=True)
    assert pq.read_schema("out/lex.parquet").equals(pq.read_schema("out/any.parquet"))
    api.score(["out/any.parquet"], str(tiny), run="run")
    assert api.select("run", "copy.jsonl", source="any", top=2).not_held == {}


def test_short_queries_turn_tuples_into_triplets():
    specs = ["rel=dense:relative=0.05"]
    layouts = [
        mine(specs, on_short, HashEncoder(), schema="st-ntuple", on_short=on_short).sources[0].layout
        for on_short in ("keep", "drop")
    ]
    assert layouts == ["triplets", "n-tuple"]
