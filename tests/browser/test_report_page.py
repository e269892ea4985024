"""report.html in a real browser: silent, self-contained, fitting, accessible, and deaf to what sources try."""

from __future__ import annotations

from dataclasses import replace

import pytest

from secid.pages.comparison import compare
from secid.pages.comparison_page import COMPARISON_FORMATS
from secid.pages.html import to_html
from tests.unit.pages import samples

OPEN_ALL = "document.querySelectorAll('details').forEach(item => item.open = true)"
WIDER_THAN_THE_WINDOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SPILLING = """[...document.querySelectorAll('body *')].filter(item => !item.closest('.scroll') && !item.closest('.skip')
  && item.getBoundingClientRect().width > 0 && item.getBoundingClientRect().right > innerWidth + 1)
  .map(item => item.tagName + '.' + item.className)"""
OUTSIDE = """[...document.querySelectorAll('svg text')].filter(item => {
    const text = item.getBoundingClientRect(), chart = item.ownerSVGElement.getBoundingClientRect()
    return text.width > 0 && (text.right > chart.right + 1 || text.left < chart.left - 1)
  }).map(item => item.textContent)"""
"""Words that leave their chart."""
HIDDEN = """[...document.querySelectorAll('.scroll')].filter(item => item.scrollWidth > item.clientWidth + 1)
  .map(item => item.textContent.slice(0, 80) + item.scrollWidth + ' > ' + item.clientWidth)"""
"""What a table or chart hides until it is scrolled."""


@pytest.fixture(scope="module")
def pages():
    run = samples.golden()
    return {
        "golden": to_html(run),
        "hostile": to_html(samples.hostile(run)),
        "large": to_html(samples.large(run)),
        "bare": to_html(samples.bare(run)),
        "unbroken": to_html(samples.renamed(run, {"bm25": "unbroken" * 7 + "xx"})),
        "wide": to_html(samples.renamed(run, {"bm25": "W" * 60, "dense": "@%mM" * 15, "poisoned": "漢字" * 30})),
        "budget": to_html(replace(samples.sliced(samples.early(run)), budget=1000.0)),
        "compared": COMPARISON_FORMATS[".html"](compare([("monday", run), ("friday", samples.hostile(run))])),
    }


NAMES = ("golden", "hostile", "large", "bare", "unbroken", "wide", "budget", "compared")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200, 1440])
@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_silent_self_contained_and_fits(visit, pages, name, width, scheme):
    with visit(pages[name], viewport={"width": width, "height": 800}, color_scheme=scheme) as seen:
        title = seen.page.title()
        seen.page.evaluate(OPEN_ALL)
        assert seen.page.evaluate(WIDER_THAN_THE_WINDOW) == 0
        assert seen.page.evaluate(SPILLING) == []
        assert seen.page.evaluate(HIDDEN) == []
        assert seen.page.evaluate(OUTSIDE) == []
        seen.page.mouse.move(width / 2, 400)
        seen.page.wait_for_timeout(50)
        assert seen.events == []
        assert [url for url in seen.requests if not url.startswith("file://")] == []
        assert len(seen.requests) == 1
        assert title in ("Sources of hard negatives, ranked", "Runs compared")


@pytest.mark.parametrize("width", [360, 480, 768])
@pytest.mark.parametrize("n_runs", [2, 5])
def test_a_comparison_hides_no_column(visit, n_runs, width):
    found = compare([(f"run {place}", samples.golden()) for place in range(n_runs)])
    with visit(COMPARISON_FORMATS[".html"](found), viewport={"width": width, "height": 800}) as seen:
        seen.page.evaluate(OPEN_ALL)
        assert seen.page.evaluate(HIDDEN) == []


def luminance(color):
    return sum(int(part) for part in color[4:-1].split(",")[:3]) / 3


def test_dark_mode_is_dark_and_light_mode_is_light(visit, pages):
    shades = {}
    for scheme in ("light", "dark"):
        with visit(pages["golden"], color_scheme=scheme) as seen:
            style = seen.page.evaluate(
                "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
            )
            shades[scheme] = [luminance(value) for value in style]
    assert shades["light"][0] < 60 < 200 < shades["light"][1]
    assert shades["dark"][1] < 60 < 200 < shades["dark"][0]


def test_the_style_sheet_passes_the_policy_and_another_does_not(visit, pages):
    read = "getComputedStyle(document.querySelector('.skip')).position"
    with visit(pages["golden"]) as seen:
        assert seen.page.evaluate(read) == "absolute"
    changed = pages["golden"].replace("<style>", "<style>/* changed */")
    with visit(changed) as seen:
        assert seen.page.evaluate(read) == "static"
        assert any("Content Security Policy" in event for event in seen.events)


def test_words_of_charts_can_be_read_on_a_phone(visit, pages):
    smallest = """Math.min(...[...document.querySelectorAll('svg')].filter(item => item.clientWidth)
      .map(item => 14 * item.getBoundingClientRect().width / item.viewBox.baseVal.width))"""
    with visit(pages["golden"], viewport={"width": 360, "height": 800}) as seen:
        assert seen.page.evaluate(smallest) >= 9.5
        assert (
            seen.page.evaluate(
                "new Set([...document.querySelectorAll('svg text')].map(item => getComputedStyle(item).fontSize)).size"
            )
            == 1
        )


def test_a_script_would_be_stopped_and_this_test_would_notice_one(visit, pages):
    injected = pages["golden"].replace("</body>", "<script>document.title = 'owned'</script></body>")
    with visit(injected) as seen:
        assert seen.page.title() != "owned"
        assert any("Content Security Policy" in event for event in seen.events)
    with visit(injected, bypass_csp=True) as seen:
        assert seen.page.title() == "owned"


@pytest.mark.parametrize("bypass", [False, True])
def test_hostile_names_and_passages_do_nothing_even_without_the_policy(visit, pages, bypass):
    with visit(pages["hostile"], bypass_csp=bypass) as seen:
        seen.page.evaluate(OPEN_ALL)
        seen.page.wait_for_timeout(100)
        assert seen.page.title() == "Sources of hard negatives, ranked"
        assert (
            seen.page.evaluate("document.querySelectorAll('script, img, iframe, object, embed, link, form').length")
            == 0
        )
        assert seen.events == []
        assert len(seen.requests) == 1
        body = seen.page.inner_text("body")
        assert "<script>document.title=" in body  # shown, not run
        assert not set(body) & set("\x1b\x07\u202e\u202c\u2066\u2067\u2068\u2069")
        assert max(map(len, body.split())) < 2_000  # the word of a million letters was cut


def test_right_to_left_text_runs_right_to_left(visit, pages):
    with visit(pages["hostile"]) as seen:
        seen.page.evaluate(OPEN_ALL)
        found = seen.page.evaluate(
            "[...document.querySelectorAll('dd[dir=auto]')].filter(item => item.textContent.startsWith('שלום'))"
            ".map(item => getComputedStyle(item).direction)"
        )
        assert found
        assert set(found) == {"rtl"}


@pytest.mark.parametrize("name", NAMES)
def test_every_chart_has_a_name_and_a_description(visit, pages, name):
    with visit(pages[name]) as seen:
        session = seen.page.context.new_cdp_session(seen.page)
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
        images = [node for node in nodes if node.get("role", {}).get("value") == "image" and not node["ignored"]]
        charts = seen.page.evaluate("document.querySelectorAll('svg').length")
        assert len(images) == charts
        assert all(len(node["name"]["value"]) > 20 for node in images)


def test_without_its_style_the_page_still_says_everything(visit, pages):
    bare = pages["golden"].replace("style-src", "x-style-src")
    with visit(bare) as seen:
        body = seen.page.inner_text("main")
        assert "ranks first" in body
        assert "Each source minus each control" in body
        shown = seen.page.evaluate(
            "[...document.querySelectorAll('svg')].every(svg => svg.getBoundingClientRect().width <= 500)"
        )
        assert shown
        filled = seen.page.evaluate(
            "[...document.querySelectorAll('svg path.l, svg path.ref, svg path.grid')].every(path => "
            "getComputedStyle(path).fill === 'none')"
        )
        assert filled


def test_the_keyboard_reaches_the_skip_link_first_and_the_tables(visit, pages):
    with visit(pages["golden"], viewport={"width": 360, "height": 800}) as seen:
        seen.page.keyboard.press("Tab")
        assert seen.page.evaluate("document.activeElement.className") == "skip"
        assert seen.page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        seen.page.keyboard.press("Enter")
        assert seen.page.evaluate("document.activeElement.id") == "main"
        assert seen.page.evaluate("[...document.querySelectorAll('.scroll')].every(item => item.tabIndex === 0)")


def test_a_table_too_wide_for_its_place_becomes_a_list_with_its_columns_named(visit, pages):
    """The ranking stands as a table where it fits, beside its chart where both fit."""
    read = """(table => [getComputedStyle(table).display,
      getComputedStyle(table.querySelector('td:nth-of-type(2)'), '::before').content,
      Math.round(table.getBoundingClientRect().top
        - table.closest('figure').querySelector('svg').getBoundingClientRect().top)]
    )(document.querySelector('table'))"""
    found = {}
    for width in (360, 1200, 1440):
        with visit(pages["golden"], viewport={"width": width, "height": 800}) as seen:
            found[width] = seen.page.evaluate(read)
    assert [found[width][0] for width in (360, 1200, 1440)] == ["block", "table", "table"]
    assert found[360][1] == "attr(data-l)" or "ECI_sem" in found[360][1]
    assert found[360][2] > 100
    assert found[1200][2] > 100
    assert abs(found[1440][2]) < 30


def test_a_table_that_hides_something_is_noticed(visit, pages):
    wide = pages["golden"].replace('<td class="n"', '<td class="n">' + "0" * 900 + '</td><td class="n"', 1)
    with visit(wide, viewport={"width": 1200, "height": 800}) as seen:
        assert seen.page.evaluate(HIDDEN) != []


def test_words_that_leave_a_chart_are_noticed(visit, pages):
    with visit(pages["golden"].replace(">counterfactual</text>", f">{'W' * 60}</text>")) as seen:
        assert seen.page.evaluate(OUTSIDE) != []


def test_names_of_a_pair_run_their_own_way(visit):
    """A pair that begins with a right-to-left name reads from the left; the name itself from the right."""
    page = to_html(samples.renamed(samples.golden(), {"random": "עברית", "bm25": "שלום"}))
    read = """(cell => [getComputedStyle(cell).direction, ...[...cell.querySelectorAll('bdi')]
      .map(item => item.getBoundingClientRect().left)])(document.querySelector('#pairs ~ * tbody th'))"""
    with visit(page) as seen:
        direction, first, second = seen.page.evaluate(read)
        assert direction == "ltr"
        assert first < second


def test_print_fits_the_paper_and_hides_what_paper_cannot_do(visit, pages):
    with visit(pages["golden"], viewport={"width": 760, "height": 1000}) as seen:
        seen.page.emulate_media(media="print", color_scheme="dark")
        assert not seen.page.is_visible("nav")
        assert seen.page.is_visible("section:nth-of-type(3) .terms dd")  # folded on screens
        assert seen.page.is_visible("caption:has-text('Controls, not ranked')")  # the text points there
        assert not seen.page.is_visible(".examples")
        assert not seen.page.is_visible("h3")
        assert seen.page.evaluate(WIDER_THAN_THE_WINDOW) == 0
        assert seen.page.evaluate(HIDDEN) == []
        assert luminance(seen.page.evaluate("getComputedStyle(document.body).color")) < 60
        assert len(seen.page.pdf()) > 10_000


@pytest.mark.parametrize(
    ("name", "scheme"), [*((name, "light") for name in NAMES), ("golden", "dark"), ("compared", "dark")]
)
def test_axe_finds_nothing_serious(visit, axe, pages, name, scheme):
    with visit(pages[name], bypass_csp=True, color_scheme=scheme, viewport={"width": 900, "height": 800}) as seen:
        seen.page.evaluate(OPEN_ALL)
        assert serious(seen.page, axe) == []


def test_axe_would_find_something(visit, axe, pages):
    spoilt = pages["golden"].replace('lang="en"', "").replace("<dt>", "<dt><img>")
    with visit(spoilt, bypass_csp=True) as seen:
        assert {finding.split(":")[0] for finding in serious(seen.page, axe)} >= {"html-has-lang", "image-alt"}


def serious(page, axe):
    """Violations that axe-core calls serious or critical."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert found["passes"], "axe checked nothing"
    return [
        f"{item['id']}: {item['nodes'][0]['html'][:200]}"
        for item in found["violations"]
        if item["impact"] in ("serious", "critical")
    ]
