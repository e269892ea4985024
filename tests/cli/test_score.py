"""`secid score`: what it takes, prints and writes."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import secid
from secid.cli.score import default_run
from secid.errors import RunNotWrittenError
from secid.run_folder.write import PARTIAL_PREFIX
from tests.cli.conftest import FIXTURES, FixtureRun, listing, rows, write_rows

SOURCES = {"bm25", "counterfactual", "dense", "poisoned", "random"}


def test_the_table_shows_every_source_in_rank_order(fixture_run: FixtureRun):
    code, out, _ = fixture_run.outcome
    assert code == 0
    report = json.loads((fixture_run.folder / "report.json").read_text(encoding="utf-8"))
    names = [source["name"] for source in report["sources"]]
    scores = [source["score"]["nats"] for source in report["sources"]]
    ranks = [source["score"]["rank"] for source in report["sources"]]
    n_ranked = sum(rank is not None for rank in ranks)
    assert set(names) == SOURCES
    assert ranks == [*range(1, n_ranked + 1), *[None] * (len(names) - n_ranked)]
    assert scores[:n_ranked] == sorted(scores[:n_ranked], reverse=True)
    table = out[out.index("score ± CI") :].splitlines()[1:]
    lines = [line for line in table if "±" in line and not line.startswith("  repaired ")]
    for name, score, line in zip(names, scores, lines, strict=False):
        assert line.split()[0] == name
        assert f" {score:.3f} ±" in line


def test_stdout_is_the_result_and_stderr_the_rest(fixture_run: FixtureRun):
    _, out, err = fixture_run.outcome
    assert "\x1b" not in out + err
    assert "score ± CI" in out
    assert "score ± CI" not in err
    for note in (
        "bm25.jsonl.gz: flagembedding (query=query, positive=pos, negatives=neg)",
        "mean pooling",
        "run folder:",
    ):
        assert note in err
        assert note not in out


def test_lines_fit_a_pipe(fixture_run: FixtureRun):
    assert max(map(len, fixture_run.outcome.out.splitlines()[:10])) <= 100


def test_the_run_folder_is_whole(fixture_run: FixtureRun):
    folder = fixture_run.folder
    pages = {"report.html", "report.json", "report.md"}
    assert {name for name in listing(folder) if name.startswith("report")} == pages
    assert {*pages, "negatives.parquet", "state", "log.txt"} <= set(listing(folder))
    assert [name for name in listing(folder.parent) if name.startswith(".partial")] == []
    run = secid.read_run(folder)
    table = pq.read_table(folder / "negatives.parquet")
    assert table.num_rows == sum(source.n_triplets for source in run.sources)
    assert set(table["source"].to_pylist()) == SOURCES
    index = json.loads((folder / "state" / "index.json").read_text(encoding="utf-8"))
    assert {entry["source"] for entry in index} == SOURCES
    assert all((folder / "state" / entry["file"]).is_file() for entry in index)
    assert "stage measure" in (folder / "log.txt").read_text(encoding="utf-8")


def test_pages_asked_for_equal_those_of_the_run_folder(fixture_run: FixtureRun):
    for page, own in (("page.md", "report.md"), ("page.json", "report.json")):
        assert (fixture_run.pages / page).read_bytes() == (fixture_run.folder / own).read_bytes()


def test_rows_read_are_used_or_skipped(fixture_run: FixtureRun):
    for source in secid.read_run(fixture_run.folder).sources:
        assert source.rows.n_read == source.rows.n_used + sum(source.rows.skipped.values())


def test_the_command_and_the_api_give_the_same_json(tiny, source, invoke):
    sources = (source, f"again={source}")
    secid.score(sources, encoder=str(tiny), first_k=1)  # both find every text in the cache
    outcome = invoke("score", *sources, "--encoder", tiny, "--set", "first_k=1", "--json", "--run", "run")
    run = secid.score(sources, encoder=str(tiny), first_k=1)
    assert outcome.code == 0
    found, expected = json.loads(outcome.out), json.loads(secid.to_json(run))
    assert found["timing"].keys() == {*expected["timing"], "write"}  # only a run folder is written
    found["timing"] = expected["timing"] = None
    assert (found.pop("folder"), expected.pop("folder")) == ("run", None)
    assert json.dumps(found) == json.dumps(expected)  # texts, so that the order of keys counts too


def test_the_printed_json_is_the_written_one(tiny, source, invoke):
    outcome = invoke("score", source, "--encoder", tiny, "--json", "--run", "run", "--quiet")
    assert outcome.out == Path("run/report.json").read_text(encoding="utf-8")


def test_a_score_prints_what_a_report_of_its_run_prints(tiny, source, invoke):
    outcome = invoke("score", source, "--encoder", tiny, "--run", "run", "--quiet")
    assert outcome.out == invoke("report", "run").out


def names_in(outcome) -> list[str]:
    return sorted(source["name"] for source in json.loads(outcome.out)["sources"])


def test_a_source_can_be_named_and_shards_are_one_source(tiny, tmp_path, source, invoke):
    for number in range(2):
        write_rows(
            tmp_path / "shards" / f"mined-0000{number}-of-00002.jsonl", list(rows(10))[5 * number : 5 * number + 5]
        )
    outcome = invoke("score", "shards/*.jsonl", f"mine={source}", "--encoder", tiny, "--json", "--run", "run")
    assert outcome.code == 0
    assert names_in(outcome) == ["mine", "mined"]
    mined = next(item for item in json.loads(outcome.out)["sources"] if item["name"] == "mined")
    assert (mined["rows"]["n_read"], len(mined["files"])) == (10, 2)


def test_standard_input_is_a_source(tiny, tmp_path, source, invoke, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(source.read_bytes())))
    outcome = invoke("score", "-", "--encoder", tiny, "--json", "--quiet")
    assert (outcome.code, outcome.err) == (0, "")
    assert names_in(outcome) == ["stdin"]
    assert len(listing(tmp_path / "secid-runs")) == 1


def test_an_existing_run_folder_is_replaced_only_with_force(tiny, source, invoke):
    arguments = ("score", source, "--encoder", tiny, "--run", "run", "--quiet")
    assert invoke(*arguments).code == 0
    before = Path("run/report.json").stat().st_mtime_ns
    refused = invoke(*arguments)
    assert refused.code == 2
    assert "run: already exists" in refused.err
    assert "--force" in refused.err
    assert Path("run/report.json").stat().st_mtime_ns == before
    assert invoke(*arguments, "--force").code == 0
    assert Path("run/report.json").stat().st_mtime_ns > before
    assert sorted(listing(".")) == ["run", "small.jsonl"]


def test_force_replaces_run_folders_only(tiny, tmp_path, source, invoke):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work", encoding="utf-8")
    outcome = invoke("score", source, "--encoder", tiny, "--run", "thesis", "--force")
    assert outcome.code == 2
    assert "thesis: " in outcome.err
    assert (tmp_path / "thesis" / "chapter1.tex").is_file()


def test_what_a_killed_run_left_is_cleared_and_a_living_one_is_not(tiny, tmp_path, source, invoke):
    no_process = 2**31 - 2  # an id that no system gives out
    living = tmp_path / f"{PARTIAL_PREFIX}{os.getpid()}-other"
    dead = tmp_path / f"{PARTIAL_PREFIX}{no_process}-other"
    of_another_machine = tmp_path / f".partial-another.machine.{no_process}-other"
    for folder in (living, dead, of_another_machine):
        folder.mkdir()
    assert invoke("score", source, "--encoder", tiny, "--run", "run", "--quiet").code == 0
    assert living.is_dir()
    assert of_another_machine.is_dir()
    assert not dead.exists()


def test_files_are_looked_at_before_the_encoder_is_loaded(tmp_path, invoke, monkeypatch):
    def load(*given):
        raise AssertionError("loaded")

    monkeypatch.setattr("secid.encode.load", load)
    path = write_rows(tmp_path / "ids.jsonl", [{"query": 1, "positive": 2, "negative": 3}])
    code, _, err = invoke("score", path, "--encoder", "minilm")
    assert (code, "--collection DIR" in err) == (2, True)


def test_bad_rows_are_counted_and_shown(tiny, tmp_path, invoke):
    path = FIXTURES / "broken" / "cut_last_line.jsonl"
    outcome = invoke("score", path, "--encoder", tiny, "--set", "max_bad_fraction=1", "--run", "run")
    assert outcome.code == 0
    assert "1 × broken line" in outcome.out
    source = secid.read_run(tmp_path / "run").sources[0]
    assert source.rows.skipped == {"broken_line": 1}
    assert (source.rows.n_read, source.rows.n_used) == (4, 3)
    assert source.rows.examples[0].line == 4
    assert "broken" in Path("run/report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("more", [("--set", "on_bad=fail"), ("--set", "max_bad_fraction=0.1")])
def test_bad_rows_can_be_an_error(tiny, invoke, more):
    path = FIXTURES / "broken" / "cut_last_line.jsonl"
    outcome = invoke("score", path, "--encoder", tiny, "--run", "run", *more)
    assert outcome.code == 2
    assert outcome.out == ""
    assert "1 of 4 rows malformed" in outcome.err
    assert f"{path}:4: broken_line: unexpected end of data at column 61\n" in outcome.err
    assert "schema" not in outcome.err.split("\n  ")[1]
    assert not Path("run").exists()


def test_the_winner_of_every_setting_is_recorded(tiny, tmp_path, source, invoke, monkeypatch):
    (tmp_path / "secid.toml").write_text("seed = 1\ntemperature = 0.1\nfirst-k = 1\n", encoding="utf-8")
    monkeypatch.setenv("SECID_TEMPERATURE", "0.2")
    monkeypatch.setenv("SECID_SEED", "5")
    outcome = invoke("score", source, "--encoder", tiny, "--set", "seed=9", "--json", "--run", "run")
    settings = json.loads(outcome.out)["settings"]
    assert settings["seed"] == {"value": 9, "from": "flag"}
    assert settings["temperature"] == {"value": 0.2, "from": "SECID_TEMPERATURE"}
    assert settings["first_k"] == {"value": 1, "from": "secid.toml"}
    assert settings["tokenizer"]["from"] == "default"


def test_settings_may_be_in_pyproject(tiny, tmp_path, source, invoke):
    (tmp_path / "pyproject.toml").write_text(f'[tool.secid]\nencoder = "{tiny}"\nseed = 4\n', encoding="utf-8")
    outcome = invoke("score", source, "--json", "--run", "run")
    settings = json.loads(outcome.out)["settings"]
    assert settings["seed"] == {"value": 4, "from": "pyproject.toml"}
    assert settings["encoder"]["from"] == "pyproject.toml"


def test_the_default_run_folder_is_named_after_time_and_sources_and_never_twice(tiny, source, invoke):
    for _ in range(2):
        assert invoke("score", source, "--encoder", tiny, "--quiet").code == 0
    names = listing("secid-runs")
    assert len(names) == 2
    assert all(re.fullmatch(r"\d{8}T\d{6}Z-small-[0-9a-f]{8}", name) for name in names)
    assert len({default_run(["small.jsonl"]) for _ in range(100)}) == 100


def test_the_result_is_printed_where_the_run_folder_cannot_be_written(tiny, source, invoke, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("secid.run_folder.tables.write_state", full)
    outcome = invoke("score", source, "--encoder", tiny, "--run", "run", "--json", "--out", "new/page.json")
    assert outcome.code == 2
    assert names_in(outcome) == ["small"]
    assert "No space left" in outcome.err
    assert "run folder:" not in outcome.err
    assert Path("new/page.json").read_text(encoding="utf-8") == outcome.out
    assert not Path("run").exists()
    with pytest.raises(RunNotWrittenError) as caught:
        secid.score([source], encoder=str(tiny), run="run")
    assert [item.name for item in caught.value.run.sources] == ["small"]


def test_the_result_is_printed_where_no_default_run_folder_can_be_made(tiny, source, invoke):
    Path("secid-runs").touch()
    outcome = invoke("score", source, "--encoder", tiny, "--json")
    assert (outcome.code, names_in(outcome)) == (2, ["small"])
    assert "secid-runs" in outcome.err


def test_the_legend_is_printed_on_request(tiny, source, invoke):
    arguments = ("score", source, "--encoder", tiny, "--force", "--run", "run", "--quiet")
    plain, explained = invoke(*arguments).out, invoke(*arguments, "--legend").out
    assert len(explained) > len(plain)


def test_several_encoders_are_compared_and_the_first_is_the_target(tiny, tmp_path, source, invoke):
    """Each recipe is printed before its encoder starts."""
    other = shutil.copytree(tiny, tmp_path / "other-bert")
    outcome = invoke(
        "score", source, f"again={source}", "--encoder", tiny, "--encoder", other, "--json", "--run", "run"
    )
    found = json.loads(outcome.out)
    assert found["encoder"]["name"] == str(tiny)
    (table,) = found["analyses"]["ablations"]
    assert (table["name"], [row["setting"] for row in table["rows"]]) == ("encoder", [str(tiny), str(other)])
    assert outcome.err.index(f"{tiny}: mean pooling") < outcome.err.index(f"{source}: flagembedding")
    log = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8").splitlines()
    print("\n".join(log))
    recipes = [number for number, line in enumerate(log) if "mean pooling" in line]
    stages = [number for number, line in enumerate(log) if line == "stage read the cache"]
    assert [recipe < stage for recipe, stage in zip(recipes, stages, strict=True)] == [True, True]


def test_encoders_are_compared_at_the_budget_of_the_run(tiny, tmp_path, source):
    other = shutil.copytree(tiny, tmp_path / "other-bert")
    run = secid.score([source, f"again={source}"], encoder=str(tiny), other_encoders=[str(other)], budget=100)
    (table,) = run.analyses["ablations"]
    for row in table.rows:
        assert row.scores == pytest.approx(
            {item.name: next(p.nats for p in item.score.budget_curve if p.budget == 100) for item in run.sources},
            rel=1e-6,
        )


def test_a_further_encoder_needs_no_vectors_of_the_first_ones_controls(tiny, tmp_path):
    """The control query_echo uses queries as passages; a vectors file of the sources' texts lacks them in this role."""
    songs = [{"query": f"who sings {i}", "pos": [f"singer {i}"], "neg": [f"song {i}"]} for i in range(12)]
    source = write_rows(tmp_path / "songs.jsonl", songs)
    texts = [("query", row["query"]) for row in songs]
    texts += [("passage", text) for row in songs for text in (*row["pos"], *row["neg"])]
    vectors = np.random.default_rng(0).standard_normal((len(texts), 8)).astype(np.float32)
    columns = {"role": [role for role, _ in texts], "text": [text for _, text in texts], "vector": list(vectors)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    run = secid.score([source], encoder=str(tiny), other_encoders=[str(tmp_path / "rows.parquet")])
    assert "query_echo" in {control.kind for control in run.controls}
    alone = secid.score([source], encoder=str(tmp_path / "rows.parquet"), controls="none")
    assert run.analyses["ablations"][0].rows[1].scores == {
        "songs": pytest.approx(alone.sources[0].score.nats, rel=1e-9)
    }


def test_two_names_of_one_encoder_are_refused_before_any_work(tiny, source, invoke):
    again = tiny / ".." / tiny.name
    outcome = invoke("score", source, "--encoder", tiny, "--encoder", again, "--run", "run")
    assert outcome.code == 2
    assert "are the same encoder" in outcome.err
    assert "mean pooling" not in outcome.err
    named = invoke("score", source, "--encoder", "minilm", "--encoder", "sentence-transformers/all-MiniLM-L6-v2")
    assert (named.code, "are the same encoder" in named.err) == (2, True)


def test_an_example_is_found_in_the_row_that_lists_it(tiny, tmp_path, invoke):
    """Two rows of one query and positive form one record; the second row has the copy of the positive."""
    record = {"query": "what is it", "pos": ["an answer"]}
    texts = [{**record, "neg": [negative]} for negative in ("unrelated words", "an answer")]
    write_rows(tmp_path / "two.jsonl", [*texts, *rows(6)])
    outcome = invoke("score", "two.jsonl", "--encoder", tiny, "--json", "--run", "run")
    findings = {finding["name"]: finding for finding in json.loads(outcome.out)["sources"][0]["findings"]}
    (example,) = findings["false_negative"]["examples"]
    assert (example["path"], example["line"], example["negative"]) == ("two.jsonl", 2, "an answer")
