"""`predict --to`: what another version does not read of a store, by stores that real brokers wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.output import outcome as exit_codes
from tests.goldens import GoldenStore, tree_state
from tests.opened import store_path
from tests.rmqctl.looking import run


def _differences(name: str, version: str) -> tuple[int, dict[tuple[str, str], int | None], dict[str, Any]]:
    done = run("predict", "-s", store_path(name), "--to", version, "--json")
    (found,) = done.objects
    rows = {(row["effect"], row["part"]): row["things"] for row in found["differences"]}
    return done.code, rows, found


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("broker-real", {("lost", "timer"): 5, ("lost", "config/topics.json"): 6}),
        ("innerbatch", {("lost", "batchconsumequeue"): 115}),
        ("longtopic", {("lost", "commitlog"): 12}),
        ("rocksdb", {("lost", "consumequeue"): None}),
        ("compaction", {}),
    ],
)
def test_4_9_8_does_not_read_what_5_wrote(name: str, wanted: dict[tuple[str, str], int | None]) -> None:
    code, rows, _ = _differences(name, "4.9.8")
    assert wanted.items() <= rows.items()
    assert code == (exit_codes.DAMAGE_OR_NOTHING if any(effect == "lost" for effect, _ in rows) else exit_codes.OK)


def test_the_own_version_misses_nothing() -> None:
    for name, version in (("broker-real", "5.3.3"), ("v4-clean", "4.9.8"), ("longtopic", "5.3.3")):
        code, rows, found = _differences(name, version)
        assert (code, rows, found["from"]) == (exit_codes.OK, {}, version), name


def test_a_store_of_4_9_8_moves_to_5_5_0() -> None:
    code, rows, found = _differences("v4-clean", "5.5.0")
    assert (code, {effect for effect, _ in rows}) == (exit_codes.OK, {"changed"})
    assert {"setting": "transactionCheckInterval", "value": None, "before": "60000", "after": "30000"}.items() <= next(
        row for row in found["settings"] if row["setting"] == "transactionCheckInterval"
    ).items()


def test_a_crashed_store_without_the_sixth_long_is_recovered_first() -> None:
    code, rows, found = _differences("crash", "5.5.0")
    assert (code, ("lost", "checkpoint") in rows) == (exit_codes.DAMAGE_OR_NOTHING, True)
    assert "rmqctl recover" in str(found["differences"])


def test_settings_that_a_version_does_not_know(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("commitLogRecoverMaxNum=3\ntimerWheelEnable=true\nbrokerName=a\n", encoding="utf-8")
    arguments = ("predict", "-s", store_path("v4-clean"), "-c", conf, "--from", "5.5.0", "--to", "4.9.8")
    (found,) = run(*arguments, "--json").objects
    unknown = {row["setting"]: row["value"] for row in found["settings"] if row["after"] is None}
    assert unknown == {"commitLogRecoverMaxNum": "3", "timerWheelEnable": "true"}
    assert "timerWheelEnable" in run(*arguments).out


def test_nothing_is_changed(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    before = tree_state(store)
    shown = run("predict", "-s", store, "--to", "4.9.8")
    assert "RocketMQ 4.9.8 misses or refuses 2 things" in shown.out
    assert tree_state(store) == before
    assert run("predict", "-s", store, "--from", "4.9.8").code == exit_codes.USAGE


def test_a_damaged_config_file_without_a_backup_is_deleted_by_5_5(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text("{bad", encoding="utf-8")
    for version, is_deleted in (("5.5.0", True), ("5.3.3", False)):
        done = run("predict", "-s", store, "--to", version)
        assert done.code == exit_codes.DAMAGE_OR_NOTHING
        assert ("deletes config/topics.json: copy it before the start" in " ".join(done.out.split())) is is_deleted
