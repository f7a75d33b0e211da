"""`python -m tests.schemas` (make schemas): write docs/schemas anew, from what all golden stores let commands print."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import Any

from tests.goldens import GOLDENS, OF_5_5
from tests.processes import ROOT
from tests.schemas.printing import MAKERS, printed
from tests.schemas.shapes import DIALECT, Shape

FOLDER = ROOT / "docs/schemas"
VERSION = 1
"""Goes up when a field leaves, or gets another type or meaning; a new field leaves it as it is."""
MAPS = frozenset(("properties", "labels", "check.codes", "mended", "causes", "before", "after"))
"""Objects whose keys are data: properties of a message, labels of a metric, codes, settings."""

OPEN = ("error",)
"""What has further fields, of each kind its own."""


def schemas() -> dict[str, dict[str, Any]]:
    """By name, what each command was seen to print."""
    shapes: dict[str, Shape] = defaultdict(Shape)
    with tempfile.TemporaryDirectory() as folder:
        looks = chain.from_iterable(printed(name, Path(folder, "looks")) for name in (*GOLDENS, *OF_5_5))
        others = (make(Path(folder)) for make in MAKERS)
        for name, values in chain(looks, *others):
            for value in values:
                shapes[name].see(value)
    return {name: schema(name, shape) for name, shape in sorted(shapes.items())}


def schema(name: str, shape: Shape) -> dict[str, Any]:
    """The schema of one line, or one object, that a command prints."""
    found = {"$schema": DIALECT, "$id": f"urn:rmqctl:{VERSION}:{name}", "title": name, **shape.schema(MAPS)}
    if name in OPEN:
        del found["additionalProperties"]
    return found


def main() -> int:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, one in schemas().items():
        (FOLDER / f"{name}.json").write_text(json.dumps(one, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
