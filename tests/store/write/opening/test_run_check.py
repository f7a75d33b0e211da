"""The queues before writing, by runs and message by message: the same end of the log, and the same refusal."""

from __future__ import annotations

import random
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RmqctlError
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.log.implied import QueueRun
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.opening import QueueEndCheck, _Differs, check_for_writing
from tests.goldens import GOLDENS, GoldenStore, broker_conf
from tests.opened import reader
from tests.quick import goldens_of


def _differs(check: QueueEndCheck, run: QueueRun) -> None:
    raise _Differs


def _outcome(files: StoreFiles, is_full: bool) -> dict[str, Any]:
    try:
        return asdict(check_for_writing(files, is_full=is_full))
    except RmqctlError as error:
        return {"error": str(error), "offset": error.physical_offset, "hint": error.hint}


def _both(store: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool = True) -> list[dict[str, Any]]:
    found = []
    for add_units in (_differs, QueueEndCheck.add_units):
        monkeypatch.setattr(QueueEndCheck, "add_units", add_units)
        with StoreFiles(store, read_broker_conf(broker_conf(store.name, store.parent))) as files:
            found.append(_outcome(files, is_full))
    return found


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("name", goldens_of(name for name in GOLDENS if not name.startswith("rocksdb")))
def test_goldens(name: str, is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    files = reader(name).files
    outcomes = []
    for add_units in (_differs, QueueEndCheck.add_units):
        monkeypatch.setattr(QueueEndCheck, "add_units", add_units)
        outcomes.append(_outcome(files, is_full))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", ["clean", "features", "first-gone"])
def test_damaged_queues(name: str, golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that is wrong, missing, or one too many: the first message that lacks its unit is named."""
    store = golden_store(name)
    paths = sorted(path for path in (store / "consumequeue").rglob("*") if path.is_file())
    choose = random.Random(7)
    refused = 0
    for number in range(12):
        path = choose.choice(paths)
        original = path.read_bytes()
        used = len(original.rstrip(b"\0"))
        data = bytearray(original)
        place = choose.randrange(0, used + 20)
        if number % 4 == 0:
            data[place] ^= 1 << choose.randrange(8)
        elif number % 4 == 1:
            data[place - place % 20 : used + 20] = bytes(used + 20 - (place - place % 20))
        elif number % 4 == 2:
            data[place - place % 20 : place - place % 20 + 20] = bytes(20)
        else:
            del data[place:]
        path.write_bytes(data)
        plain, runs = _both(store, monkeypatch)
        assert runs == plain
        refused += "error" in plain
        path.write_bytes(original)
    assert refused > 4
    assert "error" not in _both(store, monkeypatch)[1]


def test_a_queue_that_is_gone(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store("clean")
    shutil.rmtree(store / "consumequeue" / "OrderTopic" / "1")
    plain, runs = _both(store, monkeypatch)
    assert runs == plain
    assert "queue OrderTopic/1 lacks this message in slot 0" in plain["error"]
