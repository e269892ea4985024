"""`secid check`: text, JSON, exit codes; no torch."""

from __future__ import annotations

import dataclasses
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from secid import api
from secid.pages.check_page import check_screen
from secid.pages.screen import print_page
from secid.results.catalogue import CAUTIONS
from secid.results.check import CHECKED_FINDINGS, Check, SourceCaution, TextFacts
from tests.cli.conftest import FIXTURES, ROOT, child_environment, rows, write_rows

POISONED = FIXTURES / "sources" / "poisoned.jsonl"
DOCS = ROOT / "docs" / "check.md"


def test_text_says_what_was_understood_counted_and_found(invoke):
    code, out, err = invoke("check", POISONED, FIXTURES / "sources" / "bm25.jsonl.gz")
    assert code == 0
    for part in (
        "a labelled positive of the query. 37 of poisoned (11.2 %)",
        "a negative of the same record. 16 of poisoned (4.8 %)",
        f"{POISONED}:56: “A limit",
        "poisoned  repair first 16.1 % 330",
    ):
        assert "".join(part.split()) in "".join(out.split()), part
    assert "query=query, positive=pos, negatives=neg" in err
    assert "rows read" not in err
    assert out.endswith("\n")
    assert len({line for line in out.splitlines() if line}) == len([line for line in out.splitlines() if line])


@pytest.mark.parametrize("columns", [60, 80])
def test_five_sources_fit_a_screen(columns):
    stream = io.StringIO()
    console = Console(file=stream, width=columns, highlight=False)
    check = api.check([str(path) for path in sorted((FIXTURES / "sources").iterdir())])
    print_page(console, check_screen(check))
    assert len(stream.getvalue().splitlines()) <= 40


def test_the_commands_repair_the_source(invoke, tmp_path):
    """The saved and the repair command repeat the flags and files, and run as printed."""
    table = [{**row, "hard": row["neg"], "other": "x"} for row in rows(12, 4)]
    table[0]["hard"] = [*table[0]["hard"], table[0]["pos"][0].upper()]
    path = tmp_path / "my rows.jsonl"
    write_rows(path, table)
    report = api.check([str(path)], negative_column="hard", tokenizer="whitespace", titles=False)
    words = shlex.split(report.save)
    assert words[:3] == ["secid", "check", str(path)]
    assert words[words.index("--negative-column") + 1] == "hard"
    assert "tokenizer=whitespace" in words
    assert invoke(*words[1:]).code == 0
    repair = shlex.split(report.sources[0].repair)
    assert invoke(*repair[1:]).code == 0
    clean = api.check([repair[-1]])
    assert (clean.sources[0].n_flagged, clean.save, clean.sources[0].repair) == (0, None, None)


def test_json_is_one_document_equal_to_the_api(invoke):
    code, out, _ = invoke("check", POISONED, "--json", "--quiet")
    found = json.loads(out)
    expected = json.loads(json.dumps(dataclasses.asdict(api.check([POISONED]))))
    found["seconds"] = expected["seconds"] = None
    assert (code, json.dumps(found)) == (0, json.dumps(expected))


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ([], 0),
        (["repeat"], 1),
        (["repeat=0.04"], 1),
        (["repeat=5%"], 0),
        (["empty", "query_echo=0"], 0),
        (["empty", "hub"], 1),
        (["any"], 1),
    ],
)
def test_exit_1_only_where_asked(invoke, limits, code):
    flags = [part for limit in limits for part in ("--fail-on", limit)]
    outcome = invoke("check", POISONED, *flags)
    assert outcome.code == code
    assert ("of --fail-on: " in outcome.out) == (code == 1)


def test_an_unknown_finding_is_wrong_use_before_any_reading(invoke):
    outcome = invoke("check", "no-such-file.jsonl", "--fail-on", "false_negatives")
    assert (outcome.code, outcome.out) == (2, "")
    assert "did you mean 'false_negative'" in outcome.err


def test_evaluation_texts_in_a_source(invoke):
    outcome = invoke("check", POISONED, "--against-eval", FIXTURES / "collection", "--fail-on", "eval_query")
    assert outcome.code == 1
    for part in ("66 exactly, 0 nearly; 66 of 66", "66 evaluation queries", "94 relevant"):
        assert part in " ".join(outcome.out.split())


BROKEN = sorted(path for path in (FIXTURES / "broken").iterdir() if path.suffix != ".md")
REFUSED = {"cut.parquet", "empty.jsonl", "llamaindex.json", "ids_without_text.jsonl"}


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.name)
def test_every_broken_fixture_is_reported_or_refused(invoke, path):
    one_shard = "-of-" in path.name
    outcome = invoke("check", f"part={path}" if one_shard else path, "--quiet", "--set", "max_bad_fraction=1")
    assert "Traceback" not in outcome.err
    if path.name in REFUSED:
        assert outcome.code == 2
        assert outcome.err.startswith("secid: ")
    else:
        assert outcome.code == 0, outcome.err
        assert ("part" if one_shard else path.stem) in outcome.out


@pytest.mark.parametrize(
    ("name", "finding", "n"),
    [
        ("false_negative.jsonl", "false_negative", 2),
        ("false_negative_of_another_record.jsonl", "false_negative", 2),
        ("repeats.jsonl", "repeat", 299),
        ("preambles.jsonl", "preamble", 4),
        ("placeholders.jsonl", "empty", 3),
        ("empty_negative.jsonl", "empty", 3),
        ("missing_field.jsonl", "malformed_rows", 2),
        ("string_for_list.jsonl", "malformed_rows", 2),
        ("no_negatives.jsonl", "rows_without_negatives", 1),
    ],
)
def test_the_defect_of_a_broken_fixture_is_named(invoke, name, finding, n):
    check = json.loads(invoke("check", FIXTURES / "broken" / name, "--json", "--set", "max_bad_fraction=1").out)
    (source,), (facts,) = check["sources"], check["texts"].values()
    found = {item["name"]: item for item in (*source["findings"], *facts["cautions"])}[finding]
    assert found.get("n_negatives", found.get("n")) == n
    assert found.get("exceeded", True) or finding == "malformed_rows"
    assert found["examples"]
    assert all(Path(example["path"]).name == name and example["line"] > 0 for example in found["examples"])


def test_foreign_text_cannot_write_on_the_terminal(invoke, tmp_path):
    items = list(rows(6))
    items[0]["neg"][0] = items[0]["pos"][0] = "an answer \x1b[31mthat paints\u202e the screen\x07"
    out = invoke("check", write_rows(tmp_path / "odd.jsonl", items)).out
    assert "thatpaints" in "".join(out.split())
    assert not set("\x1b\u202e\x07") & set(out)


def test_standard_input(invoke, monkeypatch):
    text = "".join(json.dumps(row) + "\n" for row in rows(5))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    outcome = invoke("check", "-")
    assert outcome.code == 0
    assert outcome.out.startswith("No defects found in stdin")


PROBE = """
import sys
from secid.cli.app import main
code = main(["check", *sys.argv[1:]])
heavy = {"torch", "transformers", "huggingface_hub"} & set(sys.modules)
import torch
print(code, heavy, "torch" in sys.modules, file=sys.stderr)
"""


def test_neither_torch_is_imported_nor_does_the_hash_seed_of_python_change_anything(tmp_path, invoke):
    """The seed of this process is drawn. A file in the working directory stands in for torch, and is noticed."""
    items = list(rows(60))
    starts = ("sure it is", "now it was", "then it became", "once there stood", "far away lay", "long ago lived")
    for number, item in enumerate(items):  # six openings and two hubs, equally common: ties that hashes could order
        item["neg"] += [f"hub {number % 2} of them all", f"{starts[number % 6]} so that number {number}"]
    path = write_rows(tmp_path / "tied.jsonl", items)
    words = [str(path), str(POISONED), "--against-eval", str(FIXTURES / "collection"), "--json", "--quiet"]
    (tmp_path / "torch.py").touch()
    child = subprocess.run(
        [sys.executable, "-c", PROBE, *words],
        capture_output=True, text=True, check=True, env=child_environment(PYTHONHASHSEED="1"), cwd=tmp_path,
    )  # fmt: skip
    assert child.stderr == "0 set() True\n"
    found = [json.loads(text) for text in (invoke("check", *words).out, child.stdout)]
    for document in found:
        document["seconds"] = None
    assert found[0] == found[1]
    assert {item["name"] for item in found[0]["sources"][0]["findings"] if item["n_negatives"]} >= {
        "hub",
        "shared_opening",
    }


def test_the_page_names_every_key():
    text = DOCS.read_text(encoding="utf-8")
    kinds = (Check, TextFacts, SourceCaution)
    keys = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert [name for name in sorted(keys) if f"`{name}`" not in text] == []


def test_help_lists_findings_and_exit_codes(invoke):
    code, out, _ = invoke("check", "--help")
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in out).split())
    assert code == 0
    assert {*CHECKED_FINDINGS, *CAUTIONS, "any"} <= words
    assert "Exit codes: 0 " in " ".join(out.split())


def test_a_column_flag_given_twice_is_refused(invoke):
    code, _, err = invoke("score", POISONED, "--negative-column", "neg", "--negative-column=negatives")
    assert code == 2
    assert "--negative-column appears 2 times" in err


def test_a_second_page_without_a_flag_of_its_own_is_refused(invoke, tmp_path):
    page, second = str(tmp_path / "a.html"), str(tmp_path / "b.md")
    code, _, err = invoke("check", POISONED, "-o", page, second)
    assert code == 2
    assert f"-o {page} -o {second}" in err
    assert not (tmp_path / "a.html").exists()
    code, _, _ = invoke("check", POISONED, "-o", page, "-o", second)
    assert code == 0
    code, _, _ = invoke("check", "-o", page, POISONED)
    assert code == 0


def test_an_example_without_detail_shows_its_reason(invoke, tmp_path):
    good = {"query": "which bread", "pos": ["a dark one"], "neg": ["a red bicycle"]}
    path = write_rows(tmp_path / "a.jsonl", [good, {**good, "query": " "}])
    code, _, err = invoke("check", path)
    assert (code, f"{path}:2: empty_query\n" in err) == (2, True)
    assert not any(line.endswith(":") for line in err.splitlines())


def test_explain_says_what_each_finding_is(invoke):
    from secid.results.catalogue import FINDINGS

    listed = invoke("explain").out
    for name, entry in (FINDINGS | CAUTIONS).items():
        code, out, _ = invoke("explain", name)
        assert code == 0
        assert name in listed
        for part in (entry.says if name in CAUTIONS else entry.rule, entry.do, f"docs/findings.md#{name}"):
            assert part in " ".join(out.split())
    defects = listed.split("\n\n")[0]
    assert {name for name in FINDINGS if f"  {name} " in defects} == {
        n for n, entry in FINDINGS.items() if entry.counted
    }


def test_pages_are_written_and_the_text_printed(invoke, tmp_path):
    files = [tmp_path / f"check{suffix}" for suffix in (".html", ".md", ".json")]
    code, out, _ = invoke("check", POISONED, *(part for file in files for part in ("-o", file)))
    assert (code, out[:6]) == (0, "Repair")
    assert "<code>" in files[0].read_text(encoding="utf-8")
    assert files[1].read_text(encoding="utf-8").startswith("# ")
    assert json.loads(files[2].read_text(encoding="utf-8"))["sources"][0]["status"] == "repair"


@pytest.mark.parametrize("name", ["check.pdf", str(POISONED)])
def test_a_page_of_another_format_or_over_a_source_is_refused(invoke, tmp_path, name):
    before = POISONED.read_bytes()
    assert invoke("check", POISONED, "-o", tmp_path / name).code == 2
    assert POISONED.read_bytes() == before


def test_a_line_of_another_encoding_has_a_remedy_of_its_own(tmp_path, invoke):
    lines = [f'{{"query": "é {n}", "positive": "b {n}", "negative": "c {n}"}}\n'.encode() for n in range(12)]
    lines[6] = lines[6].decode().encode("cp1252")
    (tmp_path / "in.jsonl").write_bytes(b"".join(lines))
    outcome = invoke("check", tmp_path / "in.jsonl")
    assert outcome.code == 2
    assert "in.jsonl:7" in outcome.err
    assert "--format" not in outcome.err
    assert "write it in UTF-8" in outcome.err


def test_an_example_shows_what_its_rule_matched(tmp_path, invoke):
    """Damage far into a passage is in the few characters that the terminal shows."""
    table = list(rows(20))
    table[3]["neg"].append(f"{'Plain words of a passage. ' * 60}Ã¼ber den DÃ¤chern")
    write_rows(tmp_path / "in.jsonl", table)
    out = json.loads(invoke("check", "in.jsonl", "--json", "--quiet").out)
    (example,) = next(item for item in out["sources"][0]["findings"] if item["name"] == "mojibake")["examples"]
    assert "Ã¼ber" in example["negative"][:40]


def test_a_name_with_control_characters_has_no_command(tmp_path, invoke):
    write_rows(tmp_path / "a\x1b[1m.jsonl", [{**row, "neg": row["neg"] * 2} for row in rows(20)])
    code, out, _ = invoke("check", "a\x1b[1m.jsonl")
    assert code == 0
    assert "invisible characters, so it cannot be typed" in " ".join(out.split())
    assert not any(line.strip().startswith("secid s") for line in out.splitlines())


def test_labels_are_counted(tmp_path, invoke):
    table = list(rows(20))
    write_rows(tmp_path / "one.jsonl", table)
    write_rows(tmp_path / "two.jsonl", [{**table[0], "pos": [*table[0]["pos"], "another answer"]}, *table[1:]])
    for name, expected in (("one", True), ("two", False)):
        report = json.loads(invoke("check", f"{name}.jsonl", "--json", "--quiet").out)
        assert (report["one_positive"], report["n_of_qrels"]) == (expected, 0)


def test_a_trait_is_in_the_first_line(tmp_path, invoke):
    write_rows(tmp_path / "in.jsonl", [{**row, "neg": [*row["neg"], "One passage for all"]} for row in rows(20)])
    out = invoke("check", "in.jsonl").out
    assert "100.0 % length" in " ".join(out.splitlines()[:2])


def test_many_sources_take_one_screen_and_sound_ones_a_line(invoke, tmp_path):
    sound, damaged = FIXTURES / "sources" / "random.jsonl", POISONED
    for n in range(30):
        (tmp_path / f"s{n:02}.jsonl").write_bytes((damaged if n in (3, 17) else sound).read_bytes())
    names = sorted(path.name for path in tmp_path.glob("s*.jsonl"))  # a long path would take a line more
    lines = invoke("check", *names).out.splitlines()
    assert len(lines) <= 40
    assert [line.split()[0] for line in lines if " repair first " in line] == ["s03", "s17"]
    assert sum(" no defects " in line for line in lines) == 0
    assert any("28 sources" in line for line in lines)


def test_cautions_hold_no_sentence(tmp_path):
    write_rows(tmp_path / "a.jsonl", rows(3))
    check = api.check([tmp_path / "a.jsonl"])
    values = [value for facts in check.texts.values() for item in facts.cautions for value in item.values.values()]
    assert values
    assert all(isinstance(value, int | float) or value.isidentifier() for value in values)
