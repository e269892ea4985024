"""report.md: within its size, tables whole, untrusted text inert."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from secid.pages.formats import (
    MAX_PAGE_BYTES,
    METHOD_HEADING,
    REQUESTED_SECTIONS,
    RUN_FORMATS,
    code_block,
    hard_cut,
    to_markdown,
)
from secid.pages.glossary import DEFAULTS_CAPTION
from secid.pages.page import Section, Table, number
from secid.pages.sections import page_of
from secid.pages.text import code, markdown, markdown_sentence
from secid.results import SourceFinding, TripletExample
from tests.unit.pages import samples
from tests.unit.pages.test_terminal import SAMPLES

RUN = samples.golden()


@pytest.fixture(params=sorted(SAMPLES))
def sample(request):
    return SAMPLES[request.param]


def long_texts(run):
    rows = tuple(replace(row, setting="漢" * 100_000) for row in run.analyses["ablations"][0].rows)
    missing = {f"part {place}": "<&#>" * 9_000 for place in range(60)}
    return samples.replaced(run, not_evaluated=missing, ablations=(replace(run.analyses["ablations"][0], rows=rows),))


@pytest.mark.parametrize(
    "run",
    [samples.large(RUN, 12, "漢字" * 40), long_texts(RUN), samples.hostile(long_texts(RUN))],
    ids=["12 sources", "long texts", "hostile"],
)
def test_any_page_fits_and_says_what_it_left_out(run):
    text = RUN_FORMATS[".md"](run)
    assert len(text.encode()) <= MAX_PAGE_BYTES
    assert text.startswith("# ")
    assert "Left out to save space: " in text or "The rest was cut" in text


def test_what_a_flag_asked_for_stays_and_the_largest_of_the_rest_go():
    section = Section(anchor="", title="", paragraphs=("word " * 390,))
    sizes = {"guide": 9, "slices": 9, "objectives": 1, "scores": 1, "gates": 12, "origin": 3}
    details = tuple(
        replace(section, anchor=anchor, title=f"The {anchor}", paragraphs=section.paragraphs * n)
        for anchor, n in sizes.items()
    )
    page = page_of(RUN)
    text = to_markdown(replace(page, details=details))
    assert len(text.encode()) <= MAX_PAGE_BYTES
    assert [anchor for anchor in sizes if f"### The {anchor}\n" not in text] == ["gates"]
    assert "Left out to save space: The gates." in text
    assert "example</summary>" in text
    default = Table(caption=DEFAULTS_CAPTION, columns=(number("x"),), rows=(("1",),) * 9_000)
    smaller = to_markdown(replace(page, details=(replace(details[0], tables=(default,)), *details[1:4])))
    assert f"Left out to save space: {DEFAULTS_CAPTION}." in smaller
    rest = MAX_PAGE_BYTES - len(to_markdown(replace(page, details=())).encode())
    every = replace(section, anchor="guide", title="All", paragraphs=("word " * 390,) * (rest // 1952 + 1))
    assert "Left out to save space: Examples." in to_markdown(replace(page, details=(every,)))
    runs = (samples.guided(RUN), samples.lensed(RUN), SAMPLES["early"], SAMPLES["sliced"])
    assert {part.anchor for run in runs for part in page_of(run).details} >= REQUESTED_SECTIONS


def test_a_small_page_is_whole():
    text = RUN_FORMATS[".md"](RUN)
    assert "Left out to save space" not in text
    assert text.index("**Repair") < text.index("| source | status |") < text.index("## Failure buckets")
    assert text.index("## Failure buckets") < text.index(f"## {METHOD_HEADING}")


def test_tables_keep_their_columns(sample):
    for block in RUN_FORMATS[".md"](sample).split("\n\n"):
        lines = block.splitlines()
        if len(lines) > 1 and lines[0].startswith("| "):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, lines[0]


def test_no_html_but_its_own(sample):
    text = re.sub(r"(?ms)^(`{3,})sh\n.*?^\1$", "", RUN_FORMATS[".md"](sample))  # a code block shows its text as it is
    text = re.sub(r"(`+) ?[^\n]*? ?\1", "", text)
    assert set(re.findall(r"<[^>]*>", text)) <= {"<details>", "<summary>", "</summary>", "</details>"}


def test_hashes_are_whole_and_no_links():
    text = RUN_FORMATS[".md"](RUN)
    assert f"| `{RUN.sources[0].files[0].sha256[:16]}` |" in text
    assert f"| `{RUN.idf.sha256}` |" in text


@pytest.mark.parametrize("text", ["a`b", "```", "a ``` b `c`", "x\ny", "| a |", *samples.HOSTILE])
def test_no_text_leaves_a_code_block_or_a_code_span(text):
    first, *inner, last = code_block(text).splitlines()
    assert len(inner) == 1
    assert first.removesuffix("sh") == last
    assert last not in inner[0]
    span = markdown_sentence(f"see {code(text)}.")
    fence = re.match(r"see (`+)", span)[1]
    assert span.endswith(f"{fence}.")
    assert not re.search(rf"(?<!`){fence}(?!`)", span.removeprefix(f"see {fence}").removesuffix(f"{fence}."))


def test_untrusted_marks_make_no_code():
    hostile = "x \u2066www\u2069 \u2066a`b\u2069"
    assert "`" not in markdown(hostile).replace("\\`", "")


def test_an_example_without_text_has_only_its_place():
    blank = TripletExample(path="a.jsonl", line=7, query="", positive="", negative="")
    item = SourceFinding(
        name="empty", n_negatives=1, share=0.1, standard_error=0.1, interval_95=(0.0, 0.2), examples=(blank,)
    )
    text = RUN_FORMATS[".md"](replace(RUN, sources=(replace(RUN.sources[0], findings=(item,)),)))
    assert "- a.jsonl, line 7\n" in text
    assert "  - query:" not in text


def test_what_no_cut_helps_is_cut_at_a_line():
    text = hard_cut("ä line\n" * 100, 120, "cut\n")
    assert len(text.encode()) <= 120
    assert text.endswith("line\ncut\n")
    assert hard_cut("short", 120, "cut") == "short"
    assert hard_cut("long" * 99, 3, "note") == ""
