"""Where delayed messages wait, against what RocketMQ stored in the goldens and against its rules."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rmqctl.formats.properties import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.status import PutStatus
from rmqctl.store.write.checks import Refusal
from rmqctl.store.write.prepare import Destination, schedule
from tests.goldens import truth

NOW = 1_700_000_000_123
WHEEL = StoreConfig(timer_wheel_enable=True)


def scheduled(properties: Mapping[str, str], config: StoreConfig = WHEEL, sys_flag: int = 0) -> Destination:
    result = schedule(Destination("T", 3, properties), sys_flag, config, NOW)
    assert isinstance(result, Destination)
    return result


def refused(properties: Mapping[str, str], config: StoreConfig = WHEEL) -> PutStatus:
    result = schedule(Destination("T", 3, properties), 0, config, NOW)
    assert isinstance(result, Refusal)
    return result.status


@pytest.mark.parametrize("name", ["features", "v4-features", "broker-real"])
def test_levels_as_rocketmq_stored_them(name: str) -> None:
    rows = [row for row in truth(name).messages if row["topic"] == "SCHEDULE_TOPIC_XXXX"]
    assert rows
    for row in rows:
        stored = dict(row["properties"])
        original = {key: value for key, value in stored.items() if key not in ("REAL_TOPIC", "REAL_QID")}
        wanted = Destination(stored["REAL_TOPIC"], int(stored["REAL_QID"]), original)
        assert schedule(wanted, 0, WHEEL, NOW) == Destination(row["topic"], row["queueId"], stored)


def test_a_level_beyond_the_last_is_lowered() -> None:
    result = scheduled({"DELAY": "19"})
    assert (result.queue_id, result.properties["DELAY"]) == (17, "18")
    result = scheduled({"DELAY": "9"}, StoreConfig(message_delay_level="1s 2s"))
    assert (result.queue_id, result.properties["DELAY"]) == (1, "2")


def test_the_last_level_stays_as_it_was_written() -> None:
    result = scheduled({"DELAY": "+18"})
    assert (result.queue_id, result.properties["DELAY"]) == (17, "+18")


def test_no_level_is_no_delay() -> None:
    for text in ("0", "-1"):
        assert scheduled({"DELAY": text}) == Destination("T", 3, {"DELAY": text})


def test_a_level_that_is_no_number() -> None:
    for text in ("x", "", "1.5", "²", "1_0", " 1", "𝟏", str(1 << 31)):
        assert refused({"DELAY": text}) is PutStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("sys_flag", [TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
def test_half_messages_wait_for_their_transaction_first(sys_flag: int) -> None:
    assert scheduled({"DELAY": "3"}, sys_flag=sys_flag).topic == "T"


def test_committed_messages_are_delayed() -> None:
    assert scheduled({"DELAY": "3"}, sys_flag=TRANSACTION_COMMIT).topic == "SCHEDULE_TOPIC_XXXX"


def test_a_level_wins_over_a_timer() -> None:
    result = scheduled({"DELAY": "1", "TIMER_DELAY_SEC": "5", "KEYS": "k"})
    assert result.topic == "SCHEDULE_TOPIC_XXXX"
    assert result.properties == {"DELAY": "1", "KEYS": "k", "REAL_TOPIC": "T", "REAL_QID": "3"}


@pytest.mark.parametrize(
    ("properties", "deliver"),
    [
        ({"TIMER_DELAY_SEC": "2"}, 1_700_000_002_000),
        ({"TIMER_DELAY_MS": "1500"}, 1_700_000_001_000),
        ({"TIMER_DELIVER_MS": "1700000005001"}, 1_700_000_005_000),
        # an exact second is lowered by one
        ({"TIMER_DELIVER_MS": "1700000005000"}, 1_700_000_004_000),
    ],
)
def test_timers(properties: dict[str, str], deliver: int) -> None:
    result = scheduled(properties)
    assert (result.topic, result.queue_id) == ("rmq_sys_wheel_timer", 0)
    assert result.properties == properties | {"TIMER_OUT_MS": str(deliver), "REAL_TOPIC": "T", "REAL_QID": "3"}


def test_of_several_timers_the_seconds_count_and_then_the_milliseconds() -> None:
    """In the order in which HookUtils asks for them; nothing else is in such a message."""
    all_of_them = {"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "70000", "TIMER_DELIVER_MS": str(NOW + 90_000)}
    assert scheduled(all_of_them).properties["TIMER_OUT_MS"] == "1700000002000"
    del all_of_them["TIMER_DELAY_SEC"]
    assert scheduled(all_of_them).properties["TIMER_OUT_MS"] == "1700000070000"


def test_a_timer_that_is_due_is_an_ordinary_message() -> None:
    due = {"TIMER_DELIVER_MS": str(NOW)}
    assert scheduled(due) == Destination("T", 3, due)
    assert refused(due | {"TIMER_DEL_UNIQKEY": "x"}) is PutStatus.WHEEL_TIMER_MSG_ILLEGAL


def test_refused_timers() -> None:
    assert refused({"TIMER_DELAY_SEC": "5"}, StoreConfig(timer_wheel_enable=False)) is PutStatus.WHEEL_TIMER_NOT_ENABLE
    assert refused({"TIMER_DELAY_SEC": "soon"}) is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    assert scheduled({"TIMER_DELAY_SEC": "259200"}).topic == "rmq_sys_wheel_timer"
    assert refused({"TIMER_DELAY_MS": "259200001"}) is PutStatus.WHEEL_TIMER_MSG_ILLEGAL


def test_copies_of_waiting_messages_stay_as_they_are() -> None:
    properties = {"DELAY": "3", "REAL_TOPIC": "Real", "REAL_QID": "0"}
    wanted = Destination("SCHEDULE_TOPIC_XXXX", 2, properties)
    assert schedule(wanted, 0, WHEEL, NOW) is wanted
    rolled = Destination("rmq_sys_wheel_timer", 0, {"TIMER_DELAY_SEC": "9", "TIMER_OUT_MS": "1"})
    assert schedule(rolled, 0, WHEEL, NOW) is rolled


def test_a_message_that_was_delivered_after_its_delay_is_not_delayed_again() -> None:
    for properties in ({"DELAY": "3"}, {"TIMER_DELAY_SEC": "9"}):
        delivered = properties | {"REAL_TOPIC": "T", "REAL_QID": "0"}
        assert scheduled(delivered) == Destination("T", 3, delivered)
        # sent back by a consumer it waits for its retry topic, whatever it waited for before
        sent_back = Destination("%RETRY%g", 0, delivered)
        assert schedule(sent_back, 0, WHEEL, NOW).topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")  # type: ignore[union-attr]


def test_times_have_the_digits_of_a_long_and_wrap_as_in_java() -> None:
    """9223372036854775807 s are -1000 ms after the multiplication: the message is due, and not delayed."""
    for name, text in (("TIMER_DELAY_SEC", str((1 << 63) - 1)), ("TIMER_DELIVER_MS", "0000000000000000001")):
        assert scheduled({name: text}) == Destination("T", 3, {name: text})
    for text in (str((1 << 63) - 1), str(1 << 63), "1_0"):
        assert refused({"TIMER_DELIVER_MS": text}) is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    assert scheduled({"TIMER_DELAY_MS": "１５００"}).topic == "rmq_sys_wheel_timer"
