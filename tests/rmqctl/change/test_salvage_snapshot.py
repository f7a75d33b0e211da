"""`rmqctl salvage` and `rmqctl snapshot`: what they print and what they end with."""

from __future__ import annotations

from pathlib import Path

from rmqctl.output import outcome as exit_codes
from tests.opened import store_path
from tests.rmqctl.looking import run


def test_salvage_of_a_damaged_store(tmp_path: Path) -> None:
    done = run("salvage", store_path("crc-flip-last"), "--to", tmp_path / "new", "--json")
    [answer] = done.objects
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert (answer["found"], answer["salvaged"], answer["causes"]) == (2499, 2499, {"body_crc": 1})
    assert run("info", "-s", tmp_path / "new").code == exit_codes.OK
    again = run("salvage", store_path("clean"), "--to", tmp_path / "new")
    assert (again.code, "exists already" in again.err) == (exit_codes.REFUSED, True)


def test_salvage_of_a_sound_store(tmp_path: Path) -> None:
    done = run("salvage", store_path("clean"), "--to", tmp_path / "new", "--offsets", "renumber")
    assert done.code == exit_codes.OK
    assert "salvaged             2500" in done.out
    assert "mappedFileSizeCommitLog=262144" in done.err


def test_salvage_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"noise" * 100)
    done = run("salvage", tmp_path / "noise", "--to", tmp_path / "new")
    assert (done.code, "no message was found" in done.err) == (exit_codes.DAMAGE_OR_NOTHING, True)
    assert run("salvage", "--to", tmp_path / "new").code == exit_codes.USAGE
    assert run("salvage", tmp_path / "noise").code == exit_codes.USAGE
    assert run("salvage", store_path("clean"), "--to", store_path("clean") / "new").code == exit_codes.REFUSED


def test_snapshot_and_verify(tmp_path: Path) -> None:
    done = run("snapshot", tmp_path / "copy", "-s", store_path("clean"), "--json")
    [answer] = done.objects
    assert (done.code, answer["end_offset"], answer["was_live"]) == (exit_codes.OK, 2135612, False)
    done = run("snapshot", "--verify", tmp_path / "copy")
    assert (done.code, "problems    0" in done.out) == (exit_codes.OK, True)
    (tmp_path / "copy" / "checkpoint").unlink()
    done = run("snapshot", "--verify", tmp_path / "copy", "--json")
    assert (done.code, done.objects[0]["problems"][0]["problem"]) == (exit_codes.DAMAGE_OR_NOTHING, "missing")
    assert run("snapshot", "--verify", tmp_path / "copy" / "index").code == exit_codes.UNREADABLE
    assert run("snapshot", tmp_path / "copy", "-s", store_path("clean")).code == exit_codes.REFUSED


def test_salvage_of_what_is_not_there(tmp_path: Path) -> None:
    done = run("salvage", tmp_path / "nowhere", "--to", tmp_path / "new")
    assert (done.code, "no such file" in done.err, "RMQCTL_STORE" in done.err) == (exit_codes.UNREADABLE, True, False)
