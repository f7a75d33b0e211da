"""A snapshot of a store that was being written to: both real brokers open it after `recover` and serve all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.recover.recover import recover
from rmqctl.store.snapshot.snapshot import take_snapshot
from rmqctl.store.store_files import StoreFiles
from tests.interop import harness
from tests.interop.harness import VERSIONS
from tests.store.snapshot.test_snapshot import WRITER
from tests.store.write.writing import SMALL, lines_of, run_python, stored_messages

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

PROPERTIES = {
    "store.mappedFileSizeCommitLog": str(SMALL.mapped_file_size_commit_log),
    "store.mappedFileSizeConsumeQueue": str(SMALL.mapped_file_size_consume_queue),
    "store.maxHashSlotNum": str(SMALL.max_hash_slot_num),
    "store.maxIndexNum": str(SMALL.max_index_num),
    "store.enableCompaction": "false",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_open_a_snapshot_of_a_live_store(version: str, tmp_path: Path) -> None:
    writer = run_python(WRITER, tmp_path / "store")
    try:
        assert next(lines_of(writer)) == "writing"
        with StoreFiles(tmp_path / "store", SMALL) as files:
            report = take_snapshot(files, tmp_path / "copy", "1")
    finally:
        writer.kill()
        writer.communicate()
    assert report.was_live
    with StoreFiles(tmp_path / "copy", SMALL) as files:
        assert recover(files).end_offset == report.end_offset
    messages = {message.physical_offset for message in stored_messages(tmp_path / "copy", SMALL)}
    view = harness.open_store(version, tmp_path / "copy", PROPERTIES)
    assert view.complaints() == []
    assert {message.physical_offset for message in view.messages} == messages
