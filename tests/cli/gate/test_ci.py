"""The action, the workflow, the GitLab job and the pre-commit hook, run as the services run them, without the services.

The services' own work is simulated: filling in `${{ }}`, checking out, caching; pip installs nothing here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from secid.encode.cache_folder import CacheFolder
from secid.settings import Settings
from tests.cli.conftest import FIXTURES, ROOT, child_environment, write_rows
from tests.cli.gate.conftest import items

ACTION = ".github/actions/secid-gate"
BASE = "secid-baseline.json"


def document(name: str) -> dict[Any, Any]:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def filled(text: str, values: dict[str, str]) -> str:
    """The text with every `${{ expression }}` replaced; an expression that is not known is an error."""
    return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda match: values[match[1]], str(text))


class Done(NamedTuple):
    code: int
    out: str
    err: str
    outputs: dict[str, str]


def program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def shell(script: str, folder: Path, *flags: str, **variables: str) -> Done:
    """A script in bash, `secid` and a pip that only logs its arguments on the path."""
    tools = folder.parent / f"{folder.name}-tools"
    program(tools, "secid", f'exec "{sys.executable}" -m secid "$@"')
    program(tools, "python", f'exec "{sys.executable}" "$@"')
    program(tools, "pip", f'echo "$@" >>"{tools}/pip.log"')
    output = tools / "output"
    output.unlink(missing_ok=True)
    environment = child_environment(GITHUB_OUTPUT=str(output), **variables)
    environment["PATH"] = f"{tools}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", *flags, "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    return Done(done.returncode, done.stdout, done.stderr, outputs_in(output))


def outputs_in(path: Path) -> dict[str, str]:
    """What a step wrote to $GITHUB_OUTPUT: name=value, or name<<END, lines, END."""
    lines = iter(path.read_text(encoding="utf-8").splitlines() if path.exists() else [])
    outputs = {}
    for line in lines:
        name, separator, end = line.partition("<<")
        if separator:
            outputs[name] = "\n".join(iter(lambda: next(lines), end))
        else:
            name, _, outputs[name] = line.partition("=")
    return outputs


def act(folder: Path, **inputs: str) -> Done:
    """The composite action's steps with these inputs, its defaults for the others, its environment alone."""
    action = document(f"{ACTION}/action.yml")
    assert inputs.keys() <= action["inputs"].keys()
    assert all(name in inputs for name, field in action["inputs"].items() if field.get("required"))
    values = {
        f"inputs.{name}": inputs.get(name, str(field.get("default", ""))) for name, field in action["inputs"].items()
    }
    (step,) = action["runs"]["steps"]
    environment = {name: filled(text, values) for name, text in step["env"].items()}
    done = shell(step["run"], folder, "-eo", "pipefail", GITHUB_ACTION_PATH=str(ROOT / ACTION), **environment)
    steps = {f"steps.{step['id']}.outputs.{name}": value for name, value in done.outputs.items()}
    return done._replace(
        outputs={name: filled(field["value"], steps) for name, field in action["outputs"].items() if steps}
    )


def test_the_action_runs_with_hostile_inputs(prepared, tmp_path):
    name = "$(touch hacked); `touch hacked`'\".jsonl"
    write_rows(tmp_path / name, items(140, 1000, known=2))
    write_rows(tmp_path / "--exit-zero", items(140, 1000))
    result = act(tmp_path, sources=f"{name}\n\n", against=str(prepared.baseline), junit="gate.xml", json="g.json")
    assert result.code == 1, result
    assert result.outputs == {"outcome": "fail"}
    assert "::error " in result.out
    assert (tmp_path / "gate.xml").is_file()
    assert (tmp_path / "g.json").is_file()
    assert not (tmp_path / "hacked").exists()


def test_the_action_reports_wrong_use(prepared, tmp_path):
    result = act(tmp_path, sources="--help", against=str(prepared.baseline))
    assert (result.code, result.outputs) == (2, {"outcome": "error"})


@pytest.mark.parametrize(("trial", "code"), [("false", 3), ("true", 0)])
def test_the_action_takes_policy_encoder_run_and_trial_period(prepared, tmp_path, trial, code):
    write_rows(tmp_path / "new.jsonl", items(140, 1000))
    (tmp_path / "p.toml").write_text("[score]\ntolerance_nats = 0.0\n", encoding="utf-8")
    inputs = {"sources": "new.jsonl", "against": str(prepared.baseline), "encoder": str(prepared.encoder)}
    result = act(tmp_path, **inputs, policy="p.toml", paired=str(prepared.run), **{"exit-zero": trial})
    assert (result.code, result.outputs) == (code, {"outcome": "undecided"}), result


def test_the_action_passes_inputs_through_the_environment_alone():
    action = document(f"{ACTION}/action.yml")
    (step,) = action["runs"]["steps"]
    assert "${{" not in step["run"]
    assert set(step["env"].values()) == {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    read_by_script = set(re.findall(r"GATE_[A-Z_]+", (ROOT / ACTION / "gate.sh").read_text(encoding="utf-8")))
    assert read_by_script - {"GATE_"} == step["env"].keys()


class Repository(NamedTuple):
    folder: Path
    base: str


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(folder: Path, prepared: Any, added: dict[str, list[Any]]) -> Repository:
    """A repository with a baseline and two sources, and a commit on it that adds, deletes and renames some."""
    folder.mkdir()
    git(folder, "init", "-q")
    shutil.copy(prepared.baseline, folder / BASE)
    shutil.copy(prepared.baseline.with_name("b.idf.safetensors"), folder / "secid-baseline.idf.safetensors")
    write_rows(folder / "negatives" / "gone.jsonl", items(20))
    write_rows(folder / "negatives" / "kept.jsonl", items(30))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "base")
    base = git(folder, "rev-parse", "HEAD")
    (folder / "negatives" / "gone.jsonl").unlink()
    (folder / "README").write_text("no source", encoding="utf-8")
    for name in ("README.md", ".gitattributes", "notes.json.md"):
        (folder / "negatives" / name).write_text("no source", encoding="utf-8")
    for name, rows in added.items():
        write_rows(folder / "negatives" / name, rows)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "change")
    return Repository(folder, base)


def workflow(result: Repository, gates: bool = True) -> tuple[str, Done | None]:
    """The steps of the example: what the change adds, one a line, and the action's end where it ran.

    gates : False stops before the action, which takes seconds.
    """
    (job,) = document("docs/ci/github.yml")["jobs"].values()
    values = {"github.event.pull_request.base.sha": result.base}
    gated, sources = None, ""
    for step in job["steps"]:
        if "run" in step:
            environment = {name: filled(text, values) for name, text in step.get("env", {}).items()}
            done = shell(step["run"], result.folder, "-e", **environment)
            assert done.code == 0, done
            values |= {f"steps.{step.get('id')}.outputs.{name}": value for name, value in done.outputs.items()}
        elif step["uses"] == f"./{ACTION}":
            assert step["if"] == "steps.changed.outputs.sources != ''"
            sources = values["steps.changed.outputs.sources"]
            if sources and gates:
                gated = act(result.folder, **{name: filled(text, values) for name, text in step["with"].items()})
    return sources, gated


@pytest.mark.parametrize(("damage", "code", "outcome"), [({"known": 2}, 1, "fail"), ({}, 0, "pass")])
def test_the_workflow_gates_what_a_change_adds(prepared, tmp_path, damage, code, outcome):
    changed = {"used.jsonl": items(140, 1000), "größe 2.jsonl": items(140, 1000, **damage)}
    sources, gated = workflow(repository(tmp_path / "repo", prepared, changed))
    assert sources.splitlines() == ["negatives/größe 2.jsonl", "negatives/used.jsonl"]
    assert gated is not None
    assert (gated.code, gated.outputs) == (code, {"outcome": outcome}), gated
    assert (tmp_path / "repo" / "gate.xml").is_file()
    assert (tmp_path / "repo-tools" / "pip.log").read_text(encoding="utf-8") == "install secid[offline]\n"


def test_a_renamed_source_does_not_slip_through(prepared, tmp_path):
    result = repository(tmp_path / "repo", prepared, {"renamed.jsonl": items(20)})
    assert workflow(result, gates=False)[0] == "negatives/renamed.jsonl"


def test_the_workflow_gates_nothing_where_nothing_is_added(prepared, tmp_path):
    assert workflow(repository(tmp_path / "repo", prepared, {})) == ("", None)


def test_a_file_s_name_cannot_set_an_output(prepared, tmp_path):
    name = "a\nEND_OF_SOURCES\nsources=b.jsonl"
    sources, gated = workflow(repository(tmp_path / "repo", prepared, {name: items(140, 1000)}))
    assert sources == '"negatives/a\\nEND_OF_SOURCES\\nsources=b.jsonl"'
    assert gated is not None
    assert gated.code == 2


def test_the_workflow_s_other_steps_are_pinned_services_and_its_cache_is_secid_s(monkeypatch):
    whole = document("docs/ci/github.yml")
    (job,) = whole["jobs"].values()
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    services = [name for name in used if not name.startswith("./")]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", name) for name in services)
    assert whole["permissions"] == {"contents": "read"}
    cache = next(step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/cache@"))
    monkeypatch.delenv("XDG_CACHE_HOME")
    folder = CacheFolder.of(Settings()).folder
    assert folder.is_relative_to(Path(cache["path"]).expanduser())
    assert filled(cache["key"], {"runner.os": "Linux", "hashFiles('secid-baseline.json')": "h", "github.run_id": "1"})
    uploaded = next(step["with"]["path"] for step in job["steps"] if "upload" in step.get("uses", ""))
    action = next(step["with"] for step in job["steps"] if step.get("uses") == f"./{ACTION}")
    assert uploaded == action["junit"]


def gitlab(result: Repository, before: str = "") -> Done:
    """The job's script as GitLab's runner joins it, with the job's variables. before: lines put in front of it."""
    job = document("docs/ci/gitlab.yml")["negatives"]
    predefined = {"CI_PROJECT_DIR": str(result.folder), "CI_MERGE_REQUEST_DIFF_BASE_SHA": result.base}
    variables = {
        name: str(value).replace("$CI_PROJECT_DIR", str(result.folder)) for name, value in job["variables"].items()
    }
    return shell("\n".join([before, *job["script"]]), result.folder, "-eo", "pipefail", **predefined, **variables)


def test_the_gitlab_job_gates_what_a_change_adds(prepared, tmp_path):
    changed = {"used.jsonl": items(140, 1000), "größe 2.jsonl": items(140, 1000, known=2)}
    result = repository(tmp_path / "repo", prepared, changed)
    done = gitlab(result)
    assert done.code == 1, done
    job = document("docs/ci/gitlab.yml")["negatives"]
    for path in (job["artifacts"]["reports"]["junit"], *job["artifacts"]["paths"]):
        assert (result.folder / path).exists(), path
    assert job["cache"]["paths"] == [
        ".cache/secid"
    ]  # rows of a file of vectors are not cached, so none is written here
    assert job["variables"]["XDG_CACHE_HOME"] == "$CI_PROJECT_DIR/.cache"
    assert "gone" not in done.out
    assert (tmp_path / "repo-tools" / "pip.log").read_text(encoding="utf-8") == "install secid[offline]\n"


def test_the_gitlab_job_may_end_undecided(prepared, tmp_path):
    result = repository(tmp_path / "repo", prepared, {"new.jsonl": items(140, 1000)})
    (result.folder / "secid.toml").write_text("[gate.score]\ntolerance_nats = 0.0\n", encoding="utf-8")
    assert gitlab(result).code == document("docs/ci/gitlab.yml")["negatives"]["allow_failure"]["exit_codes"] == 3


@pytest.mark.parametrize("left", ["", '{"outcome": "fail"}'])
def test_an_internal_error_is_no_warning_of_the_gitlab_job(prepared, tmp_path, left):
    """A crash before the verdict is written, and one while a failed one is shown."""
    result = repository(tmp_path / "repo", prepared, {"new.jsonl": items(140, 1000)})
    (result.folder / "gate.json").write_text('{"outcome": "not_evaluated"}', encoding="utf-8")  # of another run
    write = f"printf '%s' '{left}' > gate.json; " if left else ""
    assert gitlab(result, f"secid() {{ {write}return 3; }}").code == 2
    undecided = """secid() { printf '{"outcome": "not_evaluated"}' > gate.json; return 3; }"""
    assert gitlab(result, undecided).code == 3


def test_the_gitlab_job_gates_nothing_where_nothing_is_added(prepared, tmp_path):
    done = gitlab(repository(tmp_path / "repo", prepared, {}))
    assert (done.code, done.out) == (0, "")


def hook() -> dict[str, Any]:
    (result,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return result


@pytest.mark.parametrize(("source", "code"), [("random.jsonl", 0), ("poisoned.jsonl", 1)])
def test_the_hook_checks_a_file(tmp_path, source, code):
    """pre-commit runs the entry, the arguments and the files of the commit, in this order."""
    (tmp_path / "negatives").mkdir()
    shutil.copy(FIXTURES / "sources" / source, tmp_path / "negatives" / source)
    words = [*shlex.split(hook()["entry"]), *hook()["args"], f"negatives/{source}"]
    done = shell(shlex.join(words), tmp_path)
    assert done.code == code, done


def test_the_hook_checks_two_files_of_one_name(tmp_path):
    paths = [f"{folder}/negatives/new.jsonl" for folder in ("train", "dev")]
    for path, source in zip(paths, ("random.jsonl", "poisoned.jsonl"), strict=True):
        (tmp_path / path).parent.mkdir(parents=True)
        shutil.copy(FIXTURES / "sources" / source, tmp_path / path)
    words = [*shlex.split(hook()["entry"]), *hook()["args"]]
    assert shell(shlex.join([*words, paths[0]]), tmp_path).code == 0
    done = shell(shlex.join([*words, *paths]), tmp_path)
    assert done.code == 1
    assert "train/negatives/new" in done.out
    assert "dev/negatives/new" in done.out


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("negatives/a.jsonl", True),
        ("data/negatives/2026/a.csv.gz", True),
        ("negatives/a.parquet", True),
        ("negatives/README.md", False),
        ("positives/a.jsonl", False),
        ("my-negatives/a.jsonl", False),
    ],
)
def test_the_hook_s_files(path, expected):
    assert bool(re.search(hook()["files"], path)) is expected
