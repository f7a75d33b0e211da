"""`rmqctl offsets`: what a broker left is shown and changed as a broker would, and an undo gives it back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.output import outcome as exit_codes
from rmqctl.store.files import lock
from tests import processes
from tests.goldens import GoldenStore, tree_state, truth
from tests.opened import store_path
from tests.quick import sample
from tests.rmqctl.looking import Done, run
from tests.store.files.crashing import crashed, recorded

GROUP, TOPIC = "g-retry", "Events"
OF = ("-g", GROUP, "-t", TOPIC)
FILE = "config/consumerOffset.json"


def _content(path: Path) -> dict[Any, Any]:
    found = parse_config_json(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def _offsets(store: Path, group: str = GROUP, topic: str = TOPIC) -> dict[int, int]:
    offsets = _content(store / FILE)["offsetTable"][f"{topic}@{group}"]
    assert isinstance(offsets, dict)
    return offsets


def _change(*arguments: object) -> Done:
    done = run("offsets", *arguments, "--json")
    assert done.code == exit_codes.OK, done.err
    return done


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    return golden_store("broker-real")


def test_show_has_all_that_the_files_say() -> None:
    golden = store_path("broker-real")
    rows = run("offsets", "show", "-s", golden, "--json").objects
    table = _content(golden / FILE)["offsetTable"]
    kept = {
        (f"{row['topic']}@{row['group']}", row["queue_id"]): row["offset"] for row in rows if row["kind"] == "consumer"
    }
    assert kept == {(key, queue_id): offset for key, queues in table.items() for queue_id, offset in queues.items()}
    assert all(row["backup_offset"] == row["offset"] for row in rows)
    delays = _content(golden / "config/delayOffset.json")["offsetTable"]
    assert {row["queue_id"] + 1: row["offset"] for row in rows if row["kind"] == "delay"} == delays
    assert len(run("offsets", "show", "-s", golden, *OF, "-q", 3, "--json").objects) == 1
    assert run("offsets", "show", "-s", golden, "-g", "nobody").code == exit_codes.DAMAGE_OR_NOTHING


def test_reset_to_a_time_is_written_as_a_broker_writes_it(store: Path) -> None:
    """In each queue the first message stored at or after the time; nothing else in the file is another."""
    stored: dict[int, list[tuple[int, int]]] = {}
    for row in truth("broker-real").messages:
        if row["topic"] == TOPIC:
            stored.setdefault(row["queueId"], []).append((row["queueOffset"], row["storeTimestamp"]))
    at = sorted(stored[0])[10][1]
    wanted = {
        queue_id: min((offset for offset, time in places if time >= at), default=len(places))
        for queue_id, places in stored.items()
    }
    assert len(set(wanted.values())) > 1
    before, old = (store / FILE).read_text(encoding="utf-8"), _offsets(store)
    whole = tree_state(store)
    berlin = datetime.fromtimestamp(at / 1000, ZoneInfo("Europe/Berlin")).replace(tzinfo=None).isoformat()
    zoned = _change("reset", "-s", store, *OF, "--to", berlin, "--tz", "Europe/Berlin", "--dry-run")
    report = json.loads(_change("reset", "-s", store, *OF, "--to", at).out)
    assert {**json.loads(zoned.out), "dry_run": False, "journal": report["journal"]} == report
    assert _offsets(store) == wanted
    assert report["again"] == sum(old[queue_id] - offset for queue_id, offset in wanted.items())
    assert (report["changed"], report["skipped"]) == (8, 0)
    entry = re.compile(r'("Events@g-retry":\{)[^}]*')
    new = ",".join(f"{queue_id}:{wanted[queue_id]}" for queue_id in range(8))
    version = re.compile(r'"counter":(\d+),\s*"stateVersion":0,\s*"timestamp":\d+')
    after = (store / FILE).read_text(encoding="utf-8")
    assert version.sub("", after) == version.sub("", entry.sub(rf"\g<1>{new}\n\t\t", before))
    found = version.search(after)
    assert found is not None
    assert found[1] == "1"
    assert (store / (FILE + ".bak")).read_text(encoding="utf-8") == before
    assert [row["queue_id"] for row in run("groups", "-s", store, *OF, "--json").objects] == list(range(8))
    assert run("undo", "-s", store).code == exit_codes.OK
    assert {path: state for path, state in tree_state(store).items() if path != "lock"} == {
        path: state for path, state in whole.items() if path != "lock"
    }


def test_a_dry_run_says_it_all_and_changes_nothing(store: Path) -> None:
    whole = tree_state(store.parent)
    done = _change("reset", "-s", store, *OF, "--to", "latest", "--dry-run")
    assert tree_state(store.parent) == whole
    report = json.loads(done.out)
    assert [row["after"] for row in report["rows"]] == [row["max_offset"] for row in report["rows"]]
    assert {row["path"] for row in report["operations"]} == {FILE, FILE + ".bak"}
    assert (report["dry_run"], report["journal"], report["skipped"]) == (True, None, 46)


def test_the_ends_and_an_offset(store: Path) -> None:
    ends = {row["queue_id"]: row["max_offset"] for row in run("groups", "-s", store, *OF, "--json").objects}
    asked = run("offsets", "reset", "-s", store, *OF, "--to", "latest")
    assert asked.code == exit_codes.REFUSED
    assert "skips 46 messages that the group has not read" in asked.err
    _change("reset", "-s", store, *OF, "--to", "latest", "--yes")
    assert _offsets(store) == ends
    _change("reset", "-s", store, *OF, "--to", "earliest")
    assert set(_offsets(store).values()) == {0}
    _change("reset", "-s", store, *OF, "--to", "7", "--yes")
    assert set(_offsets(store).values()) == {7}
    _change("set", "-s", store, *OF, "-q", 2, "-o", 3)
    assert _offsets(store) == {**dict.fromkeys(range(8), 7), 2: 3}
    before = (store / FILE).read_bytes()
    for outside in ("30", "99999"):  # some of the queues end at 29
        done = run("offsets", "reset", "-s", store, *OF, "--to", outside, "--yes")
        assert done.code == exit_codes.REFUSED
        assert "is outside" in done.err
    assert (store / FILE).read_bytes() == before
    assert run("offsets", "set", "-s", store, *OF, "-q", 2, "-o", 99, "--yes").code == exit_codes.REFUSED
    _change("set", "-s", store, *OF, "-q", 2, "-o", 99, "--yes", "--anywhere")
    for _ in range(5):
        assert run("undo", "-s", store).code == exit_codes.OK
    assert (store / FILE).read_bytes() == (store_path("broker-real") / FILE).read_bytes()


def test_unknown_names(store: Path) -> None:
    done = run("offsets", "reset", "-s", store, "-g", "g-retyr", "-t", TOPIC, "--to", "0")
    assert (done.code, "did you mean 'g-retry'?" in done.err) == (exit_codes.DAMAGE_OR_NOTHING, True)
    assert run("offsets", "reset", "-s", store, "-g", GROUP, "-t", "Evnts", "--to", "0").code == 1
    assert run("offsets", "reset", "-s", store, *OF, "--to", "yesterdays").code == exit_codes.USAGE
    assert run("offsets", "set", "-s", store, "-g", "a@b", "-t", TOPIC, "-q", 0, "-o", 0, "--new-group").code == 2
    _change("reset", "-s", store, "-g", "g-new", "-t", TOPIC, "--to", "earliest", "--new-group")
    assert set(_offsets(store, "g-new").values()) == {0}
    assert _content(store / FILE)["groupTopicMap"]["g-new"] == [TOPIC]
    # subscriptionGroup.json knows it, and no offset of it is kept
    _change("reset", "-s", store, "-g", "g-idle", "-t", TOPIC, "--to", "earliest")


def test_copy_leaves_the_retry_topic_alone(store: Path) -> None:
    done = _change("copy", "-s", store, "-g", GROUP, "--to", "g-events", "--yes")
    assert _offsets(store, "g-events") == _offsets(store)
    assert "%RETRY%g-retry is the retry topic of one group" in json.loads(done.out)["notes"][0]
    assert "%RETRY%g-retry@g-events" not in _content(store / FILE)["offsetTable"]
    assert run("offsets", "copy", "-s", store, "-g", "nobody", "--to", GROUP).code == exit_codes.DAMAGE_OR_NOTHING
    assert run("offsets", "copy", "-s", store, "-g", GROUP, "--to", GROUP).code == exit_codes.USAGE


_TAKEN = {"larger": (26, 25), "smaller": (25, 2), "replace": (26, 2)}


@pytest.mark.parametrize("take", sample(_TAKEN, ["smaller"]))
def test_merge(store: Path, take: str) -> None:
    other = store.parent / "other.json"
    table = {"Events@g-events": {"0": 26, "1": 2, "2": 25}, "Later@g-later": {"1": 3}, "Events@g@b": {"0": 1}}
    other.write_text(json.dumps({"offsetTable": table}), encoding="utf-8")
    before = (store / FILE).read_bytes()
    refused = run("offsets", "merge", "-s", store, other, "--yes")
    assert refused.code == exit_codes.REFUSED
    assert "2 offsets differ" in refused.err
    shown = run("offsets", "merge", "-s", store, other, "--dry-run")
    assert shown.code == exit_codes.OK
    assert "conflict: 25 here, 26 there" in shown.out
    assert "conflict: 25 here, 2 there" in shown.out
    assert (store / FILE).read_bytes() == before
    _change("merge", "-s", store, other, "--take", take, "--yes")
    offsets = _offsets(store, "g-events")
    assert (offsets[0], offsets[1], offsets[2], offsets[4]) == (*_TAKEN[take], 25, 24)
    assert _offsets(store, "g-later", "Later") == {1: 3}
    assert "Events@g@b" not in _content(store / FILE)["offsetTable"]


def test_merge_refuses_what_is_no_file_of_offsets(store: Path) -> None:
    other = store.parent / "other.json"
    assert run("offsets", "merge", "-s", store, other).code == exit_codes.DAMAGE_OR_NOTHING
    other.write_text('{"offsetTable": [', encoding="utf-8")
    assert run("offsets", "merge", "-s", store, other).code == exit_codes.DAMAGE_IN_THE_WAY
    other.write_text('{"other": {}}', encoding="utf-8")
    assert "holds no table" in run("offsets", "merge", "-s", store, other).err


_HOLD = "import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(1, flush=True)\n"


_LIVE = {
    "latest": (("reset", *OF, "--to", "latest"), "mqadmin skipAccumulatedMessage -g g-retry -t Events"),
    "time": (
        ("reset", *OF, "--to", "2026-11-20T09:00"),
        "mqadmin resetOffsetByTime -g g-retry -t Events -s 1795165200000",
    ),
    "set": (("set", *OF, "-q", "1", "-o", "3"), "-b BROKER -q 1 -o 3 -s now"),
    "copy": (("copy", "-g", GROUP, "--to", "g-pay"), "mqadmin cloneGroupOffset -s g-retry -d g-pay -t TOPIC"),
    "merge": (("merge", "FILE"), "no command of mqadmin"),
}


@pytest.mark.parametrize("name", sample(_LIVE, ["time"]))
def test_while_a_broker_runs(store: Path, name: str) -> None:
    command, live = _LIVE[name]
    before = tree_state(store)
    words = [str(store / FILE) if word == "FILE" else word for word in command]
    with processes.start(
        [sys.executable, "-c", _HOLD + "time.sleep(100)", store / "lock"], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        done = run("offsets", words[0], "-s", store, *words[1:], "--yes")
        dry = run("offsets", words[0], "-s", store, *words[1:], "--dry-run")
        holder.kill()
    assert done.code == exit_codes.IN_USE
    assert live in done.err
    assert dry.code == exit_codes.OK
    assert tree_state(store) == before


def test_a_crashed_store_has_no_certain_ends(store: Path) -> None:
    (store / "abort").write_bytes(b"")
    done = run("offsets", "reset", "-s", store, *OF, "--to", "earliest")
    assert done.code == exit_codes.REFUSED
    assert "rmqctl recover" in done.err
    _change("set", "-s", store, *OF, "-q", 0, "-o", 1)


def test_the_backup_is_what_counts_where_the_file_is_damaged(store: Path) -> None:
    """As for a broker; the good backup is not overwritten by what is damaged."""
    damaged = b"{" * 20
    good = (store / FILE).read_bytes()
    (store / FILE).write_bytes(damaged)
    report = json.loads(_change("set", "-s", store, *OF, "-q", 0, "-o", 1).out)
    assert "its backup is what is changed" in report["notes"][0]
    assert _offsets(store) == {0: 1, 1: 24, 2: 23, 3: 24, 4: 25, 5: 23, 6: 24, 7: 25}
    assert (store / (FILE + ".bak")).read_bytes() == good
    assert run("undo", "-s", store).code == exit_codes.OK
    assert (store / FILE).read_bytes() == damaged


@pytest.mark.parametrize(("end", "kept"), [(20, False), (-30, True)])
def test_offsets_are_set_where_the_file_and_its_backup_are_damaged(store: Path, end: int, kept: bool) -> None:
    """A broker does not start with these: what can still be read is kept, and what is set is written."""
    good = (store / FILE).read_bytes()
    for path in (store / FILE, store / (FILE + ".bak")):
        path.write_bytes(good[:end])
    before = tree_state(store)
    report = json.loads(_change("set", "-s", store, *OF, "-q", 0, "-o", 1).out)
    assert "and all others are lost" in report["notes"][0]
    assert _offsets(store)[0] == 1
    assert (len(_offsets(store)) == 8) is kept
    assert "RMQ-CFG-002" not in run("check", "--quick", "-s", store).out
    assert run("undo", "-s", store).code == exit_codes.OK
    assert tree_state(store) == before


def test_a_store_without_offsets_gets_a_file_and_loses_it_again(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    topic = "TopicTest"
    _change("reset", "-s", store, "-g", "first", "-t", topic, "--to", "earliest", "--new-group")
    assert _content(store / FILE) == {
        "offsetTable": {f"{topic}@first": dict.fromkeys(_offsets(store, "first", topic), 0)}
    }
    assert not (store / (FILE + ".bak")).exists()
    assert run("undo", "-s", store).code == exit_codes.OK
    assert not (store / FILE).exists()


def test_a_file_of_4_x_gets_no_version(store: Path) -> None:
    (store / FILE).write_text('{"offsetTable":{"Events@g-retry":{"0":5}}}', encoding="utf-8")
    _change("set", "-s", store, *OF, "-q", 1, "-o", 1, "--yes")
    assert (store / FILE).read_text(encoding="utf-8") == (
        '{\n\t"offsetTable":{\n\t\t"Events@g-retry":{0:5,1:1\n\t\t}\n\t}\n}'
    )


@pytest.mark.thorough
def test_killed_on_the_way_it_is_the_old_one_or_the_new_one(store: Path, golden_store: GoldenStore) -> None:
    def work(place: Path) -> None:
        assert run("offsets", "set", "-s", place, *OF, "-q", 0, "-o", 1).code == exit_codes.OK

    old = (store / FILE).read_bytes()
    count = len(recorded(partial(work, store)))
    assert _offsets(store)[0] == 1
    assert run("undo", "-s", store).code == exit_codes.OK
    for number in range(1, count, max(1, count // 8)):
        assert crashed(partial(work, store), number)
        lock._held.clear()  # the process is gone, and with it its lock
        done = run("undo", "-s", store, "--yes")
        assert done.code in (exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING), done.err
        assert (store / FILE).read_bytes() == (store / (FILE + ".bak")).read_bytes() == old, number


def test_queues_in_a_rocksdb(golden_store: GoldenStore) -> None:
    store = golden_store("rocksdb")
    done = run("offsets", "reset", "-s", store, "-g", "g", "-t", "TopicTest", "--to", "latest", "--new-group", "-y")
    assert done.code == exit_codes.OK, done.err
    rows = run("offsets", "show", "-s", store, "-g", "g", "--json").objects
    assert {row["queue_id"]: row["offset"] == row["max_offset"] for row in rows}.get(0) is True
