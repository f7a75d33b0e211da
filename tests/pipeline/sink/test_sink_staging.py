"""Folders of tasks: found by who needs them, cleared when nobody does, never brought back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rmqctl.formats.errors import RmqctlError, UsageError
from rmqctl.pipeline.spark.sink_record import staging_folder, write_attempt


def test_a_folder_of_a_driver_that_is_gone_is_cleared(tmp_path: Path) -> None:
    target = tmp_path / "store"
    ours = staging_folder(target, "one")
    assert staging_folder(target, "one") == ours != staging_folder(target, "two")
    gone = ours.with_name(ours.name.replace(str(os.getppid()), "4194303"))
    gone.mkdir()
    (gone / "task-0.abc").write_text("rows")
    assert staging_folder(target, "one") == ours
    assert not gone.exists()
    assert ours.is_dir()


def test_a_task_does_not_bring_back_a_folder_that_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with pytest.raises(RmqctlError):
        write_attempt(folder, 0, [pa.record_batch({"topic": ["A"], "body": [b""]})])
    assert not folder.exists()


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"topic": ["A"], "body": [b""]})
        raise UsageError("the next row is bad")

    folder = staging_folder(tmp_path / "store", "x")
    with pytest.raises(UsageError):
        write_attempt(folder, 0, batches())
    assert list(folder.iterdir()) == []
