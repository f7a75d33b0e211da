"""Under load nothing that was acknowledged is lost, and no reader sees a wrong byte; and that this can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.store.message_store import MessageStore
from tests.proof.load import CONFIG, read_back, signed
from tests.proof.proving import PROOFS, prove


@pytest.mark.thorough
def test_nothing_is_lost_and_no_byte_is_wrong(tmp_path: Path) -> None:
    outcome = prove("load", PROOFS["load"].in_ci, 1, tmp_path)
    assert outcome.tried >= 2
    assert not outcome.failures, "\n".join(outcome.failures)


def _stored(folder: Path, body: bytes) -> int:
    with MessageStore.open(folder, "rw", CONFIG, create=True, allocate_ahead=False) as store:
        offset = store.put(Message(topic="load", body=body)).physical_offset
    assert offset is not None
    return offset


def test_it_fails_for_a_message_that_is_not_there(tmp_path: Path) -> None:
    offset = _stored(tmp_path / "store", signed("load 0 0-0"))
    read_back(tmp_path / "store", [(offset, "load 0 0-0")])
    with pytest.raises(AssertionError, match="1 for 2"):
        read_back(tmp_path / "store", [(offset, "load 0 0-0"), (offset + 500, "load 0 1-0")])


def test_it_fails_for_a_wrong_byte(tmp_path: Path) -> None:
    offset = _stored(tmp_path / "store", signed("load 0 0-0").replace(b"0-0", b"0-1"))
    with pytest.raises(AssertionError, match="a wrong byte"):
        read_back(tmp_path / "store", [(offset, "load 0 0-0")])
