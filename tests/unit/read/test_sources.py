"""Test how typed words become sources."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from secid.errors import UsageError
from secid.read import resolve_sources
from secid.read.sources import notes_on_unread_files
from secid.records import Record
from tests.snapshots import Snapshot, situations

from .conftest import read, refused, write_arrow

ROW = {"query": "q", "positive": "p", "negative": "n"}


def names(*specs: str) -> dict[str, list[str]]:
    """Source names with the names of their files."""
    sources = resolve_sources(specs)
    return {source.name: [os.path.basename(path) for path in source.paths] for source in sources}  # noqa: PTH119


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("{}", encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("bm25.jsonl.gz", "bm25"), ("dense.v2.parquet", "dense.v2"), ("a.json.zst", "a"), ("x.tsv", "x"),
        ("noend", "noend"), (".jsonl", ".jsonl"), ("rank_10_20.parquet", "rank_10_20"),
    ],
)  # fmt: skip
def test_a_file_is_named_after_its_stem(file: str, name: str, folder: Path) -> None:
    touch(folder, file)
    assert names(file) == {name: [file]}


def test_globs_are_expanded_and_sorted(folder: Path) -> None:
    touch(folder, "n/b.jsonl", "n/a.jsonl", "n/deep/c.jsonl")
    assert list(names("n/*.jsonl")) == ["a", "b"]
    assert list(names("n/**/*.jsonl")) == ["a", "b", "c"]
    assert list(names("n/[ab].jsonl")) == ["a", "b"]


def test_shards_are_one_source_however_they_come(folder: Path) -> None:
    shards = [f"bm25-{n:05d}-of-00003.parquet" for n in range(3)]
    touch(folder, *shards, "dense.parquet")
    expected = {"bm25": shards, "dense": ["dense.parquet"]}
    assert names("*.parquet") == expected
    assert names(shards[2], "dense.parquet", shards[0], shards[1]) == expected


def test_a_missing_shard_is_an_error_unless_one_is_asked_for_by_name(folder: Path) -> None:
    shards = [f"bm25-{n:05d}-of-00004.parquet" for n in (0, 3)]
    touch(folder, *shards)
    for spec in ("*.parquet", "all=*.parquet", shards[0]):
        with refused("bm25"):
            names(spec)
    assert names(f"one={shards[0]}") == {"one": [shards[0]]}


def test_shards_counted_from_one_are_complete(folder: Path) -> None:
    touch(folder, "x-00001-of-00002.jsonl", "x-00002-of-00002.jsonl")
    assert list(names("*.jsonl")) == ["x"]


def test_a_folder_of_one_stem_is_one_source_of_its_name(folder: Path) -> None:
    touch(
        folder, "bm25/train-00000-of-00002.jsonl", "bm25/train-00001-of-00002.jsonl", "bm25/README.md", "bm25/_SUCCESS"
    )
    touch(folder, "spark/part-00000-3f1c9a2e-aa.jsonl", "spark/part-00001-3f1c9a2e-aa.jsonl")
    touch(folder, "hub/0000.parquet", "hub/0001.parquet", "hub/.hidden.parquet", "one/x.jsonl")
    found = names("bm25", "spark/", "hub", "one")
    assert list(found) == ["bm25", "spark", "hub", "one"]
    assert [len(files) for files in found.values()] == [2, 2, 2, 1]


def test_a_folder_of_different_stems_is_several_sources(folder: Path) -> None:
    touch(folder, "n/bm25.jsonl", "n/dense-00000-of-00001.jsonl", "n/rank_10.jsonl", "n/rank_20.jsonl", "n/notes.md")
    assert list(names("n")) == ["bm25", "dense", "rank_10", "rank_20"]
    assert [len(files) for files in names("all=n").values()] == [4]


def test_side_files_of_a_folder_are_no_data_and_named(folder: Path) -> None:
    shards = ("d/train-00000-of-00002.jsonl", "d/train-00001-of-00002.jsonl")
    touch(folder, *shards, "d/license_qa.jsonl", "alone/a.jsonl")
    touch(folder, "d/dataset_info.json", "d/dataset_infos.json", "d/README.md", "d/LICENSE.txt", "d/.gitattributes")

    assert names("d") == {"license_qa": ["license_qa.jsonl"], "train": [shards[0][2:], shards[1][2:]]}
    assert notes_on_unread_files(["d", "alone", "-", "x=alone"]) == [
        "d: not read: LICENSE.txt, README.md, dataset_info.json, dataset_infos.json"
    ]


def test_names_given_by_the_user(folder: Path) -> None:
    touch(folder, "a.jsonl", "b/x.jsonl", "b/y.jsonl")
    assert names("first=a.jsonl", "second=b/*.jsonl") == {"first": ["a.jsonl"], "second": ["x.jsonl", "y.jsonl"]}
    assert names("-", "a=a.jsonl") == {"stdin": ["-"], "a": ["a.jsonl"]}
    assert names("in=-") == {"in": ["-"]}


@pytest.mark.parametrize("pipes", [("-", "in=-"), ("a=pipe", "b=pipe")])
def test_what_gives_its_bytes_once_is_one_source(pipes: tuple[str, str], folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(UsageError):
        names(*pipes)


def test_an_equals_sign_in_a_path_does_not_make_a_name(folder: Path) -> None:
    touch(folder, "lr=0.1.jsonl", "lr=1/x.jsonl", "y=z/w.jsonl")
    assert names("lr=0.1.jsonl", "lr=1/x.jsonl") == {"lr=0.1": ["lr=0.1.jsonl"], "x": ["x.jsonl"]}
    assert names("n=y=z/w.jsonl") == {"n": ["w.jsonl"]}


@pytest.mark.parametrize("spec", ["=a.jsonl", "a="])
def test_half_a_name_is_wrong_use(spec: str, folder: Path) -> None:
    touch(folder, "a.jsonl")
    with pytest.raises(UsageError):
        names(spec)


def test_a_glob_or_path_that_matches_nothing_names_what_is_near(folder: Path, snapshot: Snapshot) -> None:
    touch(folder, "negatives/bm25.jsonl", "negatives/dense.jsonl", "a.jsonl")
    (folder / "empty").mkdir()
    (folder / "gone.jsonl").symlink_to("nowhere.jsonl")
    specs = ["negatives/*.parquet", "negatives/bm52.jsonl", "nowhere/x.jsonl", "empty/x.jsonl", "empty", "x=empty"]
    errors = {}
    for spec in [*specs, "gone.jsonl"]:
        with refused(spec.removeprefix("x=")) as caught:
            names(spec)
        errors[spec] = str(caught.value)
    for wrong in (
        ["a="],
        ["s=a.jsonl", "s=negatives/bm25.jsonl"],
        ["-", "in=-"],
        ["a.jsonl", "a.jsonl"],
        ["bm25[top10]=a.jsonl"],
        ["x/y=a.jsonl"],
    ):
        with pytest.raises(UsageError) as misused:
            names(*wrong)
        errors[" ".join(wrong)] = str(misused.value)
    snapshot("source-refusals.txt", situations(errors))


def test_a_folder_without_permission_is_an_input_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    (folder / "d").mkdir()
    monkeypatch.setattr(Path, "iterdir", forbid)
    with refused("d"):
        names("d")


def test_two_sources_of_one_name_are_wrong_use(folder: Path) -> None:
    touch(folder, "a/x.jsonl", "b/x.jsonl")
    with pytest.raises(UsageError) as caught:
        names("s=a/x.jsonl", "s=b/x.jsonl")
    remedy = str(caught.value.remedy).split(": ")[1]
    assert list(names("s=a/x.jsonl", remedy)) == ["s", "other"]
    with pytest.raises(UsageError):
        names("a/x.jsonl", "a/x.jsonl")


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        (["a/x.jsonl", "b/x.jsonl", "a/y.jsonl"], ["a/x", "b/x", "y"]),
        (["**/x.jsonl"], ["a/c/x", "a/x", "b/c/x", "b/x", "x"]),
        (["x.jsonl", "a/x.jsonl"], ["x", "a/x"]),
        (["a/c/x.jsonl", "b/c/x.jsonl"], ["a/c/x", "b/c/x"]),
        (["a", "b"], ["a/x", "y", "b/x", "z"]),
        (["a/c", "b/c"], ["a/c", "b/c"]),
        (["d/w.jsonl", "d/w.csv"], ["w.jsonl", "w.csv"]),
        (["x=a/y.jsonl", "b/x.jsonl"], ["x", "b/x"]),
        (["d/s-00000-of-00002.jsonl", "d/s-00001-of-00002.jsonl", "e/s.jsonl"], ["d/s", "e/s"]),
        (["d/t/00000-of-00001.jsonl", "e/t/00000-of-00001.jsonl"], ["d/t", "e/t"]),
    ],
)
def test_files_of_one_name_take_folders_that_tell_them_apart(
    specs: list[str], expected: list[str], folder: Path
) -> None:
    touch(folder, "x.jsonl", "a/x.jsonl", "a/y.jsonl", "b/x.jsonl", "b/z.jsonl", "a/c/x.jsonl", "b/c/x.jsonl")
    touch(folder, "d/w.jsonl", "d/w.csv", "d/s-00000-of-00002.jsonl", "d/s-00001-of-00002.jsonl", "e/s.jsonl")
    touch(folder, "d/t/00000-of-00001.jsonl", "e/t/00000-of-00001.jsonl")
    assert list(names(*specs)) == expected
    with pytest.raises(UsageError):
        names("a/x.jsonl", "a/*.jsonl")


def saved_dataset(folder: Path, n_files: int = 2) -> None:
    """A folder as `datasets.save_to_disk` leaves it."""
    folder.mkdir(parents=True)
    files = [f"data-{n:05d}-of-{n_files:05d}.arrow" for n in range(n_files)]
    for file in files:
        write_arrow(folder / file, [ROW])
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": file} for file in files]}))
    (folder / "dataset_info.json").write_text("{}")


def test_a_saved_dataset_is_one_source(folder: Path) -> None:
    saved_dataset(folder / "mined")
    reader, found = read("mined")
    assert reader.source.name == "mined"
    assert [type(item) for item in found] == [Record, Record]


def test_a_saved_dataset_of_several_splits_asks_which(folder: Path) -> None:
    saved_dataset(folder / "d/train")
    (folder / "d/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert list(names("d")) == ["d"]
    saved_dataset(folder / "d/test")
    with refused("d") as caught:
        names("d")
    assert names(str(caught.value.remedy).split(": ")[1]) == names("d/train")


def test_train_is_the_example_of_a_saved_dataset_of_splits(folder: Path) -> None:
    touch(folder, *(f"d/{split}/{name}" for split in ("test", "train") for name in ("state.json", "dataset_info.json")))
    touch(folder, "d/dataset_dict.json")
    with refused("d") as caught:
        names("d")
    assert str(caught.value.remedy).endswith(" d/train")
    assert notes_on_unread_files(["d/train"]) == []


def test_a_saved_dataset_without_one_of_its_files_is_an_error(folder: Path) -> None:
    saved_dataset(folder / "d")
    (folder / "d/data-00001-of-00002.arrow").unlink()
    with refused("d") as caught:
        names("d")
    assert "data-00001" in caught.value.message


def test_chunked_arrow_tables_are_read_whole(folder: Path) -> None:
    table = pa.Table.from_pylist([{**ROW, "query": f"q {n}"} for n in range(5000)])
    with pa.OSFile("a.arrow", "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1500)
    found = read("a.arrow")[1]
    assert [item.line for item in found] == list(range(1, 5001))
    assert found[-1].query == "q 4999"
