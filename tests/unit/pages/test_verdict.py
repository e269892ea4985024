"""The three sentences follow the numbers."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from secid.pages.ablation_summary import unstable
from secid.pages.controls_text import controls_told
from secid.pages.findings import NOTICED_OVERLAP, NOTICED_SKIPPED, negatives, notices, of_source
from secid.pages.html import to_html
from secid.pages.markdown import to_markdown
from secid.pages.numbers import fraction, percent
from secid.pages.sanitize import without_isolates
from secid.pages.sections.findings import findings_section
from secid.pages.sections.ranking import controls_section, pairs_section
from secid.pages.verdict import MOST_WORDS, controls, in_a_line, ranking, verdict, warning, warnings
from secid.results import Ablation, AblationRow, SourceFinding
from secid.results.catalogue import FINDINGS
from tests.unit.pages import samples


@pytest.fixture
def run():
    return samples.golden()


def said(sentence):
    return without_isolates(sentence).replace("\u00a0", " ")


def test_three_labelled_sentences(run):
    found = verdict(run)
    assert [label for label, _ in found] == ["Ranking", "Controls", "Watch out"]
    assert all(sentence.endswith(".") and "None" not in sentence and "nan" not in sentence for _, sentence in found)


def changed(run):
    """The run as other rules of the verdict see it."""
    clean = without_findings(run)
    yield from (run, samples.compared(run, True), samples.compared(run, False), samples.bare(run), clean)
    yield replace(run, comparisons=())
    yield replace(run, budget=1000.0)
    yield replace(run, controls=())
    yield replace(clean, not_evaluated={"control random": "fewer than two queries", "x": "y"})
    yield replace(clean, ablations=run.ablations)
    for differences in RANDOM_CASES:
        random = samples.with_control(run, "random", *zip(NAMES, differences, strict=True))
        yield random
        for value in (-0.1, 0.01, 0.1):
            yield samples.with_control(random, "known_positive", ("bm25", value), ("dense", 0.3))


def test_every_sentence_is_one_of_few_words_and_the_terminal_s_fits_a_line(run):
    for made in changed(run):
        for label, sentence in (*verdict(made), *(("Settings", part) for part in unstable(made).split(";"))):
            words = said(sentence).replace(" %", "%").replace(" = ", "=").split()
            assert len(words) <= MOST_WORDS, (label, sentence)
            assert not re.search(r"\. [A-Z]", sentence), (label, sentence)
        line = f"Verdict: {said(in_a_line(made))}"
        assert len(line) <= 80, line
        assert line.endswith(".")


def test_the_line_says_who_is_first_what_random_passages_do_and_how_much_is_found(run):
    assert said(in_a_line(run)) == "random ranks first; random passages outscore 4 of 5; 6 findings."
    unsure = without_findings(samples.compared(run, False))
    assert said(in_a_line(replace(unsure, controls=()))) == (
        "first place is open; no random control to judge by; no finding."
    )
    one = replace(unsure, sources=unsure.sources[:1])
    better = samples.with_control(one, "random", ("random", 0.3))
    assert said(in_a_line(better)) == "random alone has no rank; the source outscores random passages; no finding."
    level = samples.with_control(replace(unsure, comparisons=()), "random", ("random", 0.01), ("bm25", 0.3))
    assert said(in_a_line(level)) == ("sources were not compared; 1 of 2 outscore random passages; no finding.")


def test_an_established_leader_is_said_to_be_first_with_the_interval_of_its_lead(run):
    text = said(ranking(samples.compared(run, established=True)))
    assert text == (
        "random ranks first and its lead is established: 0.1608 nats (95 % interval 0.1186 to 0.2029) ahead of bm25."
    )


def test_an_open_lead_is_not_called_first(run):
    text = said(ranking(samples.compared(run, established=False)))
    assert text.startswith("First place is open between random, bm25 and 3 more: ")
    assert "ranks first" not in text
    assert "random is 0.1608 nats (95 % interval 0.1186 to 0.2029; 10 pairs tested) ahead of bm25." in text
    told = said(pairs_section(samples.compared(run, established=False)).bullets[0])
    assert told == "random and bm25: 0.1608 nats apart, which would take about 1,300 queries to tell apart."
    assert pairs_section(samples.compared(run, established=True)).bullets == ()


def test_a_leader_open_against_one_source_alone_names_that_source(run):
    open_pair = tuple(replace(pair, established=pair.second != "dense") for pair in run.comparisons)
    groups = tuple(
        replace(source, rank_group=1 if source.name in ("random", "bm25", "dense") else 2) for source in run.sources
    )
    text = said(ranking(replace(run, comparisons=open_pair, sources=groups)))
    assert text.startswith("First place is open between random and dense: ")  # bm25 is established below random
    assert "ahead of dense" in text


def test_a_lead_beyond_0_that_many_pairs_leave_open_says_why(run):
    pairs = tuple(replace(pair, established=pair.second != "bm25") for pair in run.comparisons)
    text = said(ranking(replace(run, comparisons=pairs)))
    assert "is 0.1608 nats (95 % interval 0.1186 to 0.2029; 10 pairs tested) ahead of bm25." in text
    level = tuple(replace(pair, interval_95=(-0.1, 0.1)) for pair in pairs)
    assert "tested" not in ranking(replace(run, comparisons=level))


def test_equal_scores_are_no_lead(run):
    pairs = tuple(replace(pair, established=False, difference_nats=1e-17) for pair in run.comparisons)
    assert said(ranking(replace(run, comparisons=pairs))).endswith(": random and bm25 score the same.")


def test_one_source_has_no_rank(run):
    alone = replace(run, budget=100.0, sources=run.sources[:1], comparisons=())
    assert "random scores 36.45 nats at B = 100 on equal numbers (95 % interval" in said(ranking(alone))
    text = said(ranking(replace(run, sources=run.sources[:1], comparisons=())))
    assert "one source alone has no rank" in text
    assert "first" not in text


def test_without_comparisons_nothing_is_established(run):
    text = said(ranking(replace(run, comparisons=())))
    assert "not compared" in text
    assert "ranks first" not in text


def test_at_another_budget_the_score_is_that_of_the_budget(run):
    text = said(ranking(replace(samples.compared(run, established=True), budget=100.0)))
    assert text.startswith("random ranks first at B = 100 on equal numbers and its lead is established")
    text = said(ranking(replace(samples.compared(run, established=False), budget=100.0)))
    assert text.startswith("First place is open at B = 100 on equal numbers between random, bm25 and 3 more: random is")


def test_a_sentence_begins_with_a_capital_unless_a_whole_name_does(run):
    made = samples.renamed(without_findings(run), {"bm25": "the", "dense": "noise-2"})
    made = replace(made, warnings=("these are few", "the: odd", "noise of the encoder", "noise-2: odd."))
    assert warnings(made)[:4] == ["These are few.", "the: odd.", "Noise of the encoder.", "noise-2: odd."]


def test_never_significant(run):
    for changed in (run, samples.compared(run, True), samples.compared(run, False)):
        assert not any("significan" in sentence for _, sentence in verdict(changed))


NAMES = ("random", "bm25", "dense", "poisoned", "counterfactual")


RANDOM_CASES = (
    [-0.1] * 5,
    [0.0, -0.1, -0.1, -0.1, -0.1],
    [0.01] * 5,
    [0.3, 0.2, 0.1, 0.1, 0.05],
    [0.3, 0.2, 0.01, -0.1, -0.2],
    [0.3, 0.2, 0.2, 0.2, 0.01],
)
BRIEFLY = (
    "Random passages outscore all 5 sources: here the score rewards easy negatives, so do not choose by rank alone.",
    "Random passages outscore 4 of 5 sources: here the score rewards easy negatives, so do not choose by rank alone.",
    "No source is shown to score higher than passages drawn at random.",
    "All 5 sources outscore passages drawn at random, by 0.0500 nats (95 % interval 0.0300 to 0.0700) or more.",
    "Random passages outscore 2 of 5 sources: here the score rewards easy negatives, so do not choose by rank alone.",
    "4 of 5 sources outscore random passages; counterfactual cannot be told from them.",
)
IN_FULL = (
    "outscores random, bm25, dense and 2 more: with this encoder the score rewards easy negatives here",
    "outscores bm25, dense, poisoned and counterfactual and cannot be told from random: with",
    "cannot be told from any source: none is shown to score higher than passages drawn at random",
    "Every source outscores the random control, by 0.0500 nats (interval 0.0300 to 0.0700) or more",
    "outscores poisoned and counterfactual and cannot be told from dense; random and bm25 score above it: with",
    "is outscored by random, bm25, dense and poisoned and cannot be told from counterfactual",
)


def alone(run, kind, *differences):
    """The run with the random control and this one."""
    made = samples.with_control(run, kind, *differences)
    return replace(made, controls=tuple(item for item in made.controls if item.kind in ("random", kind)))


@pytest.mark.parametrize(
    ("differences", "brief", "full"), list(zip(RANDOM_CASES, BRIEFLY, IN_FULL, strict=True)), ids=range(6)
)
def test_what_the_random_control_says_in_brief_and_in_full(run, differences, brief, full):
    made = alone(run, "random", *zip(NAMES, differences, strict=True))
    assert said(controls(made)) == brief
    assert full in said(controls_told(made)[0])


def beyond_random(run):
    """The run in which all sources outscore random passages."""
    return alone(run, "random", *zip(NAMES, [0.3] * 5, strict=True))


def test_one_source_below_random_passages_is_given_no_rank_to_choose_by(run):
    one = samples.with_control(replace(run, sources=run.sources[:1], comparisons=()), "random", ("random", -0.1))
    one = replace(one, controls=tuple(item for item in one.controls if item.kind == "random"))
    assert said(controls(one)) == "Random passages outscore the source: here the score rewards easy negatives."


def test_false_negatives_that_outscore_a_source_are_told(run):
    made = alone(beyond_random(run), "known_positive", ("random", 0.2), ("bm25", -0.1))
    assert said(controls(made)) == (
        "Known positives offered as negatives outscore bm25: here the score overlooks false negatives."
    )
    assert "outscore bm25: the score does not see false negatives" in said(controls_told(made)[1])
    both = alone(run, "known_positive", ("random", 0.2), ("bm25", -0.1))
    assert said(controls(both)) == (
        "Random passages outscore 4 of 5 sources and known positives 1 of 2: "
        "here the score rewards easy negatives and overlooks false ones."
    )


def test_false_negatives_level_with_a_source_show_nothing_and_too_few_queries_say_nothing(run):
    made = alone(beyond_random(run), "known_positive", ("random", 0.2), ("bm25", 0.01))
    assert "cannot be told from bm25: nothing shows" in said(controls(made))
    assert "cannot be told from bm25: nothing here shows" in said(controls_told(made)[1])
    control = next(item for item in made.controls if item.kind == "known_positive")
    few = replace(control, n_queries=3, against=tuple(replace(item, z=None) for item in control.against))
    others = tuple(item for item in made.controls if item is not control)
    made = replace(made, controls=(*others, few))
    assert "are too few (3) to say" in said(controls_told(made)[1])
    assert said(controls(made)).startswith("All 5 sources outscore")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bm25_pool", "bm25 cannot be told from BM25 of the run's own texts"),
        ("dense_pool", "bm25 cannot be told from the encoder's own"),
    ],
)
def test_a_source_that_is_no_different_from_the_pool_is_told(run, kind, expected):
    level = alone(beyond_random(run), kind, ("random", 0.2), ("bm25", 0.01))
    above = alone(beyond_random(run), kind, ("random", 0.2), ("bm25", 0.1))
    assert said(controls(level)).startswith(expected)
    free = expected.partition("from ")[2]
    (text,) = (said(text) for text in controls_told(level) if free in text)
    assert text.endswith(
        "which cost nothing, random scores higher, bm25 cannot be told from it "
        "(difference 0.0100 nats (interval −0.0100 to 0.0300))."
    )
    assert said(controls(above)).startswith("All 5")
    (text,) = (said(text) for text in controls_told(above) if free in text)
    assert text.endswith("random and bm25 score higher.")
    below = alone(beyond_random(run), kind, ("random", 0.2), ("bm25", -0.1))
    (text,) = (said(text) for text in controls_told(below) if free in text)
    assert text.endswith("random scores higher, bm25 scores lower.")


def test_a_random_control_that_was_not_asked_for_is_not_missed(run):
    echo = replace(run.controls[0], kind="query_echo", of=None)
    text = said(controls(replace(run, controls=(echo,), not_evaluated={})))
    assert text.startswith("No random control was scored, so nothing here shows")
    missed = replace(run, controls=(echo,), not_evaluated={"control random": "fewer than two queries"})
    assert said(controls(missed)) == text
    assert "control random: not evaluated: fewer than two queries" in controls_section(missed).bullets


def test_intervals_that_hold_0_show_no_equality(run):
    shuffled = [
        replace(
            next(item for item in run.controls if item.of is not None),
            of=source.name,
            against=(samples.against(source.name, 0.01, 0.02),),
        )
        for source in run.sources
    ]
    (text,) = map(said, controls_told(replace(run, controls=tuple(shuffled))))
    assert text == "No source is shown to score higher than its own negatives dealt to other queries."
    better = replace(shuffled[0], against=(samples.against(run.sources[0].name, 0.3, 0.02),))
    (text,) = map(said, controls_told(replace(run, controls=(better, shuffled[1]))))
    assert text == "bm25 is not shown to score higher than the same negatives dealt to other queries."


def test_at_another_budget_the_controls_name_theirs(run):
    changed = samples.with_control(run, "random", *zip(NAMES, [-0.1] * 5, strict=True))
    assert said(controls(replace(changed, budget=1000.0))).startswith(
        "At B = 1, random passages outscore all 5 sources"
    )
    assert "B = 1" not in said(controls(changed))


def test_the_known_positives_tell_which_queries_they_cover(run):
    for difference in (-0.1, 0.01):
        changed = samples.with_control(run, "known_positive", ("bm25", difference))
        control = next(item for item in changed.controls if item.kind == "known_positive")
        changed = replace(changed, controls=(replace(control, n_queries=12),))
        assert "of only the 12 queries with two or more labelled positives" in said(controls_told(changed)[0])


def test_without_controls_that_is_said_and_the_reason_below(run):
    made = replace(run, controls=(), not_evaluated={"control random": "fewer than two queries"})
    assert said(controls(made)).startswith("No control was scored, so nothing here shows")
    assert "control random: not evaluated: fewer than two queries" in controls_section(made).bullets


def test_the_worst_finding_is_a_positive_among_negatives(run):
    worst = notices(run)[0]
    assert (worst.kind, worst.source) == ("false_negative", "poisoned")
    assert "of poisoned (11.2 %)" in said(warning(run))
    assert "secid explain false_negative" in said(warning(run))


def test_positives_among_negatives_are_told_first_then_what_concerns_all_scores(run):
    made = replace(run, warnings=("use --tokenizer multilingual: it cuts words",))
    assert "are labelled positives of their query" in warning(made)
    told = warnings(made)
    grave = [item for item in notices(run) if item.urgency == 0]
    assert told[len(grave)].startswith("Use --tokenizer multilingual")
    assert 0 < len(grave) < len(notices(run))
    clean = replace(without_findings(run), warnings=("the lexical gate is inactive",))
    assert warning(clean) == "The lexical gate is inactive."


def test_a_warning_in_brief_is_cut_between_clauses_and_keeps_its_remedy(run):
    clean = without_findings(run)
    remedy = f"use --tokenizer multilingual for {'n' * 200}"
    told = warnings(replace(clean, warnings=(f"{remedy}: some reason, and more",)), brief=True)[0]
    assert told == f"U{remedy[1:]}."
    reason = f"the lexical gate is inactive, {'as it is ' * 20}"
    told = warnings(replace(clean, warnings=(f"use trigrams: {reason}",)), brief=True)[0]
    assert told == "Use trigrams: the lexical gate is inactive."
    assert reason.strip() in warnings(replace(clean, warnings=(f"use trigrams: {reason}",)))[0]


def test_a_name_is_never_capitalised(run):
    made = samples.renamed(without_findings(run), {"random": "html"})
    assert warning(replace(made, warnings=("html: 3 queries are too few",))).startswith("html: 3")


def test_all_findings_are_sentences_the_worst_first(run):
    told = warnings(replace(run, warnings=("of all scores",)))
    assert "Of all scores." in told
    assert len(told) == 1 + len(notices(run))
    assert all(sentence.endswith(".") for sentence in told)


def test_pairs_that_change_places_stand_at_the_top(run):
    assert to_markdown(run).index("**Settings.**") < to_markdown(run).index("## Ranking")
    text = said(unstable(run))
    assert text == (
        "Other temperatures (0.01 and 0.02) swap bm25 with dense and bm25 with poisoned (orders open); other "
        "tokenizers (alphanumeric ≥ 2 and character trigrams) swap bm25 with dense and dense with poisoned (orders "
        "open); other IDF corpora (pooled queries + documents and uniform weights) swap bm25 with dense (order open); "
        "other weights reorder 10 of 10 pairs (3 open)."
    )
    assert "sample" not in text


def test_what_no_setting_reorders_is_said(run):
    steady = replace(run, ablations=(ablation("temperature", row("0.2")), ablation("weight", row("fisher"))))
    assert said(unstable(steady)) == (
        "No pair of sources changes places over the temperatures tried; other weights order all pairs alike."
    )
    one = replace(run, ablations=(ablation("weight", row("fisher", ("bm25", "dense"))),))
    assert said(unstable(one)) == "Other weights reorder 1 of 10 pairs (order open)."


def test_settings_that_swap_are_named_and_those_that_keep_the_order_too(run):
    """A kind of setting that keeps the order is never said to change it, and an open order is called open."""
    swapping = ablation("tokenizer", row("whitespace", ("random", "dense")), row("trigrams"))
    kept, blind = ablation("temperature", row("0.2")), replace(row("own"), stability=None)
    made = replace(run, ablations=(kept, swapping, ablation("idf", row("uniform"))))
    assert said(unstable(made)) == (
        "Other tokenizers (white space) swap random with dense; temperatures and IDF corpora swap none."
    )
    assert "random changes places with dense (at tokenizer white space);" in said(" ".join(warnings(made)))
    left_open = replace(
        made,
        comparisons=tuple(
            replace(pair, established=pair.established and {pair.first, pair.second} != {"random", "dense"})
            for pair in run.comparisons
        ),
        ablations=(swapping, ablation("idf", blind)),
    )
    assert said(unstable(left_open)) == (
        "Other tokenizers (white space) swap random with dense (order open); "
        "no pair of sources could be ordered over the IDF corpora tried."
    )
    assert "with dense (at tokenizer white space; order open);" in said(" ".join(warnings(left_open)))


def test_without_ablations_there_are_three_sentences(run):
    assert len(verdict(run)) == 3
    assert "Settings.**" not in to_markdown(replace(run, ablations=()))
    small = replace(run, ablations=(ablation("sample", row("1 %", ("random", "bm25"))),))
    assert unstable(small) == ""


def without_findings(run, **fields):
    sources = tuple(replace(source, findings=(), skipped={}, **fields) for source in run.sources)
    return replace(run, sources=sources, overlaps=(), ablations=(), not_evaluated={}, warnings=())


def row(setting, *swapped):
    return AblationRow(setting=setting, scores={}, order=(), stability=0.5, block_stability={}, swapped=swapped)


def ablation(name, *rows):
    return Ablation(name=name, base="base", rows=rows, range_nats={}, conclusion="told")


def test_an_unstable_leader_is_told_before_inversions(run):
    clean = without_findings(run)
    shaky = replace(clean, ablations=(ablation("temperature", row("0.2", ("random", "bm25")), row("0.05")),))
    sources = tuple(replace(source, findings=(finding("inversion", 0.9),)) for source in shaky.sources)
    assert "random changes places with bm25 (at temperature 0.2)" in said(warnings(replace(shaky, sources=sources))[0])
    assert said(warning(shaky)) == (
        "random changes places with bm25 under other settings; choose by this rank only if you know the right setting."
    )


def test_settings_stand_with_the_pair_that_changes_places_there(run):
    rows = (row("0.2", ("random", "bm25")), row("0.1", ("dense", "random"), ("bm25", "dense")))
    shaky = replace(without_findings(run), ablations=(ablation("temperature", *rows),))
    told = said(warnings(shaky)[0])
    assert "with bm25 (at temperature 0.2) and dense (at temperature 0.1); choose by" in told


def test_a_source_of_which_anything_is_told_is_not_called_clear(run):
    def clear(made):
        return said(findings_section(made).bullets[-1])

    clean = without_findings(run)
    assert clear(clean) == "random, bm25, dense, poisoned and counterfactual: no finding of their own above the limits."
    all_shared = replace(
        run.overlaps[0], negative_jaccard_mean=0.95, shared_query_fraction=1.0, shared_document_fraction=1.0
    )
    same = replace(all_shared, first="bm25", second="dense")
    warned = replace(clean, overlaps=(same,), warnings=("poisoned: the lexical gate is inactive", "undense"))
    assert clear(warned) == "random and counterfactual: no finding of their own above the limits."


@pytest.mark.parametrize("name", ["sample"])
def test_small_samples_are_no_instability(run, name):
    shaky = replace(without_findings(run), ablations=(ablation(name, row("1 %", ("random", "bm25"))),))
    assert notices(shaky) == []
    assert "was not tried: add --ablate" in warning(shaky)
    steady = replace(shaky, ablations=(*shaky.ablations, ablation("temperature", row("0.2"), row("base"))))
    assert "keeps its place under every setting that was tried, but not in samples of 1 %." in warning(steady)


def test_a_leader_keeps_its_place_only_where_all_sources_were_scored(run):
    def told(*rows):
        return warning(replace(without_findings(run), ablations=(ablation("temperature", *rows),)))

    known, partly, unknown = row("0.1"), replace(row("0.2"), scores={"dense": None}), replace(row("9"), stability=None)
    assert told(known).endswith("the leader keeps its place under every setting that was tried.")
    assert "under the 1 of 3 tried settings that score every source" in told(known, partly, unknown, row("base"))
    assert "no setting that was tried scores every source" in told(partly, unknown)
    assert "was not tried" in told(row("base"))


def test_one_source_has_no_place_and_no_pair(run):
    one = replace(without_findings(run), sources=without_findings(run).sources[:1])
    one = replace(one, ablations=(ablation("temperature", replace(row("0.2"), stability=None)),))
    assert "one source alone has no place to keep" in warning(one)
    assert unstable(one) == ""


def test_settings_that_order_no_pair_say_nothing_of_pairs(run):
    empty = replace(row("0.2"), stability=None)
    none = replace(run, ablations=(ablation("temperature", empty, row("base")), ablation("weight", empty)))
    assert unstable(none) == (
        "No pair of sources could be ordered over the temperatures tried; "
        "no pair of sources could be ordered over other weights."
    )


def test_controls_that_compare_nothing_are_no_pass(run):
    alone = replace(run, controls=tuple(item for item in run.controls if item.kind == "random"))
    assert "was compared with no source" in controls(samples.with_control(alone, "random"))
    assert "no reason for doubt" not in controls(samples.with_control(alone, "random"))
    others = samples.with_control(run, "query_echo", ("random", 0.3)).controls[-1:]
    assert "andom control" in controls(replace(run, controls=others))


def test_swaps_of_others_are_not_the_leader_s(run):
    shaky = replace(without_findings(run), ablations=(ablation("temperature", row("0.2", ("bm25", "dense"))),))
    assert notices(shaky) == []


def finding(name, share, n=90):
    return SourceFinding(
        name=name, n_negatives=n, share=share, standard_error=0.01, interval_95=(0.0, 1.0), examples=()
    )


@pytest.mark.parametrize("entry", [entry for entry in FINDINGS.values() if entry.limit is not None])
def test_a_finding_stands_out_above_its_limit(run, entry):
    """Below it, at it and without a number it does not."""
    for share, stands_out in ((entry.limit * 1.01, True), (entry.limit, False), (0.0, False), (float("nan"), False)):
        source = replace(run.sources[0], skipped={}, findings=(finding(entry.name, share),))
        notes = of_source(source)
        assert bool(notes) is stands_out
        for note in notes:
            assert (note.kind, note.source, note.urgency) == (entry.name, source.name, entry.urgency)
            assert percent(share) in note.text
            assert entry.says in note.text
            assert note.remedy == entry.do
            assert bool(note.command) is entry.counted


def test_findings_that_only_describe_never_stand_out(run):
    names = [entry.name for entry in FINDINGS.values() if entry.limit is None]
    source = replace(run.sources[0], skipped={}, findings=tuple(finding(name, 1.0) for name in (*names, "of_tomorrow")))
    assert of_source(source) == []


@pytest.mark.parametrize(
    ("name", "n", "share", "n_scored", "expected"),
    [
        ("repeat", 16, 16 / 330, 314, "16 of 330 negatives"),  # listed: more than are scored
        ("repeat", 16, 0.0484848, None, "16 of 330 negatives"),  # as a page rounds it
        ("inversion", 31, 31 / 314, 314, "31 of 314 negatives"),
        ("random_like", 31, 31 / 200, 314, "31 negatives"),  # looked for in a sample
        ("inversion", 1, 0.4 / 314, 314, "1 negative"),  # shared by several positives
        ("inversion", 31, 31 / 314, None, "31 negatives"),
    ],
)
def test_of_how_many_negatives_is_said_only_where_it_is_known(name, n, share, n_scored, expected):
    assert negatives(finding(name, share, n), n_scored) == expected


@pytest.mark.parametrize(("skipped", "told"), [(4, True), (3, False)])
def test_skipped_rows_are_told_from_one_in_a_hundred_on(run, skipped, told):
    source = replace(run.sources[0], findings=(), n_read=400, skipped={"broken_line": skipped})
    assert bool(of_source(source)) is told


def test_equal_sources_are_told(run):
    same = replace(
        run.overlaps[0], negative_jaccard_mean=0.95, shared_query_fraction=1.0, shared_document_fraction=0.97
    )
    made = replace(without_findings(run), overlaps=(same,))
    brief = "random and bm25 give shared queries nearly the same negatives (mean Jaccard 0.950"
    assert said(warning(made)) == f"{brief}); treat them as one source."
    assert said(warnings(made)[0]) == (
        f"{brief}; shared are 100.0 % of the smaller one's queries and 97.0 % of its documents); "
        "treat them as one source."
    )


@pytest.mark.parametrize("lacking", ["shared_query_fraction", "shared_document_fraction", "negative_jaccard_mean"])
def test_sources_that_share_little_are_not_called_one(run, lacking):
    shared = {"negative_jaccard_mean": 1.0, "shared_query_fraction": 1.0, "shared_document_fraction": 1.0}
    made = replace(run, overlaps=(replace(run.overlaps[0], **{**shared, lacking: 1 / 41}),))
    assert not any(item.kind == "same" for item in notices(made))
    made = replace(run, overlaps=(replace(run.overlaps[0], **shared),))
    assert any(item.kind == "same" for item in notices(made))


def test_what_was_not_evaluated_is_told_when_nothing_is_wrong(run):
    missing = replace(without_findings(run), not_evaluated={"control random": "fewer than two queries", "x": "y"})
    assert said(warning(missing)) == "Not evaluated: control random (fewer than two queries), and 1 more."


def test_what_was_not_tried_is_told_when_nothing_is_missing(run):
    assert "--ablate" in warning(without_findings(run))


def test_findings_of_the_worse_source_come_first(run):
    found = notices(run)
    assert [item.urgency for item in found] == sorted(item.urgency for item in found)
    assert {item.source for item in found} >= {"poisoned", "counterfactual"}


def test_a_difference_that_is_rounding_alone_is_level(run):
    control = next(item for item in run.controls if item.kind == "dense_pool")
    rounding = replace(control.against[0], difference_nats=-5e-9, interval_95=(-1e-8, -7e-10), z=None)
    assert rounding.placed == "level"
    assert replace(rounding, z=-2.3).placed == "below"


def test_a_leader_that_other_weights_move_names_them_as_weights(run):
    rows = tuple(row(name, ("random", "bm25")) for name in ("residual_only", "gradient_weighted"))
    made = replace(without_findings(run), ablations=(ablation("weight", *rows),))
    told = " ".join(map(said, warnings(made)))
    assert "(under the weights residual only and gradient-weighted" in told
    assert "weight residual" not in told


def test_the_limits_are_given_once(run):
    (paragraph,) = findings_section(run).paragraphs
    assert percent(NOTICED_SKIPPED) in paragraph
    assert fraction(NOTICED_OVERLAP) in paragraph
    assert to_markdown(run).count("Listed first is") == to_html(run).count("Listed first is") == 1
    rules = next(part.table for part in findings_section(run).parts if part.table.caption == "What each finding is")
    limits = {row[0]: row[2] for row in rules.rows}
    looked_for = {item.name for source in run.sources for item in source.findings}
    assert limits == {FINDINGS[name].title: percent(FINDINGS[name].limit) for name in looked_for}


def test_what_was_not_found_and_what_was_not_looked_for_are_apart(run):
    kept = tuple(replace(source, findings=source.findings[:3]) for source in run.sources)
    bullets = [said(bullet) for bullet in findings_section(replace(run, sources=kept)).bullets]
    (unknown,) = [bullet for bullet in bullets if bullet.startswith("Looked for in no source")]
    absent = " ".join(bullet for bullet in bullets if bullet.startswith("Looked for and found in no source"))
    shown = {row[0] for part in findings_section(replace(run, sources=kept)).parts for row in part.table.rows}
    for place, entry in enumerate(FINDINGS.values()):
        assert (entry.title in unknown) is (place >= 3)
        assert (place >= 3) or (entry.title in absent) or (entry.title in shown)
        assert not (place >= 3 and entry.title in absent)


def test_thresholds_that_are_settings_stand_in_the_rules(run):
    settings = {**run.settings, "high_coverage": {"value": 0.37, "from": "flag"}}
    parts = findings_section(replace(run, settings=settings)).parts
    rules = next(part.table for part in parts if part.table.caption == "What each finding is")
    given = {row[0] for row in rules.rows if "high coverage 0.37" in row[1]}
    assert given == {"high coverage", "valid but lexical", "valid but far"}
