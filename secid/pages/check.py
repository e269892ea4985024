"""A check for a terminal, and as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from rich.console import Console

from secid.records import encodable
from secid.results.check import Check


def check_json(check: Check) -> str:
    """The check as indented JSON, keys in the order of the dataclasses, ending in a line feed."""
    return encodable(json.dumps(asdict(check), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def print_check(console: Console, check: Check) -> None:
    """Prints the status of each source, its findings with rows, and what was read."""
    from secid.pages.check_page import check_page
    from secid.pages.terminal import print_page

    print_page(console, check_page(check))


def _html(check: Check) -> str:
    from secid.pages.check_page import check_page
    from secid.pages.html import render

    return render(check_page(check))


def _markdown(check: Check) -> str:
    from secid.pages.check_page import check_page
    from secid.pages.markdown import render

    return render(check_page(check))


CHECK_FORMATS: Mapping[str, Callable[[Check], str]] = {".html": _html, ".json": check_json, ".md": _markdown}
