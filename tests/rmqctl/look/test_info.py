"""`rmqctl info`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from tests.goldens import broker_conf, golden, truth
from tests.opened import store_path
from tests.rmqctl.looking import run

SHAPE = {
    "commitlog": {
        "files",
        "file_size",
        "min_offset",
        "max_offset",
        "messages",
        "bytes",
        "first_store_timestamp",
        "last_store_timestamp",
    },
    "consumequeue": {"topics", "queues", "units"},
    "index": {"files", "entries"},
    "checkpoint": {
        "physic_msg_timestamp",
        "logics_msg_timestamp",
        "index_msg_timestamp",
        "master_flushed_offset",
        "confirm_physical_offset",
        "logics_physical_offset",
    },
}


def test_json() -> None:
    done = run("info", "-s", store_path("clean"), "--json")
    assert (done.code, done.err) == (exit_codes.OK, "")
    (found,) = done.objects
    for part, names in SHAPE.items():
        assert names <= found[part].keys(), part
    assert found["path"] == str(store_path("clean"))
    assert (found["abort"], found["locked"], found["clean_shutdown"]) == (False, False, True)
    assert found["commitlog"]["messages"] == 2500
    assert found["commitlog"]["max_offset"] == truth("clean").summary["maxPhy"]
    assert found["consumequeue"] == {"kind": "files", "topics": 12, "queues": 41, "units": 2500, "problems": []}
    assert (found["index"]["files"], found["index"]["entries"]) == (3, 5994)


def test_a_crashed_store() -> None:
    (found,) = run("info", "-s", store_path("crash"), "--json").objects
    assert (found["abort"], found["clean_shutdown"]) == (True, False)
    assert found["consumequeue"]["units"] == 2100
    assert found["commitlog"]["messages"] == 2500


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("crc-flip-old", 1),
        ("gap", 1),
        ("stray-file", 1),
        ("torn-zero", 1),
        ("prealloc-last", 0),
        ("first-gone", 0),
        ("cq-short", 1),
    ],
)
def test_damage_is_exit_code_1(name: str, code: int) -> None:
    done = run("info", "-s", store_path(name))
    assert done.code == code
    assert "messages" in done.out


def test_quick_counts_no_messages() -> None:
    (found,) = run("info", "-s", store_path("crc-flip-old"), "--quick", "--json").objects
    assert found["commitlog"]["messages"] is None
    assert found["commitlog"]["files"] == 9


def test_several_directories_need_the_broker_conf(tmp_path: Path) -> None:
    store = golden("multipath", tmp_path)
    done = run("info", "-c", broker_conf("multipath", tmp_path), "--json")
    assert done.code == exit_codes.OK
    assert done.objects[0]["path"] == str(store)
    assert done.objects[0]["commitlog"]["messages"] == 1500


def test_rocksdb_queues_are_named() -> None:
    (found,) = run("info", "-s", store_path("rocksdb"), "--json").objects
    assert found["consumequeue"]["kind"] == "rocksdb"
    assert found["consumequeue"]["units"] == 384


def test_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("x")
    for path, words in (
        (tmp_path / "nothing", "no such directory"),
        (tmp_path / "notes", "is a file"),
        (tmp_path, "nothing of a RocketMQ store"),
    ):
        done = run("info", "-s", path)
        assert (done.code, done.out) == (exit_codes.UNREADABLE, "")
        assert words in done.err
    (tmp_path / "empty").mkdir()
    assert "empty" in run("info", "-s", tmp_path / "empty").err
