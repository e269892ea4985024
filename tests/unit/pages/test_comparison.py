"""Several runs side by side."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from secid.analyses.budgets import Budgets, EqualNumbers
from secid.errors import UsageError
from secid.pages.comparison import (
    COMPARISON_FORMATS,
    NEUTRAL_SETTINGS,
    SCORE_CHANGING_SETTINGS,
    compare,
    page_of_comparison,
)
from secid.pages.screen import print_page, screen_of
from secid.pages.text import score_text, without_isolates
from secid.settings import FIELDS
from tests.snapshots import situations
from tests.unit.pages import samples


@pytest.fixture
def run():
    return samples.golden()


def said(found):
    return " ".join(without_isolates(line).replace("\u00a0", " ") for line in page_of_comparison(found).verdict)


def headline(found):
    return without_isolates(page_of_comparison(found).verdict[0])


def reordered(run):
    """The run with its second and third source in the other order."""
    first, second, third, *rest = run.sources
    return replace(run, sources=(first, samples.changed(third, rank=2), samples.changed(second, rank=3), *rest))


def test_equal_runs_have_no_changes(run):
    found = compare([("a", run), ("b", run)])
    assert found.changes == ()
    assert "runs differ" not in said(found)
    assert "order is the same" in said(found)


def test_unknown_files_are_not_called_the_same(run):
    unread = replace(run, sources=(replace(run.sources[0], files=()), *run.sources[1:]))
    for other in (unread, replace(unread, secid_version="9.9")):
        found = compare([("a", run), ("b", other)])
        assert [item.same_files for item in found.sources] == [None, True, True, True, True]
        assert "possibly files (random)" in said(found)


def test_changed_settings_encoder_and_files_are_named(run):
    settings = {**run.settings, "temperature": {"value": 0.1, "from": "flag"}, "threads": {"value": 9, "from": "flag"}}
    file = replace(run.sources[0].files[0], sha256="0" * 64)
    sources = (replace(run.sources[0], files=(file,)), *run.sources[1:])
    other = replace(
        run, settings=settings, encoder=replace(run.encoder, fingerprint="f", name="other"), sources=sources
    )
    found = compare([("a", run), ("b", other)])
    assert {(change.what, change.name) for change in found.changes} == {
        ("setting", "temperature"),
        ("setting", "threads"),
        ("encoder", "name"),
        ("encoder", "fingerprint"),
    }
    assert [item.same_files for item in found.sources] == [False, True, True, True, True]
    assert found.unlike == ("temperature", "fingerprint")
    assert "Differences: temperature and encoder." in said(found)


def test_a_comparison_of_two_runs_fits_80_columns_with_scores_whole(run):
    stream = io.StringIO()
    found = compare([("monday", run), ("friday", reordered(run))])
    print_page(Console(file=stream, width=80, highlight=False), screen_of(page_of_comparison(found)))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    first = run.sources[0]
    assert sum(line.count(score_text(first.score.nats, first.score.interval_95)) for line in lines) == 2


def repaired(run):
    """The run in which the only source to repair has been repaired."""
    findings = tuple(replace(item, n_negatives=0, share=0.0) for item in run.sources[3].findings)
    clean = replace(run.sources[3], findings=findings, status="no_defects")
    return replace(run, sources=(*run.sources[:3], clean, *run.sources[4:]))


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_a_source_that_now_needs_repair_is_the_headline_with_its_defect(run, names):
    good = repaired(run)
    text = headline(compare([(name, good if name == "a" else run) for name in names]))
    assert text.count("poisoned") == text.count("false_negative") == len(names) - 1
    assert text.index("no defects") < text.index("repair first") < text.index("11.2")
    assert "bm25" not in text
    both = compare([("a", samples.compared(good, established=True)), ("b", reordered(samples.compared(run, True)))])
    assert headline(both).index("poisoned") < headline(both).index("bm25 and dense")


def test_scores_statuses_and_findings_of_two_runs_have_their_difference(run):
    dirty = next(source for source in run.sources if source.finding("false_negative").n_negatives)
    findings = tuple(replace(item, n_negatives=0, share=0.0) for item in dirty.findings)
    curve = tuple(replace(point, nats=point.nats + 0.25) for point in dirty.score.budget_curve)
    clean = samples.changed(dirty, findings=findings, status="no_defects", hardness=0.5, budget_curve=curve)
    other = replace(run, sources=tuple(clean if source is dirty else source for source in run.sources))
    page = page_of_comparison(compare([("monday", run), ("friday", other)]))
    row = next(row for row in page.answer.rows if row[0] == dirty.name)
    assert (row[1], *row[4:]) == ("repair first → no defects", "+0.250", f"{dirty.hardness.value:.2f} → 0.50")
    shares = {row[:2]: row[2:] for row in page.heat.rows}
    assert shares[dirty.name, "false_negative"] == ("11.2\u00a0%", "0.0\u00a0%", "\u221211.2")
    assert all(values[0] == values[1] for (name, _), values in shares.items() if name != dirty.name)


def test_more_runs_have_no_difference_column(run):
    page = page_of_comparison(compare([(name, run) for name in "abc"]))
    assert [len(table.columns) for table in (page.answer, page.heat)] == [6, 5]


def test_a_reversal_counts_and_says_whether_it_is_established(run):
    found = compare([("a", run), ("b", reordered(run))])
    assert [(item.first, item.second, item.established) for item in found.reversals] == [("bm25", "dense", False)]
    assert "bm25 and dense" in said(found)
    sure = samples.compared(run, established=True)
    assert compare([("a", sure), ("b", reordered(sure))]).reversals[0].established


def test_an_order_is_counted_once_however_many_runs_reverse_it(run):
    sure = samples.compared(run, established=True)
    found = compare([("a", sure), ("b", reordered(sure)), ("c", reordered(sure))])
    assert [item.run for item in found.reversals] == ["b", "c"]
    assert said(found).count("bm25 and dense") == 1
    assert said(found).startswith(
        "Every shared source keeps its status. Changes of order, significant in both runs: bm25 and dense"
    )


def sized(run, numbers, budget):
    """The run at a budget, its sources of 66 queries and 330 negatives, cut to numbers."""
    sources = tuple(replace(source, n_queries=66, n_triplets=330) for source in run.sources)
    settings = {**run.settings, "budget": {"value": budget, "from": "flag"}}
    return samples.replaced(
        run, sources=sources, settings=settings, budget=budget, budgets=Budgets(crossings=(), equal_numbers=numbers)
    )


@pytest.mark.parametrize(("budget", "alike"), [(100.0, False), (1.0, True), (0.5, True)])
def test_scores_on_other_numbers_of_negatives_are_other_scores(run, budget, alike):
    """A third source of few negatives cuts the others: beyond B = 1 each then scores lower, by its size alone."""
    whole, cut = sized(run, None, budget), sized(run, EqualNumbers(n_queries=66, n_triplets=132), budget)
    found = compare([("a", whole), ("b", cut)])
    change = next(change for change in found.changes if change.what == "numbers")
    assert [[int(n) for n in re.findall(r"\d+", value)] for value in change.values] == [[66, 330], [66, 132]]
    assert bool(found.unlike) is not alike
    assert "numbers (" in said(found)
    assert ("Differences: number of" in said(found)) is not alike
    assert compare([("a", cut), ("b", cut)]).changes == ()


def test_sources_that_cannot_be_cut_are_compared_by_their_own_numbers(run):
    first, *rest = sized(run, None, 100.0).sources
    large = replace(sized(run, None, 100.0), sources=(first, *(replace(item, n_triplets=900) for item in rest)))
    small = replace(sized(run, None, 100.0), sources=(first, *(replace(item, n_triplets=800) for item in rest)))
    found = compare([("a", large), ("b", small)])
    (unlike,) = found.unlike
    assert unlike.startswith("number of")
    values = next(change for change in found.changes if change.what == "numbers").values
    for value, n in zip(values, ("900", "800"), strict=True):
        random, bm25, *_ = value.split("; ")
        assert random.startswith("random: ")
        assert re.findall(r"\d+", random) == ["66", "330"]
        assert re.findall(r"\d+", bm25.removeprefix("bm25")) == ["66", n]


@pytest.mark.parametrize(
    ("budgets", "scores"), [((1, 1), ["ECI_sem"]), ((100, 100), ["ECI_B"]), ((1, 100), ["ECI_sem", "ECI_B"])]
)
def test_the_score_that_runs_rank_by_is_the_one_explained(run, budgets, scores):
    found = compare([(name, sized(run, None, float(at))) for name, at in zip("ab", budgets, strict=True)])
    assert [term for term, _ in page_of_comparison(found).details[0].terms if term.startswith("ECI")] == scores


@pytest.mark.parametrize("field", ["device", "name"])
def test_another_device_or_alias_of_the_encoder_leaves_scores_comparable(run, field):
    found = compare([("a", run), ("b", replace(run, encoder=replace(run.encoder, **{field: "other"})))])
    assert found.unlike == ()
    assert f"encoder ({field})" in said(found)


def test_sources_of_only_one_run_are_kept_with_gaps(run):
    found = compare([("a", run), ("b", replace(run, sources=run.sources[:2]))])
    assert [item.ranks for item in found.sources][2:] == [(3, None), (4, None), (5, None)]
    assert "(dense, poisoned and counterfactual)" in said(found)
    assert [item.same_files for item in found.sources] == [True, True, None, None, None]
    rows = {row[0]: row[2:4] for row in page_of_comparison(found).answer.rows}
    assert [rows[item.name][1] for item in found.sources[2:]] == ["–"] * 3
    assert rows["bm25"][0].startswith("2. ")


def test_a_source_that_is_not_ranked_is_last_and_changes_no_order():
    found = compare([("a", samples.reported()), ("b", samples.golden())])
    assert [item.ranks for item in found.sources if item.name == "random"] == [(None, 1)]
    assert found.reversals == ()
    rows = {row[0]: row[2] for row in page_of_comparison(found).answer.rows}
    assert list(rows)[-1] == "random"
    assert rows["random"].startswith("0.546")
    assert rows["bm25"].startswith("1. ")


def test_fewer_than_two_common_sources_have_no_order(run):
    found = compare([("a", run), ("b", replace(run, sources=run.sources[:1]))])
    assert [item.ranks for item in found.sources][1:] == [(rank, None) for rank in (2, 3, 4, 5)]
    assert "no order" in said(found)


def test_sources_without_files_are_not_called_the_same(run):
    bare = replace(run, sources=tuple(replace(source, files=()) for source in run.sources))
    found = compare([("a", bare), ("b", bare)])
    assert {item.same_files for item in found.sources} == {None}
    assert "possibly files (" in said(found)


def test_settings_and_hashes_are_shown_in_words(run):
    settings = {
        **run.settings,
        "by": {"value": ["a", "b"], "from": "flag"},
        "seed": {"value": None, "from": "default"},
        "titles": {"value": False, "from": "flag"},
    }
    other = replace(run, settings=settings, idf=replace(run.idf, sha256="0123456789abcdef" * 4))
    rows = page_of_comparison(compare([("a", run), ("b", other)])).details[0].tables[0].rows
    assert {row[1]: row[3] for row in rows} == {
        "seed": "not set", "titles": "no", "by": "a, b", "IDF table": "012345…"
    }  # fmt: skip


def test_one_run_is_not_compared(run):
    with pytest.raises(UsageError):
        compare([("a", run)])


@pytest.mark.parametrize("suffix", sorted(COMPARISON_FORMATS))
def test_all_formats_hold_the_story(run, suffix):
    text = COMPARISON_FORMATS[suffix](compare([("a<b>", run), ("b", samples.hostile(run))]))
    assert text.count("<script") == (suffix == ".html") or suffix == ".json"
    if suffix == ".json":
        assert len(json.loads(text)["sources"]) == 10
    else:
        assert page_of_comparison(compare([("a", run), ("b", run)])).details[0].title in text


SCORING = (
    *("encoder", "tokenizer", "idf", "max_records", "seed"),
    *(
        "format",
        "query_column",
        "positive_column",
        "negative_column",
        "label_column",
        "source_column",
        "titles",
        "collection",
        "ranks",
    ),
    *("corpus", "queries", "header", "positive_score"),
    *("revision", "max_length", "device", "dtype", "trust_remote_code", "allow_pickle"),
    *("until_ranked", "tie", "sums", "shard"),
)
"""Settings by which other texts, or the same by another encoder, are scored: the same kind of number."""


def test_every_setting_is_on_one_side():
    sides = [*SCORE_CHANGING_SETTINGS, *SCORING, *NEUTRAL_SETTINGS]
    assert len(sides) == len(set(sides))
    assert set(sides) == set(FIELDS)


def test_several_pairs_that_change_places_are_told_apart(run):
    first, second, third, *rest = run.sources
    other = replace(run, sources=(samples.changed(third, rank=1), first, samples.changed(second, rank=3), *rest))
    other = replace(other, sources=(other.sources[0], samples.changed(first, rank=2), *other.sources[2:]))
    found = compare([("a", run), ("b", other)])
    assert {(item.first, item.second) for item in found.reversals} == {("random", "dense"), ("bm25", "dense")}
    assert headline(found).index("random and dense") < headline(found).index("not significant")
    assert said(found).index("bm25 and dense") > headline(found).index("not significant")
    bare = replace(run, comparisons=())
    found = compare([("a", bare), ("b", replace(other, comparisons=()))])
    assert "random and dense; bm25 and dense" in said(found)


def test_what_is_concluded_word_for_word(run, snapshot):
    """Word for word, in tests/snapshots."""
    settings = {**run.settings, "temperature": {"value": 0.1, "from": "flag"}, "threads": {"value": 9, "from": "flag"}}
    sure = samples.compared(run, established=True)
    unread = replace(run, sources=(replace(run.sources[0], files=()), *run.sources[1:]))
    others = {
        "nothing differs": run,
        "files not known": unread,
        "the version differs, files not known": replace(unread, secid_version="9.9"),
        "settings and encoder differ": replace(
            run, settings=settings, encoder=replace(run.encoder, fingerprint="f", name="other")
        ),
        "another device": replace(run, encoder=replace(run.encoder, device="other")),
        "another order, open": reordered(run),
        "repaired": repaired(run),
        "fewer sources": replace(run, sources=run.sources[:2]),
        "one source in common": replace(run, sources=run.sources[:1]),
    }
    found = {name: compare([("a", run), ("b", other)]) for name, other in others.items()}
    found["to repair, and another order"] = compare([("a", repaired(run)), ("b", reordered(run))])
    found["another order, established"] = compare([("a", sure), ("b", reordered(sure)), ("c", reordered(sure))])
    for budget in (1.0, 100.0):
        numbers = EqualNumbers(n_queries=66, n_triplets=132)
        runs = [("a", sized(run, None, budget)), ("b", sized(run, numbers, budget))]
        found[f"other numbers at B = {budget:g}"] = compare(runs)
    snapshot("comparison.txt", situations({name: [said(item)] for name, item in found.items()}))
    stream = io.StringIO()
    page = page_of_comparison(found["settings and encoder differ"])
    print_page(Console(file=stream, width=80, highlight=False), screen_of(page))
    snapshot("comparison-80.txt", stream.getvalue())
