"""Goldens of the timer and of POP: stores of real brokers 5.x, and what Java sees of the feature after its own start.

They are apart from the other goldens (tests/goldens.py), whose truths are of all messages.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from rmqctl.store.check.check import check
from rmqctl.store.store_files import StoreFiles
from tests.goldens import unpack

FOLDER = Path(__file__).parent / "golden" / "features"


def feature_store(name: str, destination: Path) -> Path:
    """Unpack the store `name` into `destination` and return its path."""
    unpack(FOLDER / f"{name}.tar.xz", destination)
    return destination / name


def feature_truth(name: str, kind: str) -> list[dict[str, Any]]:
    """Return the lines of one kind of what Java sees."""
    with lzma.open(FOLDER / f"{name}.truth.jsonl.xz", "rt", encoding="utf-8") as file:
        return [row for row in map(json.loads, file) if row["kind"] == kind]


def timer_codes(store: Path) -> set[str]:
    """Codes of what `check` finds in the timer of a store."""
    with StoreFiles(store) as files:
        return {finding.code for finding in check(files) if finding.code.startswith("RMQ-TMR")}
