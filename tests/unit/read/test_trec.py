"""TREC runs: against plain Python over the same run and judgements, with every line used or counted."""

from __future__ import annotations

import gzip
import io
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from secid.errors import InputError, UsageError
from secid.pool.reading import read_draft
from secid.read import open_source
from secid.read.evaluation import DEFAULT_LAST_RANK
from secid.records import Defect, Record, Source
from secid.settings import Settings
from secid.write.rows import row_of
from tests.notes import Notes

from .conftest import read, refused, write_jsonl, zstd

Judged = dict[str, dict[str, int]]
Listed = dict[str, list[tuple[str, float]]]
"""query -> passage -> grade; query -> (passage, score), in the order of the file."""


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """A collection of 8 queries and 60 passages, graded from -2 to 3; queries q6 and q7 have nothing relevant."""
    draw = random.Random(5)
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    write_jsonl(folder / "corpus.jsonl", [{"_id": f"d{n}", "title": "", "text": f"passage d{n}"} for n in range(60)])
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{n}", "text": f"query q{n}"} for n in range(8)])
    for split, queries in (("train", range(3)), ("test", range(3, 7))):
        grades = [(q, d, draw.choice([-2, 0, 0, 1, 2, 3] if q < 6 else [0])) for q in queries for d in range(0, 60, 3)]
        lines = "".join(f"q{q} 0 d{d} {grade}\n" for q, d, grade in grades)
        (folder / "qrels" / f"{split}.txt").write_text(lines, encoding="utf-8")
    return folder


def judgements(folder: Path) -> Judged:
    grades: Judged = {}
    for path in sorted((folder / "qrels").iterdir()):
        for query, _, passage, grade in map(str.split, path.read_text(encoding="utf-8").splitlines()):
            grades.setdefault(query, {})[passage] = int(grade)
    return grades


def retrieved(seed: int = 0) -> Listed:
    """Return scores with ties, in random order."""
    draw = random.Random(seed)
    passages = [f"d{n}" for n in range(60)]
    return {f"q{n}": [(key, draw.randrange(12) / 4 - 1) for key in draw.sample(passages, 40)] for n in range(8)}


def expected(
    run: Listed, grades: Judged, first: int = 1, last: int = DEFAULT_LAST_RANK
) -> dict[str, tuple[list[str], list[str], int]]:
    """query -> positives, negatives, how many of the window are relevant; queries without a positive left out."""
    rows = {}
    for query, listed in run.items():
        relevant = {passage for passage, grade in grades.get(query, {}).items() if grade > 0}
        ordered: list[str] = []
        for score in sorted({score for _, score in listed}, reverse=True):
            ordered += sorted((passage for passage, own in listed if own == score), reverse=True)
        window = [passage for rank, passage in enumerate(ordered, 1) if first <= rank <= last]
        if relevant:
            good = [key for grade in (3, 2, 1) for key, own in grades[query].items() if own == grade]
            bad = [passage for passage in window if passage not in relevant]
            rows[query] = good, bad, len(window) - len(bad)
    return rows


def as_trec(run: Listed) -> str:
    """Return the lines of a TREC run with wrong ranks, since trec_eval ignores them."""
    return "".join(f"{q} Q0 {d} {n} {score} a tag\n" for q, own in run.items() for n, (d, score) in enumerate(own))


def ids(texts: tuple[str, ...]) -> list[str]:
    return [text.removeprefix("passage ") for text in texts]


def as_rows(items: list[Any]) -> dict[str, tuple[list[str], list[str], int]]:
    return {
        item.query.removeprefix("query "): (
            ids(item.positives), ids(item.negatives), dict(item.dropped).get("judged_relevant", 0)
        )
        for item in items if isinstance(item, Record)
    }  # fmt: skip


@pytest.mark.parametrize("ranks", [None, "1-5", "11-20", "31-90", "3-3"])
def test_a_run_is_read_as_trec_eval_orders_it(beir: Path, tmp_path: Path, ranks: str | None) -> None:
    run = retrieved()
    (tmp_path / "bm25.trec").write_text(as_trec(run), encoding="utf-8")
    reader, found = read(tmp_path / "bm25.trec", collection=str(beir), ranks=ranks)
    window = tuple(map(int, ranks.split("-"))) if ranks else ()
    whole = expected(run, judgements(beir), *window)
    kept = {query: row for query, row in whole.items() if row[1]}
    assert as_rows(found) == kept
    assert (0 < len(kept) < 6) == (ranks == "3-3")
    assert reader.files[0].schema == "trec"
    assert f"ranks {ranks or '1-10'}" in reader.files[0].mapping
    left_out = sorted((item.reason, item.line) for item in found if isinstance(item, Defect))
    starts = {query: 1 + 40 * place for place, query in enumerate(run)}
    lost = [("judged_relevant", starts[query]) for query in whole if query not in kept]
    assert left_out == sorted([*lost, ("none_relevant", starts["q6"]), ("none_relevant", starts["q7"])])


def ranked(run: Listed) -> Listed:
    """Return the passages in the order of the ranks."""
    return {query: sorted(own, key=lambda pair: (pair[1], pair[0]), reverse=True) for query, own in run.items()}


def of_three(run: Listed) -> str:
    return "".join(f"{q}\t{d}\t{n}\n" for q, own in ranked(run).items() for n, (d, _) in enumerate(own, 1))


def of_four(run: Listed) -> str:
    return "".join(f"{q}\t{d}\t{n}\t{s}\n" for q, own in ranked(run).items() for n, (d, s) in enumerate(own, 1))


@pytest.mark.parametrize("form", [of_three, of_four])
@pytest.mark.parametrize(("pack", "name"), [(bytes, "run.txt"), (gzip.compress, "msmarco.tsv.gz"), (zstd, "a.run.zst")])
def test_other_forms_and_packed_files_give_the_same_rows(
    beir: Path, tmp_path: Path, form: Any, pack: Any, name: str
) -> None:
    run = retrieved(1)
    (tmp_path / name).write_bytes(pack(form(run).encode()))
    assert as_rows(read(tmp_path / name, collection=str(beir))[1]) == expected(run, judgements(beir))


def test_standard_input_with_crlf_and_a_byte_order_mark(beir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = retrieved(2)
    data = b"\xef\xbb\xbf" + as_trec(run).replace("\n", "\r\n").encode()
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": io.BytesIO(data)}))
    assert as_rows(read("-", collection=str(beir))[1]) == expected(run, judgements(beir))


def test_by_judgement_a_query_gives_a_row_of_each_kind(beir: Path, tmp_path: Path) -> None:
    run, grades = retrieved(), judgements(beir)
    (tmp_path / "bm25.trec").write_text(as_trec(run), encoding="utf-8")
    whole = expected(run, grades)
    for flag in ("source_column", "by"):
        reader, found = read(tmp_path / "bm25.trec", collection=str(beir), **{flag: "judged"})
        apart: dict[str, dict[str, list[str]]] = {"nonrelevant": {}, "unjudged": {}}
        for item in found:
            if isinstance(item, Record):
                kind = item.split or str(item.fields["judged"])
                apart[kind][item.query.removeprefix("query ")] = ids(item.negatives)
        for kind, judged in (("nonrelevant", True), ("unjudged", False)):
            own = {q: [key for key in row[1] if (key in grades[q]) is judged] for q, row in whole.items()}
            assert apart[kind] == {q: keys for q, keys in own.items() if keys}
            assert reader.count_judged()[kind] == sum(map(len, own.values())) > 0
        assert not any(isinstance(item, Defect) and item.reason != "none_relevant" for item in found)


BAD = [
    ("q0 Q0 d1 1 9 x\nq0 Q0 d2 2 8 x\nq0 Q0 d1 3 7 x\n", [("repeated_passage", 3)]),
    ("q0 Q0 d1 1 9 x\nq0 Q0 d1 2 9.5 x\n", [("repeated_passage", 1)]),  # the better rank counts
    ("q0 Q0 d1 1 9 x\nq0 Q0 d2 2 high x\nq0 Q0 d4 3 nan x\n", [("wrong_type", 2), ("wrong_type", 3)]),
    ("q0 Q0 d1 1 9 x\n\nq0 Q0 d2 2 8\nd4\n", [("extra_columns", 3), ("extra_columns", 4)]),
    ("q0 Q0 d1 1 9 x\nq0 Q0 \xff 2 8 x\n", [("broken_line", 2)]),
    ("q0 Q0 d1 1 9 x\nq99 Q0 d1 1 9 x\n", [("none_relevant", 2)]),
    ("q0 Q0 d1 1 9 x\nzz Q0 d1 1 9 x\n", [("text_not_found", 2)]),
]


@pytest.mark.parametrize(("content", "reasons"), BAD)
def test_what_cannot_be_used_is_counted_with_its_line(beir: Path, tmp_path: Path, content: str, reasons: Any) -> None:
    (beir / "qrels.more.txt").write_text("zz 0 d5 1\n", encoding="utf-8")
    more = "".join(f"q1 Q0 d{n} 1 {n} x\n" for n in range(9))
    (tmp_path / "bm25.trec").write_bytes(f"{content}{more}".encode("latin-1"))
    _, found = read(tmp_path / "bm25.trec", collection=str(beir))
    assert [(item.reason, item.line) for item in found if isinstance(item, Defect)] == reasons
    assert sum(isinstance(item, Record) for item in found) == 2


def test_passages_that_the_corpus_lacks_are_left_out(beir: Path, tmp_path: Path) -> None:
    (tmp_path / "bm25.trec").write_text("q0 Q0 d1 1 9 x\nq0 Q0 nope 2 8 x\n", encoding="utf-8")
    (record,) = read(tmp_path / "bm25.trec", collection=str(beir))[1]
    assert isinstance(record, Record)
    assert (ids(record.negatives), record.dropped) == (["d1"], (("text_not_found", 1),))


def test_queries_in_two_places_are_an_error_with_a_command_that_helps(beir: Path, tmp_path: Path) -> None:
    content = "q0 Q0 d1 1 9 x\nq1 Q0 d2 1 9 x\nq0 Q0 d4 2 8 x\n"
    (tmp_path / "bm25.trec").write_text(content, encoding="utf-8")
    with refused("bm25.trec:3") as caught:
        read(tmp_path / "bm25.trec", collection=str(beir))
    assert "sort -s -k 1,1" in str(caught.value.remedy)


@pytest.mark.parametrize("ranks", ["10", "0-3", "5-2", "a-b", "1-2-3", ""])
def test_a_window_or_column_that_is_none(beir: Path, tmp_path: Path, ranks: str) -> None:
    (tmp_path / "bm25.trec").write_text("q0 Q0 d1 1 9 x\n", encoding="utf-8")
    with pytest.raises(UsageError):
        read(tmp_path / "bm25.trec", collection=str(beir), ranks=ranks or " ")
    with pytest.raises(UsageError):
        read(tmp_path / "bm25.trec", collection=str(beir), source_column="topic")


def test_a_run_needs_judgements(tmp_path: Path, collection: str) -> None:
    (tmp_path / "bm25.trec").write_text("11 Q0 1 1 9 x\n", encoding="utf-8")
    (Path(collection) / "qrels.tsv").unlink()
    for settings in ({}, {"collection": collection}):
        with refused("bm25.trec") as caught:
            read(tmp_path / "bm25.trec", **settings)
        assert "--collection DIR" in str(caught.value.remedy)
    with refused("nowhere"):
        read(tmp_path / "bm25.trec", collection=str(tmp_path / "nowhere"))


def test_format_says_that_a_file_is_a_run(beir: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("q0 d1 7\n", encoding="utf-8")
    assert as_rows(read(tmp_path / "one.txt", collection=str(beir), format="trec")[1])["q0"][1] == ["d1"]
    (tmp_path / "any.txt").write_text("q0 run d1 7 0.5 x\n", encoding="utf-8")
    assert as_rows(read(tmp_path / "any.txt", collection=str(beir), format="trec")[1])["q0"][1] == ["d1"]
    (tmp_path / "no.jsonl").write_text('{"query": "a b c", "positive": "d e", "negative": "f"}\n', encoding="utf-8")
    with refused("no.jsonl:1"):
        read(tmp_path / "no.jsonl", collection=str(beir), format="trec")
    with pytest.raises(InputError):
        read(tmp_path / "any.txt", collection=str(beir))


def test_copies_keep_ids_scores_ranks_and_tags(beir: Path, tmp_path: Path) -> None:
    (tmp_path / "bm25.trec").write_text("q0 Q0 d1 5 7.5 my tag\nq0 Q0 d2 6 8.5 my tag\n", encoding="utf-8")
    source, settings = Source("bm25", (str(tmp_path / "bm25.trec"),)), Settings(collection=str(beir))
    (record,) = [item for item in open_source(source, settings, keep=True) if isinstance(item, Record)]
    row = row_of(record)
    assert row.query_id == "q0"
    kept = [(passage.id, passage.rank, passage.score, passage.miner) for passage in row.negatives]
    assert kept == [("d2", 1, 8.5, "my tag"), ("d1", 2, 7.5, "my tag")]
    assert not row.unsupported


def test_the_notes_tell_judged_and_unjudged_negatives_apart(beir: Path, tmp_path: Path) -> None:
    run, grades, notes = retrieved(), judgements(beir), Notes()
    paths = [tmp_path / f"{n}.trec" for n in range(10)]  # more files than stay open, so that some are read anew
    for path in paths:
        path.write_text(as_trec(run), encoding="utf-8")
    (tmp_path / "work").mkdir()
    settings = Settings(collection=str(beir))
    plan = read_draft([Source("bm25", tuple(map(str, paths)))], settings, tmp_path / "work", notes)[0].plan
    plan.close()
    pairs = [(query, key) for query, row in expected(run, grades).items() for key in row[1]]
    n = 10 * sum(key in grades[query] for query, key in pairs)
    assert f"negatives of the run: {n:,} nonrelevant and {10 * len(pairs) - n:,} unjudged" in "\n".join(notes.notes)
