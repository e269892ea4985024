"""A run in shards equals the run of one process, however it is cut. Source: METHOD 11."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secid
from secid.analyses import shared_queries
from secid.analyses.registry import read_run
from secid.errors import BadRecordsError, EncoderError, InputError, SettingsError, UsageError
from secid.results import defects_to_drop
from secid.run_folder.tables import read_states
from secid.tools.shards.store import StateDir
from tests.fake_encoder import HashEncoder
from tests.shard_runs import differences, write_sources
from tests.unlike import HardnessEncoder, write_unlike

EXACT: dict[str, Any] = {"sums": "float64", "max_bad_fraction": 0.2}


def in_shards(
    sources: list[str], folder: Path, n: int, *, prepare: bool = False, only: tuple[int, ...] = (), **settings: Any
) -> Path:
    """Scores all shards, or some."""
    for number in range(n) if prepare else ():
        secid.score_shard(sources, shard=f"{number}/{n}", state_dir=folder, prepare=True, **settings)
    for number in only or range(n):
        secid.score_shard(sources, HashEncoder(), shard=f"{number}/{n}", state_dir=folder, **settings)
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return one source, for what depends on no number of queries and sources."""
    return write_sources(tmp_path_factory.mktemp("few"), n_queries=8)[:1]


@pytest.fixture(scope="module")
def one(sources: list[str], tmp_path_factory: pytest.TempPathFactory) -> secid.Run:
    return secid.score(sources, HashEncoder(), run=tmp_path_factory.mktemp("one") / "run", **EXACT)


@pytest.fixture(scope="module")
def scored_halves(sources: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_shards(sources, tmp_path_factory.mktemp("halves") / "state", 2, **EXACT)


@pytest.fixture(scope="module")
def scored_few(few: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_shards(few, tmp_path_factory.mktemp("few-halves") / "state", 2, **EXACT)


@pytest.fixture(scope="module")
def merged_few(scored_few: Path) -> secid.Run:
    return secid.merge(scored_few, HashEncoder())


@pytest.fixture
def halves(scored_halves: Path, tmp_path: Path) -> Path:
    """The state of two shards, to change."""
    return shutil.copytree(scored_halves, tmp_path / "halves")


@pytest.fixture
def halves_of_few(scored_few: Path, tmp_path: Path) -> Path:
    return shutil.copytree(scored_few, tmp_path / "halves")


def one_done(state: Path) -> Path:
    """Return the state in which only the first of two shards is done."""
    for path in state.glob("*-00001-of-00002*"):
        path.unlink()
    return state


@pytest.fixture
def half(halves: Path) -> Path:
    return one_done(halves)


@pytest.fixture
def half_of_few(halves_of_few: Path) -> Path:
    return one_done(halves_of_few)


@pytest.mark.parametrize("prepared", [True, False])
def test_shards_add_up_to_one_process(
    sources: list[str], one: secid.Run, scored_halves: Path, tmp_path: Path, prepared: bool
) -> None:
    """Once in three prepared shards and a merge of all queries; once in two that are not, and a merge on a sample.

    Under 40 queries the same sources are ranked.
    """
    n, sample = (3, 20_000) if prepared else (2, 40)
    state = in_shards(sources, tmp_path / "state", n, prepare=True, **EXACT) if prepared else scored_halves
    merged = secid.merge(state, HashEncoder(), sample=sample, run=tmp_path / "run")
    assert merged.merged is not None
    assert (merged.merged.n_shards, merged.merged.sampled_queries) == (n, None if prepared else sample)
    assert differences(one, merged) == []
    again = read_run(tmp_path / "run")
    assert replace(again, settings={}) == replace(merged, settings={}, folder=again.folder)
    assert list(read_states(tmp_path / "run", again)) == [source.name for source in merged.sources]


def test_the_sources_show_what_crosses_shards(one: secid.Run) -> None:
    """Else the test above says little."""
    for name in ("hub", "shared_opening", "preamble", "false_negative", "repeat", "empty"):
        assert any(source.finding(name).n_negatives for source in one.sources), name  # type: ignore[union-attr]
    assert all(source.rows.skipped for source in one.sources)


def test_a_formal_defect_counts_in_shards_as_in_one_process(tmp_path: Path) -> None:
    """No shard of 20 queries could establish the excess alone. In `one` a third of the positives have the defect too.

    The scores of the sources of this seed differ. The z of two scores that are almost equal is a difference of rounding
    errors, and has not twelve digits.
    """
    sources = write_sources(tmp_path, 2)
    for path, of_positives in zip(sources[:2], (3, 12), strict=True):
        rows = []
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines()):
            row = json.loads(line) if line.endswith("}") else None
            if row and number % 3:
                row["neg"] = [json.dumps({"passage": text}) if text else text for text in row["neg"]]
            if row and number % of_positives == 0:
                row["pos"] = [json.dumps({"passage": text}) for text in row["pos"]]
            rows.append(line if row is None else json.dumps(row))
        Path(path).write_text("\n".join(rows) + "\n", encoding="utf-8")
    one = secid.score(sources, HashEncoder(), **EXACT)
    merged = secid.merge(in_shards(sources, tmp_path / "state", 3, **EXACT), HashEncoder())
    assert differences(one, merged) == []
    for source in one.sources:
        wrapper = source.finding("wrapper")
        assert wrapper is not None
        if source.name in ("one", "two"):
            assert wrapper.counted_share > 0.01
            assert source.n_flagged >= wrapper.n_negatives > 0
        assert ("wrapper" in defects_to_drop(source.findings)) is (source.name == "two")


def test_more_shards_than_queries(tmp_path: Path) -> None:
    sources = write_sources(tmp_path, n_queries=2)[:1]
    settings = {**EXACT, "max_bad_fraction": 0.5}
    merged = secid.merge(in_shards(sources, tmp_path / "state", 3, **settings), HashEncoder())
    assert differences(secid.score(sources, HashEncoder(), **settings), merged) == []


def test_float32_sums(tmp_path: Path) -> None:
    sources = write_sources(tmp_path / "sources", n_queries=20)[:2]
    settings: Any = {"max_bad_fraction": 0.2}
    merged = secid.merge(in_shards(sources, tmp_path / "state", 2, **settings), HashEncoder())
    one = secid.score(sources, HashEncoder(), **settings)
    # The end of an interval near 0 is the score less as much again, so its error is that of the score.
    assert differences(one, merged, 1e-6, absolute=1e-7) == []
    for own, other in zip(one.sources, merged.sources, strict=True):
        assert own.score.nats == pytest.approx(other.score.nats, rel=1e-7)


UNLIKE = {
    "one has a part of the other": {"bm25": range(60), "dense": range(20), "llm": range(60)},
    "each has its own": {"bm25": range(40), "dense": range(20, 60), "llm": (*range(10), *range(30, 60)),
        "few": range(5)},
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "sample", "most_sets"),
    [("one has a part of the other", 20_000, 64), ("each has its own", 20, 64), ("each has its own", 20_000, 1)],
)
def test_sources_of_different_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, sample: int, most_sets: int
) -> None:
    """Shared queries are those of the whole, and so are the sets that are scored."""
    monkeypatch.setattr(shared_queries, "MAX_RESTRICTED_SCORES", most_sets)
    draw = np.random.default_rng(3)
    hardness = {name: {number: draw.uniform(0.2, 1.5) for number in queries} for name, queries in UNLIKE[case].items()}
    sources = write_unlike(tmp_path / "sources", hardness)
    state = tmp_path / "state"
    for number in range(2):
        secid.score_shard(sources, HardnessEncoder(), shard=f"{number}/2", state_dir=state, **EXACT)
    merged = secid.merge(state, HardnessEncoder(), sample=sample, run=tmp_path / "run")
    one = secid.score(sources, HardnessEncoder(), **EXACT)
    assert differences(one, merged) == []
    assert list(read_states(tmp_path / "run", merged)) == [source.name for source in one.sources]
    if case == "each has its own":
        assert {pair.number for pair in one.comparisons} == ({"score"} if most_sets > 1 else {"trace"})


def split_rows(n_queries: int) -> list[dict[str, Any]]:
    """Two sources in one file: each lists some queries alone, one blank negatives alone, and one row names none."""
    rows: list[dict[str, Any]] = []
    for number in range(n_queries):
        positives = [f"answer {number} {rank} in words" for rank in range(1 + number % 3)]
        row = {"query": f"question {number}", "pos": positives, "neg": [f"passage {number % 4} in words"]}
        rows.append({**row, "src": "a" if number % 3 else "b"})
        if number % 4 == 1:
            rows.append({**row, "src": "b", "neg": ["", " "]})
    return [*rows, {**rows[0], "src": None}]


def test_facts_that_only_one_shard_has(tmp_path: Path) -> None:
    """Shards without a row of a source, with nothing but blanks of it, or with too few passages for a reference.

    Of six shards two have no row of `b`, one has none of `a`, and one has only blanks of `b`.
    """
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join([*map(json.dumps, split_rows(12)), '{"query": "cut']) + "\n")
    settings: dict[str, Any] = {**EXACT, "max_bad_fraction": 1.0, "source_column": "src"}
    state = in_shards([str(path)], tmp_path / "state", 6, **settings)
    one = secid.score([str(path)], HashEncoder(), **settings)
    assert [source.rows.skipped["broken_line"] for source in one.sources] == [1, 1]
    for sample in (20_000, 3):
        assert differences(one, secid.merge(state, HashEncoder(), sample=sample)) == []


def test_a_collection_that_labels_queries_of_one_shard(tmp_path: Path) -> None:
    rows = [{"query": f"question {n}", "pos": [f"answer {n}"], "neg": [f"passage {n}", "answer"]} for n in range(12)]
    path, folder = tmp_path / "texts.jsonl", tmp_path / "collection"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    (folder / "qrels").mkdir(parents=True)
    corpus = {"d": "passage 3", "e": "a text that no row has"}
    lines = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in corpus.items()]
    (folder / "corpus.jsonl").write_text("".join(lines))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "question 3"}) + "\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    settings: dict[str, Any] = {**EXACT, "collection": str(folder)}
    merged = secid.merge(in_shards([str(path)], tmp_path / "state", 3, **settings), HashEncoder())
    assert differences(secid.score([str(path)], HashEncoder(), **settings), merged) == []
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nother\td\t1\n")
    with pytest.raises(UsageError, match="--collection would have no effect"):
        in_shards([str(path)], tmp_path / "unused", 3, **settings)


def test_a_small_source_without_random_passages(tmp_path: Path) -> None:
    """Nine passages are no positive of its one query, and ten none of each other query."""
    answers, passages = ["answer 1", "answer 2"], [f"passage {n}" for n in range(9)]
    rows = {"few": [("few", answers)], "more": [("first", answers[:1]), ("second", answers[1:])]}
    paths = []
    for name, queries in rows.items():
        lines = [json.dumps({"query": query, "pos": positives, "neg": passages}) for query, positives in queries]
        paths.append(str(tmp_path / f"{name}.jsonl"))
        Path(paths[-1]).write_text("\n".join(lines) + "\n")
    run = secid.score(paths, HashEncoder())
    names = {source.name: [finding.name for finding in source.findings] for source in run.sources}
    assert "random_like" in names["more"]
    assert "random_like" not in names["few"]


@pytest.mark.parametrize("array", ["total", "sound", "weight", "is_sound", "findings"])
def test_a_changed_state_is_noticed(merged_few: secid.Run, halves_of_few: Path, tmp_path: Path, array: str) -> None:
    state = StateDir(str(halves_of_few))
    name = "shard-00001-of-00002"
    header, arrays = state.header(name), dict(state.read(name))
    changed = arrays[f"0.{array}"].copy()
    changed.flat[0] = changed.flat[0] * 1.001 if changed.dtype == np.float64 else ~changed.flat[0]
    rows = state.file(name, "rows", tmp_path)
    rows = rows.rename(tmp_path / "kept")
    state.write(name, header, {**arrays, f"0.{array}": changed}, {"rows": rows})
    assert differences(merged_few, secid.merge(halves_of_few, HashEncoder()))


def test_a_merge_is_idempotent_and_shards_are_skipped(few: list[str], halves_of_few: Path) -> None:
    encoder = HashEncoder()
    done = secid.score_shard(few, encoder, shard="0/2", state_dir=halves_of_few, **EXACT)
    assert (done.skipped, encoder.n_encoded) == (True, 0)
    first, second = (secid.merge(halves_of_few, HashEncoder()) for _ in range(2))
    assert replace(first, timing={}) == replace(second, timing={})


class TestRefusals:
    def test_a_shard_is_missing(self, few: list[str], tmp_path: Path) -> None:
        in_shards(few, tmp_path, 3, only=(1,), **EXACT)
        with pytest.raises(UsageError, match=re.escape("shards 0/3, 2/3 of 3 are missing")):
            secid.merge(tmp_path, HashEncoder())

    def test_no_shard(self, tmp_path: Path) -> None:
        (tmp_path / "shard-x.safetensors").touch()
        with pytest.raises(UsageError, match="has no finished shard"):
            secid.merge(tmp_path, HashEncoder())

    def test_two_runs_in_one_folder(self, sources: list[str], half: Path) -> None:
        with pytest.raises(InputError, match="belongs to another run: temperature is the default in it"):
            in_shards(sources, half, 2, only=(1,), temperature=0.1, **EXACT)
        with pytest.raises(InputError, match="belongs to another run: the number of sources is 3 in it, but 2 here"):
            in_shards(sources[:2], half, 2, only=(1,), **EXACT)
        in_shards(sources, half, 3, only=(0,), **EXACT)
        with pytest.raises(InputError, match="has shards of different runs: the numbers of parts are 2 and 3"):
            secid.merge(half, HashEncoder())

    @pytest.mark.parametrize(
        ("encoder", "said"),
        [(HashEncoder(8), "belongs to another run: encoder is hash-8 in it, but hash-16 in shard-00000-of-00002"),
         (HashEncoder(), "dtype is bf16 in it, but float32 in shard-00000-of-00002")],
    )  # fmt: skip
    def test_another_encoder_or_number_format(self, few: list[str], half_of_few: Path, encoder: Any, said: str) -> None:
        if encoder.dimension == 16:
            encoder.info = replace(encoder.info, dtype="bf16", fingerprint="other")
        secid.score_shard(few, encoder, shard="1/2", state_dir=half_of_few, **EXACT)
        with pytest.raises(InputError, match=said):
            secid.merge(half_of_few, HashEncoder())

    def test_a_file_changed_between_shards(self, tmp_path: Path) -> None:
        sources = write_sources(tmp_path / "sources", n_queries=8)[:1]
        in_shards(sources, tmp_path / "state", 2, only=(0,), **EXACT)
        with Path(sources[0]).open("a") as file:
            file.write(json.dumps({"query": "one more", "pos": ["p"], "neg": ["n"]}) + "\n")
        with pytest.raises(InputError, match="has changed between counts-00000-of-00001 and shard-00001-of-00002"):
            in_shards(sources, tmp_path / "state", 2, only=(1,), **EXACT)

    def test_a_file_changed_after_the_shards(self, tmp_path: Path) -> None:
        sources = write_sources(tmp_path / "sources", n_queries=8)[:1]
        in_shards(sources, tmp_path / "state", 2, **EXACT)
        with Path(sources[0]).open("a") as file:
            file.write(json.dumps({"query": "one more", "pos": ["p"], "neg": ["n"]}) + "\n")
        with pytest.raises(InputError, match="has changed between shard-00000-of-00002 and merge"):
            secid.merge(tmp_path / "state", HashEncoder())

    def test_a_copy_of_another_state(self, halves: Path) -> None:
        for suffix in ("safetensors", "rows"):
            shutil.copy(halves / f"shard-00000-of-00002.{suffix}", halves / f"shard-00001-of-00002.{suffix}")
        with pytest.raises(InputError, match="it is a copy of shard-00000-of-00002"):
            secid.merge(halves, HashEncoder())

    def test_another_encoder_at_the_merge(self, scored_halves: Path) -> None:
        with pytest.raises(InputError, match="was scored with another encoder"):
            secid.merge(scored_halves, HashEncoder(8))

    def test_some_counts_are_missing(self, few: list[str], tmp_path: Path) -> None:
        secid.score_shard(few, shard="0/2", state_dir=tmp_path, prepare=True, **EXACT)
        with pytest.raises(UsageError, match="the counts of shard 1/2 are missing"):
            in_shards(few, tmp_path, 2, **EXACT)

    def test_too_many_bad_rows_are_refused_by_the_merge(self, few: list[str], tmp_path: Path) -> None:
        settings = {**EXACT, "max_bad_fraction": 0.001}
        state = in_shards(few, tmp_path, 2, **settings)
        with pytest.raises(BadRecordsError, match="1 of "):
            secid.merge(state, HashEncoder())

    @pytest.mark.parametrize(
        "settings",
        [{"first_k": 2}, {"max_records": 9}, {"until_ranked": 0.95}, {"positives": "all"}, {"budget": 10.0},
         {"idf": "own"}, {"tokenizer": "wordpieces"}, {"guide": "minilm"}],
    )  # fmt: skip
    def test_settings_that_shards_cannot_follow(self, sources: list[str], tmp_path: Path, settings: Any) -> None:
        with pytest.raises(UsageError, match=next(iter(settings)).replace("_", ".")):
            in_shards(sources, tmp_path, 2, **settings)
        assert not list(tmp_path.iterdir())

    def test_what_can_be_read_only_once(self, sources: list[str], tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.jsonl")
        given: Any = {"shard": "0/2", "state_dir": tmp_path / "state", **EXACT}
        for source in ("-", f"one={tmp_path}/pipe.jsonl", [{"query": "q", "pos": ["p"], "neg": ["n"]}]):
            with pytest.raises(UsageError, match="a shard reads all rows"):
                secid.score_shard([*sources, source], HashEncoder(), **given)  # type: ignore[list-item]

    def test_an_encoder_that_does_not_load_is_an_error_before_texts_are_counted(
        self, sources: list[str], tmp_path: Path
    ) -> None:
        with pytest.raises(EncoderError):
            secid.score_shard(sources, str(tmp_path / "none"), shard="0/2", state_dir=tmp_path / "state", **EXACT)
        assert not (tmp_path / "state").exists()

    def test_a_folder_that_holds_another_file(self, few: list[str], tmp_path: Path) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        shutil.copy(few[0], folder)
        in_shards([str(folder)], tmp_path / "state", 2, **EXACT)
        shutil.copy(few[0], folder / "two.jsonl")
        with pytest.raises(InputError, match=r"was read by [^ ]+ but not by [^ ]+") as caught:
            secid.merge(tmp_path / "state", HashEncoder())
        assert str(caught.value.where).endswith("two.jsonl")

    @pytest.mark.parametrize("text", ["2/2", "-1/2", "1", "a/b", "0/0"])
    def test_what_names_no_part(self, sources: list[str], tmp_path: Path, text: str) -> None:
        with pytest.raises(UsageError, match="expected I/N"):
            secid.score_shard(sources, HashEncoder(), shard=text, state_dir=tmp_path)

    def test_a_setting_of_the_shards_at_the_merge(self, scored_halves: Path) -> None:
        with pytest.raises((UsageError, SettingsError), match="its value comes from the shards"):
            secid.merge(scored_halves, HashEncoder(), temperature=0.1)


class TestRunFolders:
    def test_copies_of_all_shards_are_the_copy_of_the_run(
        self, sources: list[str], one: secid.Run, tmp_path: Path
    ) -> None:
        drop = "false_negative,preamble,shared_opening,hub,repeat"
        whole = secid.select(one.folder, tmp_path / "one.jsonl", source="one", drop=drop)
        rows = []
        for number in range(2):
            folder = tmp_path / f"shard{number}"
            of_shard = {"shard": f"{number}/2", "state_dir": tmp_path / "state", "run": folder, **EXACT}
            secid.score_shard(sources, HashEncoder(), **of_shard)
            out = tmp_path / f"part{number}.jsonl"
            secid.select(folder, out, source="one", drop=drop)
            rows += out.read_text().splitlines()
        assert sum(whole.left_out.values()) > 40
        assert sorted(rows) == sorted((tmp_path / "one.jsonl").read_text().splitlines())

    def test_copies_of_a_merged_run_with_all_rows_are_those_of_the_run(
        self, one: secid.Run, scored_halves: Path, tmp_path: Path
    ) -> None:
        secid.merge(scored_halves, HashEncoder(), run=tmp_path / "merged")
        for name, run in (("one", one.folder), ("merged", tmp_path / "merged")):
            secid.select(run, tmp_path / f"{name}.jsonl", source="one", drop="hub")
            secid.write_mixture(run, {"one": 0.5, "two": 0.5}, tmp_path / f"{name}-mix.jsonl")
        assert (tmp_path / "merged.jsonl").read_text() == (tmp_path / "one.jsonl").read_text()
        assert (tmp_path / "merged-mix.jsonl").read_text() == (tmp_path / "one-mix.jsonl").read_text()

    def test_a_run_folder_that_is_asked_for_later_is_written(
        self, sources: list[str], halves: Path, tmp_path: Path
    ) -> None:
        given: Any = {"shard": "0/2", "state_dir": halves, "run": tmp_path / "run", **EXACT}
        assert not secid.score_shard(sources, HashEncoder(), **given).skipped
        assert (tmp_path / "run" / "report.json").exists()
        assert secid.score_shard(sources, HashEncoder(), **given).skipped

    def test_a_merge_of_a_sample_holds_no_rows(self, scored_halves: Path, tmp_path: Path) -> None:
        merged = secid.merge(scored_halves, HashEncoder(), sample=5, run=tmp_path / "run")
        assert {path.name for path in (tmp_path / "run").iterdir()} >= {"report.html", "report.json", "state"}
        assert "cover a sample of 5 queries of each source" in (tmp_path / "run" / "report.md").read_text()
        with pytest.raises(UsageError, match="so its folder has no rows"):
            secid.select(tmp_path / "run", tmp_path / "copy.jsonl", source="one", drop="repeat")
        with pytest.raises(UsageError, match="a baseline needs the rows"):
            secid.baseline(tmp_path / "run", tmp_path / "baseline.json")
        assert (
            secid.mix(tmp_path / "run", {source.name: 1 / len(merged.sources) for source in merged.sources}).nats > 0.0
        )

    def test_a_shard_of_the_environment_changes_no_other_command(
        self, sources: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECID_SHARD", "0/2")
        for command in (secid.check, lambda given: secid.score(given, HashEncoder())):
            with pytest.raises(UsageError, match="needs a folder for states"):
                command(sources)
