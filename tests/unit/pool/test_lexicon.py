"""Frequencies and coverage do not depend on how texts are cut into chunks or dealt to threads (METHOD 2, 4)."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from secid.pool import Lexicon, TokenSets, coverage, token_stream, tokens
from secid.pool.coverage import DocumentFrequencies, frequencies, merge_frequencies
from secid.pool.texts import TextSpool
from secid.triplets.table import CoverageTables, lexicons_of

WORDS = [f"{stem}{ending}" for stem in ("river", "stone", "über", "load", "x") for ending in ("", "s", "7", "-ing")]


def token_sets(texts: list[str], tokenizer: str) -> TokenSets:
    """Distinct token keys of each text."""
    return tokens.distinct_tokens(*token_stream(texts, tokenizer))


def made_up(n: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(0, 30))) for _ in range(n)]


QUERIES, PASSAGES = made_up(60, 1), made_up(500, 2)
PAIRS = np.arange(500) % 60, np.arange(500)


def measured(folder: Path) -> tuple[str, list[float]]:
    counted = np.arange(len(PASSAGES)) % 5 > 0
    lexicon = Lexicon(
        "alphanumeric",
        lambda start, stop: QUERIES[start:stop],
        len(QUERIES),
        lambda start, stop: PASSAGES[start:stop],
        counted,
        folder / "tokens",
    )
    pooled = lexicon.pooled()
    return pooled.sha256(), lexicon.coverage(*PAIRS, lexicon.idf(pooled)).tolist()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[str, list[float]]:
    return measured(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(("chunk", "threads"), [(7, 1), (7, 4), (64, 3), (1, 2)])
def test_chunks_and_threads_change_nothing(chunk, threads, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(coverage, "LEXED_AT_ONCE", chunk)
    monkeypatch.setattr(coverage, "MAX_THREADS", threads)
    monkeypatch.setattr("os.cpu_count", lambda: threads)
    assert measured(tmp_path) == whole


def test_a_changed_passage_would_be_noticed(whole, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "PASSAGES", [*PASSAGES[:-1], "another text"])
    assert measured(tmp_path) != whole


def test_sizes_of_blobs_and_blocks_change_no_token_set(monkeypatch):
    expected = token_sets(PASSAGES, "alphanumeric")
    monkeypatch.setattr(tokens, "BLOB_BYTES", 64)  # so that most texts are cut into pieces, too
    monkeypatch.setattr(tokens, "SORTED_TOKENS", 5)
    found = token_sets(PASSAGES, "alphanumeric")
    for name in ("table", "numbers", "offsets"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


def test_merged_tables_are_those_of_all_documents():
    parts = [frequencies(token_sets(PASSAGES[start : start + 90], "alphanumeric")) for start in range(0, 500, 90)]
    merged = merge_frequencies(parts)
    assert merged.sha256() == frequencies(token_sets(PASSAGES, "alphanumeric")).sha256()
    assert merged.n_documents == 500


def test_no_tables_merge_to_the_empty_one():
    merged = merge_frequencies([])
    assert (len(merged.keys), len(merged.counts), merged.n_documents) == (0, 0, 0)
    empty = DocumentFrequencies(np.zeros(0, np.uint64), np.zeros(0, np.int64), 3)
    assert merge_frequencies([empty, empty]).n_documents == 6


@pytest.mark.parametrize(("query", "passage", "shared"), [("a", "b", True), ("é", "b", False), ("a", "हिन्दी", False)])
def test_texts_of_only_ascii_share_their_tokens(tmp_path, query, passage, shared):
    stores = []
    for role, texts in (("query", ["one two", query]), ("passage", ["two", "three", passage])):
        spool = TextSpool(role, tmp_path / role)
        spool.add(texts)
        stores.append(spool.store()[0])
    tables = CoverageTables(SimpleNamespace(queries=stores[0], passages=stores[1]), [], tmp_path)
    assert (tables.lexicon("alphanumeric") is tables.lexicon("multilingual")) == shared
    assert tables.lexicon("whitespace") is not tables.lexicon("alphanumeric")


@pytest.mark.parametrize("last", ["b", "é"])  # with "é", alphanumeric2 has token sets of its own
def test_coverage_by_shared_or_partial_token_sets_equals_that_by_separate_ones(tmp_path, last):
    rows = SimpleNamespace(query=np.array([0, 0, 1, 1]), positive=np.zeros(4, int), negative=np.array([0, 1, 2, 3]))
    stores = []
    texts_of = {"query": ["a tale of two", "1 or b c"], "passage": ["a two", "tale", "c or  d", last]}
    for role, texts in texts_of.items():
        spool = TextSpool(role, tmp_path / role)
        spool.add(texts)
        stores.append(spool.store()[0])
    plan = SimpleNamespace(queries=stores[0], passages=stores[1])
    names = [
        (name, corpus) for name in ("alphanumeric", "alphanumeric2", "trigrams") for corpus in ("pooled", "uniform")
    ]
    together = CoverageTables(plan, [rows], tmp_path)
    for name in ("alphanumeric", "alphanumeric2", "trigrams"):
        together.lexicon(name, with_others=name == "alphanumeric")
    assert (together.lexicon("alphanumeric2") is together.lexicon("alphanumeric")) == last.isascii()
    for name, covered in zip(names, together.negatives(rows, names), strict=True):
        alone = CoverageTables(plan, [rows], tmp_path)
        np.testing.assert_array_equal(covered, alone.negatives(rows, [name])[0])
        assert covered.min() < covered.max()


def test_lexicons_that_another_process_gets_give_the_same_coverage(tmp_path):
    """A deep copy has what a process would get. tests/unit/scoring/test_progress.py counts in a real one."""
    stores = []
    for role, texts in (("query", ["one two", "drei vier é"]), ("passage", ["two three", "vier", "one", "é two"])):
        spool = TextSpool(role, tmp_path / role)
        spool.add(texts)
        stores.append(spool.store()[0])
    names, counted = ["alphanumeric", "trigrams"], np.array([True, True, False, True])
    expected = lexicons_of(names, *stores, counted, tmp_path, "alphanumeric")
    found = copy.deepcopy(expected)
    pairs = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 3])
    for name in names:
        own, other = expected[name], found[name]
        assert own.pooled().sha256() == other.pooled().sha256()
        idf = own.idf(own.pooled())[None]
        np.testing.assert_array_equal(own.coverage(*pairs, idf), other.coverage(*pairs, idf))
        assert own.coverage(*pairs, idf).any()
        with_queries = own.with_queries(own.pooled(), np.ones(2, np.bool_))
        assert with_queries.sha256() == other.with_queries(other.pooled(), np.ones(2, np.bool_)).sha256()
