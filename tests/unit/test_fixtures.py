"""The fixtures hold what their READMEs claim, and are what build.py makes of the hand-written files."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from secid.errors import InputError
from secid.read import open_source, resolve_sources
from secid.records import Defect, Record
from secid.settings import Settings

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
COLLECTION = FIXTURES / "collection"
SOURCES = FIXTURES / "sources"
BROKEN = FIXTURES / "broken"
N_NEGATIVES = {"bm25": 5, "dense": 5, "counterfactual": 2, "random": 1, "poisoned": 5}
"""Negatives in one row of each source."""


def rows(path: Path) -> list[dict]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.decode().split("\n") if line]


@pytest.fixture(scope="module")
def passages() -> dict[str, str]:
    return {row["_id"]: f"{row['title']} {row['text']}" for row in rows(COLLECTION / "corpus.jsonl")}


@pytest.fixture(scope="module")
def queries() -> dict[str, str]:
    return {row["_id"]: row["text"] for row in rows(COLLECTION / "queries.jsonl")}


@pytest.fixture(scope="module")
def relevant(queries: dict[str, str], passages: dict[str, str]) -> dict[str, list[str]]:
    """Query text to the texts of its relevant passages."""
    found: dict[str, list[str]] = {}
    header, *lines = (COLLECTION / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "query-id\tcorpus-id\tscore"
    for line in lines:
        query, passage, score = line.split("\t")
        assert score == "1"
        found.setdefault(queries[query], []).append(passages[passage])
    return found


@pytest.fixture(scope="module")
def sources() -> dict[str, list[Record]]:
    """Records of every source, read as a user's run reads them."""
    settings = Settings()
    read = {}
    for source in resolve_sources([str(SOURCES / "*")]):
        items = list(open_source(source, settings))
        assert all(isinstance(item, Record) for item in items), source.name
        read[source.name] = items
    return read


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FIXTURES))
    spec = importlib.util.spec_from_file_location("fixtures_build", FIXTURES / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fixtures_build", module)
    spec.loader.exec_module(module)
    return module


def test_collection_is_large_enough(passages, queries, relevant):
    assert len(queries) >= 60
    assert len(passages) >= 250
    assert sum(len(positives) >= 2 for positives in relevant.values()) >= 15
    assert set(relevant) == set(queries.values())


def test_ids_and_texts_are_distinct(passages, queries):
    corpus = rows(COLLECTION / "corpus.jsonl")
    counterfactuals = [
        passage["text"] for row in rows(SOURCES / "counterfactual.jsonl") for passage in row["negative_passages"]
    ]
    texts = [row["text"] for row in corpus] + counterfactuals
    assert len(passages) == len(corpus) == len({row["title"] for row in corpus})
    assert len(queries) == len(set(queries.values())) == len(rows(COLLECTION / "queries.jsonl"))
    assert len({" ".join(text.lower().split()) for text in texts}) == len(texts)


def test_passages_have_the_length_the_readme_states():
    lengths = {row["_id"]: len(row["text"].split()) for row in rows(COLLECTION / "corpus.jsonl")}
    assert {name: n for name, n in lengths.items() if not 30 <= n <= 90} == {}


def test_every_source_covers_every_query(sources, relevant):
    assert set(sources) == set(N_NEGATIVES)
    for name, records in sources.items():
        per_query = Counter(record.query for record in records)
        assert set(per_query) == set(relevant), name
        assert set(per_query.values()) == {5 if name == "random" else 1}, name
        assert {len(record.negatives) for record in records} == {N_NEGATIVES[name]}, name


def test_positives_of_every_source_are_the_labelled_ones(sources, relevant):
    for name in ("bm25", "counterfactual"):
        assert all(list(record.positives) == relevant[record.query] for record in sources[name]), name
    for name in ("dense", "random", "poisoned"):
        assert all(list(record.positives) == relevant[record.query][:1] for record in sources[name]), name


def test_negatives_are_no_positives_where_they_should_not_be(sources, relevant, passages):
    for name in ("bm25", "dense", "random"):
        for record in sources[name]:
            assert set(record.negatives) <= set(passages.values()) - set(relevant[record.query]), name
            assert len(set(record.negatives)) == len(record.negatives), name
    written = [text for record in sources["counterfactual"] for text in record.negatives]
    assert not set(written) & set(passages.values())


def test_poisoned_holds_what_the_readme_claims(sources, relevant, passages):
    def held(record: Record, copy: str) -> bool:
        return copy in record.negatives

    def others(record: Record) -> list[str]:
        return relevant[record.query][1:]

    records = sources["poisoned"]
    with_others = [record for record in records if others(record)]
    assert len(with_others) == 28
    assert all(held(record, text) for record in with_others for text in others(record))
    assert sum(held(record, passages["bread-01"]) for record in records) == 21
    assert sum(len(set(record.negatives)) < len(record.negatives) for record in records) == 16
    assert sum(held(record, record.positives[0]) for record in records) == 3
    assert sum(held(record, record.positives[0].upper()) for record in records) == 3
    assert sum(held(record, record.positives[0].replace(" ", "  ")) for record in records) == 3


def test_made_files_are_current(build):
    assert build.stale_files() == []
    assert (SOURCES / "bm25.jsonl.gz").read_bytes()[4:8] == b"\0\0\0\0", "gzip carries a time"


def test_a_changed_file_is_noticed(build, tmp_path):
    shutil.copytree(FIXTURES, tmp_path / "fixtures", ignore=shutil.ignore_patterns("__pycache__"))
    random = tmp_path / "fixtures" / "sources" / "random.jsonl"
    random.write_bytes(random.read_bytes().replace(b"the", b"teh", 1))
    (tmp_path / "fixtures" / "broken" / "bom.jsonl").unlink()
    assert build.stale_files(tmp_path / "fixtures") == ["sources/random.jsonl", "broken/bom.jsonl"]


def test_dense_parquet_is_an_n_tuple_table():
    table = pq.read_table(SOURCES / "dense.parquet")
    assert table.column_names == ["query", "positive", *(f"negative_{place}" for place in range(1, 6))]


def test_fixtures_stay_small():
    assert sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file()) < 2_000_000


BROKEN_ROW = re.compile(r"^\| (?P<file>\S+) \| .+ \| (?P<records>\d+|error) \| (?P<skipped>[^|]+) \|$", re.MULTILINE)
BROKEN_ROWS = [
    match.groups()
    for match in BROKEN_ROW.finditer((BROKEN / "README.md").read_text(encoding="utf-8"))
    if match["file"] != "file"
]


def test_the_table_of_broken_files_is_whole():
    listed = [path.name for pattern, _, _ in BROKEN_ROWS for path in BROKEN.glob(pattern)]
    assert sorted([*listed, "README.md"]) == sorted(path.name for path in BROKEN.iterdir())
    assert len(BROKEN_ROWS) >= 28


@pytest.mark.parametrize(("pattern", "records", "skipped"), BROKEN_ROWS, ids=[row[0] for row in BROKEN_ROWS])
def test_broken_files_do_what_their_readme_says(pattern: str, records: str, skipped: str):
    settings = Settings(collection=str(COLLECTION) if pattern.startswith("ids_") else None)
    if records == "error":
        with pytest.raises(InputError):
            _read(pattern, settings)
        return
    items = _read(pattern, settings)
    rows_skipped = Counter(item.reason for item in items if isinstance(item, Defect))
    in_a_record = [pair for item in items if isinstance(item, Record) for pair in item.dropped]
    reported = [f"{reason} {count}" for reason, count in rows_skipped.items()]
    reported += [f"{reason} {count} in a record" for reason, count in in_a_record]
    assert sum(isinstance(item, Record) for item in items) == int(records)
    assert sorted(reported) == sorted(part for part in skipped.split(", ") if part != "–")


def _read(pattern: str, settings: Settings) -> list[Record | Defect]:
    (source,) = resolve_sources([str(BROKEN / pattern)])
    return list(open_source(source, settings))
