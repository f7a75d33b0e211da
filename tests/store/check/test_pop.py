"""Findings of POP: none in sound stores of brokers, each of them provoked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqctl.store import Message, MessageStore
from rmqctl.store.check.catalogue import Finding
from tests.features import feature_store

REVIVE = "rmq_sys_REVIVE_LOG_c"
NOW = 1_795_653_490_000
_CHECKPOINT = {"bm": 0, "bn": "b", "c": "g", "d": [0, 1], "it": 60_000, "n": 2, "pt": NOW, "q": 0, "so": 0, "t": "T"}


def _found(store: Path) -> dict[str, Finding]:
    with MessageStore.open(store) as opened:
        return {one.code: one for one in opened.check() if one.kind.family == "POP"}


def _made(store: Path, *bodies: bytes, tag: str = "ck", properties: dict[str, str] | None = None) -> Path:
    with MessageStore.open(store, "rw", create=True) as opened:
        for _ in range(3):
            opened.put(Message("T", b"x", queue_id=0))
        for body in bodies:
            opened.put(Message(REVIVE, body, queue_id=0, properties={"TAGS": tag, **(properties or {})}))
    return store


def _offsets(store: Path, table: dict[str, dict[str, int]]) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}), encoding="utf-8")


@pytest.mark.parametrize("name", ["pop-fs", "pop-fs-533", "pop-fs-v2", "pop-fs-crash"])
def test_stores_of_brokers_are_sound(name: str, tmp_path: Path) -> None:
    assert _found(feature_store(name, tmp_path)) == {}


@pytest.mark.parametrize("name", ["pop-kv", "pop-kv-crash"])
def test_a_restart_of_kv_store_is_a_notice(name: str, tmp_path: Path) -> None:
    found = _found(feature_store(name, tmp_path))
    assert found.keys() == {"RMQ-POP-006"}
    assert not found["RMQ-POP-006"].severity.is_alarm


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"n":1e999}',
        json.dumps({**_CHECKPOINT, "n": 10**12}).encode(),
        json.dumps({**_CHECKPOINT, "so": 1 << 63}).encode(),
        json.dumps({**_CHECKPOINT, "d": list(range(500))}).encode(),
        json.dumps({**_CHECKPOINT, "d": [0, "x"]}).encode(),
        json.dumps({**_CHECKPOINT, "c": 7}).encode(),
    ],
)
def test_records_that_no_broker_uses(body: bytes, tmp_path: Path) -> None:
    one = _found(_made(tmp_path, body, body))["RMQ-POP-001"]
    assert (one.messages, "and 1 more record" in one.message) == (2, True)
    assert one.physical_offset is not None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"n": 3}, "n is 3, and d has 2 entries"),
        ({"d": [1, 0]}, "d is not ascending"),
        ({"so": -1}, "so or q is negative"),
        ({"it": -5, "pt": NOW}, "it is negative"),
    ],
)
def test_records_that_contradict_themselves(changed: dict[str, object], said: str, tmp_path: Path) -> None:
    body = json.dumps({**_CHECKPOINT, **changed}).encode()
    assert said in _found(_made(tmp_path, body))["RMQ-POP-002"].message


def test_a_checkpoint_that_is_delivered_at_another_time(tmp_path: Path) -> None:
    store = _made(tmp_path, json.dumps(_CHECKPOINT).encode(), properties={"TIMER_DELIVER_MS": str(NOW - 77)})
    assert f"it is delivered at {NOW - 77}" in _found(store)["RMQ-POP-002"].message


def test_revive_past_its_last_record(tmp_path: Path) -> None:
    store = _made(tmp_path, json.dumps(_CHECKPOINT).encode())
    _offsets(store, {f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP": {"0": 0}, "T@g": {"0": 2}})
    assert "RMQ-POP-003" not in _found(store)
    _offsets(store, {f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP": {"0": 1}, "T@g": {"0": 2}})
    one = _found(store)["RMQ-POP-003"]
    assert (one.expected, one.found, one.queue_id) == (0, 1, 0)


def test_what_the_timer_has_lost(tmp_path: Path) -> None:
    store = feature_store("pop-fs", tmp_path)
    shutil.rmtree(store / "timerlog")
    (store / "timerwheel").unlink()
    found = _found(store)
    # 51 were handed out, and 20 of them acknowledged
    assert found["RMQ-POP-004"].messages == 31
    with MessageStore.open(store) as opened:
        (step,) = (one for one in next(iter(opened.where("job-3", groups=["g-work"], now=NOW))).evidence if one.group)
    assert (step.state, "it never comes again" in step.detail) == ("lost", True)


def test_an_offset_that_skips_messages_of_an_ordered_pop(tmp_path: Path) -> None:
    store = feature_store("pop-fs", tmp_path)
    path = store / "config" / "consumerOffset.json"
    text = path.read_text(encoding="utf-8")
    assert '"Steps@g-fifo":{\n\t\t\t0:1,' in text
    path.write_text(text.replace('"Steps@g-fifo":{\n\t\t\t0:1,', '"Steps@g-fifo":{\n\t\t\t0:4,'), encoding="utf-8")
    one = _found(store)["RMQ-POP-007"]
    assert (one.topic, one.queue_id, one.expected, one.found) == ("Steps", 0, 1, 4)


def test_an_older_offset_hands_messages_out_twice(tmp_path: Path) -> None:
    store = _made(tmp_path, json.dumps(_CHECKPOINT).encode())
    _offsets(store, {"T@g": {"0": 1}})
    assert _found(store)["RMQ-POP-006"].messages == 1


def test_an_acknowledgement_before_its_checkpoint(tmp_path: Path) -> None:
    """It reaches the revive topic while the checkpoint waits in the timer: a broker drops it."""
    store = _made(tmp_path)
    timed = {"TAGS": "ck", "TIMER_OUT_MS": str(NOW + 59_000), "REAL_TOPIC": REVIVE, "REAL_QID": "0"}
    ack = {"ao": 1, "so": 0, "c": "g", "t": "T", "q": 0, "pt": NOW, "bn": "b"}
    with MessageStore.open(store, "rw") as opened:
        opened.put(Message("rmq_sys_wheel_timer", json.dumps(_CHECKPOINT).encode(), queue_id=0, properties=timed))
        opened.put(Message(REVIVE, json.dumps(ack).encode(), queue_id=0, properties={"TAGS": "ack"}))
    assert _found(store)["RMQ-POP-005"].messages == 1


def test_order_info_of_any_shape(tmp_path: Path) -> None:
    store = _made(tmp_path)
    (store / "config").mkdir()
    empty = {"T@g": {"0": {"o": [], "popTime": 1, "i": 1}, "1": {"popTime": 1}}, "nothing": {"0": {"o": [1]}}}
    (store / "config" / "consumerOrderInfo.json").write_text(json.dumps({"table": empty}), encoding="utf-8")
    assert _found(store)["RMQ-POP-001"].messages == 3
    # what no broker loads is damage of the file
    table = {"T@g": {"0": {"o": [0], "popTime": "x"}, "y": {}, "1": []}, "T@h": 7, "nothing": {"0": {}}}
    (store / "config" / "consumerOrderInfo.json").write_text(json.dumps({"table": table}), encoding="utf-8")
    with MessageStore.open(store) as opened:
        assert {one.code for one in opened.check()} == {"RMQ-CFG-002"}
