"""What tasks have put aside becomes messages of one store, in their order, all of them or none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rmqctl.formats.errors import (
    CorruptError,
    DiskFullError,
    NotAStoreError,
    RefusedError,
    RmqctlError,
    StoreInUseError,
    UnreadableError,
    UsageError,
)
from rmqctl.pipeline.spark.sink import require_target, write_staged
from rmqctl.pipeline.spark.sink_record import read_record, record_path
from rmqctl.store.config.config_files import read_config, write_config
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from tests.pipeline.sink.staged import FIRST, LAYOUT, bodies, named, table, task, whole
from tests.processes import start
from tests.quick import every
from tests.store.write.writing import SMALL, files_below, stored_messages


@pytest.fixture(autouse=True)
def _unobserved() -> Iterator[None]:
    yield
    io.observer = None


def test_messages_come_by_number_of_task_and_row(tmp_path: Path) -> None:
    root = tmp_path / "store"
    tasks = [task(root, 2, named(2, 7)), task(root, 10, named(10, 4)), task(root, 0, named(0, 3))]
    task(root, 1, named(1, 9))  # an attempt that no commit names
    assert write_staged(root, SMALL, [*tasks, task(root, 4, [])])[:2] == (14, 0)
    found = whole(root)
    assert [one.body for one in found] == [*named(0, 3), *named(2, 7), *named(10, 4)]
    queues = defaultdict(list)
    for one in found:
        queues[one.queue_id].append(one.queue_offset)
    assert all(offsets == list(range(len(offsets))) for offsets in queues.values())
    with MessageStore.open(root) as opened:
        assert [one.body for one in opened.get("TopicA", 2, 0).messages] == [
            b"task 0 row 2",
            b"task 2 row 2",
            b"task 2 row 5",
            b"task 10 row 2",
        ]


def test_what_is_added_continues_log_and_queues(store: Path) -> None:
    written = write_staged(store, SMALL, [task(store, 0, named(1, 2000), keys=[["k"]] * 2000)])
    assert (written.messages, written.begin) == (2000, sum(one.total_size for one in stored_messages(store)[:5]))
    assert [one.body for one in whole(store)] == [*named(0, 5), *named(1, 2000)]
    assert stored_messages(store)[-1].end == written.end
    with MessageStore.open(store) as opened:
        assert len(opened.query("TopicA", "k", limit=5000).messages) == 2000


def test_topics_get_the_queues_that_messages_need_and_keep_the_rest(store: Path) -> None:
    path = store / "config" / "topics.json"
    content = read_config(path)
    content["topicConfigTable"]["TopicA"] |= {"order": True, "readQueueNums": 16}
    content["other"] = "kept"
    write_config(path, content)
    write_staged(store, SMALL, [task(store, 0, named(1, 9), queue_id=list(range(9)))])
    assert {name: table(store)["TopicA"][name] for name in ("order", "readQueueNums", "writeQueueNums")} == {
        "order": True, "readQueueNums": 16, "writeQueueNums": 9,
    }  # fmt: skip
    later = read_config(path)
    assert later["other"] == "kept"
    assert later["dataVersion"]["counter"] == content["dataVersion"]["counter"] + 1
    write_staged(store, SMALL, [task(store, 0, named(2, 3))])
    assert read_config(path) == later


def test_a_delayed_message_has_both_its_topics(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write_staged(
        root,
        SMALL,
        [task(root, 0, [b"later"], properties=pa.array([[("DELAY", "3")]], pa.map_(pa.string(), pa.string())))],
    )
    assert [one.topic for one in whole(root)] == ["SCHEDULE_TOPIC_XXXX"]
    assert table(root)["SCHEDULE_TOPIC_XXXX"]["readQueueNums"] == 18
    assert table(root)["TopicA"]["readQueueNums"] == 1


def test_a_topics_file_that_cannot_be_read_is_not_written_anew(store: Path) -> None:
    path = store / "config" / "topics.json"
    path.write_text("{")
    before = files_below(store)
    with pytest.raises(CorruptError, match="topics"):
        write_staged(store, SMALL, [task(store, 0, named(1, 2))])
    assert files_below(store) == before


BAD: dict[str, dict[str, object]] = {
    "task 7, row 2: .*queue id -1 is negative": {"queue_id": [0, 0, -1]},
    "task 7, row 1: .*topic has 128 bytes": {"topic": ["A", "T" * 128, "A"]},
    "task 7, row 0: .*cannot be a directory": {"topic": ["..", "A", "A"]},
    "task 7, row 0: .*4194304": {"body": [b"x" * (4194304 + 1), b"", b""]},
    "task 7, row 1: .*property without a value": {
        "properties": pa.array([[], [("a", None)], []], pa.map_(pa.string(), pa.string()))
    },
}


@pytest.mark.parametrize("why", every(3, BAD))
def test_a_bad_row_is_named_and_nothing_is_written(store: Path, why: str) -> None:
    before = files_below(store)
    good, bad = task(store, 0, named(1, 700)), task(store, 7, named(7, 3), **BAD[why])
    with pytest.raises(UsageError, match=why):
        write_staged(store, SMALL, [good, bad])
    assert files_below(store) == before
    new = store.with_name("new")
    with pytest.raises(UsageError, match=why):
        write_staged(new, SMALL, [good, bad])
    assert not new.exists()
    assert write_staged(store, SMALL, [good]).messages == 700
    assert len(whole(store)) == 705


def test_rows_of_a_task_that_are_not_all_there(store: Path) -> None:
    staged = task(store, 0, named(1, 4))
    assert staged.path is not None
    with pytest.raises(UnreadableError, match="has 4 rows, and its task wrote 5"):
        write_staged(store, SMALL, [staged._replace(rows=5)])
    os.truncate(staged.path, os.path.getsize(staged.path) // 2)
    with pytest.raises(UnreadableError, match="cannot be read"):
        write_staged(store, SMALL, [staged])
    os.remove(staged.path)
    with pytest.raises(UnreadableError, match="cannot be read"):
        write_staged(store, SMALL, [staged])
    assert bodies(store) == named(0, 5)
    assert record_path(LAYOUT(store)).exists()


FAILING = {"create": 99, "write": 1, "fsync": 1}
"""How often such an operation in the log fails."""


@pytest.mark.parametrize("operation", every(3, FAILING))
def test_a_disk_that_fails_leaves_the_store_as_it_was(store: Path, operation: str) -> None:
    rows = task(store, 0, named(1, 2000))
    failed: list[str] = []

    def fail(what: str, path: str, *_: int) -> None:
        if what == operation and "commitlog" in path and len(failed) < FAILING[operation]:
            failed.append(path)
            raise OSError(28, "No space left on device")

    io.observer = fail
    with pytest.raises(RmqctlError):
        write_staged(store, SMALL, [rows])
    io.observer = None
    assert failed
    assert [one.body for one in whole(store)] == named(0, 5)
    assert read_record(LAYOUT(store)).begun is None
    assert write_staged(store, SMALL, [rows]).messages == 2000
    assert len(whole(store)) == 2005


def test_a_full_disk_is_said(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "free_bytes", lambda _: 0)
    with pytest.raises(DiskFullError, match="task 0, row 0"):
        write_staged(store, SMALL, [task(store, 0, named(1, 4))])
    monkeypatch.undo()
    assert [one.body for one in whole(store)] == named(0, 5)


# ---- targets


def test_where_nothing_can_be_written(store: Path, tmp_path: Path) -> None:
    require_target(store, SMALL, overwrite=False)
    require_target(tmp_path / "new", SMALL, overwrite=True)
    (tmp_path / "empty").mkdir()
    require_target(tmp_path / "empty", SMALL, overwrite=True)
    with pytest.raises(RefusedError, match="nothing is overwritten"):
        require_target(store, SMALL, overwrite=True)
    with pytest.raises(RefusedError, match="inside the store"):
        require_target(store / "config" / "new", SMALL, overwrite=False)
    (tmp_path / "empty" / "letter.txt").write_text("dear")
    with pytest.raises(NotAStoreError, match="is no store, and not empty"):
        require_target(tmp_path / "empty", SMALL, overwrite=False)
    with pytest.raises(NotAStoreError, match="is a file"):
        require_target(tmp_path / "empty" / "letter.txt", SMALL, overwrite=False)


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    write_staged(tmp_path / "store", SMALL, [task(tmp_path / "store", 0, named(0, 2))])
    assert [one.body for one in whole(tmp_path / "store")] == named(0, 2)


def test_a_directory_with_a_configuration_becomes_a_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    bean = {"topicName": "TopicA", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "order": True}
    write_config(root / "config" / "topics.json", {"topicConfigTable": {"TopicA": bean}})
    with pytest.raises(UsageError):
        write_staged(root, SMALL, [task(root, 0, [b""], queue_id=[-1])], batch=FIRST)
    write_staged(root, SMALL, [task(root, 0, named(0, 5))], batch=FIRST)
    assert write_staged(root, SMALL, [task(root, 0, named(0, 5))], batch=FIRST).stored_before
    assert [one.body for one in whole(root)] == named(0, 5)
    assert table(root)["TopicA"] == bean


def test_a_store_in_use_is_refused_and_left_alone(store: Path) -> None:
    before = files_below(store)
    code = (
        "import sys; from rmqctl.store import MessageStore; s = MessageStore.open(sys.argv[1], 'rw'); print(); input()"
    )
    other = start([sys.executable, "-c", code, store], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    for refuses in (
        lambda: write_staged(store, SMALL, [task(store, 0, named(1, 2))]),
        lambda: require_target(store, SMALL, overwrite=False),
    ):
        with pytest.raises(StoreInUseError):
            refuses()
    other.kill()
    other.wait()
    assert {**files_below(store), "abort": b""} == {**before, "abort": b""}


def test_a_store_that_crashed_is_refused_and_left_alone(store: Path) -> None:
    (store / "abort").write_text("77")
    before = files_below(store)
    with pytest.raises(RefusedError, match="not closed cleanly"):
        write_staged(store, SMALL, [task(store, 0, named(1, 2))])
    assert files_below(store) == before
