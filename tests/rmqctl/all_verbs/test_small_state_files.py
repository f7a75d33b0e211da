"""Each small state file in each odd form: no verb ends as a bug or hangs, and none calls well what a broker fails on.

What brokers do with each form is from runs of the jars of 5.3.3 and 5.5.0 (BrokerController#initialize).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.features import feature_store
from tests.goldens import GoldenStore
from tests.quick import sample
from tests.rmqctl.looking import Done, run

VERBS = ("check", "predict")
MORE_VERBS = {"config": ("groups", "halves", "delays", "offsets lint"), "timer": ("delays",), "other": ("info",)}
CODES = {0, 1, 7}
TABLES = ("topics", "consumerOffset", "subscriptionGroup", "delayOffset", "consumerFilter", "consumerOrderInfo")
CONFIG = tuple(f"config/{name}.json" for name in (*TABLES, "topicQueueMapping"))
METRICS = ("config/timermetrics", "config/transactionMetrics")
FILES = ("timerwheel", "config/timercheck", *METRICS, *CONFIG, "epochFileCheckpoint", "checkpoint", "abort", "lock")


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # its address has to be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


FORMS: dict[str, Callable[[Path, bytes], object]] = {
    "absent": lambda path, old: None,
    "empty": lambda path, old: path.touch(),
    "half": lambda path, old: path.write_bytes(old[: len(old) // 2]),
    "directory": lambda path, old: path.mkdir(),
    "loop": lambda path, old: path.symlink_to(path.name),
    "socket": lambda path, old: _socket(path),
    "fifo": lambda path, old: os.mkfifo(path),
    "wrong": lambda path, old: path.write_bytes(b"[]" if path.suffix == ".json" else b"[1]" * 7),
}
NO_FILES = {"directory", "loop", "socket", "fifo"}

NOT_STARTED: dict[str, set[str]] = {
    "timerwheel": {*NO_FILES, "half", "wrong"},
    "config/timercheck": NO_FILES,
    "checkpoint": NO_FILES,
    "lock": NO_FILES,
    "abort": NO_FILES,
    **{name: {"fifo"} for name in (*CONFIG, *METRICS)},
}
"""Forms with which brokers 5.3.3 and 5.5.0 end, or wait without end."""
LOSING: dict[str, set[str]] = {
    # 29 messages have their units in older files of the timer log
    "timerwheel": {"absent", "empty"},
    "config/timercheck": {"absent", "empty", "wrong"},
    **{name: {"empty", "half", "directory", "socket", "loop", "wrong"} for name in CONFIG},
    "config/topics.json": {"absent", "empty", "half", "directory", "socket", "loop", "wrong"},
    # a broker starts without them, and cannot save them any more
    **{name: {"directory", "socket", "loop"} for name in METRICS},
    "epochFileCheckpoint": NO_FILES,
}
"""Forms with which they start, and deliver less or again, or load less than there was."""
PAIRS = [(name, form) for name in FILES for form in FORMS]
QUICK = (
    ("config/timercheck", "empty"),
    ("timerwheel", "loop"),
    ("config/topics.json", "absent"),
    ("config/topicQueueMapping.json", "wrong"),
    ("config/delayOffset.json", "fifo"),
)
CONTENT = {"config/topicQueueMapping.json": b'{"topicQueueMappingInfoMap":{}}', "epochFileCheckpoint": b"1\n0\n1-0\n"}


@pytest.fixture(scope="module")
def timed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a real broker with messages that wait, without backups of its config files."""
    store = feature_store("timer-clean-533", tmp_path_factory.mktemp("small"))
    for backup in (store / "config").glob("*.bak"):
        backup.unlink()
    return store


@contextmanager
def _in_form(store: Path, name: str, form: str) -> Iterator[None]:
    path, aside = store / name, store.parent / "aside"
    is_there = path.exists()
    old = (path.read_bytes() if is_there else CONTENT.get(name, b"x")) if form == "half" else b""
    if is_there:
        path.rename(aside)
    try:
        FORMS[form](path, old)
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        if is_there:
            aside.rename(path)


def _asked(store: Path, name: str, form: str) -> dict[str, Done]:
    with _in_form(store, name, form):
        kind = "config" if name in CONFIG else "timer" if "timer" in name else "other"
        return {verb: run(*verb.split(), "-s", store) for verb in (*VERBS, *MORE_VERBS[kind])}


@pytest.mark.parametrize("pair", sample(PAIRS, QUICK), ids="@".join)
def test_what_verbs_say(pair: tuple[str, str], timed_store: Path) -> None:
    name, form = pair
    done = _asked(timed_store, name, form)
    assert {verb: one.code for verb, one in done.items() if one.code not in CODES} == {}
    is_fatal, is_losing = form in NOT_STARTED.get(name, ()), form in LOSING.get(name, ())
    assert ("does not start" in done["predict"].out) == is_fatal, done["predict"].out
    assert (done["predict"].code == 1) == (is_fatal or is_losing), done["predict"].out
    assert ("loses nothing" in done["predict"].out) != (is_fatal or is_losing)
    if is_fatal or is_losing:
        assert done["check"].code == 1
        assert "Nothing is wrong" not in done["check"].out


@pytest.mark.parametrize(
    ("verb", "name", "rows"),
    [
        ("groups", "config/consumerFilter.json", 0),
        ("groups", "config/consumerOffset.json", 0),
        ("halves", "config/consumerOffset.json", 0),
        ("delays", "config/delayOffset.json", 6),
        ("delays", "config/timercheck", 1),
    ],
)
@pytest.mark.parametrize("form", ["directory", "loop"])
def test_an_answer_goes_on_without_a_file_it_hardly_needs(
    verb: str, name: str, rows: int, form: str, timed_store: Path
) -> None:
    with _in_form(timed_store, name, form):
        done = run(verb, "-s", timed_store, "--json")
    assert f"not read: {timed_store / name}: " in done.err
    assert done.code == (1 if rows else 7)
    assert len(done.objects) == rows


def test_a_small_file_that_cannot_be_read_loses_no_message(timed_store: Path) -> None:
    said = {}
    for name in ("consumerFilter", "consumerOffset", "topicQueueMapping"):
        with _in_form(timed_store, f"config/{name}.json", "directory"):
            said[name] = run("check", "-s", timed_store).out.splitlines()[0].partition("; ")[2]
    assert said == {
        "consumerFilter": "nothing is lost.",
        "consumerOffset": "consumer offsets may be lost.",
        "topicQueueMapping": "mappings of static topics may be lost.",
    }


def test_a_timer_that_is_ahead_of_the_clock(timed_store: Path) -> None:
    path = timed_store / "config" / "timercheck"
    before, times = path.read_bytes(), path.stat()
    try:
        path.write_bytes(b"[1]" * 19)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        checked, predicted = run("check", "-s", timed_store, "--json"), run("predict", "-s", timed_store)
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "RMQ-TMR-051" in {row.get("code") for row in checked.objects}
    assert predicted.code == 1
    assert "messages of the timer are never delivered: timercheck names a time that has not come" in predicted.err


def test_an_empty_wheel_is_named(timed_store: Path) -> None:
    with _in_form(timed_store, "timerwheel", "empty"):
        rows = run("check", "-s", timed_store, "--json").objects
    found = {row["code"]: row["message"] for row in rows if "code" in row}
    assert found["RMQ-TMR-050"].startswith("empty: a broker makes it again")
    assert "no broker delivers 29 messages" in found["RMQ-TMR-003"]


_TABLES = {
    "topics.json": "topicConfigTable",
    "consumerOffset.json": "offsetTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "delayOffset.json": "offsetTable",
    "consumerFilter.json": "filterDataByTopic",
    "consumerOrderInfo.json": "table",
}


@pytest.mark.parametrize("name", _TABLES)
def test_an_object_without_its_table_is_loaded_as_empty(golden_store: GoldenStore, name: str) -> None:
    """A broker takes it for the whole file, and not the backup, which has the entries (ConfigManager#load)."""
    store = golden_store("broker-real")
    assert (run("check", "-s", store).code, run("predict", "-s", store).code) == (0, 0)
    (store / "config" / name).write_text('{"dataVersion":{"counter":1}}')
    checked = run("check", "-s", store, "--json").objects
    (finding,) = [one for one in checked if one.get("code") == "RMQ-CFG-007"]
    assert (finding["file"], finding["severity"]) == (f"config/{name}", "warning")
    assert finding["message"] == f"holds no {_TABLES[name]}"
    assert "may be lost" in run("check", "-s", store).out
    found = run("predict", "-s", store)
    assert (found.code, f"does not load {name} as written" in found.out) == (1, True)
    assert f"note: {name} holds no table: " in found.err
    # an empty table is what a broker writes that has nothing to keep
    (store / "config" / name).write_text(f'{{"dataVersion":{{"counter":1}},"{_TABLES[name]}":{{}}}}')
    assert "RMQ-CFG-007" not in {one.get("code") for one in run("check", "-s", store, "--json").objects}
    assert run("predict", "-s", store).code == 0


@pytest.mark.parametrize(("setting", "is_off"), [("false", True), ("yes", True), ("true", False), ("TRUE", False)])
def test_a_timer_that_the_configuration_turns_off(
    golden_store: GoldenStore, tmp_path: Path, setting: str, is_off: bool
) -> None:
    """What waits in it is delivered by no broker that starts so."""
    store, conf = golden_store("broker-real"), tmp_path / "broker.conf"
    rows = [one for one in run("delays", "-s", store, "--json").objects if one["kind"] == "timer"]
    waiting = sum(row["pending"] for row in rows)
    assert waiting > 0
    conf.write_text(f"timerWheelEnable={setting}\n")
    found = run("predict", "-s", store, "-c", conf, "--json")
    assert found.objects[0]["messages_stuck"] == (waiting if is_off else 0)
    assert (f"{waiting} messages of the timer are never delivered while timerWheelEnable" in found.out) is is_off
    assert found.code == (1 if is_off else 0)
    if is_off:  # the files of the timer are not read then
        (store / "timerwheel").write_bytes(b"x")
        assert run("predict", "-s", store, "-c", conf, "--json").objects[0]["loads"]


def test_a_version_without_a_timer(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    rows = [one for one in run("delays", "-s", store, "--json").objects if one["kind"] == "timer"]
    waiting = sum(row["pending"] for row in rows)
    found = run("predict", "-s", store, "--broker", "4.9.8")
    assert f"{waiting} messages of the timer are never delivered: 4.9.8 has no timer" in found.out + found.err
    assert found.code == 1
    assert "loses nothing" not in found.out


def test_levels_without_an_offset_begin_again(golden_store: GoldenStore) -> None:
    """ScheduleMessageService#start begins a level at 0 that delayOffset.json does not name."""
    store = golden_store("broker-real")
    path = store / "config/delayOffset.json"
    path.write_text('{"dataVersion":{"counter":1},"offsetTable":{14:0}}')
    found = run("predict", "-s", store)
    assert (found.code, "loses nothing and delivers 71 delayed messages again" in found.out) == (0, True)
    assert "71 messages of delay level 1 are delivered again: delayOffset.json has no offset of it" in found.err
    with (store / f"consumequeue/SCHEDULE_TOPIC_XXXX/0/{0:020d}").open("r+b") as queue:
        unit = queue.read(20)
        queue.seek(0)
        queue.write(b"\xff" * 20)
        queue.flush()
        assert "how many delayed messages come again is not known" in run("predict", "-s", store).err
        queue.seek(0)
        queue.write(unit)
    # of level 14 none was delivered
    path.write_text('{"dataVersion":{"counter":1},"offsetTable":{1:71}}')
    assert "starts and loses nothing." in run("predict", "-s", store).out


def test_a_start_that_permissions_end_is_not_for_check(golden_store: GoldenStore) -> None:
    """`check` reads the files, and would find nothing."""
    store = golden_store("broker-real")
    queue = store / f"consumequeue/Pay/0/{0:020d}"
    if os.geteuid() == 0:  # root may do anything
        for path in (store, *store.rglob("*")):
            os.chown(path, 65534, 65534)
    queue.chmod(0o400)
    found = run("predict", "-s", store)
    assert (found.code, "does not start: the store's owner may not open all of its files." in found.out) == (1, True)
    assert "`chown` or `chmod` the named files" in found.err
    assert "next: " not in found.out
    queue.chmod(0o600)
