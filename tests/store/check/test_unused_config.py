"""Files of config/ that a start passes over, or that no broker reads: said where they matter, no fault where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.goldens import GoldenStore
from tests.rmqctl.looking import run

MODES = "messageRequestMode.json"


def _make(path: Path, kind: str) -> None:
    if kind == "directory":
        path.mkdir()
    else:
        path.write_text({"empty": "", "damaged": '{"messageRequestModeMap":'}[kind])


@pytest.mark.parametrize("kind", ["directory", "empty", "damaged"])
@pytest.mark.parametrize("with_backup", [False, True])
def test_modes_that_a_broker_cannot_load_keep_it_from_no_start(
    golden_store: GoldenStore, kind: str, with_backup: bool
) -> None:
    store = golden_store("broker-real")
    path = store / "config" / MODES
    whole = '{"messageRequestModeMap":{"Events":{"g-events":{"mode":"POP","popShareQueueNum":0}}}}'
    path.write_text(whole)
    assert run("predict", "-s", store).code == 0
    assert run("check", "-s", store).code == 0
    path.unlink()
    _make(path, kind)
    if with_backup:
        path.with_name(f"{MODES}.bak").write_text(whole)
    (found,) = run("predict", "-s", store, "--json").objects
    (step,) = [one for one in found["config"] if one["file"] == MODES]
    assert (found["loads"], step["source"]) == (True, "backup" if with_backup else "nothing")
    (old,) = run("predict", "-s", store, "--json", "--broker", "4.9.8").objects
    assert not [one for one in old["config"] if one["file"] == MODES]
    assert MODES in run("check", "-s", store).out
    if kind == "damaged" and not with_backup:
        assert "5.3.3 and 5.5.0 start with an empty table" in run("check", "-s", store).out


@pytest.mark.parametrize("kind", ["directory", "empty", "damaged"])
def test_what_no_broker_reads_is_no_fault(golden_store: GoldenStore, kind: str) -> None:
    store = golden_store("broker-real")
    _make(store / "config" / "notes.json", kind)
    if kind == "directory":
        _make(store / "config" / "lmqConsumerOffset.json", kind)
        assert run("groups", "-s", store, "--json").objects
    done = run("check", "-s", store)
    assert done.code == 0, done.out
    assert run("predict", "-s", store).code == 0


def test_a_table_that_holds_no_object_is_named_so(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / "config/topics.json").write_text("[]")
    (found,) = run("predict", "-s", store, "--json", "--broker", "5.5.0").objects
    (step,) = [one for one in found["config"] if one["file"] == "topics.json"]
    assert step["detail"].startswith("topics.json is not loaded (5.5.0 does not take a file that holds no object): ")
