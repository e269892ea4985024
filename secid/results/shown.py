"""How a result shows itself in an interactive session."""

from __future__ import annotations

from importlib import import_module


class Shown:
    """A result that prints as a few lines and, in a notebook, as its page.

    Both are made by secid.notebook, which is above the results; so it is imported by its name, and only then.
    Dataclasses that inherit this have repr=False.
    """

    def __repr__(self) -> str:
        return str(import_module("secid.notebook").text_of(self))

    def _repr_html_(self) -> str | None:
        html: str | None = import_module("secid.notebook").html_of(self)
        return html
