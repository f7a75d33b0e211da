"""Messages in several queues: offsets that stand in their properties are those of this store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write.prepare import copy_of
from tests.goldens import GoldenStore
from tests.store.write.writing import SMALL, golden_config, message, small, stored_messages


def test_limits_of_lmq_messages(tmp_path: Path) -> None:
    config = small(enable_lmq=True, enable_multi_dispatch=True, max_message_size=1000)
    queues = {"INNER_MULTI_DISPATCH": "%LMQ%a,other,%LMQ%b", "WAIT": "true"}
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        for _ in range(2):
            assert store.put(message(properties=queues)).status is PutStatus.PUT_OK
        assert store.put(message(900, properties=queues)).status is PutStatus.MESSAGE_ILLEGAL
        too_much = queues | {"p": "x" * 32767}
        assert store.put(message(1, properties=too_much)).status is PutStatus.MESSAGE_ILLEGAL
        # a foreign offset is never believed
        store.put(message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "77"}))
    found = [stored.properties() for stored in stored_messages(tmp_path / "s")]
    assert [properties["INNER_MULTI_QUEUE_OFFSET"] for properties in found] == ["0,,0", "1,,1", "2"]
    assert not any("WAIT" in properties for properties in found)
    assert sorted(path.name for path in (tmp_path / "s" / "consumequeue").iterdir()) == ["%LMQ%a", "%LMQ%b", "TopicA"]


LMQ = small(enable_lmq=True, enable_multi_dispatch=True)


def test_a_further_queue_is_the_first_of_its_topic_whatever_the_message_s_own(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", LMQ, create=True) as store:
        for number in range(2):
            store.put(message(queue_id=3, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
            store.wait_for_dispatch()
            assert len(store.get("%LMQ%a", 0, 0).messages) == number + 1
    assert [path.name for path in (tmp_path / "s" / "consumequeue" / "%LMQ%a").iterdir()] == ["0"]
    found = [stored.properties()["INNER_MULTI_QUEUE_OFFSET"] for stored in stored_messages(tmp_path / "s")]
    assert found == ["0", "1"]


def test_a_further_queue_that_is_listed_twice_has_one_slot_of_the_message(tmp_path: Path) -> None:
    given = message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b,%LMQ%a"})
    with MessageStore.open(tmp_path / "s", "rw", LMQ, create=True) as store:
        store.put(given)
        store.put_many([given] * 2)
        store.put(message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
    found = [stored.properties()["INNER_MULTI_QUEUE_OFFSET"] for stored in stored_messages(tmp_path / "s")]
    assert found == ["0,0,0", "1,1,1", "2,2,2", "3"]
    with MessageStore.open(tmp_path / "s", "r", LMQ) as store:
        assert [finding.code for finding in store.check() if finding.severity == "error"] == []
        assert len(store.get("%LMQ%a", 0, 0).messages) == 4


@pytest.mark.parametrize(
    ("changes", "topic"),
    [
        ({"topic": "%RETRY%group"}, "%RETRY%group"),
        ({"topic": "rmq_sys_trace"}, "rmq_sys_trace"),
        ({"properties": {"DELAY": "1"}}, "SCHEDULE_TOPIC_XXXX"),
    ],
    ids=str,
)
def test_retries_and_what_is_the_broker_s_own_are_in_one_queue(
    changes: dict[str, Any], topic: str, tmp_path: Path
) -> None:
    given = message()._replace(**changes)
    given = given._replace(properties={**given.properties, "INNER_MULTI_DISPATCH": "%LMQ%a"})
    with MessageStore.open(tmp_path / "s", "rw", LMQ, create=True) as store:
        assert store.put(given).status is PutStatus.PUT_OK
    (stored,) = stored_messages(tmp_path / "s")
    assert (stored.topic, "INNER_MULTI_QUEUE_OFFSET" in stored.properties()) == (topic, False)


def test_multi_dispatch_offsets_are_dropped_where_there_is_no_lmq(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "77"}))
    assert stored_messages(tmp_path / "s")[0].properties() == {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    assert [path.name for path in (tmp_path / "s" / "consumequeue").iterdir()] == ["TopicA"]


def test_copies_into_a_longer_store_get_offsets_of_that_store(golden_store: GoldenStore) -> None:
    """LMQ offsets and inner batch bases repeat queue offsets, so a copy elsewhere must change them."""
    for name, topic in (("lmq", "LmqParent"), ("innerbatch", "InnerBatchTopic")):
        store_path = golden_store(name)
        before = stored_messages(store_path)
        copied = [found for found in before if found.topic == topic]
        assert copied
        with MessageStore.open(store_path, "rw", golden_config(name)) as store:
            for found in copied:
                assert store.put(copy_of(found), as_stored=True).status is PutStatus.PUT_OK
        with MessageStore.open(store_path, "rw", golden_config(name)):
            pass  # opening for writing holds every queue against the log
        after = stored_messages(store_path)[len(before) :]
        for old, new in zip(copied, after, strict=True):
            assert new.queue_offset > old.queue_offset
            names = ("INNER_BASE", "INNER_MULTI_QUEUE_OFFSET")
            kept = [{k: v for k, v in m.properties().items() if k not in names} for m in (old, new)]
            assert kept[0] == kept[1]
            if "INNER_BASE" in new.properties():
                assert int(new.properties()["INNER_BASE"]) == new.queue_offset


def test_without_multi_dispatch_there_are_offsets_and_no_slots(tmp_path: Path) -> None:
    """enableLmq gives the offsets, enableMultiDispatch the slots (ConsumeQueue#putMessagePositionInfoWrapper)."""
    config = small(enable_lmq=True)
    given = message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    for number in (1, 2):
        with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
            store.put(given)
            # many at once take another way into the queues
            store.put_many([given] * 40)
            store.wait_for_dispatch()
            assert store.get("TopicA", 0, 41 * number - 1).messages
        found = stored_messages(tmp_path / "s")
        assert len(found) == 41 * number
        assert all("INNER_MULTI_QUEUE_OFFSET" in one.properties() for one in found)
        assert [path.name for path in (tmp_path / "s" / "consumequeue").iterdir()] == ["TopicA"]
    with MessageStore.open(tmp_path / "s", "r", config) as store:
        assert [finding.code for finding in store.check() if finding.severity == "error"] == []
    # a broker with both settings goes on where the log says
    with pytest.raises(RefusedError, match="%LMQ%a"):
        MessageStore.open(tmp_path / "s", "rw", LMQ)
