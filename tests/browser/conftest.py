"""Open the pages in a real browser: Debian's Chromium, driven by Playwright, with axe-core.

If the variable CI is set, a missing browser or axe-core fails the tests, so that pages never go untested unnoticed.
Elsewhere the tests are skipped and say what to install.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--in-process-gpu", "--renderer-process-limit=1")
"""Containers run as root and have little shared memory; pages from file:// that run no script need no sandbox."""


def missing(what: str) -> None:
    """Fail under CI, skip elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Run one browser for all tests."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        missing("no Chromium: apt-get install chromium, or set CHROMIUM to its path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the source code of axe-core."""
    path = Path(os.environ.get("AXE_CORE") or ROOT / "node_modules" / "axe-core" / "axe.min.js")
    if not path.is_file():
        missing(f"no axe-core at {path}: npm install --no-save axe-core@4.10.3, or set AXE_CORE")
    return path.read_text(encoding="utf-8")


@dataclass
class Visit:
    """Open page with its console messages, uncaught errors, requests and dialogs."""

    page: Any
    events: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that opens a text as a file:// page, with Playwright's context options."""

    @contextmanager
    def opened(text: str, **options: Any) -> Iterator[Visit]:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(**options)
        page = context.new_page()
        seen = Visit(page)
        page.on("console", lambda message: seen.events.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: seen.events.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (seen.events.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.goto(file.as_uri())
        yield seen
        context.close()

    return opened
