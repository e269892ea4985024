"""`secid doctor`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print versions, devices and caches: what a bug report needs."""
    import json as json_module

    from secid.run_folder.environment import diagnosis

    report = diagnosis()
    if json:
        sys.stdout.write(json_module.dumps(report, indent=2, ensure_ascii=False) + "\n")
        return
    for section, entries in report.items():
        typer.echo(f"{section}:")
        for name, value in entries.items():
            typer.echo(f"  {name}: {value}")
