"""A plain body flagged as compressed: every command that meets it says so, and ends as with other damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rmqctl.looking import run

_SYS_FLAG = 36
"""Place of the flags in a frame; no checksum covers them here."""


@pytest.fixture(scope="module")
def flagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("flagged") / "store"
    for key, more in (("plain1", ["--create"]), ("plain2", [])):
        assert run("append", "-s", store, "-t", "T", "-k", key, *more, "--body", f"the body of {key}").code == 0
    with (store / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.seek(_SYS_FLAG)
        log.write(bytes((0, 0, 0, 1)))
    return store


@pytest.mark.parametrize("level", [(), ("--full",)])
def test_check_names_it_at_every_level_that_reads_messages(flagged: Path, level: tuple[str, ...]) -> None:
    done = run("check", *level, "-s", flagged, "--json")
    assert done.code == 1
    (finding,) = [row for row in done.objects if row.get("code") == "RMQ-LOG-032"]
    assert (finding["physical_offset"], finding["fix"]) == (0, f"rmqctl repair --only RMQ-LOG-032 -s {flagged}")


@pytest.mark.parametrize(
    "command",
    [
        ("query", "-k", "plain1"),
        ("query", "-t", "T", "-q", "0", "-o", "0"),
        ("query", "-k", "plain1", "--json"),
        ("cat",),
        ("cat", "--json"),
        ("cat", "--columns", "topic,body"),
        ("where", "plain1"),
    ],
)
def test_reading_it_ends_with_damage(flagged: Path, command: tuple[str, ...]) -> None:
    done = run(*command, "-s", flagged)
    assert done.code == 1
    assert "damage: at offset 0: Java clients drop it" in done.err
    assert "`rmqctl repair --only RMQ-LOG-032` clears the flag" in done.err


@pytest.mark.parametrize("command", [("query", "-k", "plain2"), ("cat", "--columns", "topic,keys")])
def test_what_does_not_show_it_ends_well(flagged: Path, command: tuple[str, ...]) -> None:
    done = run(*command, "-s", flagged)
    assert (done.code, done.err) == (0, "")
