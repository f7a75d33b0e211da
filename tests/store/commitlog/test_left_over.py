"""Leftovers after the end of a log that a broker wrote with writeWithoutMmap=true: neither damage nor messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.store.message_store import MessageStore
from tests.goldens import tree_state
from tests.store.v55 import CONFIG, store_of_5_5

_END, _STOP = 231829, 232200


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return store_of_5_5(tmp_path, "v55-nommap")


def _log(store: Path) -> Path:
    return store / "commitlog" / f"{0:020d}"


def _codes(store: Path, level: str = "default") -> list[str]:
    with MessageStore.open(store) as opened:
        return [finding.code for finding in opened.check(level) if finding.code != "RMQ-LOG-017"]


@pytest.mark.parametrize("level", ["quick", "default", "full"])
def test_check_finds_nothing_wrong(store: Path, level: str) -> None:
    assert any(_log(store).read_bytes()[_END:_STOP])
    assert _codes(store, level) == []


def test_recover_leaves_them_and_says_no_damage(store: Path) -> None:
    before = tree_state(store)
    with MessageStore.open(store) as opened:
        assert opened.info()["commitlog"]["damaged_spans"] == 0
        report = opened.recover()
    assert (report.end_offset, report.truncated_bytes) == (_END, 0)
    assert tree_state(store) == before


def test_append_goes_on_over_them(store: Path) -> None:
    with MessageStore.open(store, "rw", CONFIG) as opened:
        assert opened.put(Message("T", b"x", properties={"KEYS": "k"})).physical_offset == _END
    assert any(_log(store).read_bytes()[_END + 200 : _STOP])
    assert _codes(store) == []


@pytest.mark.parametrize(
    ("begin", "data", "code"),
    [
        # other bytes than those of messages
        (_END, bytes(range(1, 256)), "RMQ-LOG-012"),
        # more than the page holds
        (_END, b"WAIT\x01false\x02TAGS\x01TagB\x02" * 100, "RMQ-LOG-012"),
    ],
)
def test_what_is_no_leftover_is_still_found(store: Path, begin: int, data: bytes, code: str) -> None:
    with _log(store).open("r+b") as raw:
        raw.seek(begin)
        raw.write(bytes(_STOP - begin))
        raw.seek(begin)
        raw.write(data)
    assert _codes(store) == [code]


def test_a_torn_message_is_still_found(store: Path) -> None:
    data = _log(store).read_bytes()
    size = int.from_bytes(data[231607:231611], "big")
    torn = bytearray(data[231607 : 231607 + size])
    torn[28:36] = _END.to_bytes(8, "big")
    torn[84:] = bytes(size - 84)
    with _log(store).open("r+b") as raw:
        raw.seek(_END)
        raw.write(bytes(_STOP - _END))
        raw.seek(_END)
        raw.write(torn)
    assert _codes(store) == ["RMQ-LOG-011"]
