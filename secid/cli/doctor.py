"""`secid doctor`."""

from __future__ import annotations

from secid.cli.lines import say
from secid.cli.options import Json


def doctor(
    json: Json = False,
) -> None:
    """Print versions, devices and caches: what a bug report needs."""
    from secid.cli.outputs import print_json
    from secid.run_folder.environment import diagnosis

    report = diagnosis()
    if json:
        print_json(report)
        return
    for section, entries in report.items():
        say(f"{section}:", *(f"  {name}: {value}" for name, value in entries.items()))
