"""A store that a real RocketMQ is writing to gives no alarm, and what it has written gives none either."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.check import check
from rmqctl.store.store_files import StoreFiles
from tests.goldens import properties
from tests.interop.harness import write_store

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

MESSAGES = 50_000


def _alarms(store: Path) -> tuple[list[Finding], int]:
    with StoreFiles(store) as files:
        run = check(files)
        found = [finding for finding in run if finding.severity.is_alarm]
    return found, run.summary.messages


@pytest.mark.parametrize(("version", "name"), [("5.3.3", "clean"), ("4.9.8", "v4-clean")])
def test_no_alarm_while_a_broker_writes(version: str, name: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            write_store(version, store, properties(name), messages=MESSAGES)
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    checked = 0
    try:
        while writer.is_alive():
            if not (store / "commitlog").is_dir():
                writer.join(0.05)
                continue
            found, messages = _alarms(store)
            assert not found
            checked += messages > 0
    finally:
        writer.join()
    assert not failed
    assert checked > 3
    assert _alarms(store) == ([], MESSAGES)
