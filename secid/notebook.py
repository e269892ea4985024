"""Display of results in notebooks: a few lines of text, the page in a frame, and the sources as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

from markupsafe import escape
from rich.console import Console

from secid.pages.check_page import check_page
from secid.pages.comparison import RunComparison, page_of_comparison
from secid.pages.evidence import audit_page, probe_page
from secid.pages.formats import to_html
from secid.pages.gate_page import gate_page
from secid.pages.mine_text import mined_screen, sweep_screen
from secid.pages.page import Page
from secid.pages.screen import Screen, print_page, screen
from secid.pages.sections import page_of
from secid.pages.sections.guide import trusted
from secid.pages.sections.verdict import answer_table
from secid.results import Run
from secid.results.check import Audit, Check
from secid.results.gate import GateVerdict
from secid.results.mine import Mined, Sweep
from secid.results.probe import Probe

if TYPE_CHECKING:
    import pyarrow

PAGES: Mapping[type, Callable[[Any], Page]] = {
    Audit: audit_page,
    Check: check_page,
    GateVerdict: gate_page,
    Probe: probe_page,
    Run: page_of,
    RunComparison: page_of_comparison,
}
SCREENS: Mapping[type, Callable[[Any], Screen]] = {Mined: mined_screen, Sweep: sweep_screen}
"""Type of a result without a page -> function that makes its terminal screen."""
SCREEN_COLUMNS = 80
FRAME = (
    '<iframe title="{title}" sandbox="allow-scripts" allow="clipboard-write" '
    'style="width:100%;height:600px;border:0;resize:vertical" srcdoc="{page}"><pre>{text}</pre></iframe>'
)
"""Template of the frame, which keeps the page's style and script out of the notebook. A viewer that removes frames
shows the text inside."""


def text_of(result: Any) -> str:
    """Return a result's headline and table, 80 characters wide."""
    text = StringIO()
    console = Console(file=text, width=SCREEN_COLUMNS, highlight=False, color_system=None)
    kind = type(result)
    if kind in SCREENS:
        print_page(console, SCREENS[kind](result))
    else:
        page = PAGES[kind](result)
        table = answer_table(trusted(result), full=False) if isinstance(result, Run) else page.answer
        print_page(console, screen((page.verdict[0], table)))
    return text.getvalue().rstrip()


def html_of(result: Any) -> str | None:
    """Return a result's page in a frame; None for a result without a page."""
    if type(result) not in PAGES:
        return None
    page = PAGES[type(result)](result)
    document = escape(to_html(page, framed=True))
    return FRAME.format(title=escape(page.title), page=document, text=escape(text_of(result)))


def sources_table(run: Run) -> pyarrow.Table:
    """Return a table with a row per source and the columns of `SourceReport.flat`; missing values are null."""
    import pyarrow as pa

    rows = [source.flat() for source in run.sources]
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})
