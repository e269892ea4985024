"""`secid probe`: what it refuses before it loads or trains anything, and what it writes."""

from __future__ import annotations

import json
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import secid
from secid.analyses.agreement import outcomes_of
from secid.errors import SecidError, SettingsError, UsageError
from secid.results import commands
from secid.results.document import json_of, read_probe
from secid.tools.probing import options, schedule
from secid.tools.probing import run as probing
from secid.tools.probing.learner import DivergedError, Learner
from tests.cli.conftest import (
    FIXTURES,
    ROOT,
    Invoke,
    invoke_in_process,
    write_rows,
)
from tests.kills import fork
from tests.snapshots import Snapshot, situations
from tests.tiny_bert import save_tiny_bert
from tests.tiny_probe import tiny_encoder
from tests.unit.pages import probes

N_QUERIES = 110
SHORT = ("--steps", 1, "--seeds", 2, "--folds", 2, "--rate", 1e-3, "--batch", 8)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(generator: random.Random, n: int) -> str:
    return " ".join("".join(generator.choices(LETTERS, k=4)) for _ in range(n))


def table(seed: int) -> list[dict[str, Any]]:
    """Rows of random words: the queries and positives of all tables are the same, their negatives are not."""
    shared, own = random.Random(0), random.Random(seed)
    texts = [(words(shared, 2), words(shared, 4)) for _ in range(N_QUERIES)]
    return [{"query": query, "pos": [positive], "neg": [words(own, 4)]} for query, positive in texts]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sources")
    return [write_rows(folder / f"{name}.jsonl", table(seed)) for seed, name in enumerate(("first", "second"), 1)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("encoder") / "small", width=16, layers=1)


@pytest.fixture(scope="module")
def trained(sources: list[Path], small: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run of the sources, and the probe that was added to it."""
    folder = tmp_path_factory.mktemp("trained")
    scored = invoke_in_process("score", *sources, "--encoder", small, "--run", folder / "run")
    before = {path.name: path.read_bytes() for path in (folder / "run").iterdir() if path.is_file()}
    probed = invoke_in_process("probe", *sources, "--encoder", small, *SHORT, "--run", folder / "run", "--json")
    assert scored.code == 0, scored.err
    return {"run": folder / "run", "score": scored, "before": before, "probe": probed}


def test_it_prints_the_result_that_the_api_returns(trained, sources, small):
    assert trained["probe"].code == 0, trained["probe"].err
    result = secid.probe(
        sources, str(small), steps=1, seeds=2, folds=2, rate=1e-3, batch=8
    )  # every training is kept, so this takes none
    printed, own = json.loads(trained["probe"].out), json.loads(json_of(result))
    assert printed.pop("timing").keys() == own.pop("timing").keys()
    assert printed == own
    assert [dose["rate"] for dose in own["doses"]] == [1e-3, 4e-3]
    assert [{source["name"] for source in dose["sources"]} for dose in own["doses"]] == [{"first", "second"}] * 2
    by_query = [f'"{name}": [' for name in ("ndcg_10", "mrr_10", "recall_100", "group", "fold")]
    lines = [line for line in trained["probe"].out.splitlines() if line.strip().startswith(tuple(by_query))]
    assert len(lines) == 2 + 3 * (1 + 2 * 3), "two of the queries; of each measure one a source, control and rate"
    assert all(line.rstrip(",").endswith("]") for line in lines)
    assert "the probe takes about" in trained["probe"].err


def test_the_run_folder_gains_the_probe_and_pages_with_it(trained):
    run: Path = trained["run"]
    assert (run / "probe.json").read_text("utf-8") == trained["probe"].out
    now = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    changed = {name for name, data in now.items() if trained["before"].get(name) != data}
    assert changed == {"probe.json", "report.md", "report.html"}
    assert b"gain at 0.001" in now["report.md"]
    assert b"secid probe " in trained["before"]["report.md"]
    assert b"secid probe " not in now["report.md"]


def test_report_shows_a_run_s_probe(trained, invoke: Invoke):
    shown = invoke("report", trained["run"], "-o", "again.md", "-o", "again.html")
    assert shown.code == 0, shown.err
    assert "gain at 0.001" in Path("again.md").read_text("utf-8")
    assert "gain at 0.001" in Path("again.html").read_text("utf-8")
    assert "secid probe" not in invoke("report", trained["run"]).out, "the verdict of the probe, not its command"


def test_the_command_that_score_prints_probes_the_same_sources(trained, sources, small):
    line = next(line for line in trained["score"].out.splitlines() if line.strip().startswith("secid probe"))
    assert line.split() == [
        "secid", "probe", *map(str, sources), "--encoder", str(small), "--run", str(trained["run"])
    ]  # fmt: skip


def test_a_run_of_other_files_or_recipe_is_refused_and_stays_as_it_is(
    trained, sources, small, invoke: Invoke, monkeypatch
):
    copy, other = Path("copy.jsonl"), write_rows(Path("second.jsonl"), table(3))
    copy.write_bytes(sources[0].read_bytes())
    assert invoke("score", sources[0], copy, "--encoder", small, "--run", "twice").code == 0
    monkeypatch.setattr(probing, "run_probe", None)  # nothing is trained
    before = {path: path.read_bytes() for path in trained["run"].iterdir() if path.is_file()}
    for run, given, words in (
        (trained["run"], (sources[0], other), "second.jsonl as second, not on second.jsonl as second"),
        (trained["run"], (*sources, "--max-length", 9), "the run was scored with max length 128, this probe has 9"),
        (trained["run"], (*sources, "--set", "truncate_dim=8"), "the run was scored with dim 16, this probe has 8"),
        ("twice", (sources[0],), "the run was also scored on copy.jsonl as copy"),
        ("twice", (sources[0], f"other={copy}"), "not on copy.jsonl as other"),
    ):
        refused = invoke("probe", *given, "--encoder", small, "--run", run)
        assert (refused.code, words in " ".join(refused.err.split())) == (2, True), refused.err
    assert before == {path: path.read_bytes() for path in trained["run"].iterdir() if path.is_file()}


def test_compare_takes_a_probe(trained, sources, small, invoke: Invoke):
    third = write_rows(Path("third.jsonl"), table(3))
    assert invoke("score", *sources, third, "--encoder", small, "--run", "three").code == 0
    Path("made.json").write_text(json_of(probes.probe(("first", "second", "third"))), "utf-8")
    compared = invoke("compare", "three", "--against", "made.json", "--json")
    assert compared.code == 0, compared.err
    assert "One result for each source" not in compared.err
    rows = json.loads(compared.out)
    assert {row["metric"] for row in rows} == {"gain in ndcg@10 at rate 5e-05", "gain in ndcg@10 at rate 0.0002"}
    assert {(row["best"], row["abstained"]) for row in rows} == {("first", None)}
    assert any(row["kendall_interval_95"] for row in rows)
    Path("tied.json").write_text(json_of(probes.probe(("first", "second", "third"), ("A", "A", "B"))), "utf-8")
    rows = json.loads(invoke("compare", "three", "--against", "tied.json", "--json").out)
    assert {(row["abstained"], row["best"]) for row in rows} == {(None, None)}
    Path("unsure.json").write_text(json_of(probes.without_gain(("first", "second", "third"))), "utf-8")
    unsure = invoke("compare", "three", "--against", "unsure.json")
    assert unsure.out.startswith("The probe does not rank the sources: training on no source")
    assert "best is" not in unsure.out
    rows = json.loads(invoke("compare", "three", "--against", "unsure.json", "--json").out)
    assert {(row["abstained"], row["best"]) for row in rows} == {("no_gain", None)}
    Path("none.json").write_text(json_of(probes.untrained()), "utf-8")
    refused = invoke("compare", "three", "--against", "none.json")
    assert (refused.code, "trained on no source" in refused.err) == (2, True)


DAMAGE = {
    "{": "not a secid probe",
    '{"schema_version": "9.0"}': "schema version 9.0",
    "[]": "no schema_version",
    '{"schema_version": "1.0"}': "not a valid probe",
}


def test_a_damaged_probe_is_an_error(trained, invoke: Invoke, tmp_path: Path):
    path = tmp_path / "probe.json"
    for text, words in DAMAGE.items():
        path.write_text(text, "utf-8")
        with pytest.raises(SecidError, match=words):
            read_probe(path)
    refused = invoke("compare", trained["run"], "--against", path)
    assert (refused.code, str(path) in refused.err) == (2, True)


def test_an_estimate_trains_nothing_and_leaves_the_run_as_it_is(trained, sources, small, invoke: Invoke, monkeypatch):
    monkeypatch.setattr(schedule.TrainingRuns, "frozen", None)
    before = {path: path.read_bytes() for path in trained["run"].iterdir() if path.is_file()}
    given = ("probe", *sources, "--encoder", small, *SHORT, "--run", trained["run"], "--estimate", "--set", "cache=no")
    result = json.loads(invoke(*given, "--json").out)
    assert (result["not_evaluated"]["sources"], result["doses"]) == ("estimate", [])
    assert result["timing"]["train"]["n_trainings"] == 2 * 3 * 2 * 2
    assert result["timing"]["train"]["expected_seconds"] > 0
    printed = invoke(*given)
    assert printed.code == 0
    words = " ".join(printed.out.split())
    assert words.startswith("Only the time was asked for: 24 training runs take about ")
    assert before == {path: path.read_bytes() for path in trained["run"].iterdir() if path.is_file()}


def test_another_loss_and_a_guide_are_named_in_the_result(sources, small, tmp_path_factory, tmp_path):
    other = save_tiny_bert(tmp_path_factory.mktemp("guide") / "other", width=24, layers=1)
    short: dict[str, Any] = {"steps": 1, "seeds": 1, "folds": 2, "rate": 1e-3, "batch": 8}
    results = {
        loss: secid.probe(
            sources, str(small), **short, loss=loss, passages="own", guide=str(other) if loss == "gist" else None
        )
        for loss in ("infonce", "mw", "gist")
    }
    for loss, result in results.items():
        assert (result.loss, result.passages, len(result.trained)) == (loss, "own", 2)
        assert (result.guide is None) == (loss != "gist")
    assert results["gist"].guide is not None
    assert results["gist"].guide.name == str(other)
    means = {loss: result.doses[1].sources[0].trained for loss, result in results.items()}
    assert means["mw"] != means["infonce"] != means["gist"]


def test_a_run_with_a_collection_without_qrels_is_refused(tiny, invoke: Invoke, tmp_path: Path):
    write_rows(tmp_path / "corpus.jsonl", [{"_id": f"d{n}", "text": f"passage {n}"} for n in range(2)])
    write_rows(tmp_path / "queries.jsonl", [{"_id": "q0", "text": "what is it"}])
    run = tmp_path / "bm25.trec"
    run.write_text("q0 Q0 d0 1 2.0 x\nq0 Q0 d1 2 1.0 x\n", "utf-8")
    refused = invoke("probe", run, "--encoder", tiny, "--collection", tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert "qrels" in refused.err


def test_few_queries_abstain(invoke: Invoke, tiny: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    given = ("probe", "fixtures/sources/bm25.jsonl.gz", "fixtures/sources/poisoned.jsonl", "--encoder", tiny)
    result = json.loads(invoke(*given, "--json").out)
    assert (result["not_evaluated"]["sources"], result["n_groups"] > 0, result["doses"]) == ("few_queries", True, [])
    printed = invoke(*given)
    assert printed.code == 0
    assert printed.out.startswith("The probe ranks nothing: only 66 queries can be held out")


def test_files_are_written_in_each_format(invoke: Invoke, tiny: Path):
    source = FIXTURES / "sources" / "random.jsonl"
    written = invoke("probe", source, "--encoder", tiny, "-o", "p.json", "-o", "p.md", "-o", "p.html", "--quiet")
    assert (written.code, written.err) == (0, "")
    assert read_probe(Path("p.json")) is not None
    assert "ranks nothing" in Path("p.md").read_text("utf-8")
    assert "ranks nothing" in Path("p.html").read_text("utf-8")


ENDPOINT, VECTORS = "http://localhost:9", "vectors.npz"


@pytest.fixture
def refusals(sources, small) -> dict[str, tuple[Any, ...]]:
    one = (sources[0], "--encoder")
    return {
        "endpoint": (*one, ENDPOINT),
        "vectors file": (*one, VECTORS),
        "no encoder": (sources[0],),
        "no step": (*one, small, "--steps", 0),
        "endless steps": (*one, small, "--steps", 10**18),
        "no seed": (*one, small, "--seeds", 0),
        "one fold": (*one, small, "--folds", 1),
        "few held out": (*one, small, "--held-out", 99),
        "a batch of one": (*one, small, "--batch", 1),
        "a negative rate": (*one, small, "--rate", -1e-5),
        "no rate": (*one, small, "--rate", "nan"),
        "a rate whose fourfold is too large": (*one, small, "--rate", 0.3),
        "one rate twice": (*one, small, "--rate", 1e-5, "--rate", 1e-5),
        "LoRA without peft": (*one, small, "--lora"),
        "no such loss": (*one, small, "--loss", "triplet"),
        "no such passages": (*one, small, "--passages", "all"),
        "GIST without a guide": (*one, small, "--loss", "gist"),
        "a guide that nothing asks": (*one, small, "--guide", "e5-base"),
        "no such run": (*one, small, "--run", "nowhere"),
        "a file of no format": (*one, small, "-o", "probe.txt"),
        "a missing file": ("none.jsonl", "--encoder", small),
    }


def test_wrong_use_is_refused_before_anything_is_read(refusals, invoke: Invoke, monkeypatch, snapshot: Snapshot):
    monkeypatch.setattr(options, "find_spec", lambda _: None)
    monkeypatch.setattr(probing, "probe_sources", None)
    texts = {}
    for name, given in refusals.items():
        refused = invoke("probe", *given, "--quiet")
        assert (refused.code, refused.out) == (2, ""), name
        texts[name] = refused.err
    snapshot("probe-refusals.txt", situations(texts))


WRONG: dict[str, Any] = {"rate": "fast", "rates": [1e-3], "steps": "many", "seeds": 1.5, "batch": None, "folds": True}


@pytest.mark.parametrize(("name", "value"), WRONG.items())
def test_a_value_of_another_type_is_a_settings_error(sources, small, name, value):
    with pytest.raises(SettingsError):
        secid.probe(sources, str(small), **{name: value})


def test_an_encoder_without_weights_is_refused(sources):
    class Mine:
        info: Any = None
        encode: Any = None

    with pytest.raises(UsageError, match="object"):
        secid.probe(sources, Mine())


def test_nothing_that_could_be_trained_exits_with_3(sources, small, invoke: Invoke, monkeypatch):
    fit = Learner.fit

    def diverges(self: Learner, steps: Any, n_steps: int, rate: float, *more: Any) -> None:
        if rate > 0:
            raise DivergedError("the loss is nan", 2)
        fit(self, steps, n_steps, rate, *more)

    monkeypatch.setattr(Learner, "fit", diverges)
    failed = invoke("probe", *sources, "--encoder", small, *SHORT, "--set", "cache=no")
    assert (failed.code, failed.out) == (3, ""), failed.err
    assert "--rate" in failed.err


def test_the_command_of_a_score_lists_what_was_typed_and_the_probe_takes():
    given = {"encoder": "minilm", "max_length": 64, "first_k": 2, "titles": False, "ablate": True, "seed": 3}
    line = commands.probe_command(["a b.jsonl"], given)
    assert line == ("secid probe 'a b.jsonl' --encoder minilm --max-length 64 --set titles=no --set seed=3")
    assert commands.probe_command(["-"], given) is None
    assert commands.with_run_flag(line, "-runs/x") == f"{line} --run ./-runs/x"


def test_a_score_offers_a_probe_where_one_can_be_typed_and_has_enough_queries(sources, small):
    assert secid.score(sources[:1], str(small)).probe is not None
    assert secid.score(sources[:1], tiny_encoder(small)).probe is None, "an encoder without a name"
    assert secid.score([FIXTURES / "sources" / "bm25.jsonl.gz"], str(small)).probe is None, "66 queries"


def test_ctrl_c_keeps_finished_runs_and_the_same_command_resumes(sources, small, tmp_path):
    cache = tmp_path / "cache"
    given = ("probe", *sources, "--encoder", small, *SHORT, "--steps", 8, "--set", f"cache_dir={cache}")
    child = fork(given, tmp_path, tmp_path / "said")
    end = time.monotonic() + 90
    while len(list(cache.glob("probes/*.json"))) < 3:  # two of the frozen encoder, and a training
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < end, "no training was finished"
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert re.search(r"\d+ of 24 training runs are kept; the same command continues with the others", err), err
    kept = len(list(cache.glob("probes/*.json")))
    done = invoke_in_process(*given, "--json")
    assert done.code == 0, done.err
    assert len(list(cache.glob("probes/*.json"))) > kept


@pytest.mark.parametrize(("columns", "width"), [("", 80), ("60", 60)])
def test_in_a_pipe_there_is_a_plain_table_of_80_or_as_many_columns(
    columns, width, trained, sources, small, invoke: Invoke, monkeypatch
):
    monkeypatch.setenv("COLUMNS", columns)
    printed = invoke("probe", *sources, "--encoder", small, *SHORT)
    assert printed.code == 0, printed.err
    assert max(map(len, printed.out.splitlines())) <= width
    assert "\x1b" not in printed.out


def test_the_errors_of_one_seed_are_not_taken_for_whole(tmp_path: Path):
    path = tmp_path / "probe.json"
    known = {"dense": 0.003, "bm25": 0.003, "mixed": 0.003}
    for probe, errors in ((probes.probe(), known), (probes.of_one_seed(), {})):
        path.write_text(json_of(probe), "utf-8")
        for outcomes in outcomes_of(path):
            assert (outcomes.values, outcomes.errors) == (probes.GAINS, errors)
