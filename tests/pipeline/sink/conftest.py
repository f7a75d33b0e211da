"""A store that a write has made."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.pipeline.spark.sink import write_staged
from tests.pipeline.sink.staged import FIRST, named, task
from tests.store.write.writing import SMALL


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with messages of a query's micro-batch."""
    root = tmp_path / "store"
    write_staged(root, SMALL, [task(root, 0, named(0, 5))], batch=FIRST)
    return root
