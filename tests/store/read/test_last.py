"""The last messages are those that a walk over everything would end with, and come without such a walk."""

from __future__ import annotations

from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store.read import last
from rmqctl.store.read.message_filter import Criteria
from rmqctl.store.read.selection import Order, Selection
from rmqctl.store.read.topic_filter import TopicFilter
from tests.goldens import GOLDENS
from tests.opened import reader
from tests.quick import sample

CHOSEN: dict[str, dict[str, Any]] = {
    "all": {},
    "topic": {"topic": "OrderTopic"},
    "pattern": {"topics": TopicFilter(["*Topic"], system_topics=False)},
    "grep": {"grep": "TagA|user"},
}


@pytest.mark.parametrize("name", sample(GOLDENS, ["gap", "torn-zero", "short-middle", "innerbatch"]))
@pytest.mark.parametrize("order", ["log", "queue"])
def test_they_are_those_at_the_end(name: str, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    if order == "queue" and name.startswith("rocksdb"):
        return
    opened = reader(name)
    for chosen in CHOSEN.values():
        if order == "queue" and chosen.get("topic") not in (None, *opened.files.queues.topics()):
            continue
        selection = Selection(Criteria(**chosen))
        told: list[CorruptError] = []
        every = [m.physical_offset for m in opened.messages(selection, order, on_damage=told.append)]
        for span in (20_000, 256 * 1024):
            monkeypatch.setattr(last, "_FIRST_BYTES", span)
            monkeypatch.setattr(last, "_FIRST_UNITS", span // 100)
            for count in (1, 20, 100_000):
                found: list[CorruptError] = []
                got = opened.last_messages(selection, count, order, on_damage=found.append)
                assert [message.physical_offset for message in got] == every[-count:]
                if count > len(every):
                    assert sorted(map(str, found)) == sorted(map(str, told)) or order == "queue"


def test_the_log_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last, "_FIRST_BYTES", 4096)
    opened = reader("clean")
    read: list[int] = []
    plain = opened.files.descriptors.read

    def counted(path: Any, position: int, length: int) -> bytes:
        data = plain(path, position, length)
        read.append(len(data))
        return data

    monkeypatch.setattr(opened.files.descriptors, "read", counted)
    assert len(opened.last_messages(Selection(), 3, on_damage=lambda _: None)) == 3
    assert sum(read) < sum(file.size for file in opened.files.log.files) / 2
