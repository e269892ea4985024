"""The three sentences follow the numbers. What they say word for word: test_wording.py."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from secid.pages.ablation_summary import leader_kept, pairs_by_setting, unstable
from secid.pages.controls_text import controls_told, outcome
from secid.pages.findings import NOTICED_OVERLAP, NOTICED_SKIPPED, negatives, notices, of_source
from secid.pages.html import to_html
from secid.pages.markdown import to_markdown
from secid.pages.numbers import fraction, percent
from secid.pages.sanitize import without_isolates
from secid.pages.sections.findings import findings_section
from secid.pages.sections.ranking import controls_section, pairs_section
from secid.pages.verdict import MOST_WORDS, controls, in_a_line, ranking, standing, verdict, warning, warnings
from secid.results.catalogue import FINDINGS
from tests.unit.pages import samples
from tests.unit.pages.situations import (
    CLEAN,
    CONTROLS,
    MISSING,
    NAMES,
    POOLS,
    RANDOM_CASES,
    RANKINGS,
    REASON,
    REMEDY,
    RUN,
    SETTINGS,
    WARNINGS,
    ablation,
    changed,
    finding,
    row,
    varied,
    without_findings,
)


@pytest.fixture
def run():
    return RUN


def said(sentence):
    return without_isolates(sentence).replace("\u00a0", " ")


def test_three_labelled_sentences(run):
    found = verdict(run)
    assert [label for label, _ in found] == ["Ranking", "Controls", "Watch out"]
    assert all(sentence.endswith(".") and "None" not in sentence and "nan" not in sentence for _, sentence in found)


def test_every_sentence_is_one_of_few_words_and_the_terminal_s_fits_a_line():
    for made in changed():
        for label, sentence in (*verdict(made), *(("Settings", part) for part in unstable(made).split(";"))):
            words = said(sentence).replace(" %", "%").replace(" = ", "=").split()
            assert len(words) <= MOST_WORDS, (label, sentence)
            assert not re.search(r"\. [A-Z]", sentence), (label, sentence)
        line = f"Verdict: {said(in_a_line(made))}"
        assert len(line) <= 80 or len(made.sources) == 1, line
        assert line.endswith(".")


@pytest.mark.parametrize(
    ("situation", "place", "rival"),
    [
        ("golden", "first", "bm25"),
        ("established", "first", "bm25"),
        ("open", "open", "bm25"),
        ("open against dense alone", "open", "dense"),  # bm25 is established below random
        ("open against bm25, beyond 0", "open", "bm25"),
        ("equal scores", "open", "bm25"),
        ("one source", "alone", None),
        ("one source at B = 100", "alone", None),
        ("not compared", "unknown", None),
        ("established at B = 100", "first", "bm25"),
        ("open at B = 100", "open", "bm25"),
    ],
)
def test_the_first_place_is_called_what_the_pairs_establish(situation, place, rival):
    made = RANKINGS[situation]
    text, line = said(ranking(made)), said(in_a_line(made))
    assert standing(made) == place
    for sentence in (text, line):
        assert ("ranks first" in sentence) is (place == "first")
        assert ("place is open" in sentence) is (place == "open")
    assert re.findall("|".join(NAMES), text)[-1] == (rival or "random")
    assert ("B = 100" in text) is (made.budget == 100.0)


def test_a_lead_has_its_interval_and_an_open_one_why_it_is_open():
    pair = RUN.comparisons[0]
    interval = f"{pair.interval_95[0]:.4f} to {pair.interval_95[1]:.4f}"
    for situation in ("established", "open"):
        assert f"{pair.difference_nats:.4f} nats (95 % interval {interval}" in said(ranking(RANKINGS[situation]))
    tested = {name: "10 pairs" in said(ranking(made)) for name, made in RANKINGS.items()}
    assert tested["open against bm25, beyond 0"]
    assert not tested["open against bm25, around 0"]
    assert not tested["established"]
    assert "ahead" not in ranking(RANKINGS["equal scores"])


def test_open_pairs_alone_are_given_the_queries_that_would_tell_them_apart():
    (first, *_) = pairs_section(RANKINGS["open"]).bullets
    assert "1,300" in first  # 1,234, rounded
    assert pairs_section(RANKINGS["established"]).bullets == ()


def test_a_sentence_begins_with_a_capital_unless_a_whole_name_does():
    made = samples.renamed(CLEAN, {"bm25": "the", "dense": "noise-2", "random": "html"})
    told = ("these few", "the: odd", "noise of it", "noise-2: odd.", "html: 3 few")
    assert warnings(replace(made, warnings=told))[:5] == [
        "These few.", "the: odd.", "Noise of it.", "noise-2: odd.", "html: 3 few.",
    ]  # fmt: skip


def test_never_significant():
    for made in changed():
        assert not any("significan" in sentence for _, sentence in verdict(made))


@pytest.mark.parametrize("case", range(len(RANDOM_CASES)))
def test_what_the_random_control_says_in_brief_and_in_full(case):
    """The half-width of all intervals is 0.02."""
    made, differences = CONTROLS[f"random passages {case}"], dict(zip(NAMES, RANDOM_CASES[case], strict=True))
    above, below = ({name for name in NAMES if sign * differences[name] > 0.02} for sign in (-1, 1))
    found = outcome(made, "random")
    assert (set(found.above), set(found.below)) == (above, below)
    brief, full = said(controls(made)), said(controls_told(made)[0])
    line = said(in_a_line(made))
    for text in (brief, full):
        assert ("rewards easy" in text) is bool(above)
        assert ("0.0500 nats" in text) is (len(below) == len(NAMES))
    assert (str(len(above or below)) in brief) is bool(above or below)
    assert ("passages outscore" in line) is bool(above)
    assert f"{len(above or below)} of 5" in line or not below or len(below) == 5


@pytest.mark.parametrize(
    ("situation", "n_above", "n_level", "sees"),
    [
        ("known positives above bm25", 1, 0, False),
        ("known positives and random passages above", 1, 0, False),
        ("known positives level with bm25", 0, 1, False),
        ("known positives of too few queries", 0, 2, None),
    ],
)
def test_known_positives_that_are_not_below_a_source_show_no_eye_for_false_negatives(situation, n_above, n_level, sees):
    made = CONTROLS[situation]
    found = outcome(made, "known_positive")
    assert (len(found.above), len(found.level)) == (n_above, n_level)
    brief, full = said(controls(made)), said(controls_told(made)[1])
    assert found.known is (sees is not None)
    for text in (brief, full):
        assert ("bm25" in text or "1 of 2" in text) is (sees is False)
    assert str(found.control.n_queries) in full


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("how", ["level with", "below", "above"])
def test_a_source_that_is_no_different_from_the_pool_is_told(kind, how):
    made = CONTROLS[f"{kind}: {how} bm25"]
    found = outcome(made, kind)
    places = {"level with": found.level, "below": found.below, "above": found.above}
    assert [name for name, sources in places.items() if "bm25" in sources] == [how]
    assert ("costs nothing" in said(controls(made))) is (how == "level with")
    (*_, full) = map(said, controls_told(made))
    assert ("0.0100 nats (interval −0.0100 to 0.0300)" in full) is (how == "level with")
    assert ("lower" in full) is (how == "above")


@pytest.mark.parametrize("situation", ["no random control", "no control"])
def test_a_control_that_was_not_scored_shows_nothing_and_its_reason_is_below(situation):
    made = replace(CONTROLS[situation], not_evaluated={})
    missed = replace(made, not_evaluated=MISSING)
    assert outcome(made, "random") is None
    assert controls(made) == controls(missed)
    reasons = set(controls_section(missed).bullets) - set(controls_section(made).bullets)
    assert any("control random" in text and MISSING["control random"] in text for text in reasons)


def test_intervals_that_hold_0_show_no_equality():
    (text,) = map(said, controls_told(CONTROLS["shuffled, level with bm25"]))
    assert text.startswith("bm25 is not")
    assert "random" not in text


def test_at_another_budget_the_controls_name_theirs(run):
    made = CONTROLS["at B = 1,000"]
    assert "B = 1," in said(controls(made))
    assert "B = 1" not in said(controls(replace(made, budget=1.0)))


def test_the_worst_finding_is_a_positive_among_negatives(run):
    worst = notices(run)[0]
    assert (worst.kind, worst.source) == ("false_negative", "poisoned")
    for part in ("of poisoned (11.2 %)", worst.command):
        assert part in said(warning(run))


def test_positives_among_negatives_are_told_first_then_what_concerns_all_scores(run):
    made = WARNINGS["of all scores, after what is grave"]
    grave = [item for item in notices(run) if item.urgency == 0]
    assert warnings(made)[len(grave)].startswith("Use --tokenizer")
    assert 0 < len(grave) < len(notices(run))
    assert said(grave[0].text) in said(warning(made))
    assert "lexical gate" in warning(WARNINGS["of all scores alone"])


def test_a_warning_in_brief_is_cut_between_clauses_and_keeps_its_remedy():
    def told(text, brief):
        return warnings(replace(CLEAN, warnings=(text,)), brief=brief)[0]

    assert told(f"{REMEDY}: some reason, and more", True) == f"U{REMEDY[1:]}."
    assert told(f"use trigrams: {REASON}", True) == f"Use trigrams: {REASON.partition(',')[0]}."
    assert REASON.strip() in told(f"use trigrams: {REASON}", False)


def test_all_findings_are_sentences_the_worst_first(run):
    told = warnings(replace(run, warnings=("of all",)))
    assert "Of all." in told
    assert len(told) == 1 + len(notices(run))
    assert all(sentence.endswith(".") for sentence in told)


def test_pairs_that_change_places_stand_at_the_top(run):
    assert to_markdown(run).index("**Settings.**") < to_markdown(run).index("## Ranking")
    text = said(unstable(run))
    pairs = pairs_by_setting(item for item in run.ablations if item.name not in ("sample", "weight"))
    assert set(pairs) == {("bm25", "dense"), ("bm25", "poisoned"), ("dense", "poisoned")}
    assert all(f"{first} with {second}" in text for first, second in pairs)
    assert "10 of 10" in text
    assert "sample" not in text


def test_a_kind_of_setting_that_keeps_the_order_is_never_said_to_change_it_and_an_open_order_is_called_open():
    for situation, is_open in (("one kind swaps", False), ("an open order swaps", True)):
        made = SETTINGS[situation]
        first = said(unstable(made)).split(";")[0]
        assert "random with dense" in first
        for text in (first, *(text for text in warnings(made) if "white space" in text)):
            assert ("order open" in text) is is_open
            assert "temperature" not in text
    assert "pair" in unstable(SETTINGS["steady"])
    assert "swap" not in unstable(SETTINGS["steady"])


def test_without_ablations_there_are_three_sentences(run):
    assert len(verdict(run)) == 3
    assert "Settings.**" not in to_markdown(replace(run, ablations=()))
    assert unstable(WARNINGS["samples tried"]) == ""


def swaps(run):
    """The kinds of finding that say of the leader that it changes places."""
    return [item.kind for item in notices(run) if item.kind in ("unstable", "weight")]


@pytest.mark.parametrize(
    ("situation", "kinds", "rivals"),
    [
        ("the leader changes places", ["unstable"], {"bm25": "temperature 0.2"}),
        ("the leader changes places twice", ["unstable"], {"bm25": "temperature 0.2", "dense": "temperature 0.1"}),
        ("other weights move the leader", ["weight"], {"bm25": "weights residual only"}),
        ("samples tried", [], {}),
        ("steady", [], {}),
    ],
)
def test_a_leader_that_changes_places_is_told_with_whom_and_where(situation, kinds, rivals):
    made = WARNINGS[situation]
    assert swaps(made) == kinds
    told = " ".join(map(said, warnings(made)))
    assert all(re.search(rf"{name} \([^)]*{setting}", told) for name, setting in rivals.items())
    assert "weight residual" not in told


def test_an_unstable_leader_is_told_before_inversions():
    shaky = WARNINGS["the leader changes places"]
    sources = tuple(replace(source, findings=(finding("inversion", 0.9),)) for source in shaky.sources)
    assert notices(replace(shaky, sources=sources))[0].kind == "unstable"


def test_swaps_of_others_are_not_the_leader_s():
    assert notices(varied(ablation("temperature", row("0.2", ("bm25", "dense"))))) == []


def test_a_source_of_which_anything_is_told_is_not_called_clear(run):
    def clear(made):
        told = said(findings_section(made).bullets[-1])
        return [name for name in NAMES if name in told]

    clean = without_findings(run)
    assert clear(clean) == list(NAMES)
    all_shared = replace(
        run.overlaps[0], negative_jaccard_mean=0.95, shared_query_fraction=1.0, shared_document_fraction=1.0
    )
    same = replace(all_shared, first="bm25", second="dense")
    warned = replace(clean, overlaps=(same,), warnings=("poisoned: the lexical gate is inactive", "undense"))
    assert clear(warned) == ["random", "counterfactual"]


@pytest.mark.parametrize(
    ("situation", "part"),
    [
        ("nothing tried", "--ablate"),
        ("samples tried", "--ablate"),
        ("steady", "every setting"),
        ("steady but for samples", "samples of"),
        ("steady where every source has a score", "1 of 3"),
        ("no setting scores every source", "but no setting"),
        ("one source", "one source"),
    ],
)
def test_a_leader_keeps_its_place_only_where_all_sources_were_scored(situation, part):
    made = WARNINGS[situation]
    assert notices(made) == []
    assert part in leader_kept(made)
    assert leader_kept(made) in warning(made)
    assert ("keeps its" in warning(made)) is (part in ("every setting", "samples of", "1 of 3"))


def test_one_source_has_no_place_and_no_pair():
    assert unstable(WARNINGS["one source"]) == ""


def test_controls_that_compare_nothing_are_no_pass(run):
    made = CONTROLS["random control compared with none"]
    assert outcome(made, "random").n == 0
    others = samples.with_control(run, "query_echo", ("random", 0.3)).controls[-1:]
    assert outcome(replace(run, controls=others), "random") is None
    for told in (controls(made), controls(replace(run, controls=others))):
        assert "andom control" in told
        assert "outscore" not in told


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


def test_equal_sources_are_told():
    (same,) = notices(WARNINGS["two equal sources"])
    assert (same.kind, same.source, same.others) == ("same", "random", ("bm25",))
    for number in ("0.950", "100.0 %", "97.0 %"):
        assert number in said(same.text)
        assert (number in said(same.brief)) is (number == "0.950")


@pytest.mark.parametrize("lacking", ["shared_query_fraction", "shared_document_fraction", "negative_jaccard_mean"])
def test_sources_that_share_little_are_not_called_one(run, lacking):
    shared = {"negative_jaccard_mean": 1.0, "shared_query_fraction": 1.0, "shared_document_fraction": 1.0}
    made = replace(run, overlaps=(replace(run.overlaps[0], **{**shared, lacking: 1 / 41}),))
    assert not any(item.kind == "same" for item in notices(made))
    made = replace(run, overlaps=(replace(run.overlaps[0], **shared),))
    assert any(item.kind == "same" for item in notices(made))


def test_what_was_not_evaluated_is_told_when_nothing_is_wrong():
    assert notices(WARNINGS["not evaluated"]) == []
    name, reason = next(iter(MISSING.items()))
    assert f"{name} ({reason})" in said(warning(WARNINGS["not evaluated"]))


def test_findings_of_the_worse_source_come_first(run):
    found = notices(run)
    assert [item.urgency for item in found] == sorted(item.urgency for item in found)
    assert {item.source for item in found} >= {"poisoned", "counterfactual"}


def test_a_difference_that_is_rounding_alone_is_level(run):
    control = next(item for item in run.controls if item.kind == "dense_pool")
    rounding = replace(control.against[0], difference_nats=-5e-9, interval_95=(-1e-8, -7e-10), z=None)
    assert rounding.placed == "level"
    assert replace(rounding, z=-2.3).placed == "below"


def rules_of(run):
    """The table of what each finding is and its limit."""
    (table,) = [part.table for part in findings_section(run).parts if len(part.table.columns) == 3]
    return table


def test_the_limits_are_given_once(run):
    (paragraph,) = findings_section(run).paragraphs
    assert percent(NOTICED_SKIPPED) in paragraph
    assert fraction(NOTICED_OVERLAP) in paragraph
    for page in (to_markdown(run), html.unescape(to_html(run))):
        assert said(page).count(said(paragraph)[:100]) == 1
    rules = rules_of(run)
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
    given = {row[0] for row in rules_of(replace(run, settings=settings)).rows if "0.37" in row[1]}
    assert given == {"high coverage", "valid but lexical", "valid but far"}
