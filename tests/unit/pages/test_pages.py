"""Pages of all formats: complete, small, harmless, and made without anything heavy."""

from __future__ import annotations

import html
import html.parser
import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from secid.errors import OutputError, UsageError
from secid.files import check_writable
from secid.pages.comparison import compare
from secid.pages.comparison_page import COMPARISON_FORMATS
from secid.pages.cuts import EXAMPLES, TABLES, _steps, fit, hard_cut
from secid.pages.glossary import DRAWN, EXPLANATIONS, SETTINGS, score_point
from secid.pages.html import LARGEST_PAGE as LARGEST_HTML
from secid.pages.html import to_html
from secid.pages.markdown import LARGEST_PAGE as LARGEST_MARKDOWN
from secid.pages.markdown import render, to_markdown
from secid.pages.numbers import UNTOLD, nats
from secid.pages.pages import FORMATS, check_formats, labels, write_page
from secid.pages.sanitize import markdown, short, without_isolates
from secid.pages.sections import page_of
from secid.pages.sections.early import early_told
from secid.pages.sections.slices import slices_told
from secid.pages.terminal import SHOWN_FINDINGS, print_run
from secid.pages.verdict import verdict, warnings
from secid.results import EqualNumbers, SourceFinding, TripletExample
from secid.settings import in_words
from tests.snapshots import situations
from tests.unit.pages import samples


@pytest.fixture(scope="module")
def run():
    return samples.golden()


def printed(run, width=80, terminal=False, **options):
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, highlight=False, **options)
    print_run(console, run)
    return stream.getvalue()


class Outline(html.parser.HTMLParser):
    """What a browser would see: tags with attributes, headings, and text outside tags."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.headings, self.unclosed = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


SAMPLES = {
    "golden": lambda run: run,
    "hostile": samples.hostile,
    "bare": samples.bare,
    "large": samples.large,
    "early": samples.early,
    "sliced": samples.sliced,
    "no ablations": lambda run: replace(run, ablations=()),
}


@pytest.fixture(scope="module", params=sorted(SAMPLES))
def sample(request, run):
    return SAMPLES[request.param](run)


def test_html_is_well_formed_and_outlined(sample):
    outline = Outline(to_html(sample))
    assert outline.open == []
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {attributes["href"][1:] for tag, attributes in outline.tags if tag == "a"}
    assert targets <= set(ids)


def test_html_asks_for_nothing_and_runs_nothing(sample):
    outline = Outline(to_html(sample))
    tags = {tag for tag, _ in outline.tags}
    assert not tags & {"script", "img", "iframe", "link", "object", "embed", "form", "base", "foreignobject"}
    for tag, attributes in outline.tags:
        assert not any(name.startswith("on") or name in ("style", "src", "srcset") for name in attributes), (
            tag,
            attributes,
        )
    references = [attributes.get("href") or attributes.get("xlink:href") for _, attributes in outline.tags]
    assert all(reference.startswith("#") for reference in references if reference)
    policy = next(attributes["content"] for tag, attributes in outline.tags if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_every_chart_has_a_text_and_a_table(sample):
    text = to_html(sample)
    outline = Outline(text)
    charts = [attributes for tag, attributes in outline.tags if tag == "svg"]
    for chart in charts:
        assert chart["role"] == "img"
        for name in chart["aria-labelledby"].split():
            assert re.search(rf'<(title|desc) id="{re.escape(name)}">[^<]+</', text)
    figures = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    assert len(figures) == len(charts)
    assert all("<table" in figure for figure in figures)
    assert "nan" not in " ".join(re.findall(r'(?:d|x|y|cx|width|height)="([^"]*)"', text)).lower()


def test_every_table_has_caption_and_scopes(sample):
    for table in re.findall(r"<table.*?</table>", to_html(sample), re.DOTALL):
        assert re.search(r"<caption[^>]*>[^<]", table)
        head, body = table.split("<tbody>")
        assert head.count("<th ") == head.count('scope="col"') > 0
        rows = re.findall(r"<tr>.*?</tr>", body, re.DOTALL)
        assert all(row.count('scope="row"') == 1 for row in rows)
        assert {row.count("<td") + 1 for row in rows} <= {head.count("<th ")}


def test_sizes_hold_for_six_sources_with_everything(run):
    big = samples.large(run)
    page, text = to_html(big), to_markdown(big)
    assert 100_000 < len(page.encode()) <= LARGEST_HTML
    assert "passages cut to" in page
    assert len(text.encode()) <= LARGEST_MARKDOWN
    assert "Left out for size: examples of findings without a limit, all examples but one" in text


@pytest.mark.parametrize(
    ("share", "said", "n_examples"),
    [
        (1.0, None, 3),
        (0.66, "", 3),
        (0.55, "examples after the first 2 of each finding", 2),
        (0.44, "examples after the first of each finding", 1),
        (0.41, "examples after the first of each finding, passages after 100 characters", 1),
        (0.393, "all examples but one of each of the first 3 findings of a source", 1),
        (0.36, "all examples but one of the first finding of a source", 1),
        (0.33, "examples", 0),
    ],
)
def test_examples_leave_markdown_gradually(run, monkeypatch, share, said, n_examples):
    made = samples.large(run, 5)
    monkeypatch.setattr("secid.pages.markdown.LARGEST_PAGE", 10**7)
    whole = to_markdown(made)
    limit = int(share * len(whole.encode()))
    monkeypatch.setattr("secid.pages.markdown.LARGEST_PAGE", limit)
    text = to_markdown(made)
    assert len(text.encode()) <= limit
    cut = ", ".join(filter(None, ["examples of findings without a limit", said]))
    assert re.findall(r"Left out for size: (.*)\. report\.html", text) == ([cut] if said is not None else [])
    findings = re.findall(r"negatives?\)\n((?:  - .*\n)*)", text)
    assert {finding.count("  - query: ") for finding in findings} == ({n_examples} if n_examples else set())
    longest = 100 if said and ("100" in said or "but one" in said) else 200
    assert {len(line) for line in re.findall("  - query: (q+…)", text)} == ({longest} if n_examples else set())


def test_hashes_stand_whole_in_markdown_and_are_no_links(run):
    text = to_markdown(run)
    assert f"| `{run.sources[0].paths[0].sha256[:16]}` |" in text
    assert f"| `{run.idf.sha256}` |" in text
    assert not re.search(r"(?<![`\w])[0-9a-f]{7,40}(?![`\w])", re.sub(r"\b\d+\b", "", text))


def long_slices(run):
    made = samples.large(run, 6, "漢字" * 40)
    first = samples.sliced(run).slices[0]
    sources = tuple(
        replace(first.sources[place % len(first.sources)], name=source.name)
        for place, source in enumerate(made.sources)
    )
    return replace(
        made,
        slices=tuple(replace(first, value=f"{'漢字' * 40}{place}", sources=sources) for place in range(50)),
    )


def long_texts(run):
    rows = tuple(replace(row, setting="漢" * 100_000) for row in run.ablations[0].rows)
    return replace(
        run,
        not_evaluated={f"part {place}": "<&#>" * 9_000 for place in range(60)},
        ablations=(replace(run.ablations[0], rows=rows),),
    )


@pytest.mark.parametrize(
    "grown",
    [
        lambda run: samples.large(run, 12),
        lambda run: samples.large(run, 40, "漢字" * 40),
        long_slices,
        long_texts,
        lambda run: samples.hostile(long_texts(run)),
    ],
    ids=["12 sources", "40 sources", "slices", "long texts", "hostile"],
)
def test_every_page_is_small_and_whole_by_construction(run, grown):
    made = grown(run)
    page, text = to_html(made), to_markdown(made)
    assert len(page.encode()) <= LARGEST_HTML
    assert len(text.encode()) <= LARGEST_MARKDOWN
    assert "Left out for size: " in text or "The rest is cut" in text
    outline = Outline(page)
    assert outline.open == []
    assert "</html>" in page


def test_an_html_page_says_what_it_left_out(run):
    assert "Left out for size: folded tables" in to_html(samples.large(run, 24))
    assert "Left out for size" not in to_html(run)


def test_names_that_differ_in_their_middle_are_told_apart(run):
    twins = {"random": "a" * 34 + "-one-" + "z" * 32, "bm25": "a" * 34 + "-two-" + "z" * 32, "dense": "x" * 70}
    made = samples.renamed(run, twins)
    warned = replace(made, warnings=(f"{twins['bm25']}: odd",))
    page = page_of(warned)
    cases = {case.source for section in page.sections for case in section.cases}
    examples = {source.name for source in run.sources if any(finding.examples for finding in source.findings)}
    assert len(cases) == len(examples)
    heads = [column.title for section in page.sections for part in section.parts for column in part.table.columns]
    assert any(head.endswith("zzz #1") for head in heads)
    assert any(head.endswith("zzz #2") for head in heads)
    assert not any(head.endswith("zzz") for head in heads)
    assert "x #3" not in printed(made)
    assert re.search(r"#1 a+…z+ #1, #2 a+…z+ #2", " ".join(printed(made).split()))
    (clear, *_) = [bullet for section in page.sections for bullet in section.bullets if "no finding" in bullet]
    assert "#2" not in clear


def test_what_no_cut_helps_is_cut_at_a_line():
    text = hard_cut("ä line\n" * 100, 120, "cut\n")
    assert len(text.encode()) <= 120
    assert text.endswith("line\ncut\n")
    assert hard_cut("short", 120, "cut") == "short"


@pytest.mark.parametrize("n_sources", [1, 6, 40, 80])
def test_markdown_is_small_by_construction(run, n_sources):
    text = to_markdown(samples.large(run, n_sources, "漢字" * 40))
    assert len(text.encode()) <= LARGEST_MARKDOWN
    assert text.startswith("# ")
    assert "**Ranking.**" in text


def test_nothing_is_cut_from_a_small_page(run):
    assert "Left out for size" not in to_markdown(replace(run, sources=run.sources[:3]))
    assert "passages cut to 600" in to_html(run)


def test_markdown_tables_keep_their_columns(sample):
    for block in to_markdown(sample).split("\n\n"):
        lines = block.splitlines()
        if len(lines) > 1 and lines[0].startswith("| "):
            assert len({line.count("|") for line in lines}) == 1, lines[0]


def test_markdown_has_no_html_but_its_own(sample):
    found = set(re.findall(r"<[^>]*>", to_markdown(sample)))
    assert found <= {"<details>", "<summary>", "</summary>", "</details>"}


def test_a_folded_title_shows_its_name_without_backslashes(run):
    page = to_markdown(samples.renamed(run, {"bm25": "dense_rank_10"}))
    assert "<summary>Examples: dense&#95;rank&#95;10</summary>" in page


def test_foreign_text_does_not_leave_its_place(run):
    page = to_html(samples.hostile(run))
    assert "<script" not in page
    assert "7*7" in page  # shown as it is, not calculated
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert len(page.encode()) < LARGEST_HTML


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_table_fits_with_six_sources_and_long_names(run, width):
    for made in (samples.large(run), samples.large(run, 6, "漢字" * 60), samples.hostile(run), run):
        assert max(cell_len(line) for line in printed(made, width).splitlines()) <= width


def ranking_of(text):
    """The head of the ranking and its rows."""
    lines = text.splitlines()
    return lines[0], lines[2 : next(n for n, line in enumerate(lines) if line.startswith(("rank:", "ECI_B:")))]


@pytest.mark.parametrize(
    ("width", "head", "missing"),
    [
        (100, "rank source ECI_sem ±95 % hardness div. π ρ c π<½ negatives", None),
        (80, "rank source ECI_sem ±95 % hardness div. π π<½ negatives", "ρ, c"),
        (60, "rank source ECI_sem ±95 % hardness π<½", "ρ, c, π, div., negatives"),
        (40, "rank source ECI_sem ±95 %", "ρ, c, π, div., negatives, hardness, π<½"),
    ],
)
def test_names_and_scores_are_whole_on_a_narrow_terminal(run, width, head, missing):
    text = printed(run, width)
    first, rows = ranking_of(text)
    assert first.split() == head.split()
    assert len(rows) == len(run.sources)
    for row, source in zip(rows, run.sources, strict=True):
        assert row.split()[:4] == [str(source.rank), f"({source.rank_group})", source.name, f"{source.eci_nats:.4f}"]
        assert "…" not in row
    told = " ".join(text.split())
    if missing is None:
        assert "Too narrow" not in told
    else:
        assert f"narrow for {missing}:" in told
        for name in missing.split(", "):
            assert f"{name}: " not in told[: told.index("Too narrow")]


@pytest.mark.parametrize("width", [60, 80])
def test_long_names_fold_and_lose_nothing_on_a_narrow_terminal(run, width):
    for made in (samples.large(run), samples.large(run, 6, "漢字" * 60)):
        first, rows = ranking_of(printed(made, width))
        assert max(cell_len(line) for line in (first, *rows)) <= width
        cells = re.split(r"(?m)^\d+ \(\d+\)", "\n".join(rows))[1:]
        for cell, source in zip(cells, made.sources, strict=True):
            name = "".join(re.sub(r"[\d.,]+ ±.*$", "", line).strip() for line in cell.splitlines())
            assert name == short(source.name)


def test_a_narrow_terminal_of_another_budget_keeps_its_score(run):
    point = replace(run.sources[0].budget_curve[0], budget=1000.0, nats=168.7, interval_95=(160.0, 177.4))
    first = replace(run.sources[0], budget_curve=(point,), equal_curve=())
    text = printed(replace(run, budget=1000.0, sources=(first,)), 44)
    head, (row,) = ranking_of(text)
    assert head.split() == ["rank", "source", "ECI_B", "±95", "%", "π<½"]
    assert re.match(r"1 \(1\) +random +168\.7 ±8\.7000 +0\.9\s%$", row)
    assert "ECI_sem:" not in text


def test_no_column_of_an_ablation_is_lost_at_80_columns(run):
    large = samples.large(run)
    tiny = [
        replace(item, rows=tuple(replace(row, scores=dict.fromkeys(row.scores, 4e-5)) for row in item.rows))
        for item in large.ablations
    ]
    for made in (large, replace(large, ablations=tuple(tiny))):
        lines = printed(made).splitlines()
        heads = [number for number, line in enumerate(lines) if line.split()[-2:] == ["order", "stability"]]
        assert len(heads) == len(made.ablations)
        rows = [line for line in lines if re.search(r" 123456 +\d\.\d{3}$", line)]
        assert len(rows) == sum(len(item.rows) for item in made.ablations)


def test_no_range_goes_across_weights(run):
    weights = replace(run, ablations=tuple(item for item in run.ablations if item.name == "weight"))
    assert not any(line.startswith("range") for line in printed(weights).splitlines())
    assert sum(line.startswith("range") for line in printed(run).splitlines()) == len(run.ablations) - 1


def test_the_terminal_shows_score_interval_and_group(run):
    text = printed(run)
    assert re.search(r"1 \(1\)\s+random\s+0\.5455 ±0\.0350\s+0\.006\s+0\.6\s%\s+0\.99", text)
    assert text.splitlines()[-1].startswith("Verdict: ")
    assert "controls, not" in text


def test_the_terminal_begins_with_the_table_and_explains_its_columns(run):
    lines = printed(run).splitlines()
    assert lines[0].split()[:2] == ["rank", "source"]
    told = " ".join(printed(run, 100).split())
    legend = told[: told.index("controls, not")]
    assert all(f" {column}: " in legend for column in ("rank", "hardness", "div.", "π", "ρ", "c", "π<½"))
    assert "#2 bm25" in told


def test_the_score_of_budget_1_and_the_diversity_stand_beside_the_score_of_another(run):
    point = replace(run.sources[0].budget_curve[0], budget=1000.0, nats=168.7, interval_95=(160.0, 177.4))
    first = replace(run.sources[0], budget_curve=(point,), equal_curve=())
    line = printed(replace(run, budget=1000.0, sources=(first, *run.sources[1:]))).splitlines()[2]
    assert re.search(r"168\.7 ±8\.7000\s+0\.5455\s+0\.006\s+0\.6\s%\s+0\.9\s%\s+330$", line)


def test_the_diversity_stands_beside_the_score_of_a_control_too(run):
    made = replace(run, controls=(replace(run.controls[0], diversity_fraction=0.25), *run.controls[1:]))
    section = next(section for section in page_of(made).sections if section.anchor == "controls")
    table = section.parts[-1].table
    place = [column.title for column in table.columns].index("diversity fraction")
    assert table.rows[0][place].startswith("25")
    assert re.search(r"random .*±\d\.\d{4}\s+25\.0\s%", printed(made))


def test_scores_on_equal_numbers_are_shown_where_sources_rank_by_them(run):
    """The larger source scores higher on all it has, and lower on as many as the other has: that is what ranks it."""
    whole = replace(run.sources[0].budget_curve[0], budget=1000.0, nats=179.7, interval_95=(170.0, 189.4))
    cut = replace(whole, nats=161.3, interval_95=(150.0, 172.6))
    first = replace(run.sources[0], budget_curve=(replace(whole, nats=174.0),), equal_curve=())
    second = replace(run.sources[1], budget_curve=(whole,), equal_curve=(cut,))
    numbers = EqualNumbers(n_queries=110, n_triplets=1100)
    made = replace(run, budget=1000.0, sources=(first, second), equal_numbers=numbers)
    told = " ".join(printed(made).split())
    assert "161.3 ±11.30" in told
    assert "179.7" not in told
    assert "110 queries and 1,100" in told
    sections = {section.anchor: section for section in page_of(made).sections}
    assert [row[2].split()[0] for row in sections["ranking"].parts[0].table.rows] == ["174.0", "161.3"]
    assert "110 queries" in sections["ranking"].paragraphs[0]
    assert "equal numbers" in verdict(made)[0][1]
    for up_to_one in (1.0, 0.5):
        other = replace(made, budget=up_to_one)
        assert page_of(other).sections[0].anchor == "ranking"
        assert page_of(other).sections[0].paragraphs == ()
        assert "equal numbers" not in without_isolates(verdict(other)[0][1])
        assert "1,100" not in printed(other)


def test_no_line_of_the_terminal_ends_in_a_space(sample):
    for made in (printed(sample), printed(sample, terminal=True)):
        assert not re.search(r" (\x1b\[0m)*$", made, re.MULTILINE)


def test_all_findings_that_matter_are_on_the_terminal_and_the_rest_is_counted(run):
    def shown(made):
        told = " ".join(printed(made).split())
        return told, len(re.findall(r"- \S", told[told.index("Watch out:") :]))

    n_more = len(warnings(run)) - SHOWN_FINDINGS
    told, n_lines = shown(run)
    assert n_more > 0
    assert (f"- {n_more} more" in told, n_lines) == (True, SHOWN_FINDINGS + 1)
    told, _ = shown(replace(run, warnings=tuple(f"{name} is odd" for name in ("this", "that", "it"))))
    places = [told.index(f"- {name}") for name in ("37 of", "This is", "That is", "It is")]
    assert places == sorted(places)  # positives among negatives come first
    assert f"- {n_more + 3} more" in told
    few = replace(run, sources=run.sources[:1], overlaps=(), ablations=())
    told, n_lines = shown(few)
    assert n_lines == len(warnings(few))
    assert not re.search(r"- \d+ more", told)


def test_blocks_are_in_every_page(run):
    rows = tuple(
        replace(row, block_stability={"mined": 1.0 if place else 0.5})
        for place, row in enumerate(run.ablations[0].rows)
    )
    steady = tuple(replace(row, block_stability={"mined": 1.0}) for row in rows)
    made = replace(run, ablations=(replace(run.ablations[0], rows=rows), replace(run.ablations[1], rows=steady)))
    for text in (
        printed(made, 400),
        to_markdown(made),
        to_html(made).replace("</bdi>", "").replace('<bdi class="name">', ""),
    ):
        assert re.search(r"Within mined: [^.]*0\.500 at 0\.01\.", text)
        assert text.count("Within mined:") == 2


def test_findings_are_repeated_for_each_slice(run):
    text = to_markdown(samples.sliced(run))
    assert "| slice and source | inversion |" in text
    assert text.count("| (absent or empty), ") == len(run.sources)


def test_a_slice_led_by_another_source_counts_only_where_the_leader_is(run):
    first = samples.sliced(run).slices[0]
    turned = replace(first, value="x", sources=tuple(reversed(first.sources)), lead_interval_95=(-0.1, 0.2))
    literal = replace(first, value="(absent or empty)")
    assert re.match("1 of 3 .*none of them", slices_told(replace(run, slices=(first, turned, literal))))
    sure = replace(turned, lead_interval_95=(0.01, 0.2))
    assert re.match("2 of 4 .*1 of them", slices_told(replace(run, slices=(first, turned, literal, sure))))
    page = to_markdown(replace(run, slices=(first, turned, literal)))
    assert "| (absent or empty) |" in page
    assert "| “(absent or empty)” |" in page


def test_slices_by_a_number_stand_in_its_order(run):
    first = samples.sliced(run).slices[0]
    page = to_markdown(replace(run, slices=tuple(replace(first, value=value) for value in ("10", "", "2", "-1.5"))))
    places = [page.index(f"\n| {value} |") for value in ("\\-1.5", "2", "10", "(absent or empty)")]
    assert places == sorted(places)
    page = to_markdown(replace(run, slices=tuple(replace(first, value=value) for value in ("two", "10", "", "2"))))
    places = [page.index(f"\n| {value} |") for value in ("10", "2", "two", "(absent or empty)")]
    assert places == sorted(places)


def test_at_another_budget_the_ranking_explains_its_own_score(run):
    def explained(made):
        return {section.anchor: [term for term, _ in section.terms] for section in page_of(made).sections}

    at_one, other = explained(run), explained(replace(run, budget=100.0))
    assert "ECI_B" in at_one["budget"]
    assert "ECI_B" in other["ranking"]
    assert "ECI_sem" in at_one["ranking"]
    assert "ECI_sem" in other["controls"]


def test_the_score_of_another_budget_has_a_short_head_and_is_explained(run):
    lines = printed(replace(samples.large(run), budget=1e12, equal_numbers=None)).splitlines()
    assert "ECI_B ±95 %" in lines[0]
    assert "ECI_sem" in lines[0].split()
    told = " ".join(" ".join(lines).split())
    assert re.search(r"ECI_B: [^.]*1,000,000,000,000,.* ECI_sem: [^.]*B = 1\.", told)
    assert not any("…" in line.split("±")[-1] for line in lines if "±" in line)


def test_an_early_stop_and_slices_are_told_on_the_terminal(run):
    told = " ".join(printed(samples.sliced(samples.early(run))).split())
    assert "100 of the 557" in told[told.index("Early stop: ") :]
    assert "Undecided: bm25 and dense." in told
    assert "Slices: " in told


def test_an_early_stop_says_what_to_do_about_pairs_that_are_open(run, snapshot):
    """Undecided ones need more queries of a sample; those open as to the process need all that was left out."""
    early = samples.early(run)
    pairs = tuple(replace(pair, established=place > 1) for place, pair in enumerate(run.comparisons))
    left_out = replace(early.sources[1], n_not_sampled=900)
    made = replace(
        early,
        comparisons=pairs,
        sources=(early.sources[0], left_out, *early.sources[2:]),
        settings={**early.settings, "max_records": {"value": 120, "from": "flag"}},
    )
    stopped = replace(made, early_stop=replace(made.early_stop, planned_looks=(20, 120)))
    settled = replace(made, comparisons=tuple(replace(pair, established=True) for pair in pairs))
    runs = {
        "all looks made": made,
        "words that count alike in any sample": replace(made, idf=replace(made.idf, corpus="uniform")),
        "stopped before the last look": stopped,
        "all queries seen": replace(made, sources=early.sources),
        "no pair open": settled,
    }
    told = {name: without_isolates(" ".join(early_told(item, item.early_stop))) for name, item in runs.items()}
    snapshot("early-stop.txt", situations(told))
    flag = {name: [word for word in text.split() if word.startswith("--")] for name, text in told.items()}
    assert flag["all looks made"].count("--max-records") == 3  # more queries, more of them, their document frequencies
    assert flag["words that count alike in any sample"].count("--max-records") == 2
    assert "--until-ranked." in flag["stopped before the last look"]
    for name, text in told.items():
        assert ("2 pairs" in text) is (name not in ("no pair open", "all queries seen"))
    for value in (5, None, {"value": "abc"}):
        edited = replace(made, settings={**early.settings, "max_records": value})
        assert "--max-records:" in " ".join(early_told(edited, edited.early_stop))


def test_few_queries_have_no_interval_on_any_page(run):
    """One rule: what is too few for an interval in a sentence has none in tables, charts and on the terminal."""
    few, small = (
        replace(
            item,
            interval_95=(0.0, 1.0),
            budget_curve=tuple(replace(point, interval_95=(0.0, point.budget)) for point in item.budget_curve),
        )
        for item in (run.controls[1], run.sources[-1])
    )
    pair = replace(run.comparisons[0], interval_95=(-1.0, 1.0))
    made = replace(
        run,
        sources=(*run.sources[:-1], small),
        controls=(run.controls[0], few, *run.controls[2:]),
        comparisons=(pair, *run.comparisons[1:]),
    )
    text, page, wide = printed(made), to_markdown(made), to_html(made)
    assert re.search(rf"{few.eci_nats:.4f} +±\?", text)
    assert re.search(rf"{small.eci_nats:.4f} +±\?", text)
    assert "±?: " in text
    assert "±?" not in printed(run)
    for shown in (text, page, wide):
        assert "to 1.0000" not in shown.replace("\u00a0", " ")
    assert page.count(UNTOLD) >= to_markdown(run).count(UNTOLD) + 3
    assert wide.count("ctl cap") == to_html(run).count("ctl cap") - 2


def test_numbers_are_never_cut_in_the_terminal(run):
    text = printed(samples.large(run))
    assert len(re.findall(r"\d\.\d{4} ±\d\.\d{4}", text)) >= 6 + 5


def test_colours_are_for_terminals(run, monkeypatch):
    assert "\x1b[" not in printed(run)
    assert "\x1b[" in printed(run, terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3\d", printed(run, terminal=True))


def test_names_are_never_rich_markup(run):
    made = samples.renamed(run, {"random": "[bold red]x[/bold red]", "bm25": "\x1b[31mred"})
    text = printed(made, 120)
    assert "[bold red]x[/bold red]" in text
    assert "\x1b[" not in text


def test_an_ablation_s_name_is_never_rich_markup(run):
    made = replace(run, ablations=(replace(run.ablations[0], name="[/x]"),))
    assert "[/x]: " in printed(made)
    assert "[/x]  " in printed(made)


def test_scores_that_differ_by_more_than_a_float_holds_have_shades(run):
    item = next(item for item in run.ablations if item.name == "weight")
    ends = {source.name: sign * 1e308 for source, sign in zip(run.sources, (1, -1), strict=False)}
    made = replace(item, rows=tuple(replace(row, scores=ends) for row in item.rows))
    section = next(part for part in page_of(replace(run, ablations=(made,))).sections if part.anchor == "ablations")
    assert section.parts[0].table.shades[0][1:3] == (9, 0)


def test_encoders_are_names_even_where_they_read_as_numbers(run):
    names = ("0", "-1", "500", "inf")
    item = next(item for item in run.ablations if item.name == "temperature")
    rows = tuple(replace(row, setting=name) for name, row in zip(names, item.rows, strict=False))
    made = replace(run, ablations=(replace(item, name="encoder", rows=rows, base="500"),))
    assert "500 (this run)" in to_html(made)

    def charts(made):
        section = next(section for section in page_of(made).sections if section.anchor == "ablations")
        return [part.chart is not None for part in section.parts]

    assert charts(replace(run, ablations=(item,))) == [True]
    assert charts(made) == charts(replace(run, ablations=(replace(item, rows=rows, base="500"),))) == [False]


def test_every_number_explained_is_shown_and_explained_once(run):
    terms = [term for section in page_of(run).sections for term, _ in section.terms]
    assert len(terms) == len(set(terms))
    assert set(EXPLANATIONS) <= set(terms)


COLUMNS = {
    "rank (group)": ("rank", "rank group"),
    "rows read": ("rows, records",),
    "rows used": ("rows, records",),
    "records": ("rows, records",),
    **{f"{name}, record": (name, "pair, record") for name in ("gradient energy", "MNRL loss", "ambiguity")},
    "shared queries": ("shared",),
    "shared documents": ("shared",),
}
"""Columns explained under another name."""
OF_SOURCES = {
    "Share of each source's negatives by finding": "share",
    "Share of negatives by finding": "share",
    "Negatives with two findings at once": "negatives with both",
    "Each source minus each control, with 95 % interval (nats)": "difference",
    "ECI_B relative to the highest source": "relative to the highest",
}
"""Tables of one number, whose columns are named by the run."""
FACTS = {"bytes"}
"""Numbers that say what they are: of a file, and of nothing that could be better."""


def explanations_needed(table, column, made):
    """The terms without which a column of numbers is not understood."""
    score = "ECI_sem" if made.budget == 1.0 else "ECI_B"
    if table.caption in OF_SOURCES:
        return (OF_SOURCES[table.caption],)
    if table.caption.startswith("Negatives of "):
        return ("negatives in a bin", column.title)
    if table.caption.startswith("Rank (rank group) and score") and column.kind == "wrapped":
        return ("rank", "rank group", score, "95 % interval")
    if table.caption.startswith("Score in nats") and column.title in {source.name for source in made.sources}:
        return (score,)
    title = re.sub(r" \(nats\)$|, most$|, pair$| in mined$", "", column.title)
    title = re.sub(r"^share \d+$", "eigenvalue share", title)
    if title.startswith("ECI at B"):
        return ("ECI_B", "95 % interval")
    return COLUMNS.get(title, ("ECI_B", "shortfall") if re.match(r"B = \d", title) else (title,))


def blocked(run):
    """The run with the stability within a block."""
    rows = tuple(replace(row, block_stability={"mined": 1.0}) for row in run.ablations[0].rows)
    return replace(run, ablations=(replace(run.ablations[0], rows=rows), *run.ablations[1:]))


@pytest.mark.parametrize(
    "made",
    [
        lambda run: samples.sliced(samples.early(run)),
        lambda run: replace(samples.sliced(run), budget=1000.0),
        lambda run: replace(run, controls=()),
        lambda run: replace(run, comparisons=(), crossings=()),
        blocked,
        samples.bare,
    ],
    ids=["everything", "budget 1000", "no controls", "not compared", "blocks", "bare"],
)
def test_every_column_of_numbers_is_explained(run, made):
    made = made(run)
    page = page_of(made)
    terms = [term for section in page.sections for term, _ in section.terms]
    assert len(terms) == len(set(terms))
    for section in page.sections:
        for table in (part.table for part in section.parts):
            for column in table.columns:
                if column.kind in ("number", "wrapped") and column.title not in FACTS:
                    for term in explanations_needed(table, column, made):
                        assert term in terms, (section.anchor, table.caption, column.title)


def test_what_an_ablation_varies_is_explained_setting_by_setting(run):
    section = next(item for item in page_of(run).sections if item.anchor == "ablations")
    told = dict(section.terms)
    for item in run.ablations:
        (name, text) = SETTINGS[item.name]
        assert told[name] == text
        if item.name in ("tokenizer", "idf", "weight"):
            for row in item.rows:
                words = in_words(row.setting).removesuffix(" weight")
                known = words.split()[0] if item.name == "idf" else words.removeprefix("alphanumeric ")
                known = "without" if known.startswith("without") else known
                assert known.lower() in text.lower(), row.setting
    assert "shade" in told
    shaded = [any(map(any, part.table.shades)) for part in section.parts]
    assert shaded == [part.chart is None for part in section.parts]


def numbers_drawn(text):
    """Numbers of the SVG's own tips."""
    return re.findall(r"<title>([−\d][^<]*)</title>", text)


@pytest.mark.parametrize("budget", [1.0, 1000.0])
def test_every_number_drawn_stands_in_a_table(run, budget):
    """Of one size all, so that controls stand beside the sources at any budget."""
    alike = {
        name: tuple(replace(item, n_triplets=330) for item in getattr(run, name)) for name in ("sources", "controls")
    }
    made = replace(run, budget=budget, equal_numbers=None, **alike)
    page = page_of(made)
    cells = {
        section.anchor: " ".join(cell for part in section.parts for row in part.table.rows for cell in row)
        for section in page.sections
    }
    charts = {section.anchor: section.parts[0].chart for section in page.sections if section.parts}
    tips = numbers_drawn(charts["ranking"].draw())
    assert len(tips) == len(run.sources) + len(run.controls)
    for tip in tips:
        assert tip in cells["ranking"] + cells["controls"]
    for control in run.controls:
        assert nats(score_point(control, budget).interval_95[1]) in cells["controls"]
    n_points = len(re.findall(r' m( hollow)?"', charts["budget"].draw())) - len(run.sources)  # those of the legend
    relative = page.sections[[section.anchor for section in page.sections].index("budget")].parts[1].table
    random = next(control for control in run.controls if control.kind == "random")
    n_reference = sum(cell != "–" for cell in relative.rows[-1][1:])
    assert n_points == sum(cell != "–" for row in relative.rows[:-1] for cell in row[1:])
    assert relative.rows[-1][0] == "random (control)"
    assert n_reference == len({point.budget for point in random.budget_curve} - {330.0})
    n_shares = len(re.findall(r' m( hollow)?"', charts["directions"].draw())) - len(run.sources)
    assert n_shares == len(re.findall(" %", cells["directions"].replace("\u00a0", " ")))


def test_a_control_without_the_run_s_budget_is_not_drawn_at_another(run):
    made = replace(run, budget=1000.0, controls=tuple(replace(item, budget_curve=()) for item in run.controls))
    chart = page_of(made).sections[0].parts[0].chart
    assert len(numbers_drawn(chart.draw())) == len(run.sources)


def test_histograms_of_other_lengths_are_drawn_and_told(run):
    first = run.sources[0]
    odd = {**first.gate_histograms, "coverage": (300, 30), "weight": (1, 2, 3)}
    made = replace(run, sources=(replace(first, gate_histograms=odd), *run.sources[1:]))
    section = next(item for item in page_of(made).sections if item.anchor == "gates")
    rows = {row[0]: row[1:] for row in section.parts[1].table.rows}
    assert rows["0.00"][2:] == ("300", "1")
    assert rows["0.33"] == ("–", "–", "–", "2")
    assert rows["0.50"][2:] == ("30", "–")
    assert rows["0.05"][2:] == ("–", "–")
    assert "<svg" in to_html(made)


def test_every_name_of_a_pair_runs_its_own_way(run):
    page = to_html(samples.renamed(run, {"bm25": "שלום", "random": "عربي"}))
    cell = '<th scope="row"><bdi class="name">عربي</bdi> over <bdi class="name">שלום</bdi></th>'
    assert cell in page
    assert '<th scope="row" dir="auto">שלום</th>' in page
    printed_page = printed(samples.renamed(run, {"bm25": "שלום"}))
    assert not set(printed_page + to_markdown(run)) & {"\u2066", "\u2068", "\u2069"}


def test_code_in_sentences_is_code(run):
    made = replace(samples.renamed(run, {"bm25": "`a`"}), ablations=())
    assert "<code>secid score … --ablate</code>" in to_html(made)
    assert "`secid score … --ablate`" in to_markdown(made)
    assert '<bdi class="name">`a`</bdi>' in to_html(made)
    assert "\\`a\\`" in to_markdown(made)


def test_foreign_marks_make_no_code_in_markdown():
    hostile = "x \u2066www\u2069 \u2066a`b\u2069"
    assert "`" not in markdown(hostile).replace("\\`", "")


def test_every_explanation_gives_a_range_and_a_direction():
    for name, text in EXPLANATIONS.items():
        assert re.search(r"\b0|\b1 ", text) or name in ("rank group", "negatives", "95 % interval"), name
        assert re.search(
            r"higher|lower|fewer|more|less|better|near|surer|steadier|flatter|smaller|way|below|above|best",
            text,
            re.IGNORECASE,
        ), name


def test_caution_is_said_once(run):
    for text in (to_html(run), to_markdown(run)):
        assert text.count("open question") == 1


@pytest.mark.parametrize("name", ["report.pdf", "report", "report.HTML"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path, name):
    with pytest.raises(UsageError, match=r"\.html, \.json, \.md"):
        check_formats([tmp_path / name])


def test_a_page_that_could_not_be_written_is_refused_early(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.md").mkdir()
    for name in ("file/a.md", "folder.md"):
        with pytest.raises(OutputError) as caught:
            check_writable(tmp_path / name)
        assert caught.value.where == str(tmp_path / name)
    for name in ("a.md", "file", "no/such/a.md"):
        check_writable(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.md"]


def test_a_page_is_written_whole_or_not_at_all_and_its_folder_created(run, tmp_path):
    write_page(run, tmp_path / "no" / "such" / "a.html")
    assert (tmp_path / "no" / "such" / "a.html").read_text(encoding="utf-8") == to_html(run)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        write_page(run, tmp_path / "file" / "a.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "no"]


def test_a_label_of_a_folder_that_is_no_utf_8_can_be_written(run):
    (label, _) = labels([Path(os.fsdecode(b"d\xff")), Path("other")])
    assert label == "d\ufffd"
    COMPARISON_FORMATS[".json"](compare([(label, run), ("other", run)])).encode("utf-8")


def test_a_file_of_the_longest_name_is_written(run, tmp_path):
    path = tmp_path / f"{'a' * 250}.json"
    check_writable(path)
    write_page(run, path)
    assert path.stat().st_size


def test_a_page_is_filled_few_times_however_many_cuts_it_takes(run):
    page, n_filled = page_of(samples.large(run)), []

    def fill(page, cut):
        n_filled.append(cut)
        return "x" * sum(len(repr(section)) for section in page.sections)

    text = fit(page, fill, 10, EXAMPLES + TABLES)
    assert text == ""
    assert len(n_filled) <= 7
    assert max(map(len, n_filled)) > 10


def test_what_was_not_there_is_not_said_to_be_left_out(run):
    bare = page_of(samples.bare(run))
    assert not any(case for section in bare.sections for case in section.cases)
    *_, (_, cut) = _steps(bare, EXAMPLES)
    assert all(name.startswith("section") for name in cut)


def test_scores_under_other_weights_are_not_subtracted(run):
    section = next(item for item in page_of(run).sections if item.anchor == "ablations")
    rows = {part.table.caption: part.table.rows[-1][0] for part in section.parts}
    assert [caption for caption, last in rows.items() if last != "range"] == ["Score in nats by weight"]


def test_labels_tell_runs_apart(tmp_path):
    assert labels([tmp_path / "a", tmp_path / "b" / "report.json"]) == ["a", "b"]
    assert labels([tmp_path / "x" / "a", tmp_path / "y" / "a"]) == [
        str(tmp_path / "x" / "a"),
        str(tmp_path / "y" / "a"),
    ]


@pytest.mark.parametrize("second", ["a", "a/report.json", "linked"])
def test_one_run_named_twice_is_refused(tmp_path, second):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "report.json").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    with pytest.raises(UsageError, match="named twice"):
        labels([tmp_path / "a", tmp_path / second])


HEAVY = ("torch", "pyarrow", "numpy", "scipy", "transformers")
PROBE = """
import sys
{extra}
from secid.cli.app import main
assert main(sys.argv[1:]) == 0
print(sorted(name for name in {heavy!r} if name in sys.modules))
"""


def rendered_in_a_child(folder, extra=""):
    targets = [part for suffix in FORMATS for part in ("-o", str(folder / f"out{suffix}"))]
    code = PROBE.format(heavy=HEAVY, extra=extra)
    golden = str(samples.GOLDEN / "1.0.json")
    return subprocess.run(
        [sys.executable, "-c", code, "report", golden, *targets], capture_output=True, text=True, check=True
    )


def test_rendering_again_loads_nothing_heavy_and_takes_under_a_second(tmp_path):
    before = os.times()
    done = rendered_in_a_child(tmp_path)
    after = os.times()
    # Processor time: other work on the machine is not ours
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert done.stdout.splitlines()[-1] == "[]"
    assert {path.name for path in tmp_path.iterdir()} == {f"out{suffix}" for suffix in FORMATS}
    assert used < 1.0


def test_the_loading_test_can_fail(tmp_path):
    assert rendered_in_a_child(tmp_path, "import numpy").stdout.splitlines()[-1] == "['numpy']"


def test_markdown_explains_what_it_shows_and_says_what_the_html_page_has_alone(run):
    page, text = to_html(run), to_markdown(run)
    for term in DRAWN:
        assert EXPLANATIONS[term] in html.unescape(page)
        assert f"**{term}**" not in text
    told = text[text.index("HTML page alone") :]
    assert all(part in told for part in ("charts", "shades", "histograms", "ECI\\_B"))
    bare = page_of(run)
    shown = replace(bare, sections=tuple(replace(section, parts=()) for section in bare.sections))
    assert "page alone" not in render(shown)


def test_copies_of_the_positive_are_said_to_have_weight_and_no_score(run):
    for term in ("tr M", "weight", "share of weight"):
        assert re.search("cop(y|ies) of the positive", EXPLANATIONS[term])
    poisoned = next(source for source in run.sources if source.name == "poisoned")
    assert poisoned.trace < poisoned.weight_mean  # it holds such copies


def test_reasons_and_places_are_told_in_words(run):
    source = replace(run.sources[0], dropped_negatives={"duplicate_negative": 3}, skipped={"empty_query": 2})
    made = replace(run, sources=(source, *run.sources[1:]))
    for text in (to_markdown(made), html.unescape(to_html(made)), printed(made, 200)):
        assert re.search(r"duplicate negative \(?3", text.replace("\\", ""))
        assert "duplicate_negative 3" not in text.replace("\\", "")


def test_heads_of_proxies_say_of_what_they_are(run):
    section = next(item for item in page_of(run).sections if item.anchor == "gates")
    table = next(part.table for part in section.parts if part.table.caption.startswith("What others"))
    titles = [column.title for column in table.columns]
    assert len(set(titles)) == len(titles)
    assert "MNRL loss, record" in titles


def test_findings_of_slices_are_in_the_order_of_the_main_table(run):
    made = samples.sliced(run)
    fractions = dict.fromkeys(("near_copy", "low_locality", "inversion"), 0.1)
    sources = tuple(replace(source, finding_shares=fractions) for source in made.slices[0].sources)
    made = replace(made, slices=(replace(made.slices[0], sources=sources), *made.slices[1:]))
    sections = {section.anchor: section for section in page_of(made).sections}
    rules = next(part.table for part in sections["findings"].parts if part.table.caption.startswith("What each"))
    main = [row[0] for row in rules.rows]
    titles = [column.title for column in sections["slices"].parts[1].table.columns[1:]]
    assert titles == ["near copy", "inversion", "low locality"]
    assert titles == [name for name in main if name in titles]


def test_how_often_slices_have_another_leader(run, snapshot):
    first = samples.sliced(run).slices[0]
    turned = replace(first, value="x", sources=tuple(reversed(first.sources)), lead_interval_95=(-0.1, 0.2))
    sure = replace(turned, lead_interval_95=(0.01, 0.2))
    slices = {
        "one, the same leader": (first,),
        "one, another leader": (turned,),
        "one of three": (first, turned, replace(first, value="y")),
        "two of four, one beyond noise": (first, turned, replace(first, value="y"), sure),
        "one without the leader": samples.sliced(run).slices,
    }
    told = {name: without_isolates(slices_told(replace(run, slices=made))) for name, made in slices.items()}
    snapshot("slices.txt", situations(told))
    assert ["another" in text for text in told.values()] == [False, True, True, True, False]


def test_the_number_behind_names_that_read_alike_is_explained_where_there_is_one(run):
    twins = {name: "a" * 40 + name + "z" * 40 for name in ("random", "bm25")}
    assert "rank" in page_of(samples.renamed(run, twins)).subtitle
    assert "rank" not in page_of(run).subtitle


def test_one_source_changes_places_with_none(run):
    alone = replace(run, sources=run.sources[:1], comparisons=(), crossings=())
    section = next(item for item in page_of(alone).sections if item.anchor == "budget")
    assert not any("change places" in bullet for bullet in section.bullets)


def ranked(run):
    sections = {section.anchor: section for section in page_of(run).sections}
    table = sections["ranking"].parts[0].table
    place = [column.title for column in table.columns].index("hardness")
    return [row[place] for row in table.rows], sections["ranking"].bullets, sections["controls"].bullets


def test_hardness_has_its_interval_or_its_reason(run):
    first = replace(run.sources[0], hardness=0.58, hardness_interval_95=(0.57, 0.6))
    unknown = replace(run.sources[1], hardness=None, hardness_interval_95=None)
    few = replace(run.sources[2], hardness=0.2, hardness_interval_95=None)
    missing = {f"hardness of {unknown.name}": "positives are far", "control random": "too few"}
    made = replace(run, sources=(first, unknown, few), not_evaluated=missing)
    cells, of_ranking, of_controls = ranked(made)
    assert [cell.replace("\u00a0", " ") for cell in cells] == ["0.580\n(0.570 to 0.600)", "–", "0.200"]
    (told,) = of_ranking
    assert (unknown.name in told, told.endswith(": positives are far")) == (True, True)
    assert any("random" in text and text.endswith(": too few") for text in of_controls)
    assert not any("hardness" in bullet for bullet in of_controls)
    text = printed(made)
    assert "0.580" in text
    assert "are far" in text


def test_an_example_without_text_has_its_place_alone(run):
    blank = TripletExample(path="a.jsonl", line=7, query="", positive="", negative="")
    item = SourceFinding(
        name="empty", n_negatives=1, share=0.1, standard_error=0.1, interval_95=(0.0, 0.2), examples=(blank,)
    )
    made = replace(run, sources=(replace(run.sources[0], findings=(item,)),))
    page = html.unescape(to_html(made))
    assert "line 7 of a.jsonl" in to_markdown(made)
    assert "Line 7 of <bdi>a.jsonl</bdi>." in page
    assert 'class="triplet"' not in page
    assert "π –" not in page + to_markdown(made)
