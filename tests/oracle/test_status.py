"""Compare status, flagged share and the score without flagged negatives with loops over the rows (METHOD 14)."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

import numpy as np
import pytest

from secid.findings import status
from secid.measure.interval import reach_95
from secid.results import SourceReport, commands
from secid.results.catalogue import DEFECTS
from secid.triplets import random_reference
from tests.fake_encoder import HashEncoder
from tests.oracle import hardness as hardness_oracle
from tests.oracle import reference
from tests.oracle.closeness import assert_close
from tests.unit.findings import slow_texts
from tests.unit.scoring.runs import Sources, checked, scored

Rows = list[dict[str, Any]]
PLAIN = ("false_negative", "near_copy", "repeat", "empty", "query_echo")
N = 60


def clean(n: int = N, n_negatives: int = 3) -> Rows:
    """Return rows without counted defects. The passages of each query begin with a separate word."""
    return [
        {
            "query": f"topic{number} goes where",
            "pos": [f"topic{number} answer to it is {number * 7} metres north of the old bridge", f"side{number} two"],
            "neg": [f"topic{(number + rank) % n} goes {rank} of {number}" for rank in range(1, n_negatives + 1)],
        }
        for number in range(n)
    ]


def damaged(every: int, *, alone: bool = False) -> Rows:
    """Return rows of which every n-th lists each defect. alone : these rows list nothing else."""
    rows = clean()
    for number, row in enumerate(rows):
        if number % every == 0:
            bad = [row["pos"][1].upper(), f"Title {row['pos'][0]}", row["query"] + "?", "N/A", "", " "]
            row["neg"] = bad if alone else [*row["neg"], *bad, row["neg"][0], row["neg"][1].upper()]
    return rows


def flags_of(rows: Rows, sources: Sources) -> list[tuple[int, str, set[str]]]:
    """Return row, text and counted defects of each listed negative."""
    labelled = [slow_texts.PlainRecord(row["query"], row["pos"], []) for part in sources.values() for row in part]
    listed = []
    for number, row in enumerate(rows):
        positives = slow_texts.positives_of([labelled], row["query"])
        forms: list[str] = []
        for text in row["neg"]:
            form = slow_texts.form(text)
            equal = form != "" and form in map(slow_texts.form, positives)
            rules = {
                "false_negative": equal,
                "near_copy": not equal and any(slow_texts.is_near(text, positive) for positive in positives),
                "repeat": text.strip() != "" and form in forms,
                "empty": slow_texts.is_empty(text),
                "query_echo": form != "" and form == slow_texts.form(row["query"]),
            }
            forms += [form] if text.strip() else []
            listed.append((number, text, {name for name, holds in rules.items() if holds}))
    return listed


def expected(name: str, sources: Sources) -> dict[str, Any]:
    """Return the expected numbers of one source, computed only from its rows."""
    rows = sources[name]
    listed = flags_of(rows, sources)
    counts = Counter(defect for *_, defects in listed for defect in defects)
    kept = [(number, text) for number, text, defects in listed if not defects]
    above = any(n > 0.01 * len(listed) for n in counts.values())
    left = len({number for number, _ in kept})
    verdict = "no_defects" if not above else "repair" if left and 2 * left >= len(rows) else "unusable"
    n_flagged = len(listed) - len(kept)
    return {
        "status": verdict,
        "n_flagged": n_flagged,
        "flagged_share": n_flagged / len(listed),
        "defects": [defect for defect in DEFECTS if counts[defect]],
        "without_flagged": measured_anew([(rows[n]["query"], rows[n]["pos"][0], text) for n, text in kept], sources),
    }


def measured_anew(kept: list[tuple[str, str, str]], sources: Sources) -> dict[str, Any]:
    """Return score, interval and hardness of some triplets in the pool of all sources, as listed."""
    if not kept:
        return {"n_triplets": 0, "eci_nats": None, "interval_95": None, "hardness": None}
    records = {
        name: reference.merge_rows(
            [(row["query"], row["pos"], [text for text in row["neg"] if text.strip()]) for row in rows]
        )
        for name, rows in sources.items()
    }
    records = {name: [record for record in part if record[2]] for name, part in records.items()}
    documents = sorted(reference.scored_documents(records.values()))
    labelled = {row["query"]: set(row["pos"]) for rows in sources.values() for row in rows}
    encoder = HashEncoder()
    q_vec, p_vec = encoder.table(sorted(labelled), "query"), encoder.table(documents, "passage")
    idf = reference.idf_table(*reference.document_frequencies(documents, "alphanumeric", ()))
    measured = reference.measure_triplets(kept, q_vec, p_vec, idf)
    nats = reference.log_det_nats(reference.singular_values(measured.weight, measured.direction))
    error = reference.standard_error(reference.source_sums(measured))
    half = reach_95(len({query for query, *_ in kept})) * error
    rows, _ = hardness_oracle.rows_of([(*triplet, 1.0) for triplet in kept], labelled, documents, q_vec, p_vec)
    return {
        "n_triplets": len(kept),
        "eci_nats": nats,
        "interval_95": [max(0.0, nats - half), min(1.0, nats + half)],
        "hardness": hardness_oracle.hardness(rows),
    }


def stated(source: SourceReport) -> dict[str, Any]:
    without = {**vars(source.score.without_flagged)}
    without["interval_95"] = without["interval_95"] and list(without["interval_95"])
    return {
        "status": source.status,
        "n_flagged": source.n_flagged,
        "flagged_share": source.flagged_share,
        "defects": [name for name in DEFECTS if source.finding(name).n_negatives],
        "without_flagged": without,
    }


@pytest.fixture(autouse=True)
def all_passages_are_drawn(monkeypatch):
    monkeypatch.setattr(random_reference, "PASSAGES_PER_QUERY", 10_000)


def run_of(folder: Any, sources: Sources) -> dict[str, SourceReport]:
    run = scored(folder, sources, HashEncoder(), max_bad_fraction=1.0).run
    return {source.name: source for source in run.sources}


def test_what_is_said_of_damaged_sources_follows_from_their_rows(tmp_path):
    sources = {"clean": clean(), "some": damaged(4), "most": damaged(1, alone=True), "half": damaged(2, alone=True)}
    results = run_of(tmp_path, sources)
    statuses = {}
    for name, source in results.items():
        theirs = expected(name, sources)
        assert_close(stated(source), theirs, rel=1e-6, abs=1e-9)
        statuses[name] = theirs["status"]
        if theirs["n_flagged"] == 0:
            assert source.score.without_flagged.eci_nats == source.score.nats
            assert source.score.without_flagged.interval_95 == source.score.interval_95
            assert source.score.without_flagged.hardness == source.hardness.value
    assert statuses == {"clean": "no_defects", "some": "repair", "most": "unusable", "half": "repair"}
    assert results["some"].score.without_flagged.eci_nats != results["some"].score.nats
    check = {source.name: source for source in checked(tmp_path / "check", sources).sources}
    for name, source in results.items():
        own = check[name]
        assert (own.status, own.n_flagged, own.flagged_share) == (
            source.status, source.n_flagged, source.flagged_share
        )  # fmt: skip


@pytest.mark.parametrize("bit", ["false_negative", "near_copy", "empty", "query_echo"])
def test_a_defect_that_is_not_counted_is_noticed(tmp_path, monkeypatch, bit):
    monkeypatch.setattr(status, "DEFECT_MASK", status.DEFECT_MASK & ~np.uint32(1 << status.BITS[bit]))
    sources = {"some": damaged(4)}
    with pytest.raises(AssertionError):
        assert_close(stated(run_of(tmp_path, sources)["some"]), expected("some", sources), rel=1e-6, abs=1e-9)


def test_a_source_measured_in_a_pool_of_its_own_is_noticed(tmp_path):
    sources = {"some": damaged(4), "clean": clean(200)}
    ours = stated(run_of(tmp_path, sources)["some"])
    assert_close(ours, expected("some", sources), rel=1e-6, abs=1e-9)
    with pytest.raises(AssertionError):
        assert_close(ours, expected("some", {"some": sources["some"]}), rel=1e-6, abs=1e-9)


def test_a_copy_without_the_flagged_rows_has_these_numbers_in_the_pool_of_the_run(tmp_path):
    """The file of `secid select --drop` is scored in that pool; another IDF would give other numbers."""
    sources = {"some": damaged(4), "clean": clean(200)}
    before = scored(tmp_path, sources, HashEncoder(), max_bad_fraction=1.0)
    theirs = next(source for source in before.run.sources if source.name == "some").score.without_flagged
    kept: Rows = [{**row, "neg": []} for row in sources["some"]]
    for number, text, defects in flags_of(sources["some"], sources):
        kept[number]["neg"] += [] if defects else [text]
    own = [scored(tmp_path / name, {"some": kept}, HashEncoder(), run) for name, run in (("in", before), ("out", None))]
    inside, outside = (item.run.sources[0] for item in own)
    assert inside.n_triplets == theirs.n_triplets
    assert inside.score.nats == pytest.approx(theirs.eci_nats, rel=1e-6)
    assert inside.score.interval_95 == pytest.approx(theirs.interval_95, rel=1e-6)
    assert outside.score.nats != pytest.approx(theirs.eci_nats, rel=1e-5)


def test_a_share_at_the_limit_is_allowed_and_above_it_is_not(tmp_path):
    """100 negatives: one empty one is 1 %, two are 2 %; two defects of 1 % each are 2 % flagged, each at its limit."""
    at, above, two = clean(50, 2), clean(50, 2), clean(50, 2)
    at[0]["neg"][0] = above[0]["neg"][0] = above[1]["neg"][0] = two[0]["neg"][0] = "N/A"
    two[1]["neg"][0] = two[1]["query"]
    check = checked(tmp_path, {"at": at, "above": above, "two": two})
    assert {source.name: (source.status, source.n_flagged) for source in check.sources} == {
        "at": ("no_defects", 1), "above": ("repair", 2), "two": ("no_defects", 2)
    }  # fmt: skip


def test_half_of_the_records_is_enough_and_queries_of_only_blanks_are_records(tmp_path):
    """Ten records, of which five keep a negative; with one more query that lists only blanks five of eleven do."""
    half = clean(10, 1)
    for row in half[:5]:
        row["neg"] = ["n/a"]
    sources = {"half": half, "less": [*half, {"query": "one more query", "pos": ["an answer"], "neg": ["", ""]}]}
    check = checked(tmp_path, sources)
    assert {source.name: source.status for source in check.sources} == {"half": "repair", "less": "unusable"}
    assert [source.n_flagged for source in check.sources] == [5, 7]


def test_the_command_names_every_defect_and_only_a_repairable_source_has_one(tmp_path):
    sources = {"some": damaged(4), "most": damaged(1, alone=True), "clean": clean()}
    results = run_of(tmp_path, sources)
    assert results["clean"].repair is None
    assert results["most"].repair is None
    words = shlex.split(results["some"].repair or "")
    assert words == [
        "secid", "select", "RUN", "--source", "some", "--drop",
        "false_negative,near_copy,empty,repeat,query_echo", "-o", "some-clean.jsonl",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("run", "source", "file", "last"),
    [
        ("my runs/x", "it's", "a.jsonl.gz", ["my runs/x", "--source", "it's", "-o", "it_s-24ce-clean.jsonl.gz"]),
        ("-x", "-s", "a.parquet", ["./-x", "--source=-s", "-o", "s-922e-clean.parquet"]),
        (None, "f.jsonl:a/b", "-", ["RUN", "--source", "f.jsonl:a/b", "-o", "f.jsonl_a_b-bf39-clean.jsonl"]),
    ],
)
def test_the_command_survives_a_shell(run, source, file, last):
    words = shlex.split(commands.repair_command(run, source, ("repeat",), file))
    assert words[:2] == ["secid", "select"]
    assert [word for word in words[2:] if word not in ("--drop", "repeat")] == last
