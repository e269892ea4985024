"""Test the verdict, the answer table and the findings, on runs with planted numbers."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest

from secid.pages.findings import MAX_SAME_PAIRS, findings_of, heat_table, most_urgent, ranked, same_lines
from secid.pages.glossary import skipped_lines
from secid.pages.page import STATUSES as WORDS
from secid.pages.sections import page_of
from secid.pages.sections.ablations import ablations_sentence
from secid.pages.sections.ranking import controls_line, outcome, pairs_sentence
from secid.pages.sections.verdict import (
    against_random,
    answer,
    answer_table,
    below_table,
    cautions,
    notes,
    scored_line,
    verdict,
)
from secid.pages.statuses import above_limits, statuses, statuses_line, warning_sentences
from secid.pages.text import named, percent, without_isolates
from secid.results import Example, RunWarning
from secid.results.catalogue import FINDINGS
from tests.unit.pages import samples
from tests.unit.pages.samples import HOSTILE, compared, guided, renamed
from tests.unit.pages.situations import (
    ABSENT,
    BEYOND,
    CLEAN,
    NAMES,
    ONE,
    RUN,
    VERDICTS,
    finding,
    random_passages,
    with_status,
    without_defects_evaluated,
)

STATUSES = ("no_defects", "no_verdict", "repair", "unusable")


def column(table, title):
    place = [item.title for item in table.columns].index(title)
    return [row[place] for row in table.rows]


def with_finding(name, share, n=90, source=1, **fields):
    """Return a run with only this finding."""
    found = tuple(finding(name, share, n) if item.name == name else item for item in CLEAN.sources[source].findings)
    made = samples.changed(CLEAN.sources[source], findings=found, **fields)
    return replace(CLEAN, sources=(*CLEAN.sources[:source], made, *CLEAN.sources[source + 1 :]))


def test_sources_not_to_use_come_before_those_to_repair_and_others_are_not_named():
    run = with_status("no_defects", "repair", "unusable", "repair")
    text = without_isolates(statuses_line(run.sources))
    left, repaired = text.split(", and repair ")
    assert re.sub(r" \(.*\)", "", left) == "Do not use dense"
    assert [name for name in NAMES if name in repaired] == ["bm25", "poisoned"]


def test_of_several_sources_to_repair_the_one_with_the_most_urgent_defect_comes_first_with_its_share():
    run = with_status("repair", "repair", "no_defects", "no_defects")
    shares = {"random": {"repeat": 0.3, "hub": 0.9}, "bm25": {"false_negative": 0.2, "query_echo": 0.5}}
    sources = [
        replace(
            source,
            findings=tuple(
                finding(item.name, shares.get(source.name, {}).get(item.name, 0.0)) for item in source.findings
            ),
        )
        for source in run.sources
    ]
    first = without_isolates(statuses(sources))
    assert first.index("bm25") < first.index("random")
    assert percent(0.2) in first
    assert percent(0.3) in first
    assert not any(percent(share) in first for share in (0.5, 0.9))  # hub is no defect


def test_sources_are_counted_where_their_names_would_fill_the_line():
    run = with_status("repair", "no_defects")
    one = run.sources[0]
    repaired = without_isolates(statuses([replace(one, name=f"r{n}") for n in range(5)]))
    assert re.findall(r"\d+ more", repaired) == ["2 more"]
    assert "r4" not in repaired


@pytest.mark.parametrize("status", STATUSES)
def test_one_source_has_a_headline_of_its_own(status):
    (source,) = with_status(status).sources[:1]
    assert "random" in statuses_line([source])
    assert len({statuses_line(with_status(other).sources) for other in STATUSES}) == len(STATUSES)


def test_the_verdict_begins_with_the_statuses_and_ends_with_what_the_score_is_not():
    for run in VERDICTS.values():
        first, caution = verdict(run)
        assert first.startswith(statuses(run.sources))
        assert caution == cautions(run)[0]
        assert "depends on how much you train" in cautions(run)[-1]
        assert set(cautions(run)[1:]) <= set(notes(run))


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize(
    ("hardness", "outscoring", "said"), [(1.01, 0.5, False), (0.9, 0.51, True), (None, 0.51, True), (None, 0.5, False)]
)
def test_most_negatives_outscoring_the_positive_is_a_caution_whatever_the_status(status, hardness, outscoring, said):
    (source,) = with_status(status).sources[:1]
    hard = samples.changed(source, hardness=hardness, inversion_fraction=outscoring)
    run = replace(ONE, sources=(hard,))
    assert (", most negatives outscore the positive." in " ".join(cautions(run))) is said
    assert verdict(run)[0].startswith(statuses(run.sources))


@pytest.mark.parametrize(("share", "said"), [(0.2, True), (0.05, False)])
def test_weak_positives_are_a_caution(share, said):
    run = with_finding("weak_positive", share)
    sentence = "In {}, many positives look no better than random passages."
    assert (sentence.format(run.sources[1].name) in without_isolates(" ".join(cautions(run)))) is said
    alone = replace(run, sources=run.sources[1:2])
    assert (sentence.format("every source") in cautions(alone)) is said


def test_sources_with_defects_within_the_limits_are_not_called_free_of_them():
    few = tuple(finding(item.name, 0.004 if item.name == "repeat" else 0.0, 1) for item in ABSENT)
    run = with_status("repair", "no_defects")
    first, second = run.sources[:2]
    for findings, words in ((ABSENT, "No defects found"), (few, "No defects above their limits")):
        assert statuses((replace(second, findings=findings),)) == f"{words} in {named(second.name)}"
    assert statuses((first, second)).startswith("Repair ")


def test_one_label_per_query_is_named_with_the_status_and_the_cheapest_check_follows():
    one = replace(CLEAN, one_positive=True)
    assert answer(one).startswith("No defects found with one label per query in ")
    text = verdict(one)[1]
    assert 0 < text.index("--collection DIR") < text.index("--guide NAME")
    assert "secid audit" not in text  # which needs more arguments than a sentence can name
    collection = {**one.settings, "collection": {"value": "beir", "from": "flag"}}
    text = verdict(replace(one, settings=collection))[1]
    assert ("--collection" in text, "--guide NAME" in text) == (False, True)
    assert not any("one label per query" in line for line in cautions(replace(one, one_positive=False)))
    rejected, trusted = guided(one, excess_interval_95=(-0.1, 0.1)), guided(one)
    assert ["with one label per query" in answer(run) for run in (rejected, trusted)] == [True, False]


@pytest.mark.parametrize("has_collection", [False, True])
@pytest.mark.parametrize("has_guide", [False, True])
def test_inversion_names_only_the_checks_for_false_negatives_that_the_run_lacks(has_collection, has_guide):
    run = with_finding("inversion", 0.5)
    collection = {"value": "beir" if has_collection else None, "from": "flag"}
    run = replace(guided(run) if has_guide else run, settings={**run.settings, "collection": collection})
    (item,) = (item for _, item in ranked(run, run.sources[1]) if item.name == "inversion")
    named = ("--collection DIR" in item.sentence, "--guide NAME" in item.sentence, "secid audit" in item.sentence)
    assert named == (not has_collection, not has_guide, False)


@pytest.mark.parametrize(
    ("differences", "said"),
    [([0.3] * 5, ""), ([0.01] * 5, "No source scores significantly above"), ([-0.1] * 5, "score higher than")],
)
def test_where_random_passages_score_is_a_note(differences, said):
    text = against_random(random_passages(CLEAN, *differences))
    assert said in text
    assert bool(text) is bool(said)


def test_a_source_that_is_not_ranked_comes_last_with_its_reason_and_competes_with_none():
    run = samples.profiled(CLEAN)
    *others, last = (source.name for source in run.sources)
    assert [row[0] for row in answer_table(run, full=True).rows][:5] == [*others, last]
    assert column(answer_table(run, full=True), "tie")[4] == "–"
    (reason,) = below_table(run)
    assert without_isolates(reason) == (
        f"{last} is not ranked: it is as easy as random passages (hardness below 0.1); a high score does not recommend "
        "it."
    )
    assert column(answer_table(run, full=True), "status")[4] == "not ranked"
    assert answer_table(run, full=True).breaks == {4}, "one gap, above what is not ranked and the controls"
    clause = answer(run).split("; ")[-1]
    assert last not in clause
    assert others[0] in clause
    turned = samples.unranked(run, others[0], reason="apart")
    assert [row[0] for row in answer_table(turned, full=True).rows][:5] == [*others[1:], last, others[0]]
    assert "A" in column(answer_table(turned, full=True), "tie")
    assert others[0] not in answer(turned).split(". ")[-1]


def test_the_reference_controls_are_the_last_rows_and_have_no_status():
    table = answer_table(RUN, full=True)
    assert table.n_controls == 2
    assert [row[0] for row in table.rows[-2:]] == ["random passages", "known positives"]
    assert column(table, "status")[-2:] == ["", ""]
    assert column(table, "hardness")[-2:] == ["0.00", "1.00"]
    assert answer_table(replace(RUN, controls=()), full=True).n_controls == 0


def test_equal_hardness_has_no_range():
    alike = replace(RUN, sources=tuple(samples.changed(source, hardness=0.501) for source in RUN.sources))
    assert [any("Hardness runs" in line for line in notes(run)) for run in (RUN, alike)] == [True, False]


def test_a_single_source_has_no_rank():
    (source,) = ONE.sources
    assert "rank" not in answer(ONE)
    assert column(answer_table(ONE, full=True), "tie")[0] == "–"
    assert source.name in " ".join(verdict(ONE)) or "this source" in verdict(ONE)[0]


def test_the_verdict_says_which_sources_have_the_highest_score():
    def said(run):
        return without_isolates(answer(run)).removesuffix(".").split(". ")[1:]

    hardest = "The hardest is counterfactual"
    assert said(compared(CLEAN, False)) == ["No two scores differ significantly", hardest]
    near = [samples.changed(source, hardness=CLEAN.sources[0].hardness) for source in CLEAN.sources]
    assert said(compared(replace(CLEAN, sources=tuple(near)), False)) == ["No two scores differ significantly"]
    assert said(replace(CLEAN, comparisons=())) == []
    assert said(compared(CLEAN, True)) == [f"{NAMES[0]} has the highest score"]
    one = [replace(pair, established=pair.second == NAMES[-1]) for pair in CLEAN.comparisons]
    tied = replace(CLEAN, comparisons=tuple(one))
    assert said(tied) == [
        f"{NAMES[0]}, {NAMES[1]}, {NAMES[2]} and {NAMES[3]} tie for the highest score",
        "The hardest is dense",
    ]
    repaired = samples.changed(CLEAN.sources[0], status="repair")
    others = replace(compared(CLEAN, True), sources=(repaired, *CLEAN.sources[1:]))
    assert said(others) == [f"Of the others, {NAMES[1]} has the highest score"]
    for run in (CLEAN, others):
        apart = samples.unranked(samples.profiled(compared(run, True)), NAMES[-1], reason="apart")
        assert said(apart)[-1].startswith("Of those ranked without defects, ")


def test_a_sample_is_named_with_the_score():
    sampled = samples.changed(RUN.sources[0], n_records=20, n_not_sampled=46)
    run = replace(RUN, sources=(sampled, *RUN.sources[1:]))
    assert "Sample: up to 20 of 66 records per source;" in scored_line(run)
    assert "Sample" not in scored_line(RUN)


def test_sources_that_are_not_compared_with_each_other_do_not_tie():
    first, second, third, *_ = NAMES
    every = compared(replace(CLEAN, sources=CLEAN.sources[:3]), True)
    pairs = [pair for pair in every.comparisons if {pair.first, pair.second} <= {first, second, third}]
    apart = [pair for pair in pairs if {pair.first, pair.second} != {first, second}]
    text = without_isolates(answer(samples.replaced(every, comparisons=tuple(apart))))
    assert f"No score is significantly above those of {first} and {second}, which are not all compared" in text


def test_sources_that_are_not_compared_are_groups_of_their_own():
    first, second, third, *_ = NAMES
    known = {frozenset((first, third)), frozenset((second, NAMES[3]))}
    pairs = tuple(pair for pair in compared(CLEAN, True).comparisons if {pair.first, pair.second} in known)
    run = samples.replaced(replace(CLEAN, sources=CLEAN.sources[:4]), comparisons=pairs)
    table = answer_table(run, full=True)
    assert [row[0] for row in table.rows[:4]] == [first, third, second, NAMES[3]]
    assert table.breaks == {2, 4}
    assert without_isolates(below_table(run)[0]) == (
        "Compare scores only within a group; the groups share too few queries: "
        f"{first} and {third}; {second} and {NAMES[3]}."
    )
    assert f"Of {second} and {NAMES[3]}, {second} has the highest score" in without_isolates(answer(run))
    assert answer_table(compared(CLEAN, True), full=True).breaks == {5}, "only above the controls"


def test_a_source_to_repair_has_a_row_with_its_score_after_the_repair():
    (source,) = [source for source in RUN.sources if source.status == "repair"]
    rows = answer_table(RUN, full=True).rows
    place = [row[0] for row in rows].index("poisoned, repaired")
    assert rows[place - 1][0] == source.name
    after = {item.title: cell for item, cell in zip(answer_table(RUN, full=True).columns, rows[place], strict=True)}
    rest = source.score.without_flagged
    assert after["score ± CI"].startswith(f"{rest.eci_nats:.3f} ±")
    assert after["hardness"] == f"{rest.hardness:.2f}"
    assert "Score" not in " ".join(below_table(RUN))
    elsewhere = replace(RUN, budget=100.0)
    assert not any("repaired" in row[0] for row in answer_table(elsewhere, full=True).rows)
    assert any(line.startswith("Score at B = 1 without defects: ") for line in below_table(elsewhere))


def test_a_source_without_defects_shows_its_most_urgent_finding_and_is_not_coloured_as_approved():
    run = samples.reported()
    table = answer_table(run, full=True)
    cells = dict(zip(column(table, "source"), column(table, "status"), strict=True))
    assert cells["bm25"] == "no defects"
    assert cells["counterfactual"] == "no defects;\ninversion"
    assert cells["poisoned"] == "repair first"
    assert WORDS.get(cells["counterfactual"]) is None
    most = with_finding("inversion", 0.51)
    length = next(item for item in most.sources[1].findings if item.name == "length")
    form = replace(length, share=1.0)
    for share, first in ((0.51, "inversion"), (0.49, "length")):
        source = with_finding("inversion", share).sources[1]
        both = replace(source, findings=tuple(form if item.name == "length" else item for item in source.findings))
        assert above_limits(both)[0].name == first


def test_that_most_negatives_are_cut_is_the_first_caution():
    assert "0.51" not in verdict(CLEAN)[1]
    assert "51.0\u00a0% of" in verdict(with_finding("truncated", 0.51))[1]
    assert "sees only their start" not in " ".join(cautions(with_finding("truncated", 0.49)))


def test_nothing_is_called_free_of_a_defect_that_was_not_evaluated():
    assert not any("Not evaluated" in text for text in cautions(BEYOND))
    (text,) = [text for text in cautions(without_defects_evaluated(BEYOND)) if "Not evaluated" in text]
    assert "mojibake" in text


def test_the_first_warning_is_the_caution_and_the_others_are_notes():
    warnings = tuple(RunWarning(kind="few_queries", source=name, values={"n_queries": 1}) for name in "abcde")
    run = replace(BEYOND, warnings=warnings)
    first, *others = warning_sentences(run)
    assert verdict(run)[1] == first
    assert list(notes(run)[: len(others)]) == others


def test_the_answer_has_a_row_a_source_with_its_numbers():
    run = samples.reported()
    table = answer_table(run, full=True)
    ordered = ["bm25", "dense", "poisoned", "poisoned, repaired", "counterfactual", "random"]
    assert column(table, "source")[:6] == ordered
    assert column(table, "status")[:6] == [
        "no defects",
        "no defects",
        "repair first",
        "",
        "no defects;\ninversion",
        "not ranked",
    ]
    assert column(table, "score ± CI")[5] == "0.546 ±0.035"
    assert column(table, "tie")[:6] == ["A", "A", "A", "", "B", "–"]
    assert column(table, "hardness")[:6] == ["0.41", "0.68", "0.47", "0.41", "1.11", "0.01"]
    assert column(table, "consistency")[:2] == ["0.91", "0.82"]
    poisoned = next(source for source in run.sources if source.name == "poisoned")
    assert column(table, "defects")[2].replace("\u00a0", " ") == f"{100 * poisoned.flagged_share:.1f} %"


@pytest.mark.parametrize("entry", FINDINGS.values(), ids=FINDINGS.keys())
def test_a_finding_is_listed_only_above_its_limit(entry):
    def listed(share):
        run = with_finding(entry.name, share)
        return [item.name for _, item in ranked(run, run.sources[1])]

    if entry.limit is None:
        assert listed(1.0) == []
        return
    assert listed(entry.limit) == []
    assert listed(entry.limit + 0.01) == [entry.name]


def test_defects_come_first_and_the_repair_acts_on_them():
    (group,) = [group for group in findings_of(RUN) if group.source == "poisoned"]
    assert [item.name for item in group.items] == ["false_negative", "repeat", "hub"]
    assert [bool(item.command) for item in group.items] == [False, False, True]
    words = shlex.split(group.command)
    assert words[:2] == ["secid", "select"]
    assert set(words[words.index("--drop") + 1].split(",")) == {"false_negative", "repeat"}
    assert words[words.index("--source") + 1] == "poisoned"


@pytest.mark.parametrize(("path", "once"), [("-", True), ("/dev/fd/63", True), ("/dev/shm/a.jsonl", False)])
def test_no_command_is_printed_for_rows_that_cannot_be_read_again(path, once):
    run = with_finding("inversion", 0.5)
    source = replace(run.sources[1], files=(replace(run.sources[1].files[0], path=path),))
    items = [item for _, item in ranked(run, source)]
    assert [bool(item.command) for item in items] == ([False, False] if once else [True])
    assert ("no command" in [item.name for item in items]) == once


def test_the_command_of_a_trait_names_run_source_and_finding():
    run = replace(with_finding("inversion", 0.5), folder="runs/my run")
    ((_, item),) = ranked(run, run.sources[1])
    words = shlex.split(item.command)
    assert words[:3] == ["secid", "flagged", "runs/my run"]
    assert words[words.index("--source") + 1] == "bm25"
    assert words[words.index("--finding") + 1] == "inversion"
    assert words[words.index("-o") + 1] == "bm25-inversion.jsonl"
    assert " RUN " in findings_of(replace(run, folder=None))[0].items[0].command


def test_a_defect_of_a_source_not_to_use_can_be_looked_at():
    run = with_finding("false_negative", 0.9, status="unusable")
    (group,) = findings_of(run)
    assert (group.status, group.command) == ("do not use", "")
    assert "--finding false_negative" in group.items[0].command


@pytest.mark.parametrize("name", HOSTILE)
def test_a_command_holds_any_name_as_one_word_or_is_left_out(name):
    run = renamed(with_finding("inversion", 0.5), {"bm25": name})
    (group,) = findings_of(run)
    command = group.items[0].command
    if not name.isprintable():
        assert command == ""
        return
    words = shlex.split(command)
    assert words[words.index("--source") + 1] == name
    assert "/" not in words[-1]


def test_a_name_that_looks_like_a_flag_is_given_with_it():
    run = renamed(with_finding("inversion", 0.5), {"bm25": "--help"})
    assert "--source=--help" in findings_of(run)[0].items[0].command


def test_the_most_urgent_findings_are_chosen_over_all_sources():
    groups, n_more = most_urgent(RUN, 5)
    assert [(group.source, len(group.items)) for group in groups] == [
        ("poisoned", 2),
        ("counterfactual", 2),
        ("random", 1),
    ]
    assert n_more == 1
    groups, n_more = most_urgent(RUN, 1)
    assert [group.source for group in groups] == ["poisoned"]
    assert (bool(groups[0].command), n_more) == (True, 5)
    assert most_urgent(CLEAN, 5) == ((), 0)
    leave = replace(RUN, sources=(replace(RUN.sources[0], status="unusable"), *RUN.sources[1:]))
    assert [group.source for group in most_urgent(leave, 4)[0]] == ["poisoned", "random", "counterfactual"]


def test_a_source_to_repair_without_a_command_says_why_however_few_findings_are_shown():
    (poisoned,) = [source for source in RUN.sources if source.status == "repair"]
    untypable = replace(poisoned, name="a\u200bz", repair=None)
    for limit in (1, 5):
        groups, n_more = most_urgent(replace(RUN, sources=(untypable,)), limit)
        assert groups[0].items[-1].name == "no command"
        assert n_more + len(groups[0].items) == len(ranked(RUN, untypable))


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_each_source_to_repair_comes_first_with_its_command_however_few_findings_are_shown(limit):
    """bm25 has the most urgent findings of the run, but no finding of bm25 decides its status."""
    run = with_status("no_defects", "repair", "repair", "unusable", "repair")
    urgent = tuple(
        replace(item, share=0.9, n_negatives=90) if FINDINGS[item.name].urgency <= 2 and not FINDINGS[item.name].counted
        else item
        for item in run.sources[0].findings
    )  # fmt: skip
    run = replace(run, sources=(replace(run.sources[0], findings=urgent), *run.sources[1:]))
    groups, n_more = most_urgent(run, limit)
    assert [group.status for group in groups][:4] == ["repair first"] * 3 + ["do not use"]
    commands = {group.source: group.command for group in groups}
    assert {source.name: source.repair for source in run.sources if source.repair}.items() <= commands.items()
    assert all(group.command or group.items[0].command for group in groups)
    n_items = sum(len(group.items) for group in groups)
    assert n_items == limit
    assert n_items + n_more == sum(len(ranked(run, source)) for source in run.sources)


def test_a_source_without_a_sound_negative_has_none_left():
    rest = replace(RUN.sources[3].score.without_flagged, n_triplets=0, eci_nats=None, interval_95=None)
    run = replace(RUN, sources=(samples.changed(RUN.sources[3], without_flagged=rest),))
    assert "without defects: poisoned none left" in without_isolates(" ".join(below_table(run)))


@pytest.mark.parametrize(("skipped", "n"), [({"broken_line": 3}, 0), ({"broken_line": 4}, 1)])
def test_rows_left_out_are_a_finding_from_one_in_a_hundred_on(skipped, n):
    source = samples.changed(CLEAN.sources[0], n_read=400, skipped=skipped)
    items = [item for _, item in ranked(replace(CLEAN, sources=(source,)), source)]
    assert [item.name for item in items] == ["rows left out"] * n
    assert [shlex.split(item.command)[:2] for item in items] == [["secid", "check"]] * n


@pytest.mark.parametrize(
    "lacking", [None, "negative_jaccard_mean", "shared_query_fraction", "shared_document_fraction"]
)
def test_sources_with_the_same_negatives_are_named_below_the_table(lacking):
    alike = {"negative_jaccard_mean": 0.95, "shared_query_fraction": 1.0, "shared_document_fraction": 0.97}
    overlap = replace(RUN.analyses["overlap"][0], **(alike | ({} if lacking is None else {lacking: 0.5})))
    run = samples.replaced(CLEAN, overlap=(overlap,))
    lines = [line for line in below_table(run) if "treat them as one source" in line]
    assert [overlap.first in line for line in lines] == [True] * (lacking is None)
    many = samples.replaced(run, overlap=(overlap,) * 5)
    more = ["2 more pairs of sources with the same negatives: see “What the sources share”."]
    assert same_lines(many)[MAX_SAME_PAIRS:] == more * (lacking is None)


def test_the_number_that_a_repair_drops_is_said_if_it_is_not_that_of_the_finding():
    """37 false negatives and 16 repeats of poisoned are 53 negatives; the repair drops both kinds."""
    (group,) = [group for group in findings_of(RUN) if group.source == "poisoned"]
    (source,) = [source for source in RUN.sources if source.name == "poisoned"]
    assert f"{source.n_flagged} negatives" in group.items[0].sentence
    assert sum("The repair drops" in item.sentence for item in group.items) == 1
    alone = with_finding("false_negative", 0.2, status="repair", repair="secid select", n_flagged=90)
    assert "The repair drops" not in findings_of(alone)[0].items[0].sentence


def test_a_share_of_other_queries_than_the_columns_is_said():
    run = with_finding("inversion", 0.5, on_shared=CLEAN.sources[1].in_table(1.0), n_queries=120)
    assert "all 120 queries" in findings_of(run)[0].items[0].sentence
    assert "all 120 queries" not in findings_of(with_finding("inversion", 0.5))[0].items[0].sentence


def test_what_was_left_out_has_its_place():
    example = Example(reason="broken_line", path="a.jsonl", line=7)
    source = samples.changed(CLEAN.sources[0], skipped={"broken_line": 1}, dropped_negatives={}, examples=(example,))
    (line,) = skipped_lines([source])
    assert "1 row (1 × broken line)" in line
    assert "a.jsonl:7" in line


@pytest.mark.parametrize(("n_larger", "whole"), [(72, True), (74, False)])
def test_sources_are_one_only_if_neither_has_many_queries_of_its_own(n_larger, whole):
    """The smaller source has 66 queries, all of them also the larger's."""
    first, second, *others = CLEAN.sources
    alike = {"negative_jaccard_mean": 0.95, "shared_query_fraction": 1.0, "shared_document_fraction": 1.0}
    overlap = replace(RUN.analyses["overlap"][0], first=first.name, second=second.name, **alike)
    sources = (replace(first, n_queries=n_larger), second, *others)
    run = samples.replaced(CLEAN, sources=sources, overlap=(overlap,))
    (line,) = same_lines(run)
    text = without_isolates(line)
    assert ("as one source" in text) is whole
    assert (f"66 shared queries, and {n_larger - 66} more" in text) is not whole


def test_the_heat_table_has_what_any_source_has_shaded_by_share():
    table = heat_table(RUN.sources)
    titles = [item.title for item in table.columns]
    assert titles[:4] == ["source", "false_negative", "repeat", "hub"]
    assert "empty" not in titles
    assert [row[0] for row in table.rows] == list(NAMES)
    assert [row[1] for row in table.shades] == [None, None, None, 6, None]
    assert table.shades[4][titles.index("inversion")] == 8
    assert heat_table(CLEAN.sources) is None


def test_the_controls_line_names_those_above_and_tied():
    line = without_isolates(controls_line(random_passages(RUN, 0.3, 0.2, 0.01, -0.1, -0.2)))
    assert all(name in line for name in ("dense", "poisoned", "counterfactual"))
    assert "bm25" not in line
    found = outcome(RUN, "random")
    assert (len(found.above), len(found.tied), len(found.below)) == (4, 1, 0)
    assert not outcome(replace(RUN, controls=()), "random").compares


@pytest.mark.parametrize("difference", [-0.1, 0.01, 0.3])
def test_a_source_without_a_value_against_a_control_is_named(difference):
    run = random_passages(CLEAN, *[difference] * 5)
    random = next(control for control in run.controls if control.kind == "random")
    part = replace(random, against=random.against[:3])
    some = replace(run, controls=tuple(part if control is random else control for control in run.controls))
    for text in (controls_line(some), *([] if difference > 0.1 else [against_random(some)])):
        assert re.search(f"ot compared with[^.]* {NAMES[3]} and {NAMES[4]}", without_isolates(text))
        assert "all 5" not in text
    assert "not compared" not in controls_line(run)
    assert outcome(some, "random").missing == NAMES[3:]


def test_a_source_without_a_hardness_is_named_with_the_range():
    sources = (replace(RUN.sources[0], hardness=None), *RUN.sources[1:])
    (text,) = [line for line in notes(replace(RUN, sources=sources)) if "Hardness runs" in line]
    assert f"not evaluated: {NAMES[0]}" in without_isolates(text)


def test_pairs_are_one_sentence_with_the_range_of_queries():
    assert "10 of 10" in pairs_sentence(compared(RUN, True))
    few, many = (
        replace(pair, established=False, queries_needed_80=n)
        for pair, n in zip(RUN.comparisons[:2], (937, 140_321), strict=True)
    )
    text = pairs_sentence(replace(RUN, comparisons=(few, many)))
    assert "0 of 2" in text
    assert "940 to 150,000" in text
    assert "over 1,000,000" in pairs_sentence(replace(RUN, comparisons=(few, replace(many, queries_needed_80=10**9))))


def test_other_settings_are_counted_and_samples_are_not():
    n = sum(
        row.setting != item.base for item in RUN.analyses["ablations"] if item.name != "sample" for row in item.rows
    )
    assert f" of {n} other settings keep " in ablations_sentence(RUN, RUN.analyses["ablations"])
    assert ablations_sentence(CLEAN, CLEAN.analyses["ablations"]) == ""


def test_a_page_has_all_its_parts():
    page = page_of(RUN)
    assert page.answer.rows
    assert len(page.pictures) == 3
    assert page.heat is not None
    anchors = [section.anchor for section in page.details]
    assert len(anchors) == len(set(anchors))
    assert {
        "pairs",
        "control-scores",
        "ablations",
        "budget",
        "profile",
        "equal-hardness",
        "notes",
        "directions",
        "overlaps",
        "read",
        "origin",
    } <= set(anchors)


def test_every_term_is_explained_once():
    terms = [term for section in page_of(RUN).details for term, _ in section.terms]
    assert len(terms) == len(set(terms))
