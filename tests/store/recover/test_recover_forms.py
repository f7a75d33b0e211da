"""Recover and rebuild are the same with and without compiled code, and leave nothing behind when they are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.quick import every
from tests.store.columns.comparing import use_form
from tests.store.logs import bytes_to_read

NAMES = ["crash", "features", "crc-flip-old-abort", "first-gone", "index-garbage", "cq-truncated", "v4-torn-garbage"]


def _opened(store: Path) -> StoreFiles:
    return StoreFiles(store, read_broker_conf(broker_conf(store.name, store.parent)))


def _contents(store: Path) -> dict[str, object]:
    return {path: state[2] for path, state in tree_state(store).items()}


@pytest.mark.parametrize("name", every(2, NAMES))
@pytest.mark.parametrize("verb", [recover, rebuild])
def test_both_forms_leave_the_same(
    verb: Callable[..., Any], name: str, golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for form in ("compiled", "plain"):
        use_form(form, monkeypatch)
        store = golden_store(name)
        with _opened(store) as files:
            report = asdict(verb(files))
        del report["journal"]
        for span in report.get("damaged", []):
            span["file"] = Path(span["file"]).name
        results.append((report, _contents(store)))
    assert results[0] == results[1]


@pytest.mark.parametrize("verb", [recover, rebuild])
def test_stopped_by_hand_it_leaves_nothing(verb: Callable[..., Any], golden_store: GoldenStore) -> None:
    store = golden_store("index-lost-abort")
    before = _contents(store)
    passed = 0

    def progress(count: int) -> None:
        nonlocal passed
        passed += count
        if passed > 1_000_000:
            raise KeyboardInterrupt

    with _opened(store) as files, pytest.raises(KeyboardInterrupt):
        verb(files, change=ChangeOptions(progress=progress))
    after = _contents(store)
    after.pop("lock", None)
    before.pop("lock", None)
    assert after == before
    assert not store.with_name(store.name + ".rmqctl").exists()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("walk")]


def test_progress_tells_every_byte_once(golden_store: GoldenStore) -> None:
    told: list[int] = []
    with _opened(golden_store("clean")) as files:
        recover(files, change=ChangeOptions(dry_run=True, progress=told.append))
        assert sum(told) == bytes_to_read(files.log)
