"""A probe on all pages: its verdict in one sentence, tables that fit, and foreign names that stay text."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from secid.pages.evidence import PROBE_FORMATS, probe_screen
from secid.pages.formats import RUN_FORMATS, run_formats
from secid.pages.screen import print_page
from secid.pages.sections import run_screen
from secid.pages.sections.probe import cautions, cost_sentence, probe_headline, scope
from secid.pages.text import without_isolates
from secid.results.probe import reversals_of
from tests.snapshots import Snapshot, situations
from tests.unit.pages import probes
from tests.unit.pages.samples import HOSTILE, golden
from tests.unit.pages.situations import CLEAN
from tests.unit.pages.test_pages import Outline

RUN = golden()
COMMAND = "secid probe a.jsonl --encoder minilm"


def printed(probe, width=80):
    stream = io.StringIO()
    print_page(Console(file=stream, width=width, highlight=False), probe_screen(probe))
    return stream.getvalue()


def run_printed(run, probe=None):
    stream = io.StringIO()
    print_page(Console(file=stream, width=80, highlight=False), run_screen(run, probe=probe))
    return stream.getvalue()


def test_the_wording_of_every_verdict(snapshot: Snapshot):
    texts = {
        name: [*map(without_isolates, (probe_headline(probe), *cautions(probe), scope(probe)))]
        for name, probe in probes.SITUATIONS.items()
    }
    snapshot("probe-verdicts.txt", situations(texts))


def test_the_terminal_at_two_widths(snapshot: Snapshot):
    snapshot("probe-80.txt", printed(probes.probe()))
    snapshot("probe-60.txt", printed(probes.probe(), 60))


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", probes.SITUATIONS)
def test_no_line_is_wider_than_the_terminal(name, width):
    assert max(map(cell_len, printed(probes.SITUATIONS[name], width).splitlines())) <= width


def test_the_page_in_markdown(snapshot: Snapshot):
    snapshot("probe.md", PROBE_FORMATS[".md"](probes.probe()))


def pair_of(first, second, established):
    return probes.pair(first, second, 0.01, established=established)


def doses_of(*pairs):
    return [replace(probes.dose(rate), pairs=(own,)) for rate, own in zip((1e-5, 4e-5, 1.6e-4), pairs, strict=False)]


def test_an_order_differs_only_if_it_is_established_both_ways():
    up, down = pair_of("a", "b", True), pair_of("b", "a", True)
    (found,) = reversals_of(doses_of(up, down, up))
    assert (found.first, found.second, found.first_better, found.second_better) == ("a", "b", (1e-5, 1.6e-4), (4e-5,))
    for pairs in ((up, up), (up, pair_of("b", "a", False)), (pair_of("a", "b", False), down), (up,)):
        assert reversals_of(doses_of(*pairs)) == ()


def test_best_are_those_that_no_dose_puts_significantly_below_its_first():
    situations_of = probes.SITUATIONS
    assert probes.probe().best == ("dense",)
    assert situations_of["best at one rate, tied at the other"].best == ("dense",)
    assert probes.REVERSED.best == ()
    assert situations_of["no gain at one rate"].best == ("dense",), "a dose without a ranking has no say"
    assert probes.without_gain().best == ()
    assert probes.untrained().best == ()


def test_one_source_above_random_is_enough():
    whole = probes.below_random()
    assert whole.doubts == ("not_above_random",)
    dose = whole.doses[0]
    first = replace(dose.sources[0], vs_random=probes.gap(0.02))
    assert replace(dose, sources=(first, *dose.sources[1:])).doubts == ()


def tags(page: str) -> list[tuple[str, tuple[str, ...]]]:
    """Elements and the names of their attributes."""
    return [(tag, tuple(attributes)) for tag, attributes in Outline(page).tags]


def test_a_foreign_name_adds_no_element():
    own = probes.probe()
    alone, in_a_run = tags(PROBE_FORMATS[".html"](own)), tags(run_formats(own)[".html"](RUN))
    foreign = probes.probe((" ".join(HOSTILE), "bm25", "mixed"))
    assert tags(PROBE_FORMATS[".html"](foreign)) == alone
    assert tags(run_formats(foreign)[".html"](RUN)) == in_a_run
    assert "\x1b" not in printed(foreign)


@pytest.mark.parametrize("suffix", [".html", ".md"])
def test_a_run_s_page_holds_its_probe_and_no_command_for_another(suffix):
    run = replace(CLEAN, probe=COMMAND, folder="runs/one")
    with_probe, without = run_formats(probes.probe())[suffix](run), RUN_FORMATS[suffix](run)
    assert "vs random" in with_probe
    assert "secid probe" not in with_probe
    assert f"{COMMAND} --run runs/one" in without
    assert "vs random" not in without


@pytest.mark.parametrize(("suffix", "fold"), [(".html", 'id="details"'), (".md", "## Method and diagnostics")])
def test_the_gains_are_next_to_the_score_s_answer(suffix, fold):
    page = run_formats(probes.probe())[suffix](RUN)
    assert page.index("gain at 5e-05") < page.index(fold)
    assert suffix == ".md" or '<a href="#probe">Which source trains better</a>' in page
    untrained = run_formats(probes.untrained())[suffix](RUN)
    assert "gain at 5e-05" not in untrained
    assert "#probe" not in untrained


def test_the_next_step_of_an_abstention_is_not_what_was_tried():
    whole = probes.without_gain()
    assert "--rate 0.0002 --rate 0.0008" in probe_headline(whole), "one rate alone would add its fourfold"
    diverged = without_isolates(probe_headline(replace(whole, doses=(*whole.doses, probes.diverged(8e-4)))))
    assert "smaller rates, --steps 400 --rate 5e-05 --rate 0.0002." in diverged


def test_a_run_on_a_terminal_names_the_command_or_gives_the_verdict():
    run = replace(CLEAN, probe=COMMAND, folder="runs/one")
    assert f"    {COMMAND} --run runs/one\n" in run_printed(run)
    both = run_printed(run, probes.probe())
    assert "secid probe" not in both
    assert "significantly better" in " ".join(both.split())


def test_sources_to_repair_are_not_to_be_trained_on_yet():
    run = replace(RUN, probe=COMMAND, folder="runs/one")
    assert "repair" in {source.status for source in run.sources}
    assert COMMAND not in run_printed(run)
    assert COMMAND not in RUN_FORMATS[".html"](run)


def test_an_older_run_has_neither():
    assert RUN.probe is None
    assert "secid probe" not in run_printed(RUN)
    assert 'id="probe"' not in RUN_FORMATS[".html"](RUN)


def test_the_report_s_document_has_only_the_run():
    assert run_formats(probes.probe())[".json"](RUN) == RUN_FORMATS[".json"](RUN)


def test_the_probe_s_time_is_next_to_that_of_scoring():
    run = replace(golden(), timing={"encode": {"seconds": 3.0, "n_cached": 0}, "measure": {"seconds": 1.0}})
    made = replace(probes.probe(), timing={"train": {"seconds": 200.0, "n_trainings": 18, "n_kept": 0}})
    assert cost_sentence(run, made).replace("\u00a0", " ").replace("\u202f", " ") == (
        "The probe trained and ranked for 200 s. Scoring took 4.00 s, which is 2.0 % of it."
    )
    cached = replace(run, timing={"encode": {"seconds": 4.0, "n_cached": 2}})
    assert "Scoring, with texts from the cache, took" in cost_sentence(cached, made)
    kept = replace(made, timing={"train": {"seconds": 200.0, "n_trainings": 18, "n_kept": 5}})
    assert "5 of 18 training runs came from an earlier probe" in cost_sentence(run, kept)
    assert cost_sentence(run, probes.probe()) == ""
    for wrong in (
        {"n_trainings": 18.0},
        {"seconds": 0.0, "n_trainings": 18.0},
        {"seconds": 9.0, "n_trainings": math.inf},
    ):
        assert cost_sentence(run, replace(made, timing={"train": wrong})) == ""
