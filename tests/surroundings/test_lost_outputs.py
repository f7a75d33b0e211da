"""A change whose result cannot be written to standard output says that it was made: nobody makes it twice."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.main import VERBS, main
from rmqctl.output import outcome as exit_codes
from rmqctl.store import MessageStore
from rmqctl.store.files import lock
from rmqctl.store.recover.recover import truncate
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.network.serving import Served, serving
from tests.quick import sample
from tests.rmqctl.all_verbs.test_one_meaning import CHANGING
from tests.rmqctl.looking import run
from tests.store.files.crashing import crashed

LOST = "RMQ-E-051"


class Case(NamedTuple):
    """A command line (STORE and NEW are filled in), what it says of what it did, and what happened before."""

    golden: str
    command: str
    said: str
    before: Callable[[Path], object] = lambda store: None


def _truncated(store: Path) -> None:
    with StoreFiles(store) as files:
        truncate(files, 601709)


def _interrupted(store: Path) -> None:
    assert crashed(partial(_truncated, store), 190)
    lock._held.clear()  # the process is gone, and with it its lock


def _copied(store: Path) -> None:
    shutil.copy(store / "config" / "consumerOffset.json", store.parent / "other.json")
    text = (store.parent / "other.json").read_text()
    (store.parent / "other.json").write_text(text.replace("Events@g-retry", "Events@g-other"))


def _kept_by_client(store: Path) -> None:
    (store.parent / "other.json").write_text('{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:3}}')


def _locked(store: Path) -> None:
    path = store / "config" / "consumerOrderInfo.json"
    path.write_text('{"table":{"Events@g-retry":{0:{"o":[1,1],"popTime":1,"i":1}}}}')


CASES = {
    "append": Case("clean", "append -s STORE -t Orders --body x", "1 message was stored, up to physical offset "),
    "append --from": Case("clean", "append -s STORE --from LINES", "2 messages were stored, up to physical offset "),
    "recover": Case("crash", "recover -s STORE", "the store was recovered"),
    "rebuild": Case("clean", "rebuild -s STORE", "queues or index were rebuilt"),
    "clean": Case("clean", "clean -s STORE --at-once -y", "22 files were removed"),
    "repair": Case("stray-file", "repair -s STORE", "the store was repaired"),
    "purge": Case("broker-real", "purge -s STORE -t Events -y", "the topics were removed"),
    "truncate": Case("clean", "truncate -s STORE --at 601709 -y", "the store was truncated"),
    "undo": Case("clean", "undo -s STORE", "was undone", _truncated),
    "undo --give-up": Case("clean", "undo -s STORE --give-up", "was given up", _interrupted),
    "resume": Case("clean", "resume -s STORE -y", "was finished", _interrupted),
    "log": Case("clean", "log -s STORE --prune -y", "what 1 change kept was removed", _truncated),
    "snapshot": Case("clean", "snapshot NEW -s STORE", "new was made"),
    "salvage": Case("clean", "salvage STORE --to NEW", "new was made"),
    "twin": Case("clean", "twin STORE NEW --anonymise", "new was made"),
    "dlq redrive": Case("broker-real", "dlq redrive -s STORE -g g-retry -y", "33 messages were stored, up to physical"),
    "offsets set": Case(
        "broker-real", "offsets set -s STORE -g g-retry -t Events -q 0 -o 1", "the offsets were changed"
    ),
    "offsets reset": Case(
        "broker-real", "offsets reset -s STORE -g g-retry -t Events --to earliest", "the offsets were changed"
    ),
    "offsets copy": Case(
        "broker-real", "offsets copy -s STORE -g g-retry --to g-new --new-group", "the offsets were changed"
    ),
    "offsets merge": Case("broker-real", "offsets merge -s STORE OTHER", "the offsets were changed", _copied),
    "offsets delete": Case("broker-real", "offsets delete -s STORE -g g-retry -y", "the offsets were changed"),
    "offsets set-delay": Case(
        "broker-real", "offsets set-delay -s STORE --level 3 -o 0 --anywhere", "the offsets were changed"
    ),
    "offsets salvage-client": Case("clean", "offsets salvage-client OTHER --to NEW", "new was ", _kept_by_client),
    "topics create": Case("broker-real", "topics create -s STORE -t New", "topic New was created"),
    "topics change": Case("broker-real", "topics change -s STORE -t Events --perm R", "topic Events was changed"),
    "topics delete": Case("broker-real", "topics delete -s STORE -t Events -y", "topic Events was deleted"),
    "groups create": Case("broker-real", "groups create -s STORE -g g-new", "group g-new was created"),
    "groups change": Case("broker-real", "groups change -s STORE -g g-retry --retry-max 3", "g-retry was changed"),
    "groups delete": Case("broker-real", "groups delete -s STORE -g g-retry -y", "g-retry was deleted"),
    "groups pop-release": Case(
        "broker-real", "groups pop-release -s STORE -g g-retry", "the offsets were changed", _locked
    ),
    "groups pop-finish": Case(
        "broker-real", "groups pop-finish -s STORE -g g-retry -y", "the offsets were changed", _locked
    ),
    "export": Case("clean", "export -s STORE NEW --format csv", "2500 messages were written to"),
    "sql": Case("clean", "sql -s STORE -o NEW 'select 1' --format csv", "1 row was written to"),
    "produce": Case("clean", "produce -n NAMESRV -t T --body x", "1 message was sent, at queue offset "),
    "produce --from": Case("clean", "produce -n NAMESRV --from LINES", "2 messages were sent"),
    "mirror": Case("clean", "mirror SLAVES NEW --broker BROKER --exit-at-end", "the log was copied to "),
    "topics create -n": Case("clean", "topics create -n NAMESRV -t ANOTHER", " was created on "),
}  # fmt: skip
ELSEWHERE = {"consume": "commits what was printed", "serve": "prints its addresses before it serves"}


def test_every_changing_verb_is_in_the_table() -> None:
    words = [case.command.split() for case in CASES.values()]
    named = {one[0] for one in words} | {" ".join(one[:2]) for one in words}
    changing = {name for name, verb in VERBS.items() if verb.group == "change"}
    assert named.issuperset(changing | CHANGING | {"offsets salvage-client", "produce", "mirror", "export", "sql"})
    assert {name for name, verb in VERBS.items() if verb.group == "wire"} - named == ELSEWHERE.keys() | {"cluster"}


class _Lost(io.StringIO):
    """A standard output that takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._error = OSError(number, os.strerror(number))  # BrokenPipeError for EPIPE

    def write(self, text: str) -> int:
        raise self._error


def _lost(number: int, arguments: list[str]) -> tuple[int, str]:
    err = io.StringIO()
    with contextlib.redirect_stdout(_Lost(number)), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, err.getvalue()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("served") / "store"
    with MessageStore.open(root, "rw", create=True):
        pass
    with serving(root, "--writable", "--ha-listen", "127.0.0.1:0") as running:
        yield running


@pytest.mark.parametrize("name", sample(CASES, ["append", "recover", "dlq redrive", "produce", "undo", "export"]))
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE], ids=["full", "closed pipe"])
def test_a_change_is_named(golden_store: GoldenStore, served: Served, name: str, number: int, as_json: bool) -> None:
    case = CASES[name]
    if as_json and "--format csv" in case.command:
        pytest.skip("its format is given")
    store = golden_store(case.golden)
    case.before(store)
    lines = store.parent / "lines.jsonl"
    lines.write_text('{"topic":"T","body":"1"}\n{"topic":"T","body":"2"}\n')
    places: dict[str, object] = {
        "STORE": store,
        "NEW": store.parent / "new",
        "OTHER": store.parent / "other.json",
        "LINES": lines,
    }
    # the cases share a broker
    places["ANOTHER"] = f"New-{number}-{as_json}"
    places |= {"NAMESRV": served.namesrv, "SLAVES": served.slaves, "BROKER": served.broker}
    words = [str(places.get(word, word)) for word in case.command.replace("'select 1'", "select_1").split()]
    words = ["select 1" if word == "select_1" else word for word in words]
    before = tree_state(store.parent)
    code, err = _lost(number, words + ["--json"] * as_json)
    assert code == (exit_codes.WRITE_FAILED if number == errno.ENOSPC else exit_codes.OK), err
    (said,) = [line for line in err.splitlines() if "could not be written to standard output" in line]
    assert case.said in said
    if as_json:
        error = json.loads(said)
        assert (error["error"], error["exit_code"]) == (LOST, code)
    else:
        assert "  do not run the command again" in err.splitlines()
    assert "NAMESRV" in case.command or tree_state(store.parent) != before


def test_what_changed_nothing_says_nothing(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    for words in (["recover", "--dry-run"], ["recover"], ["truncate", "--at", "601709", "--dry-run"], ["ls"]):
        for number in (errno.ENOSPC, errno.EPIPE):
            code, err = _lost(number, [words[0], "-s", str(store), *words[1:], "--json"])
            assert LOST not in err
            assert (code, "cannot write to standard output" in err) == (
                (6, True) if number == errno.ENOSPC else (0, False)
            )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("buffering", ["", "1"])
def test_a_stored_message_and_a_real_full_disk(golden_store: GoldenStore, buffering: str) -> None:
    store = golden_store("clean")
    command = [
        sys.executable,
        "-m",
        "rmqctl.start",
        "append",
        "-s",
        str(store),
        "-t",
        "Orders",
        "--body",
        "x",
        "--json",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": buffering}
    for _ in range(2):
        begin = run("info", "-s", store, "--json").objects[0]["commitlog"]["max_offset"]
        with open("/dev/full", "wb") as full:
            ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=environment)
        error = json.loads(ran.stderr.splitlines()[-1])
        end = run("info", "-s", store, "--json").objects[0]["commitlog"]["max_offset"]
        assert (ran.returncode, error["error"], error["stored"]) == (exit_codes.WRITE_FAILED, LOST, 1)
        assert (error["first_physical_offset"], error["end_physical_offset"]) == (begin, end)
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "wb") as pipe:
            ran = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60, env=environment)
        error = json.loads(ran.stderr.splitlines()[-1])
        assert (ran.returncode, error["error"], error["exit_code"], error["first_physical_offset"]) == (0, LOST, 0, end)
