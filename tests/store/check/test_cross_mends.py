"""The command that a finding names takes it away: each fault, its code, the command, and a check that finds nothing."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.store.check.catalogue import catalogue
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.store.check.breaking import messages, patch, put, put_field
from tests.store.check.units import (
    EMPTY,
    FILLER,
    Unit,
    cross,
    entry,
    header,
    index_files,
    put_entry,
    put_header,
    put_unit,
    queue_file,
    unit,
)

TOPIC, QUEUE, SLOT = "TopicTest", 0, 9

Break = Callable[[Path], object]


def _unit(**changes: int) -> Break:
    return lambda store: put_unit(store, TOPIC, QUEUE, SLOT, unit(store, TOPIC, QUEUE, SLOT)._replace(**changes))


def _bytes(data: bytes | Unit) -> Break:
    return lambda store: put_unit(store, TOPIC, QUEUE, SLOT, data)


def _other_queue(store: Path) -> None:
    put_unit(store, TOPIC, QUEUE, SLOT, unit(store, "OrderTopic", 1, 2))


def _other_slot(store: Path) -> None:
    put_unit(store, TOPIC, QUEUE, SLOT, unit(store, TOPIC, QUEUE, SLOT + 1))


def _hole(store: Path) -> None:
    """The last message of the queue says one slot more than it had."""
    last = [one for one in messages(store) if (one.topic, one.queue_id) == (TOPIC, QUEUE)][-1]
    put_unit(store, TOPIC, QUEUE, last.queue_offset + 1, unit(store, TOPIC, QUEUE, last.queue_offset))
    put_unit(store, TOPIC, QUEUE, last.queue_offset, EMPTY)
    put_field(store, last.physical_offset, "queue_offset", last.queue_offset + 1)


def _log_cut(store: Path) -> None:
    last = messages(store)[-1]
    put(store, last.physical_offset, bytes(last.total_size))


def _entry(number: int, field: int, change: int) -> Break:
    def broken(store: Path) -> None:
        path = index_files(store)[0]
        fields = list(entry(path, number))
        fields[field] += change
        put_entry(path, number, fields[0], fields[1], fields[2], fields[3])

    return broken


def _header(field: int, change: int) -> Break:
    def broken(store: Path) -> None:
        path = index_files(store)[1]
        fields = header(path)
        fields[field] += change
        put_header(path, fields)

    return broken


# golden, what is done to it, and a code that it must give
FAULTS: dict[str, tuple[str, Break, str]] = {
    "missing": ("clean", _bytes(EMPTY), "RMQ-CQ-001"),
    "queue-gone": ("clean", lambda store: shutil.rmtree(store / "consumequeue" / TOPIC), "RMQ-CQ-001"),
    "all-gone": ("clean", lambda store: shutil.rmtree(store / "consumequeue"), "RMQ-CQ-004"),
    "other-slot": ("clean", _other_slot, "RMQ-CQ-005"),
    "other-queue": ("clean", _other_queue, "RMQ-CQ-006"),
    "no-message": ("clean", _unit(physical_offset=12345), "RMQ-CQ-007"),
    "past-the-end": ("clean", _unit(physical_offset=99_000_000), "RMQ-CQ-008"),
    "size": ("clean", _unit(size=7), "RMQ-CQ-010"),
    "tags": ("clean", _unit(tags_code=7), "RMQ-CQ-011"),
    "filler": ("clean", _bytes(FILLER), "RMQ-CQ-013"),
    "hole": ("clean", _hole, "RMQ-CQ-014"),
    "garbage": ("clean", _unit(physical_offset=-3), "RMQ-CQ-015"),
    "zero-file": ("clean", lambda store: queue_file(store, TOPIC, 0, 100).write_bytes(bytes(2000)), "RMQ-CQ-019"),
    "ext": ("cqext", lambda store: shutil.rmtree(store / "consumequeue_ext"), "RMQ-CQ-021"),
    "batch": (
        "innerbatch",
        lambda store: patch(
            store / "batchconsumequeue" / "InnerBatchTopic" / "0" / f"{0:020d}", 20, struct.pack(">q", 7)
        ),
        "RMQ-CQ-024",
    ),
    "log-cut": ("clean", _log_cut, "RMQ-IDX-007"),
    "keys-gone": ("clean", lambda store: index_files(store)[0].unlink(), "RMQ-IDX-001"),
    "last-keys-gone": ("clean", lambda store: index_files(store)[-1].unlink(), "RMQ-IDX-002"),
    "index-gone": ("clean", lambda store: shutil.rmtree(store / "index"), "RMQ-IDX-003"),
    "wrong-entry": ("clean", _entry(500, 1, 3), "RMQ-IDX-005"),
    "header": ("clean", _header(2, 1), "RMQ-IDX-009"),
    "slots": ("clean", lambda store: patch(index_files(store)[1], 40, b"\x7f" * 400), "RMQ-IDX-010"),
    "circle": ("clean", _entry(900, 3, 900), "RMQ-IDX-012"),
    "no-index": ("clean", lambda store: patch(index_files(store)[1], 20, b"\xff" * 20_000), "RMQ-IDX-010"),
    "stray": ("clean", lambda store: (store / "index" / "notes.txt").write_text("x"), "RMQ-IDX-014"),
    "too-many": ("clean", _header(5, 3000), "RMQ-IDX-015"),
    "times": ("clean", _entry(1700, 2, 9), "RMQ-IDX-017"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_command_mends_it(fault: str, golden_store: GoldenStore) -> None:
    golden, make, code = FAULTS[fault]
    store = golden_store(golden)
    make(store)
    findings = cross(store)
    assert code in {finding.code for finding in findings}
    commands = {finding.fix for finding in findings if finding.severity.is_alarm} or {catalogue()[code].command}
    with StoreFiles(store) as files:
        if "rmqctl recover" in commands:
            recover(files)
        else:
            assert commands == {"rmqctl rebuild --index"}
            rebuild(files, queues=False)
    assert not [finding for finding in cross(store) if finding.code != "RMQ-CQ-020"]
