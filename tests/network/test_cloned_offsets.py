"""One group is given the offsets of another one, as mqadmin's cloneGroupOffset has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from tests.network.callers import Writing, heartbeat


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "store")
    yield made
    made.close()


def test_a_group_gets_the_offsets_of_another_one(writing: Writing) -> None:
    for topic in ("T", "U", "Gone"):
        writing.ask(Request.UPDATE_AND_CREATE_TOPIC, topic=topic, readQueueNums=2, writeQueueNums=2, perm=6,
                    topicFilterType="SINGLE_TAG", defaultTopic="TBW102", order=False)  # fmt: skip
    writing.broker.group("from")
    for topic, queue_id, offset in (("T", 0, 3), ("T", 1, 4), ("U", 0, 5), ("Gone", 0, 6)):
        where: dict[str, Any] = {"consumerGroup": "from", "topic": topic, "queueId": queue_id}
        writing.ask(Request.UPDATE_CONSUMER_OFFSET, commitOffset=offset, **where)
    writing.broker.topics.remove("Gone", 0)
    clone = Request.CLONE_GROUP_OFFSET

    def offsets(group: str) -> dict[str, dict[int, int]]:
        return {topic: writing.broker.offsets.of(group, topic) for topic in ("T", "U", "Gone")}

    assert writing.ask(clone, srcGroup="from", destGroup="one", topic="T", offline=True).code == 0
    assert offsets("one") == {"T": {0: 3, 1: 4}, "U": {}, "Gone": {}}
    # a group that is there, and does not subscribe U any more
    writing.ask(Request.HEART_BEAT, heartbeat("c1", "from", T="*"))
    assert writing.ask(clone, srcGroup="from", destGroup="two", offline=False).code == 0
    assert offsets("two") == {"T": {0: 3, 1: 4}, "U": {}, "Gone": {}}
    assert writing.ask(clone, srcGroup="from", destGroup="three", offline=True).code == 0
    assert offsets("three") == {"T": {0: 3, 1: 4}, "U": {0: 5}, "Gone": {}}
    assert writing.ask(clone, srcGroup="from", destGroup="no group!").code == Response.SUBSCRIPTION_GROUP_NOT_EXIST
