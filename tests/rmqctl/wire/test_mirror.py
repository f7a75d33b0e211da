"""`rmqctl mirror` as its user runs it: against `rmqctl serve`, twice, into wrong places, ended by hand."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.clients.producer import Producer
from rmqctl.output import outcome as exit_codes
from rmqctl.store.config.config_files import read_config
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from tests.goldens import golden, tree_state
from tests.network.serving import ANY, SECONDS, Served, serving
from tests.processes import start
from tests.rmqctl.looking import run


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, Served]]:
    """A store with everything a broker has, for reading."""
    store = golden("broker-real", tmp_path)
    with serving(store, "--ha-listen", ANY) as process:
        yield store, process
        assert process.end() == 0
        assert "Traceback" not in process.errors


def _mirror(served: Served, target: Path, *options: str) -> Any:
    assert served.slaves is not None
    return run("mirror", served.slaves, target, "--broker", served.broker, *options)


def _same_log(store: Path, mirror: Path) -> bool:
    """Whether the mirror has every byte of the store's log, and nothing behind it."""
    with StoreFiles(store) as ours, StoreFiles(mirror) as theirs:
        files = ours.log.files, theirs.log.files
        return [one.path.name for one in files[0]] == [one.path.name for one in files[1]] and all(
            one.path.read_bytes() == other.path.read_bytes() for one, other in zip(*files, strict=True)
        )


def test_a_mirror_is_a_store_like_its_master(served: tuple[Path, Served], tmp_path: Path) -> None:
    store, process = served
    mirror = tmp_path / "mirror"
    done = _mirror(process, mirror, "--exit-at-end", "--json")
    assert done.code == exit_codes.OK, done.err
    report = json.loads(done.out)
    assert (report["begin_offset"], report["end_offset"], report["bytes"]) == (0, 260595, 260595)
    assert (report["messages"], report["lost"], report["acknowledged"], report["damaged_spans"]) == (
        738,
        None,
        False,
        0,
    )
    assert report["config_files"] == [
        "consumerOffset.json",
        "delayOffset.json",
        "subscriptionGroup.json",
        "topics.json",
    ]
    assert _same_log(store, mirror)
    for name, table in (("topics.json", "topicConfigTable"), ("subscriptionGroup.json", "subscriptionGroupTable")):
        ours, theirs = (read_config(root / "config" / name)[table] for root in (store, mirror))
        assert {key: theirs.get(key) for key in ours} == ours
    for name in ("consumerOffset.json", "delayOffset.json"):
        ours, theirs = (read_config(root / "config" / name)["offsetTable"] for root in (store, mirror))
        assert theirs == ours
    with MessageStore.open(mirror) as opened:
        assert list(opened.check()) == []
    # again: nothing is new, and nothing but the age of the tables changes
    before = _but_its_tables(mirror)
    done = _mirror(process, mirror, "--exit-at-end", "--json")
    assert (done.code, json.loads(done.out)["bytes"]) == (exit_codes.OK, 0)
    assert _but_its_tables(mirror) == before


def _but_its_tables(mirror: Path) -> Any:
    return {path: one for path, one in tree_state(mirror).items() if path != "." and "config" not in path}


def test_it_goes_on_with_a_copy_and_not_with_what_is_none(served: tuple[Path, Served], tmp_path: Path) -> None:
    store, process = served
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    assert _mirror(process, copy, "--exit-at-end").code == exit_codes.OK
    # another broker's
    other = golden("clean", tmp_path)
    before = tree_state(other)
    done = _mirror(process, other, "--exit-at-end")
    assert (done.code, "a new mirror in another" in done.err) == (exit_codes.REFUSED, True)
    # but for its own age, as the lock and our mark came and went
    after = tree_state(other)
    assert {path for path in before if path != "." and after[path] != before[path]} == set()
    assert after.keys() - before.keys() <= {"lock"}
    # no store at all
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    done = _mirror(process, tmp_path / "home")
    assert (done.code, "neither empty nor a mirror" in done.err) == (exit_codes.REFUSED, True)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter"]


def test_nothing_is_made_where_there_is_no_master(tmp_path: Path) -> None:
    done = run("mirror", "127.0.0.1:1", tmp_path / "new")
    assert (done.code, "haListenPort" in done.err, "Errno" in done.err) == (exit_codes.UNREADABLE, True, False)
    done = run("mirror", "127.0.0.1:1", tmp_path / "new", "--broker", "127.0.0.1:1")
    assert done.code == exit_codes.UNREADABLE
    assert list(tmp_path.iterdir()) == []


def test_a_live_master_is_followed_until_ctrl_c(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\nbrokerRole=SYNC_MASTER\n", encoding="ascii")
    master, mirror = tmp_path / "master", tmp_path / "mirror"
    with serving(master, "--writable", "--create", "-c", str(conf), "--ha-listen", ANY) as served:
        assert served.slaves is not None
        done = _mirror(served, mirror)
        assert (done.code, "--acknowledge" in done.err) == (exit_codes.REFUSED, True)
        assert not mirror.exists()
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "rmqctl",
            "mirror",
            served.slaves,
            mirror,
            "--broker",
            served.broker,
        ]
        with Producer(served.namesrv) as producer:
            assert producer.send(Message("Orders", b"alone")).status == "SLAVE_NOT_AVAILABLE"
            with start([*command, "--acknowledge", "--json"], stdout=subprocess.PIPE, text=True) as process:
                _until(lambda: producer.send(Message("Orders", b"waits")).status == "SEND_OK")
                sent = [producer.send(Message("Orders", bytes(1000))).status for _ in range(150)]
                assert set(sent) == {"SEND_OK"}
                process.send_signal(signal.SIGINT)
                report = json.loads(process.communicate(timeout=SECONDS)[0])
                assert process.returncode == exit_codes.OK
        assert served.end() == 0
    # whatever was answered with SEND_OK is there
    assert _same_log(master, mirror)
    assert report["end_offset"] > 150_000
    assert report["commitlog_file_size"] == 65536
    with MessageStore.open(mirror) as opened:
        assert list(opened.check()) == []


def _until(holds: Any) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.thorough
def test_what_queues_do_not_know_after_a_crash_is_mirrored_too(tmp_path: Path) -> None:
    store = golden("crash", tmp_path)
    with serving(store, "--ha-listen", ANY) as served:
        done = _mirror(served, tmp_path / "mirror", "--exit-at-end", "--json")
        assert served.end() == 0
    assert (done.code, json.loads(done.out)["messages"]) == (exit_codes.OK, 2500)


@pytest.mark.thorough
def test_a_master_that_dies_leaves_a_whole_store(tmp_path: Path) -> None:
    with serving(tmp_path / "master", "--writable", "--create", "--ha-listen", ANY) as served:
        assert served.slaves is not None
        with Producer(served.namesrv) as producer:
            for number in range(20):
                assert producer.send(Message("Orders", b"%d" % number)).status == "SEND_OK"
        mirror = tmp_path / "mirror"
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "rmqctl",
            "mirror",
            served.slaves,
            mirror,
            "--broker",
            served.broker,
        ]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with start([*command, "--give-up", "0.5", "--json"], **pipes) as process:
            log = mirror / "commitlog" / f"{0:020d}"
            _until(lambda: log.exists() and b"Orders" in _head(log))
            served.process.kill()
            out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == exit_codes.UNREADABLE, err
        assert "ended before it was to" in err
        report = json.loads(out)
        assert report["lost"] is not None
    assert not (tmp_path / "mirror" / "abort").exists()
    with MessageStore.open(tmp_path / "mirror") as opened:
        assert list(opened.check()) == []
        found = sum(queue.max_offset for queue in opened.files.queues.all() if queue.topic == "Orders")
        assert found == report["messages"] > 0


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8192)
