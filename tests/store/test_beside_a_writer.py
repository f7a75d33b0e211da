"""Looks at a store that another process writes to: what it is just doing is no damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.store.answers import undispatched
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.info import counts, info
from rmqctl.store.info.counts import LogNumbers
from rmqctl.store.message_store import MessageStore
from rmqctl.store.read.filter import TopicFilter
from rmqctl.store.store_files import StoreFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(
        tmp_path / "s", "rw", StoreConfig(mapped_file_size_commit_log=1 << 20), create=True
    ) as store:
        for number in range(40):
            store.put(Message(f"Topic{number % 4}", b"x" * 100))
    (tmp_path / "s" / "abort").touch()
    return tmp_path / "s"


@pytest.mark.parametrize("is_in_use", [True, False])
def test_a_frame_that_is_being_written(root: Path, is_in_use: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came after the look had begun, and half of it is there."""
    log = root / "commitlog" / "00000000000000000000"
    count = counts.count_log
    with MessageStore.open(root, "r") as store:
        end = store.info()["commitlog"]["max_offset"]

    def counted(*arguments: object) -> LogNumbers:
        data = log.read_bytes()
        log.write_bytes(data[:end] + b"\xee" * 100 + data[end + 100 :])
        return count(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(counts, "count_log", counted)
    monkeypatch.setattr(info, "is_in_use", lambda _layout: is_in_use)
    with MessageStore.open(root, "r") as store:
        found = store.info()["commitlog"]
    assert (found["messages"], found["damaged_spans"]) == (40, 0 if is_in_use else 1)


@pytest.mark.parametrize("comes", [True, False])
def test_files_of_new_queues_that_are_being_made(root: Path, comes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has messages of many new queues, whose files a writer makes one by one."""
    queue, aside = root / "consumequeue" / "Topic1" / "0", root.with_name("aside")
    queue.rename(aside)
    pauses: list[float] = []

    def paused(seconds: float) -> None:
        pauses.append(seconds)
        if comes and len(pauses) == 2:
            aside.rename(queue)

    monkeypatch.setattr(undispatched, "is_in_use", lambda _layout: True)
    monkeypatch.setattr(undispatched, "sleep", paused)
    with StoreFiles(root) as files:
        errors = undispatched.queues_behind(files, TopicFilter())
    assert [error.message.partition(":")[0] for error in errors] == (
        [] if comes else ["the log holds messages of queue 0 of 'Topic1', which has no files"]
    )
    assert len(pauses) == (2 if comes else 5)
