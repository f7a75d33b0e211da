"""Private copies of the stores of RocketMQ 5.5.0 in tests/golden/v55."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from typing import Any

from rmqctl.store.config.config import StoreConfig
from tests.goldens import FOLDER, unpack

CONFIG = StoreConfig(
    mapped_file_size_commit_log=262144, mapped_file_size_consume_queue=2000, max_hash_slot_num=500, max_index_num=2000
)
"""The sizes of all these stores."""


def store_of_5_5(folder: Path, name: str = "v55-syncflush") -> Path:
    """Unpack a store into `folder` and return its path."""
    unpack(FOLDER / "v55" / f"{name}.tar.xz", folder)
    return folder / name


def messages_of_5_5(name: str = "v55-syncflush") -> list[dict[str, Any]]:
    """Return the messages as RocketMQ 5.5.0 sees them."""
    with lzma.open(FOLDER / "v55" / f"{name}.truth.jsonl.xz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["kind"] == "msg"]


def become_of_5_5(store: Path) -> None:
    """Make a store look as if RocketMQ 5.4 or later had opened it."""
    made = store.parent / "made by 5.5"
    unpack(FOLDER / "rocksdb/rocksdb-55.tar.xz", made)
    shutil.move(made / "rocksdb-55/rocksdbstore", store / "rocksdbstore")
    shutil.rmtree(made)
