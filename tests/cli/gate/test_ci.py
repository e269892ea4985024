"""The action, the workflow, the GitLab job and the pre-commit hook, run as the services run them, without the services.

The services' own work is simulated: expressions, conditions, checkouts, caches; pip installs nothing. A program named
secid gives the verdict and writes down its arguments.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import yaml

from secid import __version__
from secid.encode.cache_folder import CacheFolder
from secid.results.catalogue import DEFECTS
from secid.settings import Settings
from tests.cli.conftest import FIXTURES, ROOT, child_environment, write_rows
from tests.cli.gate.conftest import items

ACTION = ".github/actions/secid-gate"
SCRIPT = f"{ACTION}/gate.sh"
BASELINE = "secid-baseline.json"
FINGERPRINT = "5ec1d"
FAKE_SECID = """#!{python}
import os, pathlib, sys
with open({log!r}, "a", encoding="utf-8", errors="surrogateescape") as log:
    log.write("\\0".join(sys.argv[1:]))
code, outcome = os.environ["FAKE_VERDICT"].split(",")
for option, value in zip(sys.argv[1:], sys.argv[2:]):
    if option == "--out" and outcome:
        pathlib.Path(value).write_text('{{\\n  "schema_version": "2.0",\\n  "outcome": "%s",\\n}}' % outcome)
sys.exit(int(code))
"""


def document(name: str) -> dict[Any, Any]:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


class Repository(NamedTuple):
    """folder: the checkout. tools: programs on the path and what they wrote. base: the commit that a change is from."""

    folder: Path
    tools: Path
    base: str

    def log(self, name: str) -> str:
        path = self.tools / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""

    def arguments(self) -> list[str]:
        """Return the arguments of the fake secid's only call."""
        return self.log("secid").split("\0")

    def sources(self) -> list[str]:
        """Return the sources that secid was asked to judge."""
        return self.arguments()[self.arguments().index("--") + 1 :]


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    words = ["git", *identity, "-c", "init.defaultBranch=main", *arguments]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, message: str) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD")


def tools(folder: Path) -> Path:
    """Programs for the steps, with a fake secid."""
    path = folder.parent / f"{folder.name}-tools"
    program(path / "secid", FAKE_SECID.format(python=sys.executable, log=str(path / "secid.log")))
    program(path / "pip", f'#!/bin/sh\nprintf "%s\\n" "$@" >>"{path}/pip.log"\n')
    return path


@pytest.fixture(scope="module")
def built():
    """Checkouts that were made, by what is in them: each test has a copy."""
    return {}


@pytest.fixture
def make(tmp_path, built, tmp_path_factory):
    """A checkout as services make it for a proposed change: the merge of a branch into main, which has moved on.

    The change deletes gone.jsonl and adds files that are no sources, and those of `files`.
    """

    def build(files: dict[str, list[Any]] | None = None, baseline: Path | None = None) -> Repository:
        folder = tmp_path / "repo"
        key = json.dumps([files, str(baseline)])
        if key in built:
            shutil.copytree(built[key].folder, folder, symlinks=True)
            return Repository(folder, tools(folder), built[key].base)
        folder.mkdir()
        git(folder, "init", "-q")
        if baseline:
            shutil.copy(baseline, folder / BASELINE)
            shutil.copy(baseline.with_name("b.idf.safetensors"), folder / "secid-baseline.idf.safetensors")
        else:
            (folder / BASELINE).write_text(f'{{\n  "encoder": {{\n    "fingerprint": "{FINGERPRINT}",\n', "utf-8")
        write_rows(folder / "negatives" / "gone.jsonl", items(20))
        write_rows(folder / "negatives" / "same.jsonl", items(30))
        write_rows(folder / "negatives" / "edited.jsonl", items(10))
        base = commit(folder, "base")
        git(folder, "switch", "-qc", "change")
        (folder / "negatives" / "gone.jsonl").unlink()
        (folder / "other.jsonl").write_text("elsewhere", encoding="utf-8")
        for name in ("README.md", ".gitattributes", "notes.json.md"):
            (folder / "negatives" / name).write_text("no source", encoding="utf-8")
        for name, rows in (files or {}).items():
            write_rows(folder / "negatives" / name, rows)
        commit(folder, "change")
        git(folder, "switch", "-q", "main")
        write_rows(folder / "negatives" / "of-another-change.jsonl", items(5))
        write_rows(folder / "negatives" / "same.jsonl", items(31))
        commit(folder, "another change")
        git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
        git(folder, "switch", "-q", "--detach")
        git(folder, "merge", "-q", "--no-ff", "-m", "merge", "change")
        built[key] = Repository(tmp_path_factory.mktemp("built") / "repo", folder, base)
        shutil.copytree(folder, built[key].folder, symlinks=True)
        return Repository(folder, tools(folder), base)

    return build


def shell(script: str, repository: Repository, *flags: str, by: str = "bash", **variables: str) -> Any:
    """A script as a service runs it, with its own programs first on the path and a home of its own."""
    environment = {name: text for name, text in child_environment().items() if not name.startswith(("GITHUB_", "CI_"))}
    environment |= {"HOME": str(repository.tools / "home"), "FAKE_VERDICT": "0,pass", **variables}
    environment["PATH"] = f"{repository.tools}{os.pathsep}{environment['PATH']}"
    words = [by, *(("--noprofile", "--norc") if by == "bash" else ()), *flags, "-c", script]
    return subprocess.run(words, cwd=repository.folder, env=environment, capture_output=True, text=True)


class Expressions:
    """GitHub's expressions over known values; a name that nothing defines is an error, an unset output is empty."""

    def __init__(self, values: dict[str, str], steps: set[str]) -> None:
        self.values, self.steps = values, steps

    def value(self, expression: str) -> Any:
        python = re.sub(r"'[^']*'|[a-z_]+(?:\.[a-z_-]+)+", self._python, expression.replace("always()", "True"))
        return eval(python.replace("&&", " and ").replace("||", " or "), {"__builtins__": {}})

    def _python(self, match: re.Match[str]) -> str:
        name = match[0]
        if name.startswith("'"):
            return name
        step = re.fullmatch(r"steps\.([a-z]+)\.(?:outputs\.[a-z-]+|outcome)", name)
        if step:
            assert step[1] in self.steps, name
            return repr(self.values.get(name, ""))
        return repr(self.values[name])

    def text(self, template: Any) -> str:
        return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda match: str(self.value(match[1])), str(template))


class Job(NamedTuple):
    """services: what the job asked of GitHub's own actions, and with which fields."""

    code: int
    out: str
    outcome: str
    services: list[tuple[str, dict[str, str]]]


PULL_REQUEST = {"GITHUB_BASE_REF": "main"}


def act(repository: Repository, event: dict[str, str] = PULL_REQUEST, restored: bool = False, **inputs: str) -> Job:
    """The workflow's call of the action, its steps in order; `inputs` replace the workflow's.

    event: values of the context `github`, and variables that the runner sets. restored: a cache has the exact key.
    """
    (job,) = document("docs/ci/github.yml")["jobs"].values()
    action = document(f"{ACTION}/action.yml")
    (call,) = (step for step in job["steps"] if ACTION in step["uses"])
    given = {**call["with"], **{name.replace("_", "-"): text for name, text in inputs.items()}}
    assert given.keys() <= action["inputs"].keys()
    values = {f"inputs.{name}": str(given.get(name, field["default"])) for name, field in action["inputs"].items()}
    values |= {"runner.os": "Linux", "github.run_id": "7", "github.run_attempt": "1"}
    values |= {"github.event.merge_group.base_sha": "", "github.event.before": "", **event}
    steps = action["runs"]["steps"]
    expressions = Expressions(values, {step["id"] for step in steps if "id" in step})
    code, out, services = 0, "", []
    summary = repository.tools / "summary.log"
    for step in steps:
        condition, name = step.get("if", "True"), step.get("id", "")
        runs = (code == 0 or "always()" in condition) and expressions.value(condition)
        values[f"steps.{name}.outcome"] = "success" if runs else "skipped"
        if runs and "uses" in step:
            fields = {field: expressions.text(text) for field, text in step["with"].items()}
            services.append((step["uses"], fields))
            values[f"steps.{name}.outputs.cache-primary-key"] = fields.get("key", "")
            values[f"steps.{name}.outputs.cache-hit"] = "true" if restored else ""
        elif runs:
            output = repository.tools / "output"
            output.write_text("", encoding="utf-8")
            variables = {field: expressions.text(text) for field, text in step.get("env", {}).items()}
            runner = {name: text for name, text in event.items() if name.isupper()}
            runner |= {"GITHUB_ACTION_PATH": str(ROOT / ACTION), "GITHUB_ACTIONS": "true", "GITHUB_OUTPUT": str(output)}
            done = shell(
                step["run"], repository, "-eo", "pipefail", **variables, **runner, GITHUB_STEP_SUMMARY=str(summary)
            )
            out += done.stdout + done.stderr
            code = code or done.returncode
            pairs = (line.split("=", 1) for line in output.read_text(encoding="utf-8").splitlines())
            values |= {f"steps.{name}.outputs.{field}": text for field, text in pairs}
    return Job(code, out, expressions.text(action["outputs"]["outcome"]["value"]), services)


AWKWARD = ("größe 2.jsonl", "a=b.csv", "$(touch hacked);`touch hacked`'\".jsonl", "two\nlines.jsonl", "x/part-1.jsonl")


def test_the_action_judges_what_a_change_adds_alters_or_renames(make):
    files = dict.fromkeys(AWKWARD, items(3)) | {"edited.jsonl": items(11), "renamed.jsonl": items(20)}
    repository = make(files)
    job = act(repository)
    assert (job.code, job.outcome) == (0, "pass"), job
    assert sorted(repository.sources()) == sorted(f"negatives/{name}" for name in files)
    assert not (repository.folder / "hacked").exists()
    assert repository.log("pip").splitlines()[-1] == f"{ROOT}[offline]"
    assert (ROOT / "constraints.txt").samefile(repository.log("pip").splitlines()[-2])


@pytest.mark.parametrize("deletes", [True, False])
def test_a_change_without_a_source_succeeds_in_one_line(make, deletes):
    repository = make()
    if not deletes:
        git(repository.folder, "switch", "-q", "--detach", "origin/main")
    job = act(repository)
    assert (job.code, job.outcome, job.services) == (0, "unchanged", [])
    assert len(job.out.splitlines()) == 1
    assert repository.log("summary") == job.out
    assert repository.log("pip") == repository.log("secid") == ""


def test_each_event_has_its_commit_to_compare_with(make):
    repository = make({"new.jsonl": items(3)})
    both = [f"negatives/{name}.jsonl" for name in ("new", "of-another-change", "same")]
    main = git(repository.folder, "rev-parse", "origin/main")
    for event, inputs, sources in (
        ({**PULL_REQUEST, "github.event.before": repository.base}, {}, both[:1]),
        ({"github.event.merge_group.base_sha": main}, {}, both[:1]),
        ({"github.event.before": repository.base}, {}, both),
        (PULL_REQUEST, {"base": repository.base}, both),
        ({}, {"sources": "negatives/same.jsonl\r\n\nname=a b.jsonl"}, ["negatives/same.jsonl", "name=a b.jsonl"]),
    ):
        (repository.tools / "secid.log").unlink(missing_ok=True)
        assert act(repository, event, **inputs).code == 0, event
        assert repository.sources() == sources, event


@pytest.mark.parametrize("event", [{}, {"GITHUB_BASE_REF": "unknown"}, {"github.event.before": "0" * 40}])
def test_without_a_commit_to_compare_with_there_is_no_verdict(make, event):
    job = act(make({"new.jsonl": items(3)}), event)
    assert (job.code, job.outcome, job.services) == (2, "error", [])
    assert "::error " in job.out


def test_the_inputs_become_options(make):
    repository = make({"new.jsonl": items(3)})
    inputs = {"policy": "p.toml", "paired": "run", "encoder": "e", "against": "--help", "reports": "out/of it"}
    assert act(repository, exit_zero="true", **inputs).code == 0
    options = repository.arguments()
    for name in ("policy", "paired", "encoder", "against"):
        assert options[options.index(f"--{name}") + 1] == inputs[name]
    assert "--exit-zero" in options
    assert (repository.folder / "out" / "of it" / "gate.html").is_file()


@pytest.mark.parametrize(
    ("verdict", "inputs", "code", "outcome"),
    [
        ("0,pass", {}, 0, "pass"),
        ("1,fail", {}, 1, "fail"),
        ("1,fail", {"undecided": "warn"}, 1, "fail"),
        ("3,undecided", {}, 3, "undecided"),
        ("3,undecided", {"undecided": "warn"}, 0, "undecided"),
        ("0,fail", {"exit_zero": "true"}, 0, "fail"),
        ("0,undecided", {"exit_zero": "true"}, 0, "undecided"),
        ("2,", {}, 2, "error"),
        ("2,", {"undecided": "warn", "exit_zero": "true"}, 2, "error"),
        ("3,", {"undecided": "warn"}, 2, "error"),
        ("3,fail", {"undecided": "warn"}, 2, "error"),
        ("1,", {}, 2, "error"),
        ("0,", {}, 2, "error"),
        ("0,fail", {}, 2, "error"),
        ("137,undecided", {}, 2, "error"),
    ],
)
def test_exit_codes(make, verdict, inputs, code, outcome):
    """An internal error ends with 3 as well, before the verdict is written or while it is shown."""
    repository = make({"new.jsonl": items(3)})
    (repository.folder / "secid-gate").mkdir()
    (repository.folder / "secid-gate" / "gate.json").write_text('  "outcome": "undecided",\n', encoding="utf-8")
    job = act(repository, {**PULL_REQUEST, "FAKE_VERDICT": verdict}, **inputs)
    assert (job.code, job.outcome) == (code, outcome), job
    assert ("::error " in job.out) is (outcome == "error")
    assert job.services[-1][0].startswith("actions/upload-artifact@")
    assert job.services[-1][1]["path"] == "secid-gate"


MODEL = ("~/.cache/huggingface/hub", f"secid-model-Linux-{FINGERPRINT}")
EMBEDDINGS = ("~/.cache/secid", f"secid-Linux-{FINGERPRINT}-7-1")


def caches(job: Job, verb: str) -> list[tuple[str, str]]:
    return [(fields["path"], fields["key"]) for name, fields in job.services if f"cache/{verb}@" in name]


@pytest.mark.parametrize(
    ("verdict", "restored", "kept"),
    [
        ("0,pass", False, [MODEL, EMBEDDINGS]),
        ("1,fail", False, [MODEL, EMBEDDINGS]),
        ("1,fail", True, [EMBEDDINGS]),
        ("2,", False, []),
    ],
)
def test_caches_of_the_encoder_are_kept_after_every_verdict(make, verdict, restored, kept):
    repository = make({"new.jsonl": items(3)})
    for name in ("secid", "huggingface/hub"):
        (repository.tools / "home" / ".cache" / name).mkdir(parents=True)
    job = act(repository, {**PULL_REQUEST, "FAKE_VERDICT": verdict}, restored)
    assert caches(job, "restore") == [MODEL, EMBEDDINGS]
    assert caches(job, "save") == kept


def test_no_cache_is_kept_where_there_is_none(make):
    assert caches(act(make({"new.jsonl": items(3)})), "save") == []


def test_the_cached_folders_are_secid_s_and_the_hub_s(monkeypatch, tmp_path):
    steps = document(f"{ACTION}/action.yml")["runs"]["steps"]
    model, embeddings = (step["with"]["path"] for step in steps if "cache/restore" in step.get("uses", ""))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    ask = [sys.executable, "-c", "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"]

    def hub() -> Path:
        return Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())

    assert CacheFolder.of(Settings()).folder.is_relative_to(Path(embeddings).expanduser())
    assert hub() == Path(model).expanduser()
    job = document("docs/ci/gitlab.yml")["negatives"]
    assert job["variables"]["XDG_CACHE_HOME"] == "$CI_PROJECT_DIR/.cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "project" / ".cache"))
    (embeddings,), (model,) = (entry["paths"] for entry in job["cache"])
    assert CacheFolder.of(Settings()).folder.is_relative_to(tmp_path / "project" / embeddings)
    assert hub() == tmp_path / "project" / model


def test_a_rejected_source_is_shown_on_every_page(make, prepared, monkeypatch, invoke):
    """The gate gets the arguments that the action passes to its program."""
    name = "a,b: %0A ::error::x\n::stop-commands::y & <z>.jsonl"
    repository = make({name: items(140, 1000, known=2), "used.jsonl": items(140, 1000)}, prepared.baseline)
    job = act(repository, {**PULL_REQUEST, "FAKE_VERDICT": "1,fail"})
    assert (job.code, job.outcome) == (1, "fail"), job
    monkeypatch.chdir(repository.folder)
    summary = repository.tools / "summary.log"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    gated = invoke(*repository.arguments())
    assert gated.code == 1, gated
    commands = [line for line in (gated.out + gated.err).splitlines() if line.lstrip().startswith("::")]
    assert {line.split(" ")[0] for line in commands} == {"::error", "::notice"}
    (error,) = (line for line in commands if "findings.false_negative" in line)
    properties = dict(part.split("=", 1) for part in error.split(" ", 1)[1].split("::")[0].split(","))
    assert properties.keys() == {"title", "file", "line"}
    assert "%250A" in properties["file"]
    reports = repository.folder / "secid-gate"
    suites = ElementTree.parse(reports / "gate.xml").getroot()
    assert [suite.find("testcase/failure") is not None for suite in suites] == [True, False]
    failures = {case.get("name") for case in suites.iter("testcase") if case.find("failure") is not None}
    assert "findings.false_negative" in failures
    assert re.search('^  "outcome": "fail"', (reports / "gate.json").read_text(encoding="utf-8"), re.MULTILINE)
    assert (reports / "gate.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "findings.false_negative" in summary.read_text(encoding="utf-8").replace("\\", "")  # Markdown escapes


def test_inputs_pass_only_through_the_environment():
    action = document(f"{ACTION}/action.yml")
    text = (ROOT / SCRIPT).read_text(encoding="utf-8")
    scripts = [step for step in action["runs"]["steps"] if "run" in step]
    assert not [step for step in scripts if "${{" in step["run"]]
    last = scripts[-1]["env"]
    assert {name for name in action["inputs"] if any(f"inputs.{name} " in text for text in last.values())} == set(
        action["inputs"]
    )
    assert set(re.findall(r"GATE_[A-Z_]+", text)) == last.keys()
    assert scripts[0]["env"].items() <= last.items()


def test_the_workflow_always_reports_and_has_least_permissions():
    whole = document("docs/ci/github.yml")
    (job,) = whole["jobs"].values()
    events = whole[True]  # YAML 1.1 reads "on" as a boolean
    assert events.keys() == {"pull_request", "merge_group", "push"}
    assert not events["pull_request"]
    assert "if" not in job
    assert whole["permissions"] == {"contents": "read"}
    services = [
        step["uses"] for step in [*job["steps"], *document(f"{ACTION}/action.yml")["runs"]["steps"]] if "uses" in step
    ]
    assert all(re.fullmatch(r"actions/[a-z/-]+@v\d+|OWNER/.*", name) for name in services)
    checkout = job["steps"][0]["with"]
    assert (checkout["fetch-depth"], checkout["persist-credentials"]) == (0, False)


def test_the_templates_pin_this_version():
    (job,) = document("docs/ci/github.yml")["jobs"].values()
    assert job["steps"][-1]["uses"] == f"OWNER/secid/{ACTION}@v{__version__}"
    variables = document("docs/ci/gitlab.yml")["negatives"]["variables"]
    assert variables["SECID_VERSION"] == f"v{__version__}"
    assert variables["SECID_REPOSITORY"].endswith("/OWNER/secid")


def gitlab(repository: Repository, by: str = "bash", target: str = "", **more: str) -> Any:
    """The job's script as GitLab's runner joins it, with the job's variables, and a repository of secid in place."""
    job = document("docs/ci/gitlab.yml")["negatives"]
    variables = {name: str(text) for name, text in job["variables"].items()}
    origin = repository.tools / "origin"
    (origin / ACTION).mkdir(parents=True)
    shutil.copy(ROOT / SCRIPT, origin / SCRIPT)
    git(origin, "init", "-q")
    commit(origin, "release")
    git(origin, "tag", variables["SECID_VERSION"])
    rewrite = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{origin.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": variables["SECID_REPOSITORY"],
    }
    variables["XDG_CACHE_HOME"] = variables["XDG_CACHE_HOME"].replace("$CI_PROJECT_DIR", str(repository.folder))
    variables |= {"CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.base, "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": target}
    flags = ("-eo", "pipefail") if by == "bash" else ("-e",)
    return shell("\n".join(job["script"]), repository, *flags, by=by, **variables, **rewrite, **more)


SHELLS = ["bash", pytest.param("dash", marks=pytest.mark.skipif(not shutil.which("dash"), reason="needs dash"))]


@pytest.mark.parametrize("by", SHELLS)
def test_the_gitlab_job_judges_what_a_change_adds(make, by):
    repository = make(dict.fromkeys(AWKWARD, items(3)))
    done = gitlab(repository, by, target="origin/main")
    assert done.returncode == 0, done
    assert sorted(repository.sources()) == sorted(f"negatives/{name}" for name in AWKWARD)
    assert "--annotations" not in repository.arguments()
    artifacts = document("docs/ci/gitlab.yml")["negatives"]["artifacts"]
    for path in (artifacts["reports"]["junit"], *artifacts["paths"]):
        assert (repository.folder / path).is_file(), path


def test_the_gitlab_job_compares_a_branch_with_where_it_began(make):
    repository = make({"new.jsonl": items(3)})
    git(repository.folder, "switch", "-q", "--detach", "change")
    assert gitlab(repository).returncode == 0
    assert repository.sources() == ["negatives/new.jsonl"]


def test_the_action_compares_a_branch_with_where_it_began(make):
    repository = make({"new.jsonl": items(3)})
    git(repository.folder, "switch", "-q", "--detach", "change")
    assert act(repository).code == 0
    assert repository.sources() == ["negatives/new.jsonl"]


@pytest.mark.parametrize(("verdict", "code"), [("1,fail", 1), ("2,", 2), ("3,undecided", 3), ("3,", 2), ("3,fail", 2)])
def test_only_an_undecided_source_is_a_warning_of_the_gitlab_job(make, verdict, code):
    assert gitlab(make({"new.jsonl": items(3)}), FAKE_VERDICT=verdict).returncode == code
    assert document("docs/ci/gitlab.yml")["negatives"]["allow_failure"] == {"exit_codes": 3}


def test_the_gitlab_job_succeeds_where_nothing_changed(make):
    repository = make()
    done = gitlab(repository, target="origin/main")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert repository.log("pip") == repository.log("secid") == ""
    (rule,) = document("docs/ci/gitlab.yml")["negatives"]["rules"]
    assert rule.keys() == {"if"}


def test_a_failed_installation_gives_no_verdict(make):
    repository = make({"new.jsonl": items(3)})
    program(repository.tools / "pip", "#!/bin/sh\nexit 3\n")
    assert gitlab(repository).returncode == 2


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs shellcheck")
def test_shellcheck():
    done = subprocess.run(["shellcheck", str(ROOT / SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def hook() -> dict[str, Any]:
    (result,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return result


def test_the_hook_installs_nothing_and_fails_on_every_defect():
    assert hook()["language"] == "system"
    names = {argument.removeprefix("--fail-on=") for argument in hook()["args"]}
    assert names == {*DEFECTS, "malformed_rows"}


def test_the_hook_checks_files_and_two_of_one_name(tmp_path, invoke):
    """pre-commit runs the entry, the arguments and the files of the commit, in this order."""
    program, *words = hook()["entry"].split()
    assert program == "secid"
    paths = [f"{folder}/negatives/new file.jsonl" for folder in ("train", "dev")]
    for path, source in zip(paths, ("random.jsonl", "poisoned.jsonl"), strict=True):
        (tmp_path / path).parent.mkdir(parents=True)
        shutil.copy(FIXTURES / "sources" / source, tmp_path / path)
    assert invoke(*words, *hook()["args"], paths[0]).code == 0
    done = invoke(*words, *hook()["args"], *paths)
    assert done.code == 1
    assert "train/negatives/new file" in done.out
    assert "dev/negatives/new file" in done.out


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
