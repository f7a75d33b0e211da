"""RocketMQ's checks at their limits (HookUtils#checkBeforePutMessage), each with the status it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.formats.layouts import SYS_FLAG_INNER_BATCH
from rmqctl.formats.message import Host, Message
from rmqctl.formats.properties import MAXIMUM_PROPERTIES_SIZE, TRANSACTION_PREPARED, encode_properties
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write.checks import (
    StoreCondition,
    check_batch,
    check_fits_file,
    check_frame,
    check_message,
    check_ranges,
    check_sizes,
    check_store,
)
from tests.goldens import truth
from tests.store.write.writing import SMALL, message, small

FINE = StoreCondition()


def status_of(put: Message, condition: StoreCondition = FINE, is_batch_topic: bool = False) -> PutStatus | None:
    refusal = check_message(put, put.properties, condition, SMALL, is_batch_topic)
    return None if refusal is None else refusal.status


def test_order_of_the_checks_of_the_store() -> None:
    closed = check_store(StoreCondition(is_closed=True, is_writeable=False), small(broker_role="SLAVE"))
    assert closed is not None
    assert (closed.status, closed.detail) == (PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
    slave = check_store(StoreCondition(is_writeable=False), small(broker_role="SLAVE"))
    assert slave is not None
    assert "SLAVE" in slave.detail
    broken = check_store(StoreCondition(is_writeable=False), small(broker_role="SLAVE", duplication_enable=True))
    assert broken is not None
    assert broken.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert check_store(FINE, small(broker_role="SLAVE", duplication_enable=True)) is None
    assert check_store(FINE, SMALL) is None


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("T" * 127, None),
        ("T" * 128, PutStatus.MESSAGE_ILLEGAL),
        # bytes count, not characters
        ("标" * 42, None),
        ("标" * 43, PutStatus.MESSAGE_ILLEGAL),
        ("%RETRY%" + "G" * 121, None),
        ("%RETRY%" + "G" * 248, None),
        ("%RETRY%" + "G" * 249, PutStatus.MESSAGE_ILLEGAL),
        ("%DLQ%" + "G" * 123, PutStatus.MESSAGE_ILLEGAL),
        ("", PutStatus.MESSAGE_ILLEGAL),
        ("../config", PutStatus.MESSAGE_ILLEGAL),
        ("..", PutStatus.MESSAGE_ILLEGAL),
        ("a\0b", PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_topics(topic: str, expected: PutStatus | None) -> None:
    assert status_of(message(topic=topic)) is expected


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (None, None),
        (1000, None),
        (1001, PutStatus.OS_PAGE_CACHE_BUSY),
        (9_999_999, PutStatus.OS_PAGE_CACHE_BUSY),
        (10_000_000, None),
    ],
)
def test_page_cache_busy(milliseconds: int | None, expected: PutStatus | None) -> None:
    assert status_of(message(), StoreCondition(time_in_lock=milliseconds)) is expected


def test_a_bad_topic_is_told_before_a_busy_page_cache() -> None:
    assert status_of(message(topic="T" * 128), StoreCondition(time_in_lock=5000)) is PutStatus.MESSAGE_ILLEGAL


def test_inner_batches() -> None:
    numbered = message(properties={"INNER_NUM": "3"})
    assert status_of(numbered) is PutStatus.MESSAGE_ILLEGAL
    numbered = numbered._replace(sys_flag=SYS_FLAG_INNER_BATCH)
    assert status_of(numbered) is PutStatus.MESSAGE_ILLEGAL
    assert status_of(numbered, is_batch_topic=True) is None


def test_what_would_not_read_back_is_refused() -> None:
    assert status_of(message(queue_id=-1)) is PutStatus.MESSAGE_ILLEGAL
    assert status_of(message(properties={"a": "b\x02c"})) is PutStatus.MESSAGE_ILLEGAL
    assert status_of(message(properties={"a\x01": "b"})) is PutStatus.MESSAGE_ILLEGAL
    assert status_of(message(properties={"a": "b\x01c"})) is None


@pytest.mark.parametrize(
    ("topic", "size", "expected"),
    [
        ("T", 32767, None),
        ("T", 32768, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        ("T" * 127, 0, None),
        ("T" * 128, 0, None),
        # V1, for it has no more than 127 characters, but its length byte would be negative
        ("%RETRY%" + "标" * 60, 0, PutStatus.MESSAGE_ILLEGAL),
        ("标" * 128, 0, None),
        # characters decide which of the two it is, and 127 are not too many for the short one
        ("T" * 126 + "标", 0, PutStatus.MESSAGE_ILLEGAL),
        ("", 0, PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_what_a_frame_can_hold(topic: str, size: int, expected: PutStatus | None) -> None:
    refusal = check_frame(topic, size, allow_v2=True)
    assert (None if refusal is None else refusal.status) is expected


def test_a_long_topic_needs_a_v2_frame() -> None:
    assert check_frame("T" * 128, 0, allow_v2=False) is not None


def test_rocketmq_stored_properties_of_exactly_the_limit() -> None:
    sizes = [
        len(encode_properties(row["properties"])) for row in truth("features").messages if row["topic"] == "PropTopic"
    ]
    assert max(sizes) == MAXIMUM_PROPERTIES_SIZE
    assert check_frame("PropTopic", max(sizes), allow_v2=True) is None


def test_sizes_of_bodies_and_frames() -> None:
    limit = 1000
    config = small(max_message_size=limit)
    assert check_sizes(limit, limit + 65536, False, config) is None
    for body, frame, is_multi in ((limit + 1, limit + 100, False), (limit, limit + 65537, False), (1, limit + 1, True)):
        refusal = check_sizes(body, frame, is_multi, config)
        assert refusal is not None
        assert refusal.status is PutStatus.MESSAGE_ILLEGAL
    assert check_sizes(1, limit, True, config) is None


def test_a_frame_and_a_blank_must_fit_into_a_file() -> None:
    assert check_fits_file(65528, 65536) is None
    refusal = check_fits_file(65529, 65536)
    assert refusal is not None
    assert refusal.status is PutStatus.MESSAGE_ILLEGAL


def test_batches() -> None:
    def check(messages: list[Message], **changes: object) -> PutStatus | None:
        refusal = check_batch(messages, [m.properties for m in messages], [10] * len(messages), small(**changes))
        return None if refusal is None else refusal.status

    assert check([message(), message()]) is None
    assert check([message(), message(sys_flag=TRANSACTION_PREPARED)]) is PutStatus.MESSAGE_ILLEGAL
    assert check([message(), message(properties={"DELAY": "1"})]) is PutStatus.MESSAGE_ILLEGAL
    # two items of 22 bytes of lengths, 100 of body and 10 of properties
    assert check([message(), message()], max_message_size=264) is None
    assert check([message(), message()], max_message_size=263) is PutStatus.MESSAGE_ILLEGAL
    for other in (message(queue_id=1), message(topic="Other")):
        with pytest.raises(UsageError, match="one topic and one queue"):
            check([message(), other])


@pytest.mark.parametrize("changes", [{"properties": {"DELAY": "2"}}, {"property_bytes": b"DELAY\x012\x02"}], ids=str)
def test_no_message_of_a_batch_may_be_delayed_however_its_properties_are_given(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """In stored form it was, and went elsewhere by itself."""
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        results = store.put_many([message(), message()._replace(**changes)], batch=True)
        assert [one.detail for one in results] == ["a message of a batch is delayed"] * 2
        assert store.put_many([message(property_bytes=b"DELAY\x010\x02")], batch=True)[0].queue_offset == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"queue_id": 1 << 31},
        {"flag": -(1 << 31) - 1},
        {"sys_flag": 1 << 40},
        {"reconsume_times": 1 << 31},
        {"born_timestamp": 1 << 63},
        {"prepared_transaction_offset": -(1 << 63) - 1},
        {"store_timestamp": -1},
        {"store_timestamp": 253_402_300_800_000},
        {"born_host": Host(b"123", 1)},
        {"store_host": Host(b"1234", 1 << 31)},
        {"born_host": Host(bytes(15), 1)},
        {"born_host": Host(bytes(17), 1)},
        {"topic": "half \ud800"},
        {"properties": {"a": "\udfff"}},
        {"properties": {"\udfff": "a"}},
        {"property_bytes": b"a\x01\xff\x02"},
    ],
)
def test_values_that_no_field_can_hold(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        check_ranges(message(**changes))  # type: ignore[arg-type]  # wrong values are the point


def test_extreme_values_that_fit() -> None:
    check_ranges(message(born_host=Host(bytes(16), -(1 << 31)), store_host=Host(bytes(4), (1 << 31) - 1)))
    check_ranges(message(flag=-(1 << 31), reconsume_times=(1 << 31) - 1, born_timestamp=-(1 << 63), store_timestamp=0))
