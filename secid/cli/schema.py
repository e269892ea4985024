"""`secid schema`."""

from __future__ import annotations

import sys


def schema() -> None:
    """Print the JSON Schema of report.json."""
    from secid.report.document import schema_text

    sys.stdout.write(schema_text())
