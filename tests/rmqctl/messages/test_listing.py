"""`rmqctl cat` of large logs, by columns, against the same message by message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import start

pytest.importorskip("pyarrow")

from bench.stores import write_store
from rmqctl.messages import listing
from rmqctl.output import outcome as exit_codes
from rmqctl.store.read.select import PLAIN_BYTES
from tests.goldens import truth
from tests.opened import store_path
from tests.quick import every
from tests.rmqctl.looking import Done, run

ROOT = Path(__file__).resolve().parents[3]


def by_columns(monkeypatch: pytest.MonkeyPatch, first_bytes: int, *arguments: object) -> Done:
    """`cat` as of a log that is large, of which so much is printed plainly."""
    with monkeypatch.context() as patched:
        patched.setattr(listing, "PLAIN_BYTES", -1)
        patched.setattr(listing, "_FIRST_BYTES", first_bytes)
        return run("cat", *arguments).without_notices


def one_by_one(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Done:
    """`cat` where nothing is compiled, of a log that is small."""
    with monkeypatch.context() as patched:
        patched.setattr(listing, "is_compiled", lambda: False)
        return run("cat", *arguments).without_notices


def options() -> list[list[object]]:
    rows = truth("clean").messages
    middle = rows[len(rows) // 2]
    return [
        [],
        ["-n", 1],
        ["-n", 700],
        ["-t", "OrderTopic", "-q", 2],
        ["--tag", "TagB || TagC"],
        ["-k", middle["properties"]["UNIQ_KEY"]],
        ["-o", middle["phyOffset"] + 1, "--to", rows[-5]["phyOffset"]],
        ["-b", middle["storeTimestamp"], "-e", rows[-9]["storeTimestamp"]],
        ["-t", "OrderTopic", "-k", "no such key"],
    ]


@pytest.mark.parametrize("form", [["--json"], ["--format", "csv"]])
@pytest.mark.parametrize("number", range(9))
def test_every_option_gives_the_same(number: int, form: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["-s", store_path("clean"), *form, *options()[number]]
    expected = one_by_one(monkeypatch, *asked)
    assert by_columns(monkeypatch, 100_000 * (number % 2), *asked) == expected


@pytest.mark.parametrize("name", every(2, ["features", "v4-features", "gap", "crc-flip-third", "torn-zero"]))
def test_damage_and_compressed_bodies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for more in (["--json", "--stored-bodies"], ["--format", "csv", "-n", "900"]):
        asked = ["-s", store_path(name), *more]
        assert by_columns(monkeypatch, 50_000, *asked) == one_by_one(monkeypatch, *asked)


def test_without_pyarrow_it_goes_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["-s", store_path("v4-clean"), "--format", "csv"]
    expected = run("cat", *asked).without_notices
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert by_columns(monkeypatch, 0, *asked) == expected


def test_the_first_messages_come_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(listing, "_print_columns", loaded)
    done = by_columns(monkeypatch, 50_000, "-s", store_path("clean"), "--format", "csv")
    assert done.code != exit_codes.OK
    assert 10 < done.out.count("\n") < len(truth("clean").messages)


def test_an_offset_deep_in_a_large_file(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = truth("clean").messages[2000]["phyOffset"]
    asked = ["-s", store_path("clean"), "--json", "-o", begin]
    expected = one_by_one(monkeypatch, *asked)
    monkeypatch.setattr("rmqctl.store.read.select.PLAIN_BYTES", 1000)
    assert by_columns(monkeypatch, 0, *asked) == expected
    assert run("cat", *asked).without_notices == expected


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    store = write_store(tmp_path, "large", PLAIN_BYTES + (1 << 20))
    command = [sys.executable, "-m", "rmqctl", "cat", "-s", str(store.path), "--json"]
    with start(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            # past what is printed plainly
            assert len(process.stdout.read(2 << 20)) == 2 << 20
            process.stdout.close()
            assert b"Traceback" not in process.stderr.read()
            process.wait(60)
        finally:
            process.kill()
