"""Where output goes: into links, devices and pipes as they are, and never among the files of a store."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.check.cross import default_path
from tests.goldens import GoldenStore, tree_state
from tests.opened import store_path
from tests.processes import start
from tests.rmqctl.looking import run

_STORE = "v4-clean"


def _process(*arguments: object, stdout: int | IO[bytes] = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "rmqctl", *map(str, arguments)]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, timeout=120, check=False)


def test_no_output_lands_in_a_store(golden_store: GoldenStore, tmp_path: Path) -> None:
    store, source = golden_store("clean"), store_path("v4-clean")
    before = tree_state(store)
    log_file = min((store / "commitlog").iterdir())
    (tmp_path / "link").symlink_to(store / "commitlog")
    shutil.move(store / "commitlog", elsewhere := tmp_path / "elsewhere")
    (store / "commitlog").symlink_to(elsewhere)
    log_file = elsewhere / log_file.name
    places = [
        store / "commitlog" / "o.jsonl",
        log_file,
        elsewhere / "o.jsonl",
        tmp_path / "link" / "o.jsonl",
        store / "consumequeue" / "T" / "0" / "o.jsonl",
        store / "index" / "o.jsonl",
        store / "config" / "o.jsonl",
        store / "checkpoint",
    ]
    for place in places:
        done = run("export", "-s", source, place, "--format", "jsonl", "--overwrite")
        assert (done.code, "is inside " in done.err) == (exit_codes.REFUSED, True), place
    for place in (store / "o.jsonl", store / "deeper" / "o.jsonl"):
        done = run("export", "-s", store, place)
        assert (done.code, "store that is read" in done.err) == (exit_codes.REFUSED, True), place
    folder = store / "index" / "new"
    for command in (
        ("export", "-s", source, folder, "--partition"),
        ("salvage", source, "--to", folder),
        ("snapshot", folder, "-s", source),
        ("twin", source, folder, "--anonymise"),
        ("report", "-s", source, "-o", log_file, "--overwrite"),
        ("report", source, store, "-o", store / "report.html"),
        ("sql", "-s", source, "-o", log_file, "--overwrite", "--format", "csv", "select 1"),
    ):
        assert run(*command).code == exit_codes.REFUSED, command
    state = run("check", "-s", source, "--quick", "--state", store / "index" / "state.json")
    assert state.code == exit_codes.REFUSED
    assert not default_path(source).exists()
    (store / "commitlog").unlink()
    shutil.move(elsewhere, store / "commitlog")
    assert {name: found for name, found in tree_state(store).items() if name not in (".", "commitlog")} == {
        name: found for name, found in before.items() if name not in (".", "commitlog")
    }


def test_standard_output_led_into_a_store(golden_store: GoldenStore) -> None:
    store = golden_store("v4-clean")
    stray = store / "commitlog" / "all.jsonl"
    for verb in (("cat", "--json"), ("ls",), ("dump", min((store / "commitlog").iterdir()))):
        with stray.open("wb") as file:
            done = _process(verb[0], *(() if verb[0] == "dump" else ("-s", store)), *verb[1:], stdout=file)
        assert (done.returncode, stray.stat().st_size) == (exit_codes.REFUSED, 0), done.stderr
    stray.unlink()
    # what is no part of it either, but lies in the store that is read
    with (store / "info.txt").open("wb") as file:
        done = _process("info", "-s", store, stdout=file)
    assert (done.returncode, (store / "info.txt").stat().st_size) == (exit_codes.REFUSED, 0)
    with (store / "info.txt").open("wb") as file:
        assert _process("info", "-s", store_path("clean"), stdout=file).returncode == exit_codes.OK


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "o.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(target)
    assert run("export", "-s", store_path(_STORE), link).code == exit_codes.REFUSED
    for _ in range(2):  # first it leads nowhere
        assert run("export", "-s", store_path(_STORE), link, "--overwrite", "-y").code == exit_codes.OK
        assert link.is_symlink()
        assert target.is_file()
        assert os.listdir(tmp_path / "there") == ["o.jsonl"]


def test_a_pipe_with_a_name(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    done = run("export", "-s", store_path(_STORE), pipe)
    reader.join(60)
    assert done.code == exit_codes.OK
    assert run("export", "-s", store_path(_STORE), tmp_path / "o.jsonl").code == exit_codes.OK
    assert read == [(tmp_path / "o.jsonl").read_bytes()]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")
def test_a_device_stays_one(tmp_path: Path) -> None:
    device = tmp_path / "full.jsonl"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 7))
        device.open("wb").close()
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    done = run("export", "-s", store_path(_STORE), device, "--overwrite")
    assert (done.code, "No space left" in done.err) == (exit_codes.WRITE_FAILED, True)
    assert stat.S_ISCHR(device.stat().st_mode)


def test_standard_output(tmp_path: Path) -> None:
    assert run("export", "-s", store_path(_STORE), "-").code == exit_codes.USAGE
    assert run("export", "-s", store_path(_STORE), "-", "--format", "jsonl", "--partition").code == exit_codes.USAGE
    assert run("export", "-s", store_path(_STORE), tmp_path / "o.jsonl").code == exit_codes.OK
    done = _process("export", "-s", store_path(_STORE), "-", "--format", "jsonl")
    assert (done.returncode, done.stdout) == (exit_codes.OK, (tmp_path / "o.jsonl").read_bytes())
    assert b"on standard output" in done.stderr


def test_what_killed_processes_left_is_named(golden_store: GoldenStore, tmp_path: Path) -> None:
    gone = start([sys.executable, "-c", "pass"])
    gone.wait(timeout=30)
    store = golden_store(_STORE)
    for name in ("old", "new"):
        (store.parent / f".{name}.rmqctl-{gone.pid}").mkdir()
    done = run("snapshot", store.parent / "new", "-s", store)
    assert (done.code, f".old.rmqctl-{gone.pid}" in done.err, ".new." in done.err) == (exit_codes.OK, True, False)
    done = run("log", "-s", store, "--json")
    assert (done.code, done.out, f".old.rmqctl-{gone.pid}" in done.err) == (exit_codes.OK, "", True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("ls", "--help"), ("completion", "bash"), ("ls",), ("ls", "--json"), ("cat",)],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_output(arguments: tuple[str, ...], unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQCTL_STORE", str(store_path(_STORE)))
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "wb") as full:
        done = _process(*arguments, stdout=full)
    assert done.returncode == exit_codes.WRITE_FAILED, done.stderr
    (line,) = done.stderr.decode().splitlines()
    said = json.loads(line)["message"] if "--json" in arguments else line.removeprefix("rmqctl: ")
    assert said == "cannot write to standard output: No space left on device"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_standard_error() -> None:
    for arguments, code in ((("nosuch",), exit_codes.USAGE), ((), exit_codes.USAGE), (("--help",), exit_codes.OK)):
        with open("/dev/full", "wb") as full:
            command = [sys.executable, "-m", "rmqctl", *arguments]
            # a bare environment: there the interpreter flushes stderr once more as it ends
            for environment in (None, {"PATH": os.defpath}):
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, stderr=full, timeout=60, check=False, env=environment
                )
                assert done.returncode == code
