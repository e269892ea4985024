"""What the pages say, word for word, in tests/snapshots: of the golden run, and where a rule says something else."""

from __future__ import annotations

import html
import io
import re

from rich.console import Console

from secid.pages.ablation_summary import unstable
from secid.pages.controls_text import controls_told
from secid.pages.html import to_html
from secid.pages.markdown import to_markdown
from secid.pages.sanitize import without_isolates
from secid.pages.terminal import print_run
from secid.pages.verdict import controls, in_a_line, ranking, warning, warnings
from tests.snapshots import situations
from tests.unit.pages.situations import CONTROLS, RANKINGS, RUN, SETTINGS, WARNINGS


def said(sentences):
    return [without_isolates(sentence).replace("\u00a0", " ") for sentence in sentences]


def printed(width):
    stream = io.StringIO()
    print_run(Console(file=stream, width=width, highlight=False), RUN)
    return stream.getvalue()


def test_the_terminal(snapshot):
    snapshot("terminal-80.txt", printed(80))
    snapshot("terminal-60.txt", printed(60))


def shortened(text):
    """The page with the first row alone of each of its tables."""
    lines = text.splitlines()
    is_row = [line.startswith("| ") for line in lines]
    is_rule = [line.startswith("| --") for line in lines]
    kept = [
        line
        for place, line in enumerate(lines)
        if not is_row[place] or is_rule[place] or not is_row[place - 1] or is_rule[place - 1]
    ]
    return "\n".join(kept) + "\n"


def test_the_report_in_markdown(snapshot):
    snapshot("report.md", shortened(to_markdown(RUN)))


def test_what_screen_readers_say_of_charts(snapshot):
    texts = re.findall(r"<(?:title|desc) id=[^>]*>([^<]*)<", to_html(RUN))
    assert len(texts) == 2 * to_html(RUN).count("<svg")
    snapshot("charts.txt", "\n".join(map(html.unescape, texts)) + "\n")


def test_who_is_first(snapshot):
    snapshot(
        "ranking.txt",
        situations({name: said([ranking(run), f"Verdict: {in_a_line(run)}"]) for name, run in RANKINGS.items()}),
    )


def test_what_controls_say_in_brief_and_in_full(snapshot):
    snapshot(
        "controls.txt",
        situations(
            {
                name: said([controls(run), *(f"- {text}" for text in controls_told(run))])
                for name, run in CONTROLS.items()
            }
        ),
    )


def test_what_settings_reorder(snapshot):
    snapshot("settings.txt", situations({name: said([unstable(run)]) for name, run in SETTINGS.items()}))


def test_what_to_watch_out_for(snapshot):
    snapshot(
        "warnings.txt",
        situations(
            {name: said([warning(run), *(f"- {text}" for text in warnings(run))]) for name, run in WARNINGS.items()}
        ),
    )
