"""The terminal: verdict first, tables that fit with whole names, commands on lines of their own."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from secid.pages.glossary import ANSWER_TERMS
from secid.pages.page import Table, foreign, number
from secid.pages.screen import print_page, screen, table_lines
from secid.pages.sections import run_screen
from secid.pages.statuses import status_and_problem
from secid.pages.text import plain
from tests.unit.pages import samples
from tests.unit.pages.situations import CLEAN, ONE

RUN = samples.golden()
SAMPLES = {
    "golden": RUN,
    "hostile": samples.hostile(RUN),
    "bare": samples.bare(RUN),
    "12 sources": samples.large(RUN, 12, "source-"),
    "long names": samples.large(RUN),
    "wide letters": samples.large(RUN, 6, "漢字" * 60),
    "early": samples.early(RUN),
    "sliced": samples.sliced(RUN),
    "clean": CLEAN,
    "one": ONE,
}


def printed(run, width=80, terminal=False, legend=False, **options):
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, highlight=False, **options)
    print_page(console, run_screen(run, legend))
    return stream.getvalue()


def commands(text):
    return [line.strip() for line in text.splitlines() if re.match(r" +secid ", line)]


@pytest.fixture(params=sorted(SAMPLES))
def sample(request):
    return SAMPLES[request.param]


def test_a_guide_is_judged_below_the_table():
    blind = samples.guided(RUN, random_share=0.5, random_interval_95=(0.45, 0.55))
    text = " ".join(printed(blind).split())
    assert "- Share of suspects by the guide guide" in text
    assert "do not filter with this guide" in text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_but_a_command_is_wider_than_the_terminal(sample, width):
    repairs = {plain(source.repair or "") for source in sample.sources}
    lines = [line for line in printed(sample, width).splitlines() if line.strip() not in repairs]
    assert max(cell_len(line) for line in lines if not re.match(r" *secid |report: ", line)) <= width


@pytest.mark.parametrize("width", [40, 60, 80])
def test_every_name_and_score_is_whole(sample, width):
    text = "".join(printed(sample, width).split())
    for source in sample.sources:
        assert "".join(plain(source.name).split()) in text
        assert f"{source.score.nats:.3f}±" in text


def test_80_columns_hold_a_row_a_source_with_every_column():
    lines = printed(RUN).splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("source  "))
    assert lines[head].replace("score ± CI", "score").split() == [
        *("source", "status", "consist.", "local.", "resid.", "score", "tie", "hard.", "defects")
    ]
    end = lines.index("", lines.index("", head) + 1)  # an empty line is above the controls
    names = [line.split("  ")[0] for line in lines[head + 1 : end] if line and not line.startswith(" ")]
    assert sorted(names) == sorted([*(source.name for source in RUN.sources), "random passages", "known positives"])


def test_60_columns_have_each_name_and_status_above_its_numbers():
    lines = printed(RUN, 60).splitlines()
    for source in RUN.sources:
        status = status_and_problem(RUN, source).replace("\n", " ")
        place = lines.index(f"{source.name}: {status}")
        assert lines[place + 1].split()[-1] == "%"


def test_the_verdict_comes_first_and_the_page_last():
    lines = printed(replace(RUN, folder="runs/x")).splitlines()
    assert "poisoned" in lines[0]
    assert lines[-1] == "report: runs/x/report.html"
    assert "report:" not in printed(RUN)


def test_the_probe_is_advised_once():
    for run, n_commands in ((CLEAN, 1), (RUN, 0)):  # the golden run has a source to repair first
        text = printed(replace(run, probe="secid probe a.jsonl b.jsonl"))
        assert text.count("secid probe a.jsonl") == n_commands
        assert text.count("train briefly on each") == 1 - n_commands


def test_at_most_five_findings_and_how_many_more():
    text = printed(samples.large(RUN, 12, "source-"))
    assert len(re.findall(r"^  - ", text, re.MULTILINE)) == 5
    assert re.search(r"\(\d+ more in report\.html\)", text)


def test_commands_are_unbroken_and_each_is_printed_once(sample):
    found = commands(printed(sample, 40))
    assert len(found) == len(set(found))
    for line in found:
        assert shlex.split(line)[:2] in (["secid", "select"], ["secid", "flagged"], ["secid", "check"])


def test_the_repair_follows_the_defects_that_it_drops():
    lines = printed(RUN).splitlines()
    repair = next(place for place, line in enumerate(lines) if "secid select" in line)
    assert lines[repair - 1].strip().startswith("for example ")
    assert lines[repair - 2].strip().endswith("once.")
    assert "--finding length" in "".join(lines[repair:])


def test_the_legend_is_printed_on_request():
    assert not any(f"\n{term}: " in printed(RUN) for term in ANSWER_TERMS)
    assert all(f"\n{term}: " in printed(RUN, legend=True) for term in ANSWER_TERMS)


def test_no_line_ends_in_a_space(sample):
    for text in (printed(sample), printed(sample, terminal=True)):
        assert not re.search(r" (\x1b\[0m)*$", text, re.MULTILINE)


def test_colours_are_for_terminals(monkeypatch):
    assert "\x1b[" not in printed(RUN)
    assert "\x1b[" in printed(RUN, terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3\d", printed(RUN, terminal=True))


def test_names_are_never_markup_and_never_control_the_terminal():
    run = samples.renamed(RUN, {"random": "[bold red]x[/bold red]", "bm25": "\x1b[31mred", "dense": "a\nb"})
    text = printed(run, 120)
    assert "[bold red]x[/bold red]" in text
    assert not set(text) & {"\x1b", "\r", "\u2066", "\u2068", "\u2069"}
    assert "\na b " in text


def test_no_line_is_a_command_for_a_ci_log():
    text = printed(samples.renamed(RUN, {"random": "::error::x", "bm25": "##[command]"}), 60)
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    assert "##[" not in text


def test_a_score_of_too_few_queries_has_no_half_width():
    few = samples.changed(RUN.sources[-1], interval_95=(0.0, 1.0), budget_curve=(), equal_curve=())
    assert f"{few.score.nats:.3f} ±?" in printed(replace(RUN, sources=(*RUN.sources[:-1], few)))


def test_what_was_left_out_or_not_evaluated_is_said():
    source = samples.changed(RUN.sources[0], dropped_negatives={"listed_again": 3}, skipped={"empty_query": 2})
    run = replace(RUN, sources=(source, *RUN.sources[1:]), not_evaluated={"control x": "too few"})
    text = printed(run, 200)
    assert "2 rows (2 × empty query) and 3 negatives (3 × listed again)" in text
    assert "control x (too few)" in text


def test_a_percentage_is_not_parted_from_its_sign():
    stream = io.StringIO()
    print_page(Console(file=stream, width=12), screen(["ten letters 5\u00a0% more"]))
    assert "5 %" in stream.getvalue()


def test_a_table_that_fits_in_no_way_has_a_line_a_cell():
    table = Table(caption="", columns=(foreign("name"), number("value")), rows=(("a" * 9, "1"), ("b", "2" * 9)))
    assert [line.plain for line in table_lines(table, 30)][1] == f"{'a' * 9}  {' ' * 8}1"
    stacked = [line.plain for line in table_lines(table, 12)]
    assert stacked == ["name", "      value", "a" * 9, "          1", "b", "  222222222"]
    assert [line.plain for line in table_lines(table, 5)] == ["a" * 9, "  value: 1", "b", f"  value: {'2' * 9}"]
