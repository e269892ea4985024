"""Test the examples, shared words, style and script of the HTML page."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html import unescape

import pytest

from secid.pages.formats import (
    MAX_CHARACTERS,
    MAX_OPEN_FINDINGS,
    MAX_ROW_BYTES,
    MAX_ROW_CHARACTERS,
    ROW_MARKUP_BYTES,
    shared_words,
    to_html,
)
from secid.pages.page import MAX_EXAMPLES, ExampleRow, Item, Page, ShownFindings, Table, foreign, number, status
from secid.results import TripletExample


def example(**more):
    given = {"path": "a.jsonl", "line": 1, "query": "red fox", "positive": "a fox", "negative": "a Red dog"}
    return TripletExample(**(given | more))


def item(name="repeat", command="", examples=()):
    return Item(name=name, sentence=f"What {name} is.", command=command, examples=examples, n_negatives=len(examples))


def page(*items, command="secid select RUN --drop repeat -o clean.jsonl", **more):
    table = Table(
        caption="Sources",
        columns=(foreign("source"), status("status"), number("n")),
        rows=(("bm25", "repair first", "10"), ("dense", "no defects", "12")),
    )
    parts = {
        "title": "T",
        "subtitle": "",
        "verdict": ("Repair bm25 first.",),
        "answer": table,
        "pictures": (),
        "findings": (ShownFindings(source="bm25", status="repair first", items=items, command=command),)
        if items
        else (),
        "below": (),
        "heat": None,
        "details": (),
        "footer": "",
    }
    return Page(**(parts | more))


@pytest.mark.parametrize(("element", "directive"), [("style", "style-src"), ("script", "script-src")])
def test_the_policy_names_the_hash_of_what_the_page_holds(element, directive):
    text = unescape(to_html(page()))
    (held,) = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(held.encode("utf-8")).digest()).decode("ascii")
    assert f"{directive} 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ((("red", 5.0), ("fox", 3.0), ("the", 1.2)), ("red", "fox")),
        ((("", 9.0),), ()),
        ((), ("crimson",)),
    ],
)
def test_rare_words_of_the_query_are_marked(terms, words):
    assert shared_words(example(query="the crimson fox", negative="The CRIMSON dog", matched_terms=terms)) == words


@pytest.mark.parametrize(
    ("negative", "terms", "marked"),
    [
        ("a Red, red dog; redder", ("red",), ["Red", "red"]),
        ("<b>red</b>", ("b", "red"), ["b", "red", "b"]),
        ("北京的北京", ("北京",), ["北京", "北京"]),
        ("C++ and c+", ("c",), ["C", "c"]),
        ("no such word", ("red",), []),
    ],
)
def test_words_are_marked_whole_and_the_rest_is_escaped(negative, terms, marked):
    shown = example(negative=negative, matched_terms=tuple((word, 9.0) for word in terms))
    text = to_html(page(item(examples=(shown,))))
    (passage,) = re.findall(r'class="negative">.*?<dd dir="auto">(.*?)</dd>', text, re.DOTALL)
    assert re.findall("<mark>(.*?)</mark>", passage) == marked
    assert not re.search("<(?!/?mark>)", passage)


def test_examples_are_few_and_each_comes_first_once():
    same, other = example(line=7), example(line=8)
    text = to_html(page(item("repeat", examples=(same,)), item("empty", examples=(same, other))))
    assert [int(line) for line in re.findall(r"a\.jsonl:(\d+)<", text)] == [7, 8, 7]
    many = to_html(page(item(examples=tuple(example(line=line) for line in range(1, 9)))))
    assert len(re.findall(r"a\.jsonl:\d+<", many)) == MAX_EXAMPLES


def row(line, margin, source="bm25", findings=("repeat",), **texts):
    return ExampleRow(source=source, findings=findings, example=example(line=line, **texts), margin=margin)


def browsed(text):
    """Path and line of the rows to browse, in their order."""
    held = re.findall("<template.*</template>", text, re.DOTALL)
    return re.findall(r"<code>(.*?):(\d+)</code>", "".join(held))


def test_rows_to_browse_come_by_margin_and_only_in_a_template():
    rows = (row(1, 0.2), row(2, None), row(3, -0.1), row(4, 0.0, "Bm25", ("repeat", "hub")))
    text = to_html(page(rows=rows))
    assert [int(line) for _, line in browsed(text)] == [3, 4, 1, 2]
    attributes = re.findall(r'<li data-source="(\d)" data-findings="([\d ]*)"(?: data-margin="(.*?)")?>', text)
    assert attributes == [("1", "1", "-0.1"), ("0", "1 0", "0.0"), ("1", "1", "0.2"), ("1", "1", "")]
    assert re.findall("<option[^>]*>(.*?)</option>", text)[:3] == ["all", "Bm25", "bm25"]
    assert "<li data" not in re.sub("<template.*</template>", "", text, flags=re.DOTALL)
    assert "<template" not in to_html(page())


@pytest.mark.parametrize(
    ("length", "n"),
    [
        (1, MAX_ROW_BYTES // (ROW_MARKUP_BYTES + len("red foxa fox&amp;"))),
        (
            2_000,
            MAX_ROW_BYTES // (ROW_MARKUP_BYTES + len(f"red foxa fox{'&amp;' * (MAX_ROW_CHARACTERS - 1)}…".encode())),
        ),
    ],
)
def test_rows_to_browse_have_a_bound_in_number_and_bytes(length, n):
    rows = tuple(row(line, line / 1e4, negative="&" * length) for line in range(2_000))
    text = to_html(page(rows=rows))
    assert [int(line) for _, line in browsed(text)] == list(range(n))
    assert f"{len(rows) - n} more are in report.json" in text
    size = len(text.encode()) - len(to_html(page()).encode())
    assert 0.5 * MAX_ROW_BYTES < size < 1.05 * MAX_ROW_BYTES


def test_rows_to_browse_are_cut_and_escaped():
    text = to_html(
        page(rows=(row(1, 0.1, source="<b>", findings=("<i>",), query="<img src=x>", negative="W" * 5_000),))
    )
    assert not re.search("<(b|i|img)[ >]", text)
    assert re.findall("W{9,}", text) == ["W" * (MAX_ROW_CHARACTERS - 1)]


@pytest.mark.parametrize(
    ("commands", "n_open"),
    [(("", "", "x"), 2), (("x", "", ""), 1), (("", "", "", "", "x"), MAX_OPEN_FINDINGS), (("x",), 1)],
)
def test_findings_that_one_command_repairs_are_unfolded(commands, n_open):
    items = tuple(item(f"finding{place}", command) for place, command in enumerate(commands))
    shown, _, folded = to_html(page(*items)).partition('<details class="rest">')
    assert shown.count('<div class="item">') == n_open
    assert folded.count('<div class="item">') == len(commands) - n_open


def test_a_command_is_printed_once():
    text = to_html(page(item("repeat"), item("hub", "secid flagged RUN")))
    commands = [re.sub("<.*?>", "", code) for code in re.findall('<code class="command">(.*?)</code>', text)]
    assert commands == ["secid select RUN --drop repeat -o clean.jsonl", "secid flagged RUN"]


def test_a_status_has_its_word_and_its_colour():
    text = to_html(page())
    assert re.findall('class="status (good|warn|bad)">(.*?)<', text) == [
        ("warn", "repair first"),
        ("good", "no defects"),
    ]


def test_texts_of_any_length_are_cut_and_isolates_closed():
    long = "\u2068" + "W" * 10_000
    text = to_html(page(item(examples=(example(negative="n" * 10_000, path="p" * 10_000),)), verdict=(long,)))
    assert max(map(len, re.findall(r"\w+", re.sub("<(style|script)>.*?</.*?>", "", text, flags=re.DOTALL)))) < (
        MAX_CHARACTERS + 1
    )
    assert text.count("<bdi") == text.count("</bdi>")


def test_parts_that_are_empty_leave_no_link():
    text = to_html(page(answer=None))
    anchors = re.findall('<a href="#(.*?)"', text)
    assert anchors == ["verdict"]
    assert all(f'id="{anchor}"' in text for anchor in anchors)
    full = to_html(replace(page(item()), below=("One line.",)))
    assert re.findall('<a href="#(.*?)"', full) == ["verdict", "findings"]
    assert "<li>One line.</li>" in full
