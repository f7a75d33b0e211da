"""Queues of batches, and numbers that nobody should write: what no checksum covers must not break the comparison."""

from __future__ import annotations

import os
import shutil
import struct
import time
from pathlib import Path

import pytest

from rmqctl.store import Message, MessageStore
from rmqctl.store.config.config import StoreConfig
from tests.goldens import GoldenStore
from tests.store.check.breaking import codes, patch
from tests.store.check.units import cross, index_files, of_code, queue_file
from tests.store.logs import frame, log_of
from tests.store.made import QUEUE_SIZE, MadeStore


class TestBatches:
    @pytest.fixture
    def path(self, golden_store: GoldenStore) -> Path:
        return golden_store("innerbatch") / "batchconsumequeue" / "InnerBatchTopic" / "0" / f"{0:020d}"

    @pytest.mark.parametrize(
        ("code", "at", "data"),
        [
            ("RMQ-CQ-010", 8, struct.pack(">i", 7)),
            ("RMQ-CQ-011", 12, struct.pack(">q", 7)),
            ("RMQ-CQ-024", 20, struct.pack(">q", 7)),
            ("RMQ-CQ-007", 0, struct.pack(">q", 1)),
        ],
    )
    def test_wrong_fields(self, code: str, at: int, data: bytes, path: Path) -> None:
        store = path.parents[3]
        assert cross(store) == []
        content = bytearray(path.read_bytes())
        content[at : at + len(data)] = data
        path.write_bytes(content)
        found = of_code(cross(store), code)
        assert (found.topic, found.queue_id) == ("InnerBatchTopic", 0)

    def test_missing(self, path: Path) -> None:
        store = path.parents[3]
        shutil.rmtree(path.parent)
        found = of_code(cross(store), "RMQ-CQ-001")
        assert (found.topic, found.queue_id, found.found) == ("InnerBatchTopic", 0, "nothing")


def test_the_largest_batch_is_none_of_these(tmp_path: Path) -> None:
    batch = frame(0, topic="B", queue_offset=5, sys_flag=0xC0, properties={"INNER_NUM": "32767"})
    log_of(tmp_path / "store" / "commitlog", batch.ljust(1000, b"\0"))
    (tmp_path / "store" / "batchconsumequeue" / "B" / "0").mkdir(parents=True)
    unit = struct.pack(">qiqqqhiiq", 0, len(batch), 0, 1_700_000_000_000, 5, 32767, -1, 0, 0)[:46]
    (tmp_path / "store" / "batchconsumequeue" / "B" / "0" / f"{0:020d}").write_bytes(unit)
    assert [found.code for found in cross(tmp_path / "store") if found.code == "RMQ-CQ-018"] == []


@pytest.mark.parametrize(("queue_offset", "count"), [(2**63 - 1, 1), (-1, 1), (5, 10**30), (5, 40_000), (5, 32_768)])
def test_batch_with_impossible_numbers(queue_offset: int, count: int, tmp_path: Path) -> None:
    """Numbers that no checksum covers must not break the arithmetic."""
    batch = frame(0, topic="B", queue_offset=queue_offset, sys_flag=0xC0, properties={"INNER_NUM": str(count)})
    log_of(tmp_path / "store" / "commitlog", batch.ljust(1000, b"\0"))
    (tmp_path / "store" / "batchconsumequeue" / "B" / "0").mkdir(parents=True)
    unit = struct.pack(">qiqqqhiiq", 0, len(batch), 0, 1_700_000_000_000, 2**63 - 1, 3, -1, 0, 0)[:46]
    (tmp_path / "store" / "batchconsumequeue" / "B" / "0" / f"{0:020d}").write_bytes(unit)
    findings = cross(tmp_path / "store")
    assert of_code(findings, "RMQ-CQ-018").messages == 1


def test_slots_of_other_queues_that_cannot_be(tmp_path: Path) -> None:
    """A multi-dispatch property is text: any number may stand there."""
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,999999999999999999"}
    log_of(tmp_path / "store" / "commitlog", frame(0, properties=properties).ljust(1000, b"\0"))
    folder = tmp_path / "store" / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(struct.pack(">qiq", 0, 0, 7))
    found = of_code(cross(tmp_path / "store"), "RMQ-CQ-018")
    assert (found.topic, found.queue_id) == ("%LMQ%b", 0)


def test_a_queue_file_that_is_almost_all_hole(golden_store: GoldenStore) -> None:
    """A terabyte that takes no room on the disk must not be read through, nor an index file of that size."""
    clean = golden_store("clean")
    path = queue_file(clean, "TopicTest", 0, 0)
    os.truncate(path, 1 << 40)
    patch(path, (1 << 40) - 4096, b"\1")
    os.truncate(index_files(clean)[1], 1 << 40)
    begun = time.process_time()
    found = codes(cross(clean))
    assert time.process_time() - begun < 30
    assert {"RMQ-CQ-014", "RMQ-IDX-013", "RMQ-IDX-001"} <= found


def test_a_retry_copy_is_in_none_of_the_light_queues(tmp_path: Path) -> None:
    """5.x: it keeps the properties of the original. The store is sound and is written to."""
    made = MadeStore(tmp_path / "store")
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}
    for number in range(3):
        properties = light | {"INNER_MULTI_QUEUE_OFFSET": f"{number},{number}"}
        made.put("Parent", f"m{number}", properties=properties)
        made.also_in("%LMQ%a")
        made.also_in("%LMQ%b")
        made.put("%RETRY%g", f"m{number}", properties=properties | {"RETRY_TOPIC": "Parent"})
    store = made.write()
    assert [finding for finding in cross(store) if finding.severity.is_alarm or "RMQ-CQ" in finding.code] == []
    with MessageStore.open(store, "rw", StoreConfig(mapped_file_size_consume_queue=QUEUE_SIZE)) as opened:
        assert opened.put(Message("Parent", b"next")).queue_offset == 3
