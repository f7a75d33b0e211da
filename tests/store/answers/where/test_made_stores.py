"""States that no golden store has, on stores made of the messages that a broker would have written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store import Message, MessageStore, StoreConfig
from rmqctl.store.answers.steps import Stage, Verdict, Whereabouts
from rmqctl.store.answers.undispatched import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from tests.store.answers.where.asking import NOW, steps

_SMALL = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
_SMALL = _SMALL._replace(max_hash_slot_num=100, max_index_num=400)
TIMER = "rmq_sys_wheel_timer"


def _an_hour_before() -> int:
    return NOW - 3_600_000


def _half(key: str, topic: str = HALF_TOPIC, checks: int = 0) -> Message:
    properties = {"UNIQ_KEY": key, "PGROUP": "p", "REAL_TOPIC": "Pay", "REAL_QID": "0"}
    return Message(topic, b"pay", queue_id=0, properties={**properties, "TRANSACTION_CHECK_TIMES": str(checks)})


def _asked(store: Path, *messages: Message, key: str = "u1", **question: object) -> Whereabouts:
    with MessageStore.open(store, "rw", _SMALL, create=True, clock=_an_hour_before) as opened:
        opened.put_many(messages)
    with MessageStore.open(store, "r", _SMALL) as opened:
        (answer,) = opened.where(key, now=NOW, **question)  # type: ignore[arg-type]  # of each test's choice
        return answer


def test_given_up(tmp_path: Path) -> None:
    answer = _asked(tmp_path, _half("u1"), _half("u1", checks=15), _half("u1", GIVEN_UP_TOPIC, 15))
    assert answer.state is Verdict.GAVE_UP
    assert [step.state for step in steps(answer, Stage.HALF)] == ["superseded", "gave-up"]
    assert "asked 15 times" in answer.sentence


def test_given_up_and_the_half_is_gone(tmp_path: Path) -> None:
    assert _asked(tmp_path, _half("u1", GIVEN_UP_TOPIC)).state is Verdict.GAVE_UP


def test_rolled_back_and_pending(tmp_path: Path) -> None:
    marks = Message(OP_TOPIC, b"0,", queue_id=0, properties={"TAGS": "d"})
    messages = (_half("u1"), _half("u2"), marks)
    assert _asked(tmp_path, *messages).state is Verdict.ROLLED_BACK
    pending = _asked(tmp_path, key="u2")
    assert pending.state is Verdict.PENDING
    assert "producers were not asked yet" in pending.sentence


def test_taken_back_from_the_timer(tmp_path: Path) -> None:
    due = {"TIMER_OUT_MS": str(NOW + 9000), "REAL_TOPIC": "Later", "REAL_QID": "0"}
    timed = Message(TIMER, b"x", queue_id=0, properties={"UNIQ_KEY": "u1", **due})
    other = Message(TIMER, b"x", queue_id=0, properties={"UNIQ_KEY": "u2", **due})
    deleter = Message(TIMER, b"x", queue_id=0, properties={"UNIQ_KEY": "u3", "TIMER_DEL_UNIQKEY": "u1", **due})
    answer = _asked(tmp_path, timed, other, deleter)
    assert answer.state is Verdict.CANCELLED
    waiting = _asked(tmp_path, key="u2")
    assert waiting.state is Verdict.WAITING
    assert steps(waiting, Stage.DELAY)[0].timestamp == NOW + 9000


@pytest.mark.parametrize(("offset", "state"), [(1, Verdict.UNKNOWN), (0, Verdict.OVERDUE), (None, Verdict.UNKNOWN)])
def test_a_level_that_has_passed_it(tmp_path: Path, offset: int | None, state: Verdict) -> None:
    """Without a delivered copy nobody knows what became of it; and without offsets whether it was delivered."""
    properties = {"UNIQ_KEY": "u1", "DELAY": "3", "REAL_TOPIC": "Later", "REAL_QID": "0"}
    delayed = Message("SCHEDULE_TOPIC_XXXX", b"x", queue_id=2, properties=properties)
    (tmp_path / "config").mkdir()
    if offset is not None:
        text = json.dumps({"offsetTable": {"3": offset}})
        (tmp_path / "config" / "delayOffset.json").write_text(text, encoding="utf-8")
    assert _asked(tmp_path, delayed).state is state


def test_a_retry_that_waits(tmp_path: Path) -> None:
    """The group failed once: its retry lies in a delay level, and then in its retry topic, unread."""
    sent = Message("T", b"x", queue_id=0, properties={"UNIQ_KEY": "u1"})
    with MessageStore.open(tmp_path, "rw", _SMALL, create=True, clock=_an_hour_before) as opened:
        first = opened.put(sent)
    hop = {"UNIQ_KEY": "u1", "ORIGIN_MESSAGE_ID": first.message_id or "", "RETRY_TOPIC": "T"}
    waits = {**hop, "DELAY": "3", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"}
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{}}', encoding="utf-8")
    table = json.dumps({"offsetTable": {"T@g": {"0": 1}, "%RETRY%g@g": {"0": 0}}})
    (tmp_path / "config" / "consumerOffset.json").write_text(table, encoding="utf-8")
    answer = _asked(
        tmp_path, Message("SCHEDULE_TOPIC_XXXX", b"x", queue_id=2, properties=waits, reconsume_times=1), groups=["g"]
    )
    assert answer.state is Verdict.RETRYING
    assert [step.state for step in steps(answer, Stage.RETRY, "g")] == ["overdue"]
    given = _asked(tmp_path, Message("%RETRY%g", b"x", queue_id=0, properties=waits, reconsume_times=1))
    assert given.state is Verdict.RETRYING
    assert [(step.state, step.distance) for step in steps(given, Stage.RETRY, "g")] == [("unread", 0)]


def _popped(store: Path, *revive: Message, more: dict[str, dict[str, int]] | None = None) -> Whereabouts:
    """Message 1 of T, which the group has before its offset of 3."""
    sent = [Message("T", b"x", queue_id=0, properties={"UNIQ_KEY": f"u{number}"}) for number in range(3)]
    (store / "config").mkdir()
    table = {"offsetTable": {"T@g": {"0": 3}, **(more or {})}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table), encoding="utf-8")
    return _asked(store, *sent, *revive)


def _handed_out(
    start: int, steps: list[int], at: int = NOW, topic: str = "T", timed: dict[str, str] | None = None
) -> Message:
    """A checkpoint (PopMessageProcessor#buildCkMsg)."""
    body = {"bm": 0, "bn": "b", "c": "g", "d": steps, "it": 60_000, "n": len(steps), "pt": at, "q": 0, "so": start}
    body |= {"t": topic, "rp": 0, "ro": 0}
    into = TIMER if timed else REVIVE
    return Message(into, json.dumps(body).encode(), queue_id=0, properties={"TAGS": "ck", **(timed or {})})


def _acknowledged(offset: int, start: int = 0, topic: str = "T") -> Message:
    """An AckMsg of what was handed out at NOW."""
    body = {"ao": offset, "so": start, "c": "g", "t": topic, "q": 0, "pt": NOW, "bn": "b"}
    return Message(REVIVE, json.dumps(body).encode(), queue_id=0, properties={"TAGS": "ack"})


REVIVE = "rmq_sys_REVIVE_LOG_c"
_ACK = _acknowledged(1)


@pytest.mark.parametrize("by_timer", [False, True])
def test_in_flight_at_a_group_that_consumes_by_pop(tmp_path: Path, by_timer: bool) -> None:
    timed = {"TIMER_OUT_MS": str(NOW + 59_000), "REAL_TOPIC": REVIVE, "REAL_QID": "0"} if by_timer else {}
    # the revive topic is there, if only with what is settled
    settled = Message(REVIVE, b"{}", queue_id=0, properties={"TAGS": "other"})
    answer = _popped(tmp_path, settled, _handed_out(0, [0, 1], timed=timed))
    assert answer.state is Verdict.UNKNOWN
    (step,) = steps(answer, Stage.GROUP)
    assert (step.state, step.group_offset, step.distance) == ("in-flight", 3, -2)
    assert "consumes by POP" in step.detail
    assert "in flight until" in step.detail
    # offset 2 was not handed out with these
    (other,) = steps(_asked(tmp_path, key="u2"), Stage.GROUP)
    assert (other.state, "no checkpoint that is left names it" in other.detail) == ("popped", True)


def test_acknowledged_by_a_group_that_consumes_by_pop(tmp_path: Path) -> None:
    answer = _popped(tmp_path, _handed_out(0, [0, 1]), _ACK)
    assert (answer.state, steps(answer, Stage.GROUP)[0].state) == (Verdict.READ, "passed")
    # its neighbour is in flight all the same
    assert steps(_asked(tmp_path, key="u0"), Stage.GROUP)[0].state == "in-flight"


def test_who_asked_for_more_time_has_not_acknowledged_it(tmp_path: Path) -> None:
    """The broker acknowledges what was handed out before, and hands it out anew (ChangeInvisibleTimeProcessor)."""
    answer = _popped(tmp_path, _handed_out(0, [0, 1]), _handed_out(1, [0], NOW + 20), _ACK)
    assert (answer.state, steps(answer, Stage.GROUP)[0].state) == (Verdict.UNKNOWN, "in-flight")
    assert "in flight until 2027-01-15T08:01:00.020Z" in steps(answer, Stage.GROUP)[0].detail


def test_not_acknowledged_in_time(tmp_path: Path) -> None:
    answer = _popped(tmp_path, _handed_out(0, [0, 1], NOW - 90_000))
    assert (answer.state, steps(answer, Stage.GROUP)[0].state) == (Verdict.RETRYING, "unacknowledged")


@pytest.mark.parametrize("retries", ["%RETRY%g_T", "%RETRY%g+T"])
@pytest.mark.parametrize(
    ("reached", "revive", "expected"),
    [
        (0, (), (Verdict.RETRYING, "unread")),
        (1, ("ck",), (Verdict.UNKNOWN, "unknown")),
        (1, ("ck", "ack"), (Verdict.READ, "read")),
    ],
)
def test_a_retry_that_a_broker_makes_of_what_was_not_acknowledged(
    tmp_path: Path, retries: str, reached: int, revive: tuple[str, ...], expected: tuple[Verdict, str]
) -> None:
    """It names neither the topic nor the group, and has no ORIGIN_MESSAGE_ID (PopReviveService#reviveRetry)."""
    again = {"UNIQ_KEY": "u1", "1ST_POP_TIME": str(NOW - 90_000)}
    retry = Message(retries, b"x", queue_id=0, properties=again, reconsume_times=1)
    made = {"ck": _handed_out(0, [0], topic=retries), "ack": _acknowledged(0, topic=retries)}
    offsets = {f"{retries}@g": {"0": reached}}
    first = _handed_out(0, [0, 1], NOW - 90_000)
    answer = _popped(tmp_path, first, retry, *(made[kind] for kind in revive), more=offsets)
    assert [one.group for one in answer.groups] == ["g"]
    (step,) = steps(answer, Stage.RETRY, "g")
    assert (answer.state, step.state) == expected
    assert f"retry 1 is {retries} 0 0" in step.detail


@pytest.mark.parametrize("retries", ["%RETRY%g_T", "%RETRY%g+T"])
def test_its_group_is_known_where_the_message_has_expired(tmp_path: Path, retries: str) -> None:
    retry = Message(retries, b"x", queue_id=0, properties={"UNIQ_KEY": "u9"}, reconsume_times=1)
    _popped(tmp_path, retry, more={f"{retries}@g": {"0": 0}})
    answer = _asked(tmp_path, key="u9")
    assert [one.group for one in answer.groups] == ["g"]


def test_a_retry_of_a_group_that_is_called_like_one_of_pop(tmp_path: Path) -> None:
    retry = {"UNIQ_KEY": "u1", "RETRY_TOPIC": "T"}
    offsets = {"T@g_T": {"0": 3}, "%RETRY%g_T@g_T": {"0": 0}}
    made = Message("%RETRY%g_T", b"x", queue_id=0, properties=retry, reconsume_times=1)
    answer = _popped(tmp_path, made, more=offsets)
    assert [(one.group, one.state) for one in answer.groups if one.group == "g_T"] == [("g_T", Verdict.RETRYING)]


def test_a_settled_checkpoint_says_nothing_of_now(tmp_path: Path) -> None:
    answer = _popped(tmp_path, _handed_out(0, [0, 1]), more={f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP": {"0": 1}})
    assert (answer.state, steps(answer, Stage.GROUP)[0].state) == (Verdict.READ, "passed")


def test_its_retry_topic_tells_a_group_that_consumes_by_pop(tmp_path: Path) -> None:
    answer = _popped(tmp_path, Message("%RETRY%g_T", b"x", queue_id=0, properties={"UNIQ_KEY": "other"}))
    assert answer.state is Verdict.UNKNOWN
    (step,) = steps(answer, Stage.GROUP)
    assert (step.state, "%RETRY%g_T" in step.detail) == ("popped", True)


def test_a_group_of_such_a_name_does_not(tmp_path: Path) -> None:
    _popped(tmp_path, Message("%RETRY%g_T", b"x", queue_id=0, properties={"UNIQ_KEY": "other"}))
    table: dict[str, dict[str, dict[str, object]]] = {"subscriptionGroupTable": {"g_T": {}, "g": {}}}
    (tmp_path / "config" / "subscriptionGroup.json").write_text(json.dumps(table), encoding="utf-8")
    assert steps(_asked(tmp_path), Stage.GROUP)[0].state == "passed"


_ENDLESS = {"bm": 0, "c": "g", "it": 1, "n": 10**12, "pt": NOW, "q": 0, "so": 0, "t": "T"}


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b'{"c": "g"}', json.dumps(_ENDLESS).encode()])
def test_what_is_no_checkpoint_is_damage(tmp_path: Path, body: bytes) -> None:
    broken = Message(REVIVE, body, queue_id=0, properties={"TAGS": "ck"})
    with pytest.raises(CorruptError, match="no checkpoint and no acknowledgement of POP"):
        _popped(tmp_path, broken)
