"""Terminal output without spaces at the ends of lines."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment


class Trimmed:
    """A renderable without the spaces that rich leaves at the ends of lines."""

    def __init__(self, content: RenderableType) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.content, options, pad=False):
            while line and not line[-1].text.strip(" "):
                line.pop()
            if line:
                last = line.pop()
                line.append(Segment(last.text.rstrip(" "), last.style, last.control))
            yield from (*line, Segment.line())
