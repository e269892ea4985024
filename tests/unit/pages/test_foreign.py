"""Foreign text is harmless on every kind of page."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secid.pages.text import WORD_JOINER, markdown, markdown_html, named, plain, short, without_isolates
from tests.unit.pages.samples import HOSTILE


@given(st.text(max_size=200))
def test_plain_text_has_no_control_or_direction_marks(text):
    shown = plain(text)
    assert len(shown) == len(text)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff\u2028\u2029]", shown)
    assert plain(shown) == shown


def test_joiners_and_scripts_stay():
    assert plain("می‌خواهم हिन्दी שלום 漢字 é") == "می‌خواهم हिन्दी שלום 漢字 é"


@pytest.mark.parametrize("limit", [1, 2, 5, 60])
def test_limits_hold(limit):
    assert len(plain("x" * 1000, limit)) == limit
    assert len(short("x" * 1000, limit)) == limit
    assert plain("abc", 3) == "abc"


def test_a_long_name_keeps_its_beginning_and_its_end():
    assert short("model-" + "x" * 100 + "-v2", 20) == "model-xxxx…xxxxxx-v2"


def test_a_name_in_a_sentence_is_isolated_and_can_be_freed():
    assert named("a\u202eb") == "\u2068a\ufffdb\u2069"
    assert without_isolates(f"x {named('ab')} y") == "x ab y"


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_escapes_what_has_a_meaning(text):
    shown = markdown(text)
    assert not re.search(r"(?<!\\)[`*_\[\]~$]", shown)
    assert not re.search(r"[<>|]", shown)
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("@octocat", r"@\w"),
        ("me@example.org", r"@\w"),
        ("#12 and owner/repo#12", r"#;?\d"),
        ("GH-34 gh-5", r"(?i)gh-\d"),
        ("a :tada: b", r":tada:"),
        (":+1: :100:", r":\+?\d+:"),
        ("https://example.org", r"://"),
        ("see www.example.org", r"www\."),
        ("HTTPS://EXAMPLE.ORG", r"://"),
        ("0123456789abcdef0123456789abcdef01234567", r"[0-9a-f]{7}"),
    ],
)
def test_what_sites_make_links_of_after_rendering_is_parted(text, pattern):
    """Sites search the rendered text, so the entities are resolved before the search."""
    import html

    assert re.search(pattern, html.unescape(text)), "the pattern finds nothing even unescaped"
    assert not re.search(pattern, html.unescape(markdown(text)))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("# title", "&#35;"),
        ("- item", "\\-"),
        ("+ item", "\\+"),
        ("=== ", "\\="),
        ("1. item", "1&#8288;"),
        ("2) item", "2&#8288;"),
        ("3.", "3&#8288;"),
        ("> quote", "&gt;"),
    ],
)
def test_a_line_cannot_begin_a_block(text, start):
    assert markdown(text).startswith(start)


def test_names_of_hexadecimal_digits_stay_apart():
    assert markdown("20241105a").replace(WORD_JOINER, "") == "20241105a"
    assert markdown("20241105a") != markdown("20241105b")


@pytest.mark.parametrize("text", HOSTILE)
def test_within_html_nothing_acts_and_no_backslash_is_added(text):
    import html

    shown = markdown_html(text)
    assert not re.search(r"[<>|`*_~$\[\]\\]", shown)
    assert html.unescape(shown).replace(WORD_JOINER, "") == plain(text.replace("\u2068", "").replace("\u2069", ""))


def test_plain_words_stay_readable():
    text = "ECI 0.5455, interval 0.5114 to 0.5796 (66 queries); p < 0.01"
    assert markdown(text) == text.replace("<", "&lt;")
    assert markdown("0.5455 to 0.6") == "0.5455 to 0.6"
    assert WORD_JOINER not in markdown("a:b c.d 12345678 e-mail")
