"""HTML pages in a real browser: short, sortable, readable without script, accessible, and safe from hostile sources."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from secid import api
from secid.pages.charts import CHART_NAME_CHARACTERS
from secid.pages.check_page import CHECK_FORMATS
from secid.pages.comparison import COMPARISON_FORMATS, compare
from secid.pages.explain import head_words
from secid.pages.findings import example_rows
from secid.pages.formats import MAX_CHARACTERS, RUN_FORMATS, to_html
from secid.pages.gate_ci import GATE_FORMATS
from secid.pages.sections import page_of
from secid.pages.text import short
from secid.results import TripletExample
from tests.cli.conftest import FIXTURES
from tests.unit.pages import samples
from tests.unit.tools.gating.test_pages import check, verdict

OPEN_ALL = "document.querySelectorAll('details').forEach(item => item.open = true)"
SHOW_ALL = OPEN_ALL + ";document.querySelectorAll('input[type=checkbox]').forEach(item => item.checked = true)"
WIDER_THAN_THE_WINDOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SCREENS = "document.documentElement.scrollHeight / innerHeight"
SPILLING = """[...document.querySelectorAll('body *')].filter(item => !item.closest('.scroll, .skip, nav ul')
  && item.getBoundingClientRect().width > 0 && item.getBoundingClientRect().right > innerWidth + 1)
  .map(item => item.tagName + '.' + item.className)"""
OUTSIDE = """[...document.querySelectorAll('svg text')].filter(item => {
    const text = item.getBoundingClientRect(), chart = item.closest('figure').getBoundingClientRect()
    return text.width > 0 && (text.right > chart.right + 1 || text.left < chart.left - 1)
  }).map(item => item.textContent)"""
"""Words that leave their chart."""
OVERLAPPING = """[...document.querySelectorAll('.forest')].flatMap(chart => {
    const boxes = [...chart.querySelectorAll('svg text, bdi')].filter(item => item.textContent.trim())
      .map(item => [item.textContent, item.getBoundingClientRect()])
    return boxes.flatMap(([one, a], place) => boxes.slice(place + 1)
      .filter(([, b]) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
      .map(([other]) => [one, other]))
  })"""
"""Pairs of words in one chart that cover each other."""
FIRST_COLUMN = """[...document.querySelectorAll('[aria-labelledby=answer] tbody:not(.controls) th')]
  .map(item => item.textContent.trim())"""
FIRST_ROWS = """document
  .querySelectorAll('tbody tr:nth-child(n+6), .examples li:nth-child(n+3), .browser li:nth-child(n+4)')
  .forEach(item => item.remove())"""
"""The others look alike, and axe spends most of its time on the contrast of words."""
WORD = "unbroken" * 1_250


def spoilt():
    """Return a verdict with a failed check whose rows hold hostile texts."""
    example = check().examples[:1] or ()
    return verdict(check("hardness", "fail"), check("findings.hub", "pass", examples=example))


def long_words(run):
    """Return the run with passages of one word of 10,000 characters."""
    example = TripletExample(path=WORD, line=1, query=WORD, positive=WORD, negative=WORD, matched_terms=((WORD, 9.0),))
    first, *others = run.sources
    findings = tuple(replace(item, examples=(example,)) for item in first.findings)
    return replace(run, sources=(replace(first, findings=findings), *others))


@pytest.fixture(scope="module")
def pages():
    html = RUN_FORMATS[".html"]
    run = samples.golden()
    sources = [FIXTURES / "sources" / name for name in ("poisoned.jsonl", "bm25.jsonl.gz")]
    return {
        "golden": html(run),
        "hostile": html(samples.hostile(run)),
        "large": html(samples.large(run)),
        "bare": html(samples.bare(run)),
        "unbroken": html(long_words(samples.renamed(run, {"bm25": "unbroken" * 7 + "xx"}))),
        "wide": html(samples.renamed(run, {"bm25": "W" * 60, "dense": "@%mM" * 15, "poisoned": "漢字" * 30})),
        "budget": html(replace(samples.sliced(samples.early(run)), budget=1000.0)),
        "guided": html(samples.guided(samples.separated(run))),
        "compared": COMPARISON_FORMATS[".html"](compare([("monday", run), ("friday", samples.hostile(run))])),
        "check": CHECK_FORMATS[".html"](api.check(sources)),
        "gate": GATE_FORMATS[".html"](spoilt()),
    }


FITTING = ("hostile", "large", "bare", "unbroken", "wide", "budget", "guided", "compared", "check", "gate")
"""All pages but the golden one, since "budget" and "guided" add to it."""


@pytest.mark.parametrize("name", FITTING)
def test_the_page_is_silent_self_contained_and_fits(visit, pages, name):
    with visit(pages[name]) as seen:
        seen.page.evaluate(SHOW_ALL)
        if name in ("large", "wide", "budget", "guided"):
            assert seen.page.locator(".forest svg text").count() > 0
        for width in (360, 1280):
            seen.page.set_viewport_size({"width": width, "height": 800})
            assert seen.page.evaluate(WIDER_THAN_THE_WINDOW) == 0
            assert seen.page.evaluate(SPILLING) == []
            assert seen.page.evaluate(OUTSIDE) == []
            assert seen.page.evaluate(OVERLAPPING) == []
        assert seen.events == []
        assert [url[:7] for url in seen.requests] == ["file://"]
        assert seen.page.title() in (
            "Sources of hard negatives",
            "Runs compared",
            "Check of hard negatives",
            "Gate for sources of hard negatives",
        )


def test_a_run_takes_few_screens_with_its_answer_and_examples_in_sight(visit, pages):
    with visit(pages["golden"], viewport={"width": 1280, "height": 900}) as seen:
        bottom = seen.page.locator("[aria-labelledby=answer]").bounding_box()
        assert bottom["y"] + bottom["height"] < 900
        statuses = seen.page.locator("[aria-labelledby=answer] .state").all_text_contents()
        assert len(list(filter(str.strip, statuses))) == len(samples.golden().sources)
        repairs = [source.repair for source in samples.golden().sources if source.repair]
        assert seen.page.locator("section:first-of-type > .run .command").all_text_contents() == repairs
        assert seen.page.locator(".examples > ul > li").first.is_visible()
        assert seen.page.evaluate(SCREENS) <= 4.0
        seen.page.set_viewport_size({"width": 390, "height": 844})
        assert seen.page.evaluate(SCREENS) <= 8.5
        seen.page.evaluate(OPEN_ALL)
        assert seen.page.evaluate(SCREENS) > 17.0


def test_a_click_on_a_head_sorts_by_its_column(visit, pages):
    """Rows of repaired sources are sorted, too."""
    with visit(pages["golden"]) as seen:
        names = [source.name for source in samples.golden().sources]

        def shown():
            return [name for name in seen.page.evaluate(FIRST_COLUMN) if name in names]

        by_score, every = shown(), seen.page.evaluate(FIRST_COLUMN)
        head = seen.page.locator("[aria-labelledby=answer] thead th", has_text="hardness")
        head.locator("button").click()
        by_hardness = [
            item.name
            for item in sorted(
                samples.golden().sources, key=lambda item: -(item.hardness.value if item.hardness else -9)
            )
        ]
        assert shown() == by_hardness != by_score
        assert seen.page.evaluate(FIRST_COLUMN) != every
        assert head.get_attribute("aria-sort") == "descending"
        head.locator("button").click()
        assert shown() == by_hardness[::-1]
        assert head.get_attribute("aria-sort") == "ascending"
        first = seen.page.locator("[aria-labelledby=answer] thead th").first
        first.locator("button").focus()
        seen.page.keyboard.press("Enter")
        assert seen.page.evaluate(FIRST_COLUMN) == sorted(every, reverse=True)
        assert head.get_attribute("aria-sort") is None


def test_sorting_leaves_the_sources_that_are_not_ranked_below_the_others(visit):
    run = samples.profiled(samples.golden())
    last = run.sources[-1].name
    with visit(RUN_FORMATS[".html"](run)) as seen:
        head = seen.page.locator("[aria-labelledby=answer] thead th", has_text="source")
        for _ in range(2):
            head.locator("button").click()
            assert seen.page.evaluate(FIRST_COLUMN)[-1] == last


def test_the_keyboard_and_a_screen_reader_get_what_a_head_means(visit, pages):
    with visit(pages["golden"], viewport={"width": 390, "height": 844}) as seen:
        button = seen.page.locator("th button", has_text="hardness").first
        assert seen.page.locator(".tip").count() == 0
        button.focus()
        tip = seen.page.locator(".tip")
        assert tip.text_content() == f"hardness: {head_words('hardness')}"
        assert button.get_attribute("title") == head_words("hardness")
        box = tip.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert button.is_visible()
        seen.page.keyboard.press("Tab")
        assert tip.text_content().startswith("outscoring: ")


def test_a_command_is_copied_whole(visit, pages):
    with visit(pages["golden"], permissions=["clipboard-read", "clipboard-write"]) as seen:
        command = seen.page.locator("section:first-of-type > .run .command").first.text_content()
        seen.page.locator("section:first-of-type > .run .copy").first.click()
        seen.page.wait_for_timeout(50)
        assert seen.page.evaluate("navigator.clipboard.readText()") == command
        assert command.startswith("secid select ")


def test_without_script_the_page_says_all_and_has_no_dead_button(visit, pages):
    with visit(pages["check"], java_script_enabled=False) as seen:
        assert seen.page.locator("button").count() == 0
        assert seen.page.locator("[aria-labelledby=answer] tbody tr").count() == 2
        case = seen.page.locator(".examples > ul > li").first
        clamped = case.locator(".positive dd").bounding_box()["height"]
        case.locator("label").click()
        assert case.locator(".positive dd").bounding_box()["height"] > clamped
        more = seen.page.locator(".examples details").first
        assert not more.locator("li").first.is_visible()
        more.locator("summary").click()
        assert more.locator("li").first.is_visible()
        section = seen.page.locator(".section").first
        section.locator("summary").first.click()
        assert section.locator("table").is_visible()


def saved(page, button, folder):
    """Return the name and the bytes of the file that a button saves."""
    with page.expect_download() as waiting:
        button.press("Enter")
    file = folder / waiting.value.suggested_filename
    waiting.value.save_as(file)
    return file.name, file.read_bytes()


def test_every_figure_is_saved_as_a_drawing_and_as_numbers(visit, pages, tmp_path):
    with visit(pages["hostile"], color_scheme="dark") as seen:
        seen.page.evaluate(OPEN_ALL)
        figures = seen.page.locator("figure").all()
        assert len(figures) >= 4
        for figure in figures:
            (svg_name, drawing), (json_name, numbers) = (
                saved(seen.page, button, tmp_path) for button in figure.locator(".save button").all()
            )
            assert (Path(svg_name).stem, Path(svg_name).suffix) == (Path(json_name).stem, ".svg")
            root = ElementTree.fromstring(drawing)
            of = "{http://www.w3.org/2000/svg}"
            assert len(root.findall(f"{of}svg/{of}*")) > 5
            assert not any("var(" in value or "currentColor" in value for part in root.iter() for value in shape(part))
            assert {part.tag.removeprefix(of) for part in root.iter()} <= {
                "svg", "title", "rect", "text", "line", "path", "circle"
            }  # fmt: skip
            records = json.loads(numbers)
            shown = figure.locator("bdi").all_text_contents()
            names = [short(record["source"], CHART_NAME_CHARACTERS) for record in records]
            assert names == [short(text, CHART_NAME_CHARACTERS) for text in shown if text.strip()]
            texts = [text.text for text in root.iter(f"{of}text")]
            assert set(filter(str.strip, shown)) <= set(texts)
        assert seen.events == []
        assert {url.partition(":")[0] for url in seen.requests} <= {"file", "blob"}


def shape(part):
    """The values of what is drawn; the root svg inside may say currentColor, which its shapes do not use."""
    return part.attrib.values() if not part.tag.endswith("}svg") else ()


def test_a_saved_figure_has_its_marks_where_the_page_has_them(visit, pages, tmp_path):
    circles = """(root) => [...root.querySelectorAll('circle')].map(item => {
        const [box, from] = [item.getBoundingClientRect(), root.getBoundingClientRect()]
        return [box.left - from.left, box.top - from.top, box.width, getComputedStyle(item).fill]
      })"""
    with visit(pages["golden"], viewport={"width": 390, "height": 844}) as seen:
        chart = seen.page.locator("figure [role=img]").nth(2)
        on_page = chart.evaluate(circles)
        _, drawing = saved(seen.page, seen.page.locator("figure").nth(2).locator(".save button").first, tmp_path)
        seen.page.set_content(f'<body style="margin:0">{drawing.decode()}')
        alone = seen.page.locator("svg").first.evaluate(circles)
    assert len(on_page) > 5
    for first, second in zip(on_page, alone, strict=True):
        assert first[:3] == pytest.approx(second[:3], abs=0.6)
        assert first[3] == second[3]


SHOWN_ROWS = "[...document.querySelectorAll('.browser li')].map(item => ({...item.dataset}))"


def test_rows_are_filtered_and_ordered_by_the_keyboard(visit, pages):
    with visit(pages["golden"]) as seen:
        page = seen.page
        assert not page.locator(".browser select").first.is_visible()
        page.locator(".browser summary").focus()
        page.keyboard.press("Enter")
        page.locator(".browser button").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("[...document.querySelectorAll('.browser li')].indexOf(document.activeElement)") == 20
        every = page.evaluate(SHOWN_ROWS)
        assert len(every) == len(example_rows(samples.golden())) > 20
        assert not page.locator(".browser button").is_visible()
        margins = [float(row["margin"]) for row in every]
        assert margins == sorted(margins)
        for place, name in ((0, "source"), (1, "findings")):
            select = page.locator(".browser select").nth(place)
            select.focus()
            page.keyboard.press("ArrowDown")
            wanted = select.input_value()
            chosen = [row for row in every if wanted in row[name].split()]
            assert 0 < len(chosen) < len(every)
            assert page.evaluate(SHOWN_ROWS) == chosen[:20]
            n = len(page.evaluate(SHOWN_ROWS))
            assert page.locator(".browser [role=status]").text_content() == f"{n} of {len(chosen)} rows"
            page.keyboard.press("ArrowUp")
        page.locator(".browser select").nth(2).focus()
        page.keyboard.press("ArrowDown")
        assert [float(row["margin"]) for row in page.evaluate(SHOWN_ROWS)] == margins[::-1][:20]
        assert seen.events == []


def test_rows_without_a_margin_come_last(visit):
    page = page_of(samples.golden())
    rows = tuple(replace(row, margin=None if place % 2 else row.margin) for place, row in enumerate(page.rows[:9]))
    with visit(to_html(replace(page, rows=rows))) as seen:
        seen.page.evaluate(OPEN_ALL)
        for order in ("1", "-1"):
            seen.page.locator(".browser select").nth(2).select_option(order)
            assert ["margin" in row for row in seen.page.evaluate(SHOWN_ROWS)] == [True] * 5 + [False] * 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_browser_of_rows_fits_a_phone_and_axe_finds_nothing(visit, axe, pages, scheme):
    view = {"width": 390, "height": 844}
    with visit(pages["hostile"], bypass_csp=True, color_scheme=scheme, viewport=view) as seen:
        seen.page.locator(".browser summary").click()
        assert seen.page.locator(".browser li").count() > 3
        seen.page.locator(".browser select").first.select_option("1")
        assert seen.page.evaluate(SPILLING) == []
        seen.page.evaluate("document.querySelectorAll('main > :not(.browser)').forEach(item => item.remove())")
        seen.page.evaluate(FIRST_ROWS)
        assert violations(seen.page, axe) == []


def test_without_script_there_is_no_browser_of_rows(visit, pages):
    with visit(pages["golden"], java_script_enabled=False) as seen:
        assert seen.page.locator(".browser, select, button").count() == 0
        assert seen.page.locator(".examples > ul > li").first.is_visible()


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


STYLE_WORKS = "getComputedStyle(document.querySelector('.skip')).position === 'absolute'"
SCRIPT_WORKS = "document.querySelector('thead button') !== null"


def test_the_policy_blocks_a_changed_style_or_script(visit, pages):
    with visit(pages["golden"]) as seen:
        assert seen.page.evaluate(STYLE_WORKS)
        assert seen.page.evaluate(SCRIPT_WORKS)
    for element, works in (("style", STYLE_WORKS), ("script", SCRIPT_WORKS)):
        with visit(pages["golden"].replace(f"<{element}>", f"<{element}>/* changed */")) as seen:
            assert not seen.page.evaluate(works)
            assert any("Content Security Policy" in event for event in seen.events)


def test_a_foreign_script_is_stopped_and_this_test_would_notice_one(visit, pages):
    injected = "<script>document.title = 'owned'</script><img src=x onerror=\"document.body.id='owned'\">"
    damaged = pages["bare"].replace("</body>", f"{injected}</body>")
    with visit(damaged) as seen:
        seen.page.wait_for_timeout(50)
        assert seen.page.title() == "Sources of hard negatives"
        assert seen.page.evaluate("document.body.id") == ""
        assert len([event for event in seen.events if "Content Security Policy" in event]) >= 2
    with visit(damaged, bypass_csp=True) as seen:
        seen.page.wait_for_timeout(50)
        assert (seen.page.title(), seen.page.evaluate("document.body.id")) == ("owned", "owned")


@pytest.mark.parametrize("name", ["hostile", "unbroken", "gate", "compared"])
def test_hostile_names_and_passages_do_nothing_even_without_the_policy(visit, pages, name):
    with visit(pages[name], bypass_csp=True) as seen:
        seen.page.evaluate(SHOW_ALL)
        seen.page.wait_for_timeout(100)
        assert "owned" not in seen.page.title()
        assert seen.page.evaluate("document.querySelectorAll('img, iframe, object, embed, link, form').length") == 0
        assert seen.page.evaluate("document.scripts.length") == 1
        assert seen.events == []
        assert len(seen.requests) == 1
        body = seen.page.inner_text("body")
        assert not set(body) & set("\x1b\x07\u202e\u202c\u2066\u2067\u2068\u2069")
        assert max(map(len, body.split())) <= MAX_CHARACTERS
        if name == "hostile":
            assert "<script>document.title=" in body  # shown, not run


def test_right_to_left_text_runs_right_to_left(visit, pages):
    with visit(pages["hostile"]) as seen:
        seen.page.evaluate(OPEN_ALL)
        directions = seen.page.evaluate(
            "[...document.querySelectorAll('dd[dir=auto]')].filter(item => item.textContent.startsWith('שלום'))"
            ".map(item => getComputedStyle(item).direction)"
        )
        assert set(directions) == {"rtl"}


@pytest.mark.parametrize("name", ["budget", "compared", "check", "gate"])
def test_every_chart_has_a_name_and_a_description(visit, pages, name):
    with visit(pages[name]) as seen:
        seen.page.evaluate(OPEN_ALL)
        session = seen.page.context.new_cdp_session(seen.page)
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
        images = [node for node in nodes if node.get("role", {}).get("value") == "image" and not node["ignored"]]
        assert len(images) == seen.page.evaluate("document.querySelectorAll('[role=img]').length")
        assert seen.page.evaluate("[...document.querySelectorAll('svg')].every(item => item.closest('[role=img]'))")
        assert all(len(node["name"]["value"]) > 20 for node in images)


def test_at_every_width_charts_fill_the_page_and_commands_break_at_spaces_only(visit, pages):
    words = "[...document.querySelectorAll('.pictures svg text')]"
    sizes = f"{words}.map(item => parseFloat(getComputedStyle(item).fontSize))"
    lines = "[...document.querySelectorAll('.command span')].map(item => item.getClientRects().length)"
    heights = "[...document.querySelectorAll('.command span')].map(item => item.getBoundingClientRect().height)"
    with visit(pages["golden"]) as seen:
        for width in (360, 1280):
            seen.page.set_viewport_size({"width": width, "height": 800})
            assert set(map(round, seen.page.evaluate(sizes))) == {13}
            page, charts = seen.page.locator("main").bounding_box(), seen.page.locator(".pictures figure")
            assert all(box.bounding_box()["width"] > page["width"] - 110 for box in charts.all())
            assert set(seen.page.evaluate(lines)) == {1}
            assert max(seen.page.evaluate(heights)) < 24


def test_words_that_overlap_are_noticed(visit, pages):
    with visit(pages["golden"].replace("</svg></div></div>", '<text x="0" y="14">00</text></svg></div></div>')) as seen:
        assert seen.page.evaluate(OVERLAPPING) != []


def test_without_its_style_the_page_still_says_everything(visit, pages):
    with visit(pages["golden"].replace("style-src", "x-style-src")) as seen:
        body = seen.page.inner_text("main")
        for source in samples.golden().sources:
            assert source.name in body
        assert seen.page.evaluate(
            "[...document.querySelectorAll('svg path.l, svg path.ref, svg path.grid')].every(path => "
            "getComputedStyle(path).fill === 'none')"
        )


def test_the_keyboard_reaches_the_skip_link_first_and_the_tables(visit, pages):
    with visit(pages["golden"], viewport={"width": 360, "height": 800}) as seen:
        seen.page.keyboard.press("Tab")
        assert seen.page.evaluate("document.activeElement.className") == "skip"
        assert seen.page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        seen.page.keyboard.press("Enter")
        assert seen.page.evaluate("document.activeElement.id") == "main"
        assert seen.page.evaluate("[...document.querySelectorAll('.scroll')].every(item => item.tabIndex === 0)")


def test_navigation_stays_in_sight_and_covers_no_heading(visit, pages):
    with visit(pages["golden"], viewport={"width": 1280, "height": 500}) as seen:
        seen.page.locator("nav a", has_text="Failure buckets").first.click()
        seen.page.wait_for_timeout(50)
        nav = seen.page.locator("nav").bounding_box()
        assert nav["y"] == 0
        assert nav["height"] <= seen.page.locator("#findings").bounding_box()["y"] < 120


def test_words_that_leave_a_chart_are_noticed(visit, pages):
    with visit(re.sub(r">[\d.]+</text>", f">{'W' * 120}</text>", pages["golden"], count=1)) as seen:
        assert seen.page.evaluate(OUTSIDE) != []


@pytest.mark.parametrize("name", ["golden", "check"])
def test_print_holds_what_is_open_and_hides_what_paper_cannot_do(visit, pages, tmp_path, name):
    with visit(pages[name], viewport={"width": 760, "height": 1000}) as seen:
        seen.page.emulate_media(media="print", color_scheme="dark")
        assert not seen.page.is_visible("nav")
        assert all(item.is_visible() for item in seen.page.locator("article > .item .examples > ul > li").all())
        assert not any(item.is_visible() for item in seen.page.locator("details li").all())
        assert all(item.is_visible() for item in seen.page.locator(".rest > summary").all())
        assert seen.page.evaluate(
            "[...document.querySelectorAll('.examples dd')].every(item => item.scrollHeight <= item.clientHeight + 2)"
        )
        assert seen.page.evaluate(WIDER_THAN_THE_WINDOW) == 0
        assert luminance(seen.page.evaluate("getComputedStyle(document.body).color")) < 60
        file = tmp_path / "page.pdf"
        file.write_bytes(seen.page.pdf(prefer_css_page_size=True))
    n_pages = len(re.findall(rb"/Type\s*/Page\b", file.read_bytes()))
    assert 1 <= n_pages <= 4


@pytest.mark.parametrize(
    ("name", "scheme"),
    [*((name, "light") for name in ("hostile", "bare", "gate")),
     *((name, "dark") for name in ("budget", "compared", "check"))],
)  # fmt: skip
def test_axe_finds_nothing(visit, axe, pages, name, scheme):
    with visit(pages[name], bypass_csp=True, color_scheme=scheme, viewport={"width": 1000, "height": 800}) as seen:
        seen.page.evaluate(OPEN_ALL)
        seen.page.evaluate(FIRST_ROWS)
        assert violations(seen.page, axe) == []


def test_axe_would_find_something(visit, axe, pages):
    damaged = pages["check"].replace('lang="en"', "").replace("<dt>", "<dt><img>")
    with visit(damaged, bypass_csp=True) as seen:
        assert {finding.split(":")[0] for finding in violations(seen.page, axe)} >= {"html-has-lang", "image-alt"}


def violations(page, axe):
    """Return all violations that axe-core reports."""
    page.evaluate(axe)
    report = page.evaluate("axe.run(document, {resultTypes: ['violations'], selectors: false})")
    assert report["passes"], "axe checked nothing"
    return [f"{item['id']}: {item['nodes'][0]['html'][:200]}" for item in report["violations"]]


def test_in_a_notebook_the_page_works_and_leaves_the_notebook_alone(visit, pages):
    """The frames of two outputs, one of them of hostile texts, in a document with a style of its own."""
    frames = [run._repr_html_() for run in (samples.golden(), samples.hostile(samples.golden()))]
    host = f'<!doctype html><title>Notebook</title><h2 style="font:9px serif">mine</h2>{"".join(frames)}'
    with visit(host, viewport={"width": 1000, "height": 900}) as seen:
        main, *inner = seen.page.frames
        assert len(inner) == 2
        for frame in inner:
            assert frame.evaluate("self.origin") == "null"
            assert frame.evaluate("innerHeight") == 600
            assert frame.locator("[aria-labelledby=answer] thead th button").count() > 5
            assert frame.locator("a").count() == 0
            assert frame.locator("figure").count() > 2
            assert frame.locator(".save").count() == 0, "a notebook blocks downloads"
        head = inner[0].locator("[aria-labelledby=answer] thead th", has_text="hardness")
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert main.evaluate("getComputedStyle(document.querySelector('h2')).fontSize") == "9px"
        assert seen.events == []
        assert [url[:7] for url in seen.requests if url != "about:srcdoc"] == ["file://"]
