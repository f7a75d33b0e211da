"""All queues of a store together."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqctl.formats.message import StoredMessage
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.plan import Plan
from rmqctl.store.log.walk import walk
from rmqctl.store.queues.dispatch import queue_slots
from rmqctl.store.recover.queues import QueuesMend
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, base_of, is_crashed
from tests.opened import reader
from tests.quick import goldens_of

INTACT = [name for name in GOLDENS if base_of(name) is None and not is_crashed(name) and name != "rocksdb"]


def _mend(files: StoreFiles) -> tuple[QueuesMend, Plan]:
    mend = QueuesMend(files.queues, files.descriptors, lambda offset: offset < files.log.min_offset)
    for record in walk(files.log):
        if isinstance(record, StoredMessage):
            is_batch = mend.is_batch_topic(record.topic, record.queue_id)
            for slot in queue_slots(record, files.config.delay_levels(), is_batch):
                mend.add(slot)
    plan = Plan()
    mend.finish(plan)
    return mend, plan


@pytest.mark.parametrize("name", goldens_of(INTACT))
def test_nothing_is_planned_for_whole_goldens(name: str) -> None:
    mend, plan = _mend(reader(name).files)
    assert plan.operations == []
    assert (mend.changed, mend.added, mend.removed, mend.conflicts) == (0, 0, 0, 0)


# (queues, units that come, units that go): what is known to be wrong with these stores
BROKEN = {
    "crash": (31, 400, 0),
    "v4-crash": (31, 400, 0),
    "cq-lost": (41, 2500, 0),
    "cq-truncated": (3, 169, 0),
    "first-gone": (0, 0, 0),
    "torn-zero-clean": (1, 0, 1),
}


@pytest.mark.parametrize("name", goldens_of(BROKEN))
def test_broken_goldens(name: str) -> None:
    mend, plan = _mend(reader(name).files)
    assert (mend.changed, mend.added, mend.removed) == BROKEN[name]
    assert bool(plan) == (mend.changed > 0)
    assert mend.conflicts == 0


@pytest.mark.parametrize("name", ["cq-lost", "cq-truncated"])
def test_mended_queues_are_byte_for_byte_those_of_the_base(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    # of lost files nothing tells the size any more
    with StoreFiles(store, StoreConfig(mapped_file_size_consume_queue=2000)) as files:
        _, plan = _mend(files)
        Journal(files.layout, "test").apply(plan)
    base = golden_store("clean")
    assert _content(store / "consumequeue") == _content(base / "consumequeue")


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_lost_batch_queues_are_made_anew(golden_store: GoldenStore) -> None:
    store = golden_store("innerbatch")
    before = _content(store / "batchconsumequeue")
    for name in before:
        (store / "batchconsumequeue" / name).unlink()
    with StoreFiles(store, StoreConfig(mapper_file_size_batch_consume_queue=460)) as files:
        mend, plan = _mend(files)
        Journal(files.layout, "test").apply(plan)
    assert (mend.changed, mend.added) == (2, 30)
    assert _content(store / "batchconsumequeue") == before


def test_ext_addresses_are_left_where_they_lead_to_the_code(golden_store: GoldenStore) -> None:
    store = golden_store("cqext")
    with StoreFiles(store) as files:
        assert _mend(files)[1].operations == []
    # one unit loses its address: it gets the plain code, the others keep theirs
    path = sorted((store / "consumequeue" / "TopicTest" / "0").iterdir())[0]
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, 12, -(1 << 63) + 10**6)
    path.write_bytes(data)
    with StoreFiles(store) as files:
        mend, plan = _mend(files)
        assert (mend.changed, mend.added, mend.removed) == (1, 1, 1)
        Journal(files.layout, "test").apply(plan)
    with StoreFiles(store) as files:
        assert _mend(files)[1].operations == []
        queue = files.queues.find("TopicTest", 0)
        assert queue is not None
        codes = [unit.tags_code for unit in queue.units(0)]
        assert codes[0] > -(1 << 31)
        assert all(code < -(1 << 31) for code in codes[1:])
