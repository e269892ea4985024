"""Evaluation texts inside sources: exact, near, and against an independent computation of the similarity."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest

from secid import api
from secid.errors import InputError
from secid.findings.judgements import Finder, Matches, passage_finder, query_finder
from secid.pool import SPLITTERS
from secid.pool.texts import TextSpool
from secid.read.evaluation import read_evaluation
from tests.snapshots import refusal
from tests.unit.scoring.made_rows import clean_rows, passage, write

ROOT = Path(__file__).resolve().parents[3]
COLLECTION = ROOT / "fixtures" / "collection"


def find(finder: Finder, texts: list[str]) -> Matches:
    with tempfile.TemporaryDirectory() as folder:
        spool = TextSpool("passage", Path(folder) / "texts")
        numbers = spool.add(texts)
        store, ids = spool.store()
        matches = finder.find(store)
        store.close()
    places = ids[np.array(numbers, np.int64)]
    return Matches(matches.number[places], matches.similarity[places], matches.exact[places])


def windows(text: str, width: int) -> set[tuple[str, ...]]:
    words = SPLITTERS["multilingual"](text)
    return {tuple(words[place : place + width]) for place in range(len(words) - width + 1)}


def slow(texts: list[str], wanted: list[str], width: int, smallest: int, jaccard: bool) -> list[float]:
    """Return each text's largest similarity to a wanted text, computed with sets. A pair with a small text has 0.0."""
    best = []
    for text in texts:
        values = [0.0]
        for other in wanted:
            a, b = windows(text, width), windows(other, width)
            if min(len(a), len(b)) >= smallest:
                values.append(len(a & b) / (len(a | b) if jaccard else min(len(a), len(b))))
        best.append(max(values))
    return best


@pytest.mark.parametrize(
    ("maker", "width", "smallest", "jaccard"), [(query_finder, 1, 4, True), (passage_finder, 5, 10, False)]
)
def test_no_pair_above_the_threshold_is_missed_and_none_below_is_told(maker, width, smallest, jaccard):
    draw = random.Random(5)
    words = [f"w{number}" for number in range(40)]
    wanted = [" ".join(draw.choices(words, k=draw.randint(2, 40))) for _ in range(30)]
    texts = []
    for text in wanted * 4:
        kept = [word if draw.random() > 0.06 else draw.choice(words) for word in text.split()]
        texts.append(" ".join(kept[draw.randint(0, 3) :]))
    found = find(maker({str(number): text for number, text in enumerate(wanted)}), texts)
    expected = slow(texts, wanted, width, smallest, jaccard)
    n_near = 0
    for number, value, exact, best in zip(found.number, found.similarity, found.exact, expected, strict=True):
        if exact:
            assert value == 1.0
        elif best >= 0.8 - 1e-9:
            n_near += 1
            assert number >= 0
            assert value == pytest.approx(best)
        else:
            assert number == -1
    assert n_near > 10


def test_exact_is_but_for_case_space_and_punctuation_and_needs_no_length():
    found = find(query_finder({"1": "What now?"}), ["what  NOW", "what then?"])
    assert found.number.tolist() == [0, -1]
    assert found.exact.tolist() == [True, False]


def test_no_text_without_words_equals_another():
    found = find(query_finder({"1": "?!", "2": "What now?"}), ["…", "?!", "what now"])
    assert found.number.tolist() == [-1, -1, 1]


def test_a_chunk_a_title_and_edits_are_near():
    text = passage(3, 60)
    words = text.split()
    texts = [
        " ".join(words[20:45]), f"A title {text}", " ".join(words[:30] + words[31:]), " ".join(words[::-1]),
        " ".join(words[:12] + [f"new{n}" for n in range(40)]),
    ]  # fmt: skip
    assert (find(passage_finder({"p": text}), texts).number >= 0).tolist() == [True, True, True, False, False]


def test_no_evaluation_text_finds_nothing():
    assert find(passage_finder({}), [passage(1)]).number.tolist() == [-1]


def test_passages_of_the_fixtures_do_not_resemble_each_other():
    """The false positives of near matching on texts that are about the same subjects in the same style."""
    lines = (COLLECTION / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    half = {str(number): text for number, text in enumerate(texts[::2])}
    assert (find(passage_finder(half), texts[1::2]).number >= 0).sum() == 0
    queries = [
        json.loads(line)["text"] for line in (COLLECTION / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    wanted = {str(number): text for number, text in enumerate(queries[::2])}
    assert (find(query_finder(wanted), queries[1::2]).number >= 0).sum() == 0


def test_the_evaluation_set_is_the_test_split():
    found = read_evaluation(str(COLLECTION), titles=True)
    assert [Path(path).name for path in found.qrels] == ["test.tsv"]
    assert (len(found.queries), len(found.passages)) == (66, 94)


def folder(path: Path, qrels: dict[str, str]) -> Path:
    path.mkdir()
    write(path / "queries.jsonl", [{"_id": str(n), "text": row["query"]} for n, row in enumerate(clean_rows())])
    write(
        path / "corpus.jsonl",
        [{"_id": f"d{n}", "title": "", "text": row["pos"][0]} for n, row in enumerate(clean_rows())],
    )
    for name, text in qrels.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    return path


def test_splits_and_layouts_of_qrels(tmp_path):
    header = "query-id\tcorpus-id\tscore\n"
    both = {"qrels/train.tsv": f"{header}1\td1\t1\n", "qrels/test.tsv": f"{header}2\td2\t1\n2\td3\t0\n"}
    found = read_evaluation(str(folder(tmp_path / "a", both)), titles=True)
    assert (set(found.queries), set(found.passages)) == ({"2"}, {"d2"})
    found = read_evaluation(str(folder(tmp_path / "b", {"qrels.dev.tsv": "1\t0\td1\t1\n3\t0\td3\t2\n"})), titles=True)
    assert (set(found.queries), set(found.passages)) == ({"1", "3"}, {"d1", "d3"})
    found = read_evaluation(str(folder(tmp_path / "c", {})), titles=True)
    assert (len(found.queries), found.passages, found.qrels) == (40, {}, ())


def test_broken_evaluation_folders_are_named(tmp_path):
    def refused(path: Path, place: str = "") -> str:
        return refusal(lambda: read_evaluation(str(path), titles=True), InputError, path / place)

    refused(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    message = refused(tmp_path / "empty")
    assert "queries.jsonl" in message
    assert "--against-eval" in message
    assert "good" in refused(folder(tmp_path / "x", {"qrels/test.tsv": "1\td1\t1\n2\td2\tgood\n"}), "qrels/test.tsv:2")
    refused(folder(tmp_path / "y", {"qrels/test.tsv": "99\td1\t1\n"}))


def test_leaks_are_counted_by_query_and_role_with_their_places(tmp_path):
    judged = "query-id\tcorpus-id\tscore\n" + "".join(f"{n}\td{n}\t1\n" for n in (0, 1, 2))
    against = folder(tmp_path / "beir", {"qrels/test.tsv": judged})
    rows = clean_rows()[2:]
    rows[5]["query"] = "tell where is topic1 kept in hall1 today"
    rows[9]["neg"][0] = f"Title here {clean_rows()[0]['pos'][0]}"
    facts = api.check([write(tmp_path / "own.jsonl", rows)], against_eval=against).texts["own"]
    queries, passages = facts.caution("eval_query"), facts.caution("eval_passage")
    assert queries.n == 2
    assert queries.values == {"n_exact": 1, "n_evaluation": 2, "n_evaluation_all": 3}
    assert [example.line for example in queries.examples] == [1, 6]
    assert passages.n == 2
    assert (passages.values["n_positives"], passages.values["n_negatives"]) == (1, 1)
    assert {example.line for example in passages.examples} == {1, 10}
    assert "similarity" in passages.examples[1].fact.values


def test_a_source_without_leaks_has_none(tmp_path):
    rows = clean_rows()
    against = folder(tmp_path / "beir", {"qrels/test.tsv": "1\td1\t1\n2\td2\t1\n"})
    facts = api.check([write(tmp_path / "own.jsonl", rows[5:])], against_eval=against).texts["own"]
    assert (facts.caution("eval_query").n, facts.caution("eval_passage").n) == (0, 0)
    assert np.isfinite(facts.caution("eval_query").fraction)
