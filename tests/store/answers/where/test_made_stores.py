"""States that no golden store has, on stores made of the messages that a broker would have written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.store import Message, MessageStore, StoreConfig
from rmqctl.store.answers.half_topics import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from rmqctl.store.answers.where.steps import Stage, Verdict, Whereabouts
from tests.store.answers.where.asking import NOW, steps

_SMALL = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
_SMALL = _SMALL._replace(max_hash_slot_num=100, max_index_num=400)
TIMER = "rmq_sys_wheel_timer"


def _half(key: str, topic: str = HALF_TOPIC, checks: int = 0) -> Message:
    properties = {"UNIQ_KEY": key, "PGROUP": "p", "REAL_TOPIC": "Pay", "REAL_QID": "0"}
    return Message(topic, b"pay", queue_id=0, properties={**properties, "TRANSACTION_CHECK_TIMES": str(checks)})


def _asked(store: Path, *messages: Message, key: str = "u1", **question: object) -> Whereabouts:
    with MessageStore.open(store, "rw", _SMALL, create=True) as opened:
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
    with MessageStore.open(tmp_path, "rw", _SMALL, create=True) as opened:
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
