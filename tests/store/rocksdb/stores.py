"""Stores of real brokers with RocksDB, and the rows that RocksDB reads in them (tests/golden/README.md)."""

from __future__ import annotations

import functools
import json
import lzma
from pathlib import Path
from typing import Any

from tests.goldens import FOLDER, TRUTH_SUFFIX, unpack

STORES = FOLDER / "rocksdb"
INDEXED = "v55-index-rocksdb-only"
"""A store whose index is in RocksDB alone. Its truth has no rows of databases, but what queries find."""
_ALL = {path.name.removesuffix(TRUTH_SUFFIX) for path in STORES.glob("*" + TRUTH_SUFFIX)}
NAMES = tuple(sorted(_ALL - {INDEXED}))
CONFIGURED = tuple(name for name in NAMES if name.startswith("config-"))
"""Those of brokers that keep topics, groups and offsets in RocksDB."""

Rows = dict[tuple[str, str], dict[bytes, bytes]]


def unpacked(name: str, folder: Path) -> Path:
    """Return a copy of the store below `folder`."""
    unpack(STORES / f"{name}.tar.xz", folder)
    return folder / name


@functools.cache
def _lines(name: str) -> tuple[dict[str, Any], ...]:
    with lzma.open(STORES / (name + TRUTH_SUFFIX), "rt", encoding="utf-8") as file:
        return tuple(json.loads(line) for line in file)


def rows(name: str) -> Rows:
    """Return what RocksDB reads: values by key, by folder of the database and column family."""
    found: Rows = {}
    for line in _lines(name):
        if line["kind"] == "rocks":
            values = found.setdefault((line["db"], line["cf"]), {})
            values[bytes.fromhex(line["key"])] = bytes.fromhex(line["value"])
    return found


def lines(name: str, kind: str) -> list[dict[str, Any]]:
    """Return the lines of one kind of what Java sees."""
    return [line for line in _lines(name) if line["kind"] == kind]


def queues(name: str) -> dict[tuple[str, int], dict[str, Any]]:
    """Return what the broker says of each queue."""
    return {(line["topic"], line["queueId"]): line for line in lines(name, "queue")}


def tables(name: str) -> dict[str, Any]:
    """Return topics, groups and offsets as the running broker answered them, just before it ended."""
    return next(line for line in _lines(name) if line.get("what") == "broker")
