"""Test the details: tables by budget, slice and setting."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from secid.analyses.budgets import Budgets, EqualNumbers
from secid.analyses.registry import ANALYSES
from secid.pages.findings import example_rows, findings_of, sentence
from secid.pages.formats import to_markdown
from secid.pages.glossary import EXPLANATIONS, SETTING_MEANINGS, missing_lines
from secid.pages.page import foreign, text
from secid.pages.sections import analysis_part, page_of
from secid.pages.sections.ablations import ablations_section
from secid.pages.sections.guide import trusted
from secid.pages.sections.objectives import NO_SECOND_POSITIVE_NOTE, next_label, objectives_section
from secid.pages.sections.overlap import overlap_section
from secid.pages.sections.ranking import pairs_section, ranking_section
from secid.pages.sections.slices import slices_section, slices_sentence
from secid.pages.sections.verdict import notes, own_score, verdict
from secid.pages.text import without_isolates
from secid.pool.normal_form import normal_form
from secid.settings import display_name
from tests.fake_encoder import HashEncoder, PieceEncoder
from tests.unit.pages import samples
from tests.unit.scoring.made_rows import clean_rows
from tests.unit.scoring.runs import scored

RUN = samples.golden()


def first_column(part):
    return [row[0] for row in part.rows]


def test_beyond_b_1_the_score_is_that_on_equal_numbers():
    """The larger source scores higher on all it has, and lower on as many as the other has: that is what ranks it."""
    whole = replace(RUN.sources[0].score.budget_curve[0], budget=1000.0, nats=179.7, interval_95=(170.0, 189.4))
    cut = replace(whole, nats=161.3, interval_95=(150.0, 172.6))
    first = samples.changed(RUN.sources[0], budget_curve=(replace(whole, nats=174.0),), equal_curve=())
    second = samples.changed(RUN.sources[1], budget_curve=(whole,), equal_curve=(cut,))
    numbers = EqualNumbers(n_queries=110, n_triplets=1100)
    run = samples.replaced(
        RUN, budget=1000.0, sources=(first, second), budgets=Budgets(crossings=(), equal_numbers=numbers)
    )
    assert own_score(run, second) == "161.3 ±11.3"
    assert own_score(run, first) == "174.0 ±15.4"
    apart = ranking_section(samples.reported()).tables[0].rows[-1]
    assert apart[:3] == ("random", "–", "–")
    assert any("110 queries and 1,100" in sentence for sentence in notes(run))
    assert not any("1,100" in sentence for sentence in verdict(replace(run, budget=1.0)))


def test_a_source_without_the_run_s_budget_has_its_score_at_1():
    assert samples.changed(RUN.sources[0], budget_curve=(), equal_curve=()).in_table(10.0).score.budget == 1.0


def test_slices_are_in_the_order_of_their_numbers_and_the_absent_one_last():
    first = samples.sliced(RUN).analyses["slices"][0]
    for values, order in (
        (("10", "", "2", "-1.5"), ["-1.5", "2", "10", "(absent or empty)"]),
        (("two", "10", "", "2"), ["10", "2", "two", "(absent or empty)"]),
        (("(absent or empty)", ""), ["“(absent or empty)”", "(absent or empty)"]),
    ):
        run = samples.replaced(RUN, slices=tuple(replace(first, value=value) for value in values))
        assert first_column(slices_section(run, run.analyses["slices"]).tables[0]) == order


def test_a_slice_led_by_another_source_counts_only_where_the_leader_is():
    first, lacking = samples.sliced(RUN).analyses["slices"]
    turned = replace(first, value="x", sources=tuple(reversed(first.sources)), lead_interval_95=(0.01, 0.2))
    said = slices_sentence(RUN, (first, turned, lacking))
    assert "scores highest: 1 of 2." in without_isolates(said)
    assert "leads in 1, significantly in 1" in said
    assert "without this source: 1." in said


def test_the_summary_of_ablations_says_what_each_aspect_changes():
    items = {item.name: item for item in RUN.analyses["ablations"]}
    base = items["temperature"]
    low, high = replace(base.rows[0], setting="low", stability=0.5), replace(base.rows[0], setting="high")
    names = base.rows[0].order
    pair = names[0], names[1]
    low = replace(low, scores={**low.scores, names[0]: 0.125}, swapped=(pair,))
    high = replace(high, scores={**low.scores, names[0]: None}, swapped=())
    made = replace(base, base="high", rows=(low, high, replace(high, setting="higher", stability=1.0)))
    summary = ablations_section(RUN, (made, items["weight"])).tables[0]
    first, weight = (dict(zip([column.title for column in summary.columns], row, strict=True)) for row in summary.rows)
    assert (first["same order of all"], first["pairs that change places"]) == (
        "1 of 2",
        f"{names[0]} with {names[1]} under low",
    )
    assert first[names[0]] == "0.1250 to 0.1250"
    assert {weight[name] for name in names} == {"–"}  # scores under different weights are different numbers


def test_every_score_of_an_ablation_has_a_shade_and_nothing_else():
    for item in RUN.analyses["ablations"]:
        _, part = ablations_section(RUN, (item,)).tables
        titles = [column.title for column in part.columns]
        names = [source.name for source in RUN.sources]
        for shades in part.shades[: len(item.rows)]:
            assert {title for title, shade in zip(titles, shades, strict=True) if shade is not None} <= {*names}
            assert sum(shade is not None for shade in shades) == len(names)


def test_scores_that_differ_by_more_than_a_float_holds_have_shades():
    item = next(item for item in RUN.analyses["ablations"] if item.name == "weight")
    ends = {source.name: sign * 1e308 for source, sign in zip(RUN.sources, (1, -1), strict=False)}
    made = replace(item, rows=tuple(replace(row, scores=ends) for row in item.rows))
    _, part = ablations_section(RUN, (made,)).tables
    assert part.shades[0][1:3] == (9, 0)


def test_stability_within_a_block_is_its_least():
    rows = tuple(
        replace(row, block_stability={"mined": 1.0 if place else 0.5})
        for place, row in enumerate(RUN.analyses["ablations"][0].rows)
    )
    section = ablations_section(RUN, (replace(RUN.analyses["ablations"][0], rows=rows),))
    assert "0.500 (0.01)" in section.bullets[0]
    assert section.tables[1].columns[-1].title == "stability in mined"


def test_every_example_is_a_row_once_with_all_findings_of_its_negative():
    run = samples.golden()
    expected: dict[tuple, set[str]] = {}
    for source in run.sources:
        for finding in source.findings:
            for one in finding.examples:
                assert finding.name in one.findings
                key = source.name, one.path, one.line, one.query, one.negative
                expected.setdefault(key, set()).update(one.findings)
    rows = example_rows(run)
    found = {
        (row.source, row.example.path, row.example.line, row.example.query, row.example.negative): set(row.findings)
        for row in rows
    }
    assert found == expected
    assert len(rows) == len(found) > 10
    assert max(map(len, expected.values())) > 1
    margins = [
        (row.margin, row.example.s_query_positive, row.example.s_query_negative)
        for row in rows
        if row.example.s_query_positive is not None
    ]
    assert margins
    assert all(margin == positive - negative for margin, positive, negative in margins)


def test_a_false_negative_is_shown_with_the_positive_that_it_equals():
    rows = [row for row in example_rows(samples.golden()) if "false_negative" in row.findings]
    assert len(rows) > 1
    for row in rows:
        assert normal_form(row.example.positive) == normal_form(row.example.negative)
        same = row.example.positive == row.example.negative
        assert row.example.s_query_positive == (row.example.s_query_negative if same else None)
        assert row.margin == (0 if same else None)


def test_every_setting_is_explained():
    for item in RUN.analyses["ablations"]:
        explanation = dict(ablations_section(RUN, RUN.analyses["ablations"]).terms)[
            SETTING_MEANINGS[item.name][0]
        ].lower()
        for row in item.rows if item.name in ("tokenizer", "weight") else ():
            word = display_name(row.setting).lower().removesuffix(" weight").removeprefix("alphanumeric ")
            assert ("without" if word.startswith("without") else word) in explanation


@pytest.mark.parametrize(
    "made", [samples.hostile, samples.bare, samples.early, samples.sliced, samples.lensed], ids=lambda f: f.__name__
)
def test_every_table_has_as_many_cells_as_columns_and_every_section_its_anchor(made):
    page = page_of(made(RUN))
    tables = [page.answer, page.heat, *(table for section in page.details for table in section.tables)]
    for table in filter(None, tables):
        assert {len(row) for row in table.rows} <= {len(table.columns)}
        assert all(len(row) == len(table.columns) for row in table.shades)
    anchors = [section.anchor for section in page.details]
    assert len(anchors) == len(set(anchors))


def test_objectives_have_a_row_a_source_and_objective_and_the_extremes_of_outscoring():
    section = objectives_section(RUN, samples.lensed(RUN).analyses["objectives"])
    a, b = (source.name for source in RUN.sources[:2])
    rows = section.tables[0].rows
    assert [row[:2] for row in rows[:2]] == [(a, "InfoNCE"), (a, "JointLH")]
    assert [row[1] for row in rows if row[0] == b] == ["InfoNCE", "LSEPair maxN", "MW"]
    titles = [column.title for column in section.tables[0].columns]
    assert "on suspects" not in titles
    row = dict(zip(titles, rows[1], strict=True))
    assert (row["on outscoring"], row["on valid"], row["effective negatives"]) == ("20.0\u00a0%", "–", "120")
    assert (row["strongest positive"], row["weakest positive"]) == ("70.0\u00a0%", "20.0\u00a0%")
    assert all(text in section.paragraphs[0] for text in ("10.0\u00a0%", "60.0\u00a0%", "InfoNCE", "MW"))
    assert [name for name, _ in section.terms][:6] == [
        "InfoNCE",
        "JointLH",
        "SumMargLH",
        "LSEPair",
        "LSEPair maxN",
        "MW",
    ]


def test_without_a_record_with_two_positives_they_have_no_column():
    run = samples.lensed(RUN)
    alone = tuple(item for item in run.analyses["objectives"].objectives if item.strongest_positive is None)
    lens = replace(run.analyses["objectives"], objectives=alone)
    titles = [column.title for column in objectives_section(run, lens).tables[0].columns]
    assert not any("positive" in title for title in titles)


def test_the_next_label_is_weighed_by_what_it_narrows():
    section = objectives_section(RUN, samples.lensed(RUN).analyses["objectives"])
    assert [row[1] for row in section.tables[1].rows] == [
        "first 1 negative",
        "first 2 negatives",
        "first 1 positive",
        "first 3 positives",
    ]
    sentence = section.paragraphs[1]
    assert all(text in sentence for text in ("29.3\u00a0%", "10.0\u00a0%", "2.0\u00a0% to 5.0\u00a0%"))
    lens = samples.lensed(RUN).analyses["objectives"]
    unknown = replace(
        lens,
        narrowing=tuple(replace(item, one_more_positive=None) for item in lens.narrowing),
        sizes=tuple(item for item in lens.sizes if item.n_positives is None),
    )
    assert "10.0" not in next_label(unknown)
    assert NO_SECOND_POSITIVE_NOTE in next_label(unknown)
    assert NO_SECOND_POSITIVE_NOTE not in next_label(lens)


class Equal(HashEncoder):
    """One vector for all texts."""

    def row(self, text, role):
        return super().row("same", "query")


@pytest.mark.parametrize("encoder", [PieceEncoder(), Equal()])
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (12, 1), (12, 3)])
def test_the_smallest_sources_have_a_section_of_objectives(shape, encoder, tmp_path):
    run = scored(tmp_path, {"a": clean_rows(*shape)}, encoder, objectives=True).run
    (narrowing,) = run.analyses["objectives"].narrowing
    can_tell = shape == (12, 3) and not isinstance(encoder, Equal)
    assert (narrowing.one_more_negative is not None) == can_tell
    assert len(objectives_section(run, run.analyses["objectives"]).paragraphs) == 2
    assert to_markdown(page_of(run))


def test_explanations_are_used():
    used = {
        term
        for section in page_of(
            samples.guided(samples.separated(samples.sliced(samples.early(samples.profiled(RUN)))))
        ).details
        for term, _ in section.terms
    }
    assert set(EXPLANATIONS) <= used


def test_names_have_their_own_direction_and_settings_are_ours():
    table = page_of(RUN).answer
    assert table.columns[0] == foreign("source")
    assert ablations_section(RUN, RUN.analyses["ablations"]).tables[1].columns[0] == text("temperature")


def test_names_keep_their_underscores():
    run = replace(
        RUN, not_evaluated={"hardness of a_b": "too few passages", "source a_b": "empty", "near_copy": "none"}
    )
    text = " ".join(missing_lines(run))
    assert text.count("a_b") == 2
    assert "near_copy" in text


def _suspected(run, share=0.3):
    """The run in which each source has the finding `suspect`."""
    suspect = replace(run.sources[0].findings[0], name="suspect", n_negatives=90, share=share, interval_95=(0.25, 0.36))
    sources = tuple(replace(source, findings=(*source.findings, suspect)) for source in run.sources)
    return replace(run, sources=sources)


def test_suspects_leave_the_findings_if_they_are_not_evidence():
    runs = [_suspected(samples.guided(RUN, **numbers)) for numbers in ({}, {"random_share": 0.5})]
    listed = [_titles(trusted(run)) - _titles(RUN) for run in runs]
    assert [len(names) for names in listed] == [1, 0]
    assert trusted(RUN) is RUN
    assert all(source.finding("suspect") is not None for source in trusted(runs[0]).sources)


def _titles(run):
    return {item.name for own in findings_of(run) for item in own.items}


def test_a_finding_of_a_sample_says_so():
    run = _suspected(samples.guided(RUN, sample=300))
    finding = run.sources[0].finding("suspect")
    words = sentence(finding, 300).replace("\u00a0", " ")
    assert all(number in words for number in ("90", "300", "30.0 %", "25.0 %", "36.0 %"))
    assert "330" not in words
    texts = [item.sentence for own in findings_of(run) for item in own.items]
    assert sum("300" in text for text in texts) == len(run.sources)


def test_beyond_300_pairs_a_page_has_neighbors_in_the_ranking_and_the_pairs_that_share_most():
    run = samples.large(RUN, n_sources=40)
    names = [source.name for source in run.sources]
    pairs = list(combinations(names, 2))
    comparisons = tuple(replace(RUN.comparisons[0], first=a, second=b) for a, b in pairs)
    shares = [place / len(pairs) for place in range(len(pairs))]
    overlaps = tuple(
        replace(RUN.analyses["overlap"][0], first=a, second=b, negative_jaccard_mean=share)
        for (a, b), share in zip(pairs, shares, strict=True)
    )
    for n, compared, shown in ((780, 39, 300), (300, 300, 300)):
        part = samples.replaced(run, comparisons=comparisons[:n], overlap=overlaps[:n])
        (table,) = pairs_section(part).tables
        assert len(table.rows) == compared
        assert ("780" in table.caption) == (n == 780)
        section = overlap_section(part, part.analyses["overlap"])
        assert len(section.tables[0].rows) == shown
    assert section.tables[0].rows[0][3] == "0.000"
    section = overlap_section(run, overlaps)
    assert section.tables[0].rows[0][3] == "0.999"


@pytest.mark.parametrize("name", [analysis.name for analysis in ANALYSES])
def test_every_analysis_has_a_section_that_is_left_out_without_its_result(name):
    run = samples.guided(samples.separated(samples.sliced(samples.lensed(samples.profiled(RUN)))))
    assert analysis_part(run, name).title
    assert analysis_part(replace(run, analyses={}), name) is None
