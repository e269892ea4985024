"""Data sets of the hub by address, against a server on loopback that speaks its API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants, file_download

from secid import api
from secid.cli.app import main
from secid.errors import InputError, SecidError, UsageError
from secid.read import hub as hub_module
from secid.read import on_disk, open_source, resolve_sources
from secid.read.collection import BEIR_FOLDER, CollectionFiles, collection_files, open_collection, with_commits
from secid.read.evaluation import of_split, read_evaluation, relevant_pairs
from secid.read.sources import notes_on_unread_files
from secid.settings import Settings
from tests.hub_server import CONVERTED, Hub, commit_of, running
from tests.snapshots import Snapshot, situations

ROOT = Path(__file__).resolve().parents[3]
SOURCES, BEIR = ROOT / "fixtures" / "sources", ROOT / "fixtures" / "collection"
ROW = '{"query": "q", "positive": "p", "negative": "n"}\n'


def card(**configs: dict[str, str]) -> str:
    """A README that lists data files by config and split."""
    entries = [
        {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in files.items()]}
        for name, files in configs.items()
    ]
    return f"---\n{json.dumps({'configs': entries})}\n---\n# A data set\n"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that this process asks, with an empty cache."""
    with running() as server:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        for module, name, value in (
            (constants, "ENDPOINT", server.url),
            (constants, "HUGGINGFACE_CO_URL_TEMPLATE", template),
            (file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template),
            (constants, "HF_HUB_CACHE", str(tmp_path / "hub")),
            (constants, "HF_TOKEN_PATH", str(tmp_path / "token")),
            (constants, "HF_HUB_OFFLINE", False),
        ):
            monkeypatch.setattr(module, name, value, raising=False)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(tmp_path)
        forget()
        yield server
        forget()


def forget() -> None:
    """Clear what a new process would not know."""
    for cached in (hub_module.fetch_files, hub_module.collection, hub_module._repository):
        cached.cache_clear()


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    forget()


def names(*specs: str) -> dict[str, list[str]]:
    """Sources and their paths after the commit."""
    found = resolve_sources(specs)
    return {source.name: [path.split("@")[1][41:] for path in source.paths] for source in found}


def test_a_source_by_address_reads_as_its_files_do(hub: Hub) -> None:
    files: dict[str, bytes | str] = {path.name: path.read_bytes() for path in SOURCES.iterdir()}
    commit = hub.add("o/negatives", files)
    addresses = [f"hf://datasets/o/negatives/{name}" for name in sorted(files)]
    at_home = resolve_sources([str(SOURCES)])
    for specs in (["hf://datasets/o/negatives"], addresses, ["hf://datasets/o/negatives@main/*"]):
        sources = resolve_sources(specs)
        paths = [path for source in sources for path in source.paths]
        assert paths == [f"hf://datasets/o/negatives@{commit}/{name}" for name in sorted(files)]
        for source, other in zip(sources, at_home, strict=True):
            assert source.name == other.name
            reader, other_reader = (open_source(each, Settings()) for each in (source, other))
            assert [row[:3] for row in reader] == [row[:3] for row in other_reader]
            assert reader.n_bytes == other_reader.n_bytes
            assert [file.sha256 for file in reader.content()] == [file.sha256 for file in other_reader.content()]


def test_names_of_sources(hub: Hub) -> None:
    shards = {f"bm25/train-0000{n}-of-00002.jsonl": ROW for n in range(2)}
    hub.add("o/one", {"data/train-00000-of-00001.jsonl": ROW, "README.md": "# x", "../a.jsonl": ROW, "run.py": ""})
    hub.add("p/one", {"data/train-00000-of-00001.jsonl": ROW})
    hub.add("o/many", {**shards, "dense/train-00000-of-00001.jsonl": ROW, "x/a.jsonl": ROW, "x/b.jsonl.gz": ROW})
    hub.add("o/cards", {"README.md": card(default={"train": "a/t*", "dev": "a/d*"}), "a/t.jsonl": ROW, "a/d.jsonl": ""})

    train = "data/train-00000-of-00001.jsonl"
    assert names("hf://datasets/o/one") == {"one": [train]}
    assert names("hf://datasets/o/one/data/") == {"data": [train]}
    assert names(f"hf://datasets/o/one/{train}") == {"train": [train]}
    assert names("mine=hf://datasets/o/one", "hf://datasets/o/one") == {"mine": [train], "one": [train]}
    assert list(names("hf://datasets/o/one", "hf://datasets/p/one")) == ["o/one", "p/one"]
    assert names("hf://datasets/o/many") == {
        "bm25": sorted(shards),
        "dense": ["dense/train-00000-of-00001.jsonl"],
        "a": ["x/a.jsonl"],
        "b": ["x/b.jsonl.gz"],
    }
    assert list(names("hf://datasets/o/many/*/train*")) == ["bm25/train", "dense/train"]
    assert list(names("hf://datasets/o/many/**/?.jsonl")) == ["a"]
    assert names("o/cards:default:train") == {"cards": ["a/t.jsonl"]}


def test_a_split_by_name(hub: Hub) -> None:
    files = {"b/train-0.jsonl": ROW, "b/test-0.jsonl": ROW, "d/train-0.jsonl": ROW, "d/more.jsonl": ROW}
    readme = card(bm25={"train": "b/train-*", "test": "./b/test-*"}, dense={"train": ["d/train-*", "d/m*"]})  # type: ignore[dict-item]
    hub.add("o/two", {"README.md": readme, **files})
    hub.add("o/two", {"README.md": readme, "b/train-1.jsonl": ROW}, "v1")
    assert names("o/two:bm25:train", "x=o/two:bm25:test") == {"bm25": ["b/train-0.jsonl"], "x": ["b/test-0.jsonl"]}
    assert names("o/two:dense:train") == {"dense": ["d/more.jsonl", "d/train-0.jsonl"]}
    assert names("o/two@v1:bm25:train") == {"bm25": ["b/train-1.jsonl"]}


def test_mining_takes_queries_and_positives_of_an_address(hub: Hub) -> None:
    hub.add("o/one", {"a.jsonl": "".join(ROW.replace('q"', f'q {n}"').replace('p"', f'p {n}"') for n in range(4))})
    assert (
        main(["mine", "any=random", "-k", "2", "--pairs", "hf://datasets/o/one/a.jsonl", "-o", "mined", "--quiet"]) == 0
    )
    assert len(Path("mined/any.jsonl").read_text(encoding="utf-8").splitlines()) == 4


def test_a_listing_that_leads_out_of_the_cache_is_passed_over(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text(ROW, encoding="utf-8")
    hub.add("o/out", dict.fromkeys((f"{tmp_path}/secret.jsonl", "../a.jsonl", "b/../../c.jsonl", "d.jsonl"), ROW))
    assert names("hf://datasets/o/out") == {"out": ["d.jsonl"]}


def test_a_readme_of_any_number_of_patterns_is_refused(hub: Hub) -> None:
    many = ",".join(["*x"] * 1000)
    card = f"---\np: &x 'a*'\nd: &d {{split: a, path: [{many}]}}\n"
    card += (
        f"c: &c {{config_name: a, data_files: [{many.replace('x', 'd')}]}}\nconfigs: [{many.replace('x', 'c')}]\n---\n"
    )
    hub.add("o/bomb", {"README.md": card, "a.jsonl": ROW})
    with pytest.raises(InputError, match="does not list configs"):
        names("o/bomb:a:a")


LAUGHS = "\n".join(
    ["x0: &x0 [y,y,y,y,y,y,y,y,y]", *(f"x{n}: &x{n} [{','.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12))]
)
"""A list of 9^12 words in a few hundred bytes."""


@pytest.mark.parametrize(
    "header",
    [
        f"{LAUGHS}\nconfigs: [{{config_name: *x11, data_files: '*.jsonl'}}]",
        f"{LAUGHS}\nconfigs: [{{config_name: a, data_files: [{{split: *x11, path: '*.jsonl'}}]}}]",
        f"{LAUGHS}\nconfigs: [{{config_name: a, data_files: *x11}}]",
        f"{LAUGHS}\nconfigs: *x11",
        "configs: &c [*c]",
        "configs: &c {config_name: a, data_files: [*c]}",
        f"configs: {'[' * 1_000}",
        f"configs: {'9' * 10_000}",
        "configs: !!python/object/apply:os.system ['touch code-ran']",
    ],
)
def test_bombs_in_a_readme_are_refused(hub: Hub, header: str) -> None:
    hub.add("o/bomb", {"README.md": f"---\n{header}\n---\n", "a.jsonl": ROW})
    with pytest.raises(InputError, match="does not list configs"):
        names("o/bomb:a:train")
    assert not Path("code-ran").exists()


def test_without_files_of_its_own_the_conversion_is_read(hub: Hub) -> None:
    hub.add("o/script", {"script.py": "pass", "README.md": "# x"})
    hub.add("o/script", {"default/train/0000.parquet": "", "default/train/0001.parquet": ""}, CONVERTED)
    both = [f"default/train/000{n}.parquet" for n in range(2)]
    for word in ("hf://datasets/o/script", "o/script:default:train", "hf://datasets/o/script@~parquet"):
        assert names(word) == {"script": both}
    notes = notes_on_unread_files(["hf://datasets/o/script", "x=o/script:default:train"])
    assert [line.split(": ")[0] for line in notes] == [
        "hf://datasets/o/script",
        "o/script:default:train",
    ]
    assert notes_on_unread_files(["hf://datasets/o/script@~parquet"]) == []


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("data/*.parquet", "data/a.parquet", True),
        ("data/*.parquet", "data/b/a.parquet", False),
        ("**/*.parquet", "a.parquet", True),
        ("**/*.parquet", "data/b/a.parquet", True),
        ("data/**", "data/b/a.parquet", True),
        ("data/**/a.parquet", "data/a.parquet", True),
        ("data/**/a.parquet", "other/a.parquet", False),
        ("./t?ain-[0-9]*", "train-0", True),
        ("t?ain-[0-9]*", "train-x", False),
        ("data", "data/a.parquet", False),
        ("**/" * 30 + "a", "x/" * 40 + "b", False),  # would take hours by backtracking
        ("**/x/" * 20 + "*a*a*a*a*a*a*a*b", "x/" * 40 + "a" * 60, False),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    assert hub_module._matches(path, pattern) is expected


def test_only_addresses_ask_the_hub(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/one", {"a.jsonl": ROW})
    for word in ("o/one", "o/one/a.jsonl", "o/one:default", "o/one@main"):
        with pytest.raises(InputError, match="no such file or directory"):
            resolve_sources([word])
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "one:a:b").write_text(ROW, encoding="utf-8")
    assert resolve_sources(["o/one:a:b"])[0].paths == ("o/one:a:b",)
    assert not hub.asked


def test_the_commit_is_kept_and_read_again_without_the_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.add("o/one", {"a.jsonl": ROW, "b.jsonl": ROW})
    (source,) = resolve_sources(["hf://datasets/o/one/a.jsonl"])
    assert source.paths == (f"hf://datasets/o/one@{commit}/a.jsonl",)
    # A later push is another commit: what was resolved stays, in this process and by its path.
    hub.data["o/one", "main"] = hub.data["o/one", commit_of("o/one", "main")] = {"a.jsonl": b"other"}
    assert resolve_sources(["hf://datasets/o/one/a.jsonl"]) == (source,)
    offline(monkeypatch)
    hub.asked.clear()
    assert resolve_sources(["hf://datasets/o/one/a.jsonl"]) == (source,)
    assert resolve_sources(source.paths)[0].paths == source.paths
    assert Path(on_disk(source.paths[0])).read_text(encoding="utf-8") == ROW
    assert not hub.asked
    with pytest.raises(InputError, match="HF_HUB_OFFLINE"):  # the cache has only what was asked for, and says so
        resolve_sources(["hf://datasets/o/one/*.jsonl"])


def parquet(path: Path) -> bytes:
    """A file of JSON lines, or of judgements by tab, as Parquet."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".tsv":
        header, *cells = (line.split("\t") for line in lines)
        rows: list[Any] = [dict(zip(header, row, strict=True)) for row in cells]
    else:
        rows = [json.loads(line) for line in lines]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


def content(files: CollectionFiles) -> tuple[Any, ...]:
    """Texts of the passages, those of the queries judged, and the judgements of the test split."""
    collection = open_collection(Settings(corpus=files.corpus[0], queries=files.queries[0]))
    (qrels,) = of_split(files.qrels, "test")
    pairs = sorted(relevant_pairs(qrels))
    assert all(collection.passage(passage) for _, passage in pairs)
    return list(collection.passages()), {query: collection.query(query) for query, _ in pairs}, pairs


def layouts() -> dict[str, tuple[str, dict[str, bytes | str]]]:
    """The collection of the fixtures as repositories keep one: the revision and its files by name."""
    lines = {name: (BEIR / name).read_bytes() for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")}
    corpus, queries, qrels = (parquet(BEIR / name) for name in lines)
    shard = "test-00000-of-00001.parquet"
    listed = card(corpus={"corpus": "x/c-*"}, queries={"queries": "x/q-*"}, default={"train": "x/a*", "test": "x/t*"})
    return {
        "lines": ("main", {**lines, "README.md": "# x"}),
        "inner": ("main", {f"beir/{name}": data for name, data in lines.items()}),
        "folders": ("main", {f"corpus/{shard}": corpus, f"queries/{shard}": queries, f"qrels/{shard}": qrels}),
        "configs": ("main", {"README.md": listed, "x/c-0.parquet": corpus, "x/q-0.parquet": queries,
            f"x/{shard}": qrels}),
        "converted": (CONVERTED, {"corpus/corpus/0000.parquet": corpus, "queries/queries/0000.parquet": queries,
            "default/test/0000.parquet": qrels}),
    }  # fmt: skip


def test_a_collection_in_every_layout_is_the_folder(hub: Hub) -> None:
    expected = content(collection_files(str(BEIR), BEIR_FOLDER))
    for name, (revision, files) in layouts().items():
        hub.add(f"m/{name}", {"script.py": ""})
        commit = hub.add(f"m/{name}", files, revision)
        word = f"hf://datasets/m/{name}" + ("/beir" if name == "inner" else "")
        found = collection_files(word, BEIR_FOLDER)
        assert content(found) == expected, name
        assert found.where == word.replace(name, f"{name}@{commit}", 1)
        assert bool(found.note) == (name == "converted")
        assert with_commits(Settings(collection=word)).collection == found.where
        assert content(collection_files(found.where, BEIR_FOLDER)) == expected  # as a report names it


def test_single_files_of_a_collection(hub: Hub) -> None:
    _, files = layouts()["configs"]
    commit = hub.add("m/configs", files)
    given = Settings(corpus="m/configs:corpus:corpus", queries="hf://datasets/m/configs/x/q-*")
    folder = open_collection(Settings(collection=str(BEIR)))
    assert list(open_collection(given).passages()) == list(folder.passages())
    read = with_commits(given)
    assert (read.corpus, read.queries) == (
        f"m/configs@{commit}:corpus:corpus",
        f"hf://datasets/m/configs@{commit}/x/q-*",
    )
    assert list(open_collection(read).passages()) == list(folder.passages())


def test_rows_of_ids_whose_texts_are_in_other_configs(hub: Hub) -> None:
    lines = {
        "q.jsonl": [{"query_id": n, "query": f"question {n}"} for n in range(9)],
        "d.jsonl": [{"document_id": n, "document": f"a document with number {n}"} for n in range(27)],
        "s.jsonl": [
            {"query_id": n, "document_ids": [3 * n, 3 * n + 1, 3 * n + 2], "scores": [0.9, 0.3, 0.1]} for n in range(9)
        ],
    }
    listed = card(queries={"train": "q*"}, documents={"train": "d*"}, scores={"train": "s*"})
    texts = {name: "".join(json.dumps(row) + "\n" for row in rows) for name, rows in lines.items()}
    hub.add("o/ids", {"README.md": listed, **texts})
    report = api.check(
        ["o/ids:scores:train"], collection="hf://datasets/o/ids", query_column="query_id",
        positive_column="document_ids", label_column="scores", positive_score=0.5,
    )  # fmt: skip
    assert [(source.name, source.rows.n_read) for source in report.sources] == [("scores", 9)]
    assert report.texts["scores"].n_negatives == 18


def test_an_evaluation_set_by_the_name_of_a_task(hub: Hub) -> None:
    lines = dict(layouts()["lines"][1])
    commit = hub.add("mteb/scifact", lines)
    at_home, named = (read_evaluation(word, titles=True) for word in (str(BEIR), "mteb:SciFact"))
    assert (named.queries, named.passages) == (at_home.queries, at_home.passages)
    assert named.folder == f"hf://datasets/mteb/scifact@{commit}"
    report = api.check([str(SOURCES / "poisoned.jsonl")], against_eval="mteb:SciFact")
    assert report.evaluation is not None
    assert report.evaluation.folder == named.folder
    # MS MARCO is evaluated on dev, although it has a test split.
    lines["qrels/dev.tsv"] = "".join(str(BEIR.joinpath("qrels/test.tsv").read_text()).splitlines(True)[:2])
    hub.add("mteb/msmarco", lines)
    assert len(read_evaluation("mteb:MSMARCO", titles=True).queries) == 1


def situation(hub: Hub, call: Callable[[], object]) -> str:
    """Return the error, which must not show a token."""
    with pytest.raises(SecidError) as caught:
        call()
    assert isinstance(caught.value, InputError | UsageError)
    texts = [str(caught.value), str(caught.value.__cause__)]
    assert not any(secret in text for text in texts for secret in (hub.token, "hf_wrong"))
    forget()
    return str(caught.value).replace(hub.url, "URL")


def test_what_the_hub_refuses(hub: Hub, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.add("o/one", {"a.jsonl": ROW, "x.txt.bz2": "", "README.md": "# x"})
    for name in ("o/private", "o/gated", "o/cut"):
        hub.add(name, {"a.jsonl": ROW * 100})
    hub.private.add("o/private")
    hub.gated.add("o/gated")
    hub.add("o/code", {"a.py": ""})
    hub.add("o/two", {"README.md": card(b={"train": "b/*"}, d={"train": "d/*"}), "b/x.jsonl": ROW, "d/x.jsonl": ROW})
    ids = card(queries={"train": "q*"}, documents={"train": "d*"}, scores={"train": "s*"})
    hub.add("o/ids", {"README.md": ids, "q.jsonl": ROW, "d.jsonl": ROW, "s.jsonl": ROW})
    hub.add("o/card", {"README.md": "---\nconfigs: [7]\n---\n", "a.jsonl": ROW})
    hub.add("o/texts", {"a.jsonl": '{"name": "a", "price": 3}\n' * 9})
    hub.add(
        "BeIR/scifact", {"corpus.jsonl": '{"_id": "1", "text": "x"}\n', "queries.jsonl": '{"_id": "1", "text": "x"}\n'}
    )

    def read(word: str) -> Callable[[], object]:
        return lambda: api.check([word])

    texts = {
        word: situation(hub, read(word))
        for word in (
            "hf://datasets/o/none", "hf://datasets/o/private", "hf://datasets/o/gated", "hf://datasets/o/one@v9",
            "hf://datasets/o/one/b.jsonl", "hf://datasets/o/one/**/*.csv", "hf://datasets/o/code", "hf://datasets/o/two",
            "hf://datasets/o/ids", "o/two:b:test", "o/one:b:train", "hf://datasets/o/card", "hf://datasets/o/texts",
            "hf://o/one", "hf://datasets/one", "hf://datasets/o/--x",
        )
    }  # fmt: skip
    for name, call in {
        "--collection hf://datasets/o/one": lambda: open_collection(Settings(collection="hf://datasets/o/one")),
        "--against-eval hf://datasets/BeIR/scifact": lambda: read_evaluation("hf://datasets/BeIR/scifact", titles=True),
        "--against-eval mteb:scifat": lambda: read_evaluation("mteb:scifat", titles=True),
    }.items():
        texts[name] = situation(hub, call)
    hub.cut = 99
    texts["the transfer is cut"] = situation(hub, read("hf://datasets/o/cut"))
    hub.cut = 0
    for hub.status in (401, 403, 429, 500):
        texts[f"HTTP {hub.status}"] = situation(hub, read("hf://datasets/o/one"))
    hub.status = 0
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    texts["a private one, with another token"] = situation(hub, read("hf://datasets/o/private"))
    offline(monkeypatch)
    texts["offline, not in the cache"] = situation(hub, read("hf://datasets/o/other"))
    snapshot("hub-refusals.txt", situations(texts))


def test_a_transfer_that_is_cut_once_continues_without_a_warning_that_shows_its_url(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(file_download.logger, "handle", lambda record: lines.append(record.getMessage()))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.add("o/one", {"a.jsonl": ROW * 100})
    hub.cut = 1
    (source,) = resolve_sources(["hf://datasets/o/one"])
    assert Path(on_disk(source.paths[0])).read_text(encoding="utf-8") == ROW * 100
    assert hub.cut == 0
    assert lines == []


def test_the_command_follows_the_environment_of_the_hubs_client(tmp_path: Path) -> None:
    with running() as hub:
        hub.add("o/private", {"a.jsonl": ROW * 9})
        hub.private.add("o/private")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SECID_", "HF_"))}
        own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": hub.token}
        done = subprocess.run(
            [sys.executable, "-m", "secid", "check", "hf://datasets/o/private", "--json"],
            env={**kept, **own, "PYTHONPATH": str(ROOT)}, capture_output=True, encoding="utf-8", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert hub.token not in done.stdout + done.stderr
        assert "Fetching" not in done.stderr  # no bar outside a terminal
