"""Write golden/<schema version>.json from the example report.

After a version is released, its file never changes.
"""

from __future__ import annotations

import json
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]

if __name__ == "__main__":
    document = json.loads((REPOSITORY / "docs" / "example-report" / "report.json").read_text(encoding="utf-8"))
    for source in document["sources"]:
        for finding in source["findings"]:
            finding["examples"] = finding["examples"][:1]
    path = Path(__file__).parent / "golden" / f"{document['schema_version']}.json"
    path.write_text(json.dumps(document, ensure_ascii=False) + "\n", encoding="utf-8")
