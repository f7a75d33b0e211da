"""`rmqctl predict`: what it prints and what it ends with; what it predicts is tested in tests/store/check."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store import Message, MessageStore, StoreConfig
from tests.goldens import GoldenStore, tree_state, truth
from tests.opened import store_path
from tests.rmqctl.looking import run

FIELDS = [
    "broker", "loads", "error", "start_file", "start_offset", "end_offset", "messages_lost", "bytes_lost",
    "files_deleted", "queues_changed", "index_files_deleted",
]  # fmt: skip


def test_a_sound_store_starts_and_loses_nothing() -> None:
    done = run("predict", "-s", store_path("clean"), "--json")
    [answer] = done.objects
    assert done.code == exit_codes.OK
    assert [name for name in FIELDS if name not in answer] == []
    assert (answer["broker"], answer["loads"], answer["queues_changed"], answer["warnings"]) == ("5.3.3", True, [], [])


def test_a_broker_that_would_cut() -> None:
    done = run("predict", "-s", store_path("crc-flip-last"), "--broker", "5.3.3")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "messages lost        25" in done.out
    assert "CRC check failed" in done.out
    assert "topic" in done.out
    assert "rmqctl recover" in done.err


def test_a_broker_that_does_not_start() -> None:
    done = run("predict", "-s", store_path("empty-last"), "--broker", "4.9.8")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "length not matched message store config value" in done.out
    assert run("predict", "-s", store_path("empty-last")).code == exit_codes.OK


def test_long_lists_are_cut_for_people_only() -> None:
    done = run("predict", "-s", store_path("cq-lost-abort"))
    assert "more queues: --json names all" in done.out
    [answer] = run("predict", "-s", store_path("cq-lost-abort"), "--json").objects
    assert len(answer["queues_changed"]) == 37


def test_other_formats() -> None:
    done = run("predict", "-s", store_path("clean"), "--format", "csv")
    assert done.out.startswith("broker,loads,error")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["-s", "/nowhere"], exit_codes.UNREADABLE),
        (["--broker", "3.2.6"], exit_codes.USAGE),
    ],
)
def test_what_it_does_not_take(arguments: list[str], code: int) -> None:
    assert run("predict", *arguments).code == code


@pytest.mark.parametrize(
    ("setting", "broker", "is_refused"),
    [
        ("storeType=defaultRocksDB", "5.3.3", False),
        ("storeType=defaultRocksDB", "4.9.8", False),
        ("forceVerifyPropCRC=true", "5.3.3", True),
        ("forceVerifyPropCRC=true", "4.9.8", False),
        ("enableControllerMode=true", "5.3.3", True),
        ("duplicationEnable=true", "4.9.8", True),
        ("enableDLegerCommitLog=true\nstorePathDLedgerCommitLog=/d", "5.3.3", True),
        ("enableDLegerCommitLog=true", "5.3.3", False),
        ("messageIndexSafe=true", "5.3.3", False),
    ],
)
def test_settings_that_are_not_followed_are_refused(
    setting: str, broker: str, is_refused: bool, tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store_path('clean')}\n{setting}\n", encoding="utf-8")
    done = run("predict", "-c", conf, "--broker", broker)
    assert (done.code == exit_codes.REFUSED) is is_refused
    assert ("is not predicted" in done.err) is is_refused


def test_duplication_loses_the_log_that_recovery_reads(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store_path('clean')}\nduplicationEnable=true\n", encoding="utf-8")
    done = run("predict", "-c", conf, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    (found,) = done.objects
    assert found["end_reason"] == "DupInfo in properties check failed. dupInfo=null"
    assert found["end_offset"] == found["start_offset"]
    behind = [row for row in truth("clean").messages if row["commitLogOffset"] >= found["end_offset"]]
    assert found["messages_lost"] == len(behind) > 0
    assert any(row["units_dropped"] for row in found["queues_changed"])
    assert found["harmful_setting"] == "duplicationEnable=true"
    assert "Remove duplicationEnable=true from the broker's configuration" in run("predict", "-c", conf).out


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ("7_1", None),
        ("7_1_", None),
        ("7", "DupInfo in properties check failed. dupInfo=7"),
        ("7_1_2", "DupInfo in properties check failed. dupInfo=7_1_2"),
    ],
)
def test_messages_with_duplicate_info_are_not_guessed(info: str, reason: str | None, tmp_path: Path) -> None:
    sizes = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000)
    with MessageStore.open(tmp_path / "store", "rw", sizes, create=True) as store:
        store.put(Message("T", b"body", properties={"DUP_INFO": info}))
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path / 'store'}\nduplicationEnable=true\n", encoding="utf-8")
    done = run("predict", "-c", conf, "--json")
    if reason is None:
        assert done.code == exit_codes.REFUSED
        assert "confirmed offset" in done.err
    else:
        assert done.objects[0]["end_reason"] == reason


def test_damage_that_a_start_does_not_notice_is_told() -> None:
    for name, text in (
        ("crc-flip-third", "1 damaged place of the log, at offset 1695806"),
        ("gap", "[1048576, 1310720)"),
    ):
        done = run("predict", "-s", store_path(name))
        assert done.code == exit_codes.OK
        assert text in done.err


def test_it_only_looks(golden_store: GoldenStore) -> None:
    store = golden_store("torn-zero")
    before = tree_state(store.parent)
    run("predict", "-s", store)
    assert tree_state(store.parent) == before


_PLACES = (
    "abort", "checkpoint", "timerwheel", "config/timercheck", "config/timermetrics", "config/timermetrics.bak",
    "config/transactionMetrics", "config/transactionMetrics.bak", "epochFileCheckpoint", "epochFileCheckpoint.bak",
    "brokerIdentity", "lock", "config/topics.json", "config/topics.json.bak", "config/consumerOffset.json",
    "config/consumerOffset.json.bak", "config/subscriptionGroup.json.bak", "config/consumerFilter.json.bak",
    "config/consumerOrderInfo.json.bak", "config/delayOffset.json", "config/delayOffset.json.bak",
    "config/topicQueueMapping.json", "config/topicQueueMapping.json.bak",
)  # fmt: skip


@pytest.mark.parametrize("name", _PLACES)
def test_a_directory_in_the_place_of_a_file_weighs_as_much_as_check_says(golden_store: GoldenStore, name: str) -> None:
    store = golden_store("broker-real")
    (store / name).unlink(missing_ok=True)
    (store / name).mkdir()
    checked = run("check", "-s", store, "--json")
    errors = [row for row in checked.objects if row.get("severity") == "error"]
    assert (checked.code, [row["file"] for row in errors]) == (exit_codes.DAMAGE_OR_NOTHING, [name])
    start = run("predict", "-s", store, "--json")
    assert start.code == exit_codes.DAMAGE_OR_NOTHING
    assert Path(name).name in str(start.objects[0]["error"] or start.objects[0]["config"])
