"""Commitlog against queues, both ways: each kind of fault in a copy of a real store, and what is said about it.

Numbers in the names of tests are those of the troubles in the project's list of them.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.message import StoredMessage
from rmqctl.store.check.catalogue import Severity
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.store.check.breaking import checked, codes, messages, put, put_field
from tests.store.check.units import (
    EMPTY,
    FILLER,
    Unit,
    cross,
    of_code,
    put_message_unit,
    put_unit,
    queue_file,
    undispatched,
    unit,
)

TOPIC, QUEUE = "TopicTest", 0
LAST_MESSAGE = 2135296
"""Of golden `clean`."""


@pytest.fixture
def clean(golden_store: GoldenStore) -> Path:
    return golden_store("clean")


def test_06_64_message_without_a_unit(clean: Path) -> None:
    code = unit(clean, TOPIC, QUEUE, 3).tags_code
    for slot in (3, 4, 7):
        put_unit(clean, TOPIC, QUEUE, slot, EMPTY)
    found = of_code(cross(clean), "RMQ-CQ-001")
    wanted = next(message for message in messages(clean) if _is_at(message, 3))
    assert (found.topic, found.queue_id, found.messages, found.data_lost) == (TOPIC, QUEUE, 3, False)
    assert (found.physical_offset, found.found) == (wanted.physical_offset, "zeros")
    assert found.file == queue_file(clean, TOPIC, QUEUE, 3)
    assert "slots 3 to 7" in found.message
    assert found.expected == f"offset {wanted.physical_offset} size {wanted.total_size} code {code}"


def _is_at(message: StoredMessage, slot: int) -> bool:
    return _in_queue(message) and message.queue_offset == slot


def test_40_a_queue_that_is_gone(clean: Path) -> None:
    """A directory removed by a wrong clean."""
    shutil.rmtree(clean / "consumequeue" / TOPIC / "0")
    found = of_code(cross(clean), "RMQ-CQ-001")
    assert (found.topic, found.queue_id, found.found) == (TOPIC, 0, "nothing")
    assert found.messages == sum(_in_queue(message) for message in messages(clean))


def _in_queue(message: StoredMessage) -> bool:
    return (message.topic, message.queue_id) == (TOPIC, QUEUE)


def test_07_22_52_dispatch_that_stopped(clean: Path) -> None:
    """Nothing behind one place of the log is in any queue."""
    stuck = messages(clean)[-40]
    taken = undispatched(clean, stuck.physical_offset)
    found = of_code(cross(clean), "RMQ-CQ-002")
    assert (found.severity, found.messages) == (Severity.WARNING, len(taken))
    assert (found.physical_offset, found.found) == (stuck.physical_offset, stuck.physical_offset)
    assert (found.topic, found.queue_id) == (stuck.topic, stuck.queue_id)
    assert found.bytes == 2135612 - stuck.physical_offset
    assert "RMQ-CQ-001" not in codes(cross(clean))


def test_missing_before_the_stop_is_missing(clean: Path) -> None:
    put_unit(clean, TOPIC, QUEUE, 3, EMPTY)
    taken = undispatched(clean, messages(clean)[-40].physical_offset)
    findings = cross(clean)
    assert (of_code(findings, "RMQ-CQ-001").messages, of_code(findings, "RMQ-CQ-002").messages) == (1, len(taken))


def test_12_all_queues_gone(clean: Path) -> None:
    shutil.rmtree(clean / "consumequeue")
    found = of_code(cross(clean), "RMQ-CQ-004")
    assert (found.messages, found.found, found.data_lost) == (2500, 0, False)


def test_05_09_10_units_one_slot_too_low(clean: Path) -> None:
    """A broker that skipped one message."""
    count = 0
    for slot in range(5, 30):
        put_unit(clean, TOPIC, QUEUE, slot, unit(clean, TOPIC, QUEUE, slot + 1))
        count += 1
    findings = cross(clean)
    found = of_code(findings, "RMQ-CQ-005")
    assert (found.messages, found.expected, found.found) == (count, "slot 5", "slot 6")
    assert codes(findings) == {"RMQ-CQ-005"}


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("RMQ-CQ-010", lambda old: old._replace(size=old.size + 1)),
        ("RMQ-CQ-011", lambda old: old._replace(tags_code=old.tags_code ^ 1)),
        ("RMQ-CQ-007", lambda old: old._replace(physical_offset=old.physical_offset + 8)),
        ("RMQ-CQ-007", lambda old: old._replace(physical_offset=262144 - 4)),
        ("RMQ-CQ-008", lambda old: old._replace(physical_offset=99_000_000)),
        ("RMQ-CQ-013", lambda old: Unit(0, 0x7FFFFFFF, 0)),
        ("RMQ-CQ-015", lambda old: old._replace(physical_offset=-5)),
        ("RMQ-CQ-010", lambda old: old._replace(size=-1)),
        ("RMQ-CQ-015", lambda old: old._replace(physical_offset=7, size=-1)),
        ("RMQ-CQ-015", lambda old: old._replace(physical_offset=7, size=0)),
    ],
)
def test_08_one_wrong_unit(code: str, change: Callable[[Unit], Unit], clean: Path) -> None:
    old = unit(clean, TOPIC, QUEUE, 9)
    put_unit(clean, TOPIC, QUEUE, 9, change(old))
    (found,) = cross(clean)
    assert (found.code, found.messages, found.topic, found.queue_id) == (code, 1, TOPIC, QUEUE)
    assert found.file == queue_file(clean, TOPIC, QUEUE, 9)
    assert found.fix == "rmqctl recover"


def test_08_unit_of_another_queue(clean: Path) -> None:
    put_unit(clean, TOPIC, QUEUE, 9, unit(clean, "OrderTopic", 1, 2))
    found = of_code(cross(clean), "RMQ-CQ-006")
    assert (found.expected, found.found) == ("slot 9", "OrderTopic queue 1 slot 2")


def test_unit_of_a_half_message(golden_store: GoldenStore) -> None:
    """A prepared or rolled back message takes no slot."""
    store = golden_store("features")
    half = next(message for message in messages(store) if message.sys_flag & 0xC in (0x4, 0xC))
    other = next(message for message in messages(store) if message.sys_flag & 0xC == 0)
    put_message_unit(store, other, Unit(half.physical_offset, half.total_size, 0))
    assert codes(cross(store)) == {"RMQ-CQ-006"}


def test_11_units_behind_the_end_of_the_log(clean: Path) -> None:
    """The log lost its end, the queue did not."""
    last = messages(clean)[-1]
    put(clean, last.physical_offset, bytes(last.total_size))
    findings = cross(clean)
    found = of_code(findings, "RMQ-CQ-008")
    assert (found.messages, found.physical_offset) == (1, last.physical_offset)
    assert (found.topic, found.queue_id, found.expected) == (last.topic, last.queue_id, f"below {LAST_MESSAGE}")
    assert of_code(findings, "RMQ-IDX-007").physical_offset == last.physical_offset


def test_20_units_of_a_missing_file(golden_store: GoldenStore) -> None:
    found = [finding for finding in cross(golden_store("gap")) if finding.code == "RMQ-CQ-009"]
    assert sum(finding.messages or 0 for finding in found) == 304
    assert all(finding.data_lost and finding.fix == "rmqctl recover --bridge" for finding in found)


def test_stale_units_behind_the_last(clean: Path) -> None:
    """Truncation clears nothing: units of messages that are no more, behind the last one of the queue."""
    end = sum(_in_queue(message) for message in messages(clean))
    put_unit(clean, TOPIC, QUEUE, end, Unit(99_000_000, 200, 0))
    found = of_code(cross(clean), "RMQ-CQ-008")
    assert f"first slot {end}" in found.message


def test_hole_that_no_message_accounts_for(clean: Path) -> None:
    """Phantom units: the message's own offset says another slot than the queue went on with."""
    end = sum(_in_queue(message) for message in messages(clean))
    last = [message for message in messages(clean) if _in_queue(message)][-1]
    put_field(clean, last.physical_offset, "queue_offset", end)
    old = unit(clean, TOPIC, QUEUE, end - 1)
    put_unit(clean, TOPIC, QUEUE, end, old)
    put_unit(clean, TOPIC, QUEUE, end - 1, EMPTY)
    found = of_code(cross(clean), "RMQ-CQ-014")
    assert (found.messages, found.found, found.severity) == (1, "zeros", Severity.WARNING)
    put_unit(clean, TOPIC, QUEUE, end - 1, FILLER)
    assert cross(clean) == []


def test_queue_offset_given_twice(clean: Path) -> None:
    first, second = [message for message in messages(clean) if _in_queue(message)][4:6]
    put_field(clean, second.physical_offset, "queue_offset", first.queue_offset)
    findings = cross(clean)
    found = of_code(findings, "RMQ-CQ-017")
    assert (found.messages, found.data_lost, found.severity) == (1, False, Severity.WARNING)
    assert f"first slot {first.queue_offset}" in found.message
    # the slot that it should have taken points at it all the same
    assert codes(findings) == {"RMQ-CQ-017", "RMQ-CQ-005"}


@pytest.mark.parametrize("queue_offset", [1 << 40, -3, 2**63 - 1])
def test_impossible_queue_offset(queue_offset: int, clean: Path) -> None:
    message = [message for message in messages(clean) if _in_queue(message)][6]
    put_field(clean, message.physical_offset, "queue_offset", queue_offset)
    findings = cross(clean)
    assert of_code(findings, "RMQ-CQ-018").physical_offset == message.physical_offset
    assert codes(findings) == {"RMQ-CQ-018", "RMQ-CQ-005"}


def test_05_units_out_of_order(golden_store: GoldenStore) -> None:
    """Among units of expired messages nothing but their order can be judged."""
    store = golden_store("first-gone")
    first, second = (unit(store, "%DLQ%GroupA", 0, slot) for slot in (3, 4))
    assert second.physical_offset < 524288
    put_unit(store, "%DLQ%GroupA", 0, 3, second)
    put_unit(store, "%DLQ%GroupA", 0, 4, first)
    found = of_code(cross(store), "RMQ-CQ-016")
    assert (found.messages, found.queue_id) == (1, 0)


def test_stale_unit_in_front(golden_store: GoldenStore) -> None:
    """A unit of an expired message between units of living ones came back."""
    store = golden_store("first-gone")
    put_unit(store, "%DLQ%GroupA", 0, 200, unit(store, "%DLQ%GroupA", 0, 4))
    assert codes(cross(store)) == {"RMQ-CQ-016"}


def test_01_02_queue_that_ends_with_zeros(clean: Path) -> None:
    path = queue_file(clean, TOPIC, QUEUE, 100)
    assert not path.exists()
    path.write_bytes(bytes(2000))
    found = of_code(cross(clean), "RMQ-CQ-019")
    assert (found.file, found.messages) == (path, 0)


def test_queue_that_ends_with_a_filler(clean: Path) -> None:
    """4.9.8 stops dispatching at a start: it takes the filler's size for a place in the log."""
    end = sum(_in_queue(message) for message in messages(clean))
    put_unit(clean, TOPIC, QUEUE, end, FILLER)
    assert f"slot {end}" in of_code(cross(clean), "RMQ-CQ-022").message
    with StoreFiles(clean) as files:
        recover(files)
    assert cross(clean) == []


def test_60_expired_queue_files(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    for path in sorted((store / "commitlog").iterdir())[:5]:
        path.unlink()
    findings = cross(store)
    found = of_code(findings, "RMQ-CQ-020")
    assert (found.severity, found.bytes) == (Severity.NOTICE, 2000 * int(str(found.found)))
    assert codes(findings) == {"RMQ-CQ-020"}


@pytest.mark.parametrize("name", ["cqext", "v4-cqext"])
def test_40_ext_unit_that_is_gone(name: str, golden_store: GoldenStore) -> None:
    """The folder consumequeue_ext removed or left out of a copy."""
    store = golden_store(name)
    assert cross(store) == []
    lost = next(path for path in sorted((store / "consumequeue_ext").rglob("*")) if path.is_file())
    lost.unlink()
    found = of_code(cross(store), "RMQ-CQ-021")
    assert (found.topic, found.queue_id) == (lost.parent.parent.name, int(lost.parent.name))


def test_ext_unit_with_another_code(golden_store: GoldenStore) -> None:
    store = golden_store("cqext")
    path = next(path for path in sorted((store / "consumequeue_ext").rglob("*")) if path.is_file())
    data = bytearray(path.read_bytes())
    data[2:10] = struct.pack(">q", 12345)
    path.write_bytes(data)
    assert of_code(cross(store), "RMQ-CQ-011").messages == 1


def test_another_table_of_delay_levels(golden_store: GoldenStore) -> None:
    """The levels are not in the store: delivery times that follow another table are no damage."""
    store = golden_store("features")
    config = StoreConfig(message_delay_level="2s 7s 30s")
    findings, _ = checked(store, config=config)
    found = [finding for finding in findings if finding.code.startswith("RMQ-CQ")]
    assert {finding.code for finding in found} == {"RMQ-CQ-012"}
    assert all(finding.severity is Severity.NOTICE for finding in found)


def test_one_wrong_delivery_time(golden_store: GoldenStore) -> None:
    store = golden_store("features")
    old = unit(store, "SCHEDULE_TOPIC_XXXX", 2, 0)
    put_unit(store, "SCHEDULE_TOPIC_XXXX", 2, 0, old._replace(tags_code=old.tags_code + 1))
    assert codes(cross(store)) == {"RMQ-CQ-011"}


@pytest.mark.parametrize("slot", [0, 1])
def test_multi_dispatch_slots(slot: int, golden_store: GoldenStore) -> None:
    """Units in %LMQ% queues belong to messages of another topic."""
    store = golden_store("lmq")
    put_unit(store, "%LMQ%all", 0, slot, EMPTY)
    found = of_code(cross(store), "RMQ-CQ-001")
    assert (found.topic, found.queue_id, found.messages) == ("%LMQ%all", 0, 1)


def test_recover_leaves_nothing_to_find(clean: Path) -> None:
    put_unit(clean, TOPIC, QUEUE, 9, unit(clean, "OrderTopic", 1, 2))
    put_unit(clean, TOPIC, QUEUE, 3, EMPTY)
    queue_file(clean, TOPIC, QUEUE, 100).write_bytes(bytes(2000))
    undispatched(clean, messages(clean)[-40].physical_offset)
    assert len(codes(cross(clean))) == 4
    with StoreFiles(clean) as files:
        recover(files)
    assert cross(clean) == []
