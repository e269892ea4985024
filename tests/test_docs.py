"""The pages match the code, and their snippets run."""

from __future__ import annotations

import dataclasses
import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from secid import results
from tests.tiny_bert import save_tiny_bert

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "docs" / "llms.txt",
    ROOT / "fixtures" / "README.md",
]  # fmt: skip
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?%?")
ROUNDING = 0.002
"""Tolerance: another processor adds in another order, which can change the last digit shown."""


@cache
def builder() -> ModuleType:
    """Import docs/build.py, which is not in a package."""
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def options() -> dict[str, set[str]]:
    """Return the options of each command."""
    return {
        name: {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        for name, (command, _) in builder().commands().items()
    }


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(path), re.DOTALL | re.MULTILINE)


def words_in_code(text: str) -> set[str]:
    """Return every identifier in `code` spans."""
    return {word for span in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"[A-Za-z_]\w*", span)}


def trackers() -> dict[str, Any]:
    """Return stand-ins for the trackers in snippets, which accept numbers by name and existing files."""

    def numbers(values: dict[str, float]) -> None:
        assert values
        assert all(type(name) is str and type(value) in (int, float) for name, value in values.items())

    def file(path: str) -> None:
        assert Path(path).is_file()

    run = nullcontext(SimpleNamespace(summary=SimpleNamespace(update=numbers)))
    own = {
        "mlflow": {"start_run": nullcontext, "log_metrics": numbers, "log_artifact": file},
        "wandb": {"init": lambda project: run},
    }
    # transformers looks up the spec of both
    return {name: SimpleNamespace(__spec__=ModuleSpec(name, None), **made) for name, made in own.items()}


@pytest.fixture
def here(monkeypatch, tmp_path_factory):
    """Run snippets in a new folder that contains the fixtures."""
    folder = tmp_path_factory.mktemp("snippets")
    (folder / "fixtures").symlink_to(ROOT / "fixtures", target_is_directory=True)
    places = "".join(f"bread-q01 Q0 bread-0{n} {n} {9.5 - n} bm25\n" for n in range(1, 8))
    (folder / "run.trec").write_text(places, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name, module in trackers().items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in [name for name in os.environ if name.startswith("SECID_")]:
        monkeypatch.delenv(name)
    return folder


# names on the pages


def test_generated_tables_are_current():
    """If it fails, run: python docs/build.py"""
    assert builder().cli_page() == text_of(builder().CLI_PAGE)
    assert builder().findings_page() == text_of(builder().FINDINGS_PAGE)
    assert builder().index() == text_of(builder().INDEX)
    assert builder().probe_page() == text_of(builder().PROBE_PAGE)


def test_a_new_option_would_be_noticed():
    page = text_of(builder().CLI_PAGE)
    assert page.replace("| `--max-records` |", "| `--most-records` |") != builder().cli_page()


def missing_fields(page: str) -> list[str]:
    named = words_in_code(page)
    return [
        f"{kind.__name__}.{field.name}"
        for kind in vars(results).values()
        if dataclasses.is_dataclass(kind) and isinstance(kind, type)
        for field in dataclasses.fields(kind)
        if field.name not in named
    ]


def test_every_field_of_the_report_is_named():
    assert missing_fields(text_of(ROOT / "docs" / "report-schema.md")) == []


def test_a_field_that_is_not_named_would_be_noticed():
    page = text_of(ROOT / "docs" / "report-schema.md")
    noticed = set(missing_fields(page.replace("`probability_first`", ""))) - set(missing_fields(page))
    assert noticed == {"SourceScore.probability_first"}


def test_every_column_of_negatives_is_named():
    from secid.run_folder.tables import NEGATIVES_SCHEMA

    section = text_of(ROOT / "docs" / "report-schema.md").split("## negatives.parquet", 1)[1].split("\n## ", 1)[0]
    columns = {name for name in NEGATIVES_SCHEMA.names if not name.startswith("in_")}
    assert columns | {"in_"} == words_in_code("\n".join(re.findall(r"^\| (.+?) \|", section, re.MULTILINE)))


def test_every_section_of_the_method_that_the_code_points_to_is_there():
    sections = set(re.findall(r"^## (\d+)\. ", text_of(ROOT / "docs" / "method.md"), re.MULTILINE))
    pointed = set()
    for path in (ROOT / "secid").rglob("*.py"):
        for reference in re.findall(r"METHOD ((?:\d+(?:\.\d+)?(?:, | and )?)+)", text_of(path)):
            pointed |= {number.split(".")[0] for number in re.findall(r"\d+(?:\.\d+)?", reference)}
    assert {"1", "2", "8"} <= pointed
    assert pointed <= sections


def test_every_control_weight_and_tokenizer_is_described():
    from typing import get_args

    from secid.analyses.controls import CONTROL_KINDS
    from secid.measure.gates import WEIGHT_FORMULAS
    from secid.settings import IdfCorpus, PositivePolicy
    from secid.triplets.measure_set import TOKENIZERS

    page = text_of(ROOT / "docs" / "method.md")
    named = words_in_code(page)
    assert {*WEIGHT_FORMULAS, *CONTROL_KINDS, *TOKENIZERS, *get_args(IdfCorpus), *get_args(PositivePolicy)} <= named


def test_every_finding_and_caution_has_an_anchor_that_explain_names():
    from secid.pages.explain import explained
    from secid.results.catalogue import CAUTIONS, FINDINGS

    headings = set(re.findall(r"^#+ (\w+)$", text_of(builder().FINDINGS_PAGE), re.MULTILINE))
    assert {*FINDINGS, *CAUTIONS} <= headings
    for name in (*FINDINGS, *CAUTIONS):
        page, _, anchor = explained(name)[name]["docs"].partition("#")
        assert (ROOT / page, anchor) == (builder().FINDINGS_PAGE, name)


def test_every_dependency_has_its_reason():
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    required = [
        *project["dependencies"],
        *(item for extra in project["optional-dependencies"].values() for item in extra),
    ]
    names = {re.split(r"[<>=!~\[; ]", item, maxsplit=1)[0] for item in required}
    rows = re.findall(r"^\| (.+?) \|", text_of(ROOT / "docs" / "decisions" / "dependencies.md"), re.MULTILINE)
    extras = re.findall(r"^\| \w+ \| (.+?) \|", text_of(ROOT / "docs" / "decisions" / "dependencies.md"), re.MULTILINE)
    listed = {name for row in [*rows, *extras] for name in row.split(", ")}
    assert names <= listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        assert "://" not in target
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", text_of(path), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, target


# commands and snippets of the pages


@pytest.mark.parametrize("page", builder().OUTPUTS, ids=lambda page: page.name)
def test_the_output_on_a_page_is_what_its_commands_print(page):
    """If it fails, run: python docs/build.py --output"""
    printed = builder().with_output(page)
    assert same_but_for_rounding(text_of(page), printed), printed


def same_but_for_rounding(first: str, second: str) -> bool:
    """Return whether words and their order are equal and numbers are within ROUNDING (0.1 points for percentages)."""
    if NUMBER.sub("#", " ".join(first.split())) != NUMBER.sub("#", " ".join(second.split())):
        return False
    pairs = zip(NUMBER.findall(first), NUMBER.findall(second), strict=True)
    return all(
        abs(float(a.rstrip("%")) - float(b.rstrip("%"))) <= (0.11 if a.endswith("%") else ROUNDING) for a, b in pairs
    )


def test_a_changed_output_would_be_noticed():
    assert same_but_for_rounding("1 random 0.5455 9.9%", "1 random   0.5456 10.0%")
    assert not same_but_for_rounding("1 random 0.5455", "1 random 0.5555")
    assert not same_but_for_rounding("1 random 0.5455", "1 bm25 0.5455")


def lines_in(page: Path) -> list[str]:
    return [line for block in blocks(page, "sh") for line in block.splitlines()]


def commands_in(page: Path) -> list[str]:
    return [line for line in lines_in(page) if line.startswith("secid ")]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return save_tiny_bert(tmp_path_factory.mktemp("tiny") / "encoder")


@pytest.mark.parametrize("name", ["how-to.md", "skill/SKILL.md", "tutorial.md"])
def test_commands_of_a_page_run_as_typed(here, name, tiny, monkeypatch):
    """With a tiny model behind the name "minilm"; mining's margins need the real one."""
    from secid.cli.app import main

    assert len(commands_in(ROOT / "docs" / name)) >= 2
    for command in lines_in(ROOT / "docs" / name):
        if not command.startswith("secid "):
            subprocess.run(["bash", "-c", command], check=True)
            continue
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err), monkeypatch.context() as patched:
            if name != "tutorial.md" and not command.startswith("secid mine "):
                patched.setattr("secid.encode.locate.offline_minilm", lambda memory=None: tiny)
            code = main(shlex.split(command)[1:])
        assert code == 0, f"{command}\n{err.getvalue()}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_name_options_that_exist(page):
    for command in commands_in(page):
        words = shlex.split(command, comments=True)[1:]
        name = max((known for known in options() if words[: len(known.split())] == known.split()), key=len)
        assert name
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= options()[name], command


OF_SCRIPTS = {"--check", "--help", "--update-snapshots"}
OF_SLURM = {"--parsable", "--array", "--wrap", "--gres", "--dependency"}
"""Flags on the pages that belong to other programs: the fixtures' script, typer and pytest; sbatch."""
ABOUT_SCRIPTS = {
    "changelog.md", "performance.md", "scale.md", "finetuning.md in experiments", "gate.md in experiments",
    "subsamples.md in experiments",
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_in_the_text_exist(page):
    if {page.name, f"{page.name} in {page.parent.name}"} & ABOUT_SCRIPTS:
        return
    known = set().union(*options().values())
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text_of(page))) - known - OF_SCRIPTS - OF_SLURM == set()


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page in PAGES for number in range(len(blocks(page, "python")))],
    ids=lambda value: value.name if isinstance(value, Path) else str(value),
)
def test_python_snippets_run(page, number, here):
    with redirect_stdout(io.StringIO()):
        exec(compile(blocks(page, "python")[number], f"{page.name}:{number}", "exec"), {"__name__": "snippet"})


def test_examples_in_the_docstrings_of_the_api_run(here):
    import secid
    from secid import api

    runner, output = doctest.DocTestRunner(), io.StringIO()
    of_runs = api.score, api.select, api.flagged, api.baseline, api.check, api.gate
    for function in (*of_runs, secid.mine, secid.mine_sweep, api.describe_encoder):
        (example,) = doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs={})
        assert example.examples
        runner.run(example, out=output.write)
    assert runner.failures == 0, output.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_snippets_are_settings(page, here):
    from secid.settings import resolve

    for block in blocks(page, "toml"):
        (here / "secid.toml").write_text(block, encoding="utf-8")
        resolve({}, environment={}, directory=here)


def test_shell_blocks_are_shell():
    for page in PAGES:
        for block in blocks(page, "sh"):
            subprocess.run(["bash", "-n"], input=block, text=True, check=True)


def test_continuous_integration_finds_the_test_command():
    found = re.search(r"<!-- test command -->\s*```(?:sh|bash)\n(.*?)```", text_of(ROOT / "README.md"), re.DOTALL)
    assert found is not None
    for step in ("ruff check .", "ruff format --check .", "mypy", "pytest"):
        assert step in found.group(1)


def test_pages_name_no_machine_and_no_registry():
    for page in PAGES:
        for word in ("/work/", "/root/", "/home/", "pypi.org", "pythonhosted"):
            assert word not in text_of(page), f"{page.name}: {word}"
