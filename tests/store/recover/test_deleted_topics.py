"""Topics that were deleted and created again: sound stores whose queues begin at 0 while the log has older messages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rmqctl.pipeline.engine import LocalEngine
from rmqctl.pipeline.jobs.check import check_with
from rmqctl.pipeline.jobs.rebuild import rebuild_with
from rmqctl.store import Message, MessageStore
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import VERSIONS
from rmqctl.store.options import ChangeOptions
from rmqctl.store.predict import predict
from rmqctl.store.read.frames import message_at
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import tree_state
from tests.store.check.breaking import checked
from tests.store.made import QUEUE_SIZE, MadeStore

CONFIG = StoreConfig(mapped_file_size_consume_queue=QUEUE_SIZE)


def _deleted_once(made: MadeStore, old: int, new: int) -> None:
    for number in range(old):
        made.put("Orders", f"old-{number}")
        made.put("Other", f"other-{number}")
    made.forget("Orders")
    for number in range(new):
        made.put("Orders", f"new-{number}")
        made.put("Other", f"later-{number}")


def _deleted_twice(made: MadeStore) -> None:
    _deleted_once(made, 5, 4)
    made.forget("Orders")
    for number in range(3):
        made.put("Orders", f"newest-{number}")


def _one_queue(made: MadeStore) -> None:
    for number in range(8):
        made.put("Orders", f"old-{number}", queue_id=number % 2)
    made.forget("Orders", 1)
    for number in range(6):
        made.put("Orders", f"new-{number}", queue_id=number % 2)


def _retries(made: MadeStore) -> None:
    _deleted_once(made, 3, 0)
    for number in range(4):
        made.put("%RETRY%g", f"old-{number}")
    made.forget("%RETRY%g")
    made.put("%RETRY%g", "new")
    made.put("Orders", "x")


def _long(made: MadeStore) -> None:
    """More units than a queue file has, and more messages than a log file."""
    _deleted_once(made, 350, 420)


STORES: dict[str, Callable[[MadeStore], None]] = {
    "fewer": lambda made: _deleted_once(made, 5, 3),
    "more": lambda made: _deleted_once(made, 3, 7),
    "one message": lambda made: _deleted_once(made, 4, 1),
    "as many": lambda made: _deleted_once(made, 4, 4),
    "twice": _deleted_twice,
    "one queue": _one_queue,
    "retries": _retries,
    "long": _long,
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = MadeStore(tmp_path / "store")
    STORES[request.param](made)
    return made.write()


def _content(store: Path) -> dict[str, bytes]:
    folder = store / "consumequeue"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _codes(findings: Iterable[Finding]) -> list[str]:
    return sorted({finding.code for finding in findings} - {"RMQ-LOG-017", "RMQ-TIME-001", "RMQ-IDX-001"})


def test_check_has_one_notice(store: Path) -> None:
    before = tree_state(store)
    assert _codes(checked(store)[0]) == ["RMQ-CQ-030"]
    with StoreFiles(store, CONFIG) as files:
        found = list(check_with(LocalEngine(1), files, split_size=1000))
        assert _codes(found) == ["RMQ-CQ-030"]
        assert [finding for finding in checked(store)[0] if finding.code == "RMQ-CQ-030"] == [
            finding for finding in found if finding.code == "RMQ-CQ-030"
        ]
    assert tree_state(store) == before


@pytest.mark.parametrize("loss", ["nothing", "queues", "file", "crash"])
def test_recover_gives_the_queue_to_the_newest_life(store: Path, loss: str) -> None:
    right = _content(store)
    if loss == "queues":
        shutil.rmtree(store / "consumequeue")
        (store / "consumequeue").mkdir()
    elif loss == "file":
        for path in (store / "consumequeue").glob("*/0/" + "0" * 20):
            path.write_bytes(bytes(QUEUE_SIZE))
    elif loss == "crash":
        (store / "abort").touch()
    with StoreFiles(store, CONFIG) as files:
        report = recover(files)
    assert _content(store) == right
    assert report.slot_conflicts == 0
    assert report.deleted_topic_messages > 0
    with StoreFiles(store, CONFIG) as files:
        assert recover(files).operations == []


@pytest.mark.parametrize("loses", [False, True])
def test_rebuild_gives_the_queue_to_the_newest_life(store: Path, loses: bool) -> None:
    right = _content(store)
    if loses:
        shutil.rmtree(store / "consumequeue")
        (store / "consumequeue").mkdir()
    with StoreFiles(store, CONFIG) as files:
        planned = rebuild(files, index=False, change=ChangeOptions(dry_run=True))
    with StoreFiles(store, CONFIG) as files:
        report = rebuild(files, index=False)
    assert _content(store) == right
    assert (planned.units, planned.deleted_topic_messages) == (report.units, report.deleted_topic_messages)
    assert report.units == sum(len(data.rstrip(b"\0") + b"\0" * 19) // 20 for data in right.values())
    if loses:
        shutil.rmtree(store / "consumequeue")
        (store / "consumequeue").mkdir()
    with StoreFiles(store, CONFIG) as files:
        parts = rebuild_with(LocalEngine(1), files, index=False, split_size=1000)
    assert _content(store) == right
    assert (parts.units, parts.deleted_topic_messages, parts.slot_conflicts) == (
        report.units,
        report.deleted_topic_messages,
        0,
    )


def test_such_a_store_is_written_to(store: Path) -> None:
    with StoreFiles(store, CONFIG) as files:
        recover(files)
        [newest] = [queue.max_offset for queue in files.queues.all() if (queue.topic, queue.queue_id) == ("Orders", 0)]
    with MessageStore.open(store, "rw", CONFIG) as opened:
        assert opened.put(Message("Orders", b"next")).queue_offset == newest
    assert _codes(checked(store)[0]) == ["RMQ-CQ-030"]


def test_a_queue_that_leads_to_the_old_life_is_damage(tmp_path: Path) -> None:
    """As a tool left it that built the queue again from the whole log."""
    made = MadeStore(tmp_path / "store")
    for number in range(5):
        made.put("Orders", f"old-{number}")
    for number in range(3):
        made.put("Orders", f"new-{number}", queue_offset=number, has_unit=False)
    store = made.write()
    assert "RMQ-CQ-031" in _codes(checked(store)[0])
    with StoreFiles(store, CONFIG) as files:
        recover(files)
    with MessageStore.open(store, "r", CONFIG) as opened:
        bodies = [message.body for message in opened.get("Orders", 0, 0, 32).messages]
    assert bodies == [b"new-0", b"new-1", b"new-2"]
    assert _codes(checked(store)[0]) == ["RMQ-CQ-030"]


def test_offsets_that_were_given_twice_are_damage(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    for number in range(5):
        made.put("Orders", f"first-{number}")
    del made.units["Orders", 0][3:]
    for number in range(2):
        made.put("Orders", f"second-{number}")
    store = made.write()
    right = _content(store)
    [found] = [finding for finding in checked(store)[0] if finding.code == "RMQ-CQ-017"]
    assert (found.messages, "first slot 3" in found.message) == (2, True)
    with StoreFiles(store, CONFIG) as files:
        assert recover(files).slot_conflicts == 2
    assert _content(store) == right
    with MessageStore.open(store, "rw", CONFIG) as opened:
        assert opened.put(Message("Orders", b"next")).queue_offset == 5


_NOTHING = (None, None)
STARTS: dict[tuple[str, str, bool], tuple[tuple[int | None, int | None], ...]] = {
    ("whole", "one file", False): ((0, 3),) * 3,
    ("whole", "one file", True): ((0, 3),) * 3,
    ("whole", "several", False): ((0, 420),) * 3,
    ("whole", "several", True): ((0, 420),) * 3,
    ("behind", "one file", False): ((0, 1),) * 3,
    ("behind", "one file", True): ((0, 3),) * 3,
    ("behind", "several", False): ((0, 418),) * 3,
    ("behind", "several", True): ((0, 420),) * 3,
    ("lost", "one file", False): (_NOTHING,) * 3,
    ("lost", "one file", True): ((0, 6),) * 3,
    ("lost", "several", False): (_NOTHING,) * 3,
    ("lost", "several", True): ((300, 420), (315, 420), (279, 420)),
}
"""What real brokers (4.9.8, 5.3.3, 5.5.0) had as first and next offset of the queue after a start on such a store: the
oracle's truth over the stores of `_started`. None: they made no queue."""


def _started(root: Path, loss: str, files: str, *, crashed: bool) -> Path:
    made = MadeStore(root)
    old, new = (5, 3) if files == "one file" else (350, 420)
    _deleted_once(made, old, new)
    if loss == "behind":
        del made.units["Orders", 0][new - 2 :]
    elif loss == "lost":
        made.forget("Orders")
    return made.write(crashed=crashed)


@pytest.mark.parametrize(("loss", "files", "crashed"), STARTS)
def test_a_start_is_predicted_as_real_brokers_do_it_and_recover_loses_nothing(
    tmp_path: Path, loss: str, files: str, crashed: bool
) -> None:
    store = _started(tmp_path / "store", loss, files, crashed=crashed)
    for version, expected in zip(VERSIONS, STARTS[loss, files, crashed], strict=True):
        with StoreFiles(store, CONFIG) as opened:
            queue = opened.queues.find("Orders", 0)
            found = _NOTHING if queue is None else (queue.min_offset(0), queue.max_offset)
            rows = predict(opened, version).queues_changed
        changed = [(row["min_after"], row["max_after"]) for row in rows if row["topic"] == "Orders"]
        assert (changed or [found]) == [expected], version
    with StoreFiles(store, CONFIG) as opened:
        recover(opened)
    # the right answer, which none of them gives for a lost queue: the messages of the newest life, and no others
    with StoreFiles(store, CONFIG) as opened:
        [queue] = [one for one in opened.queues.all() if one.topic == "Orders"]
        numbers = [message_at(opened.log, unit.physical_offset).body for unit in queue.units(0)]
    assert numbers == [b"new-%d" % number for number in range(3 if files == "one file" else 420)]
