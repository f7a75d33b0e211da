"""`rmqctl offsets set-delay`: the offset of a delay level, changed as a broker writes it, and undone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.output import outcome as exit_codes
from tests.goldens import GoldenStore, tree_state
from tests.opened import store_path
from tests.rmqctl.looking import Done, run

FILE = "config/delayOffset.json"
# the broker left level 1 at 71, the end of its queue
END = 71


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    return golden_store("broker-real")


def _set(store: Path, level: int, offset: int, *more: object) -> Done:
    return run("offsets", "set-delay", "-s", store, "--level", level, "-o", offset, *more)


def _content(store: Path) -> Any:
    return parse_config_json((store / FILE).read_text(encoding="utf-8"))


def _level(store: Path, level: int) -> Any:
    return next(row for row in run("delays", "-s", store, "--json").objects if row["level"] == level)


def test_a_smaller_offset_delivers_again_and_undo_restores_the_files(store: Path) -> None:
    before, content = tree_state(store), _content(store)
    old = (store / FILE).read_bytes()
    assert _level(store, 1)["pending"] == 0
    report = json.loads(_set(store, 1, 60, "--json").out)
    assert (report["changed"], report["again"], report["skipped"]) == (1, END - 60, 0)
    assert _content(store)["offsetTable"] == {1: 60, 14: 0}
    assert _content(store)["dataVersion"]["counter"] == content["dataVersion"]["counter"] + 1
    assert (store / (FILE + ".bak")).read_bytes() == old
    assert _level(store, 1)["pending"] == END - 60
    assert run("undo", "-s", store).code == exit_codes.OK
    assert tree_state(store) == before


def test_a_dry_run_changes_nothing_and_says_what_would_be_delivered(store: Path) -> None:
    before = tree_state(store)
    done = _set(store, 1, 60, "--dry-run")
    assert done.code == exit_codes.OK
    assert "11 messages delivered again" in done.err
    assert "clients of the group" not in done.err
    assert tree_state(store) == before


def test_messages_that_are_never_delivered_need_consent(store: Path) -> None:
    assert _set(store, 1, 60).code == exit_codes.OK
    refused = _set(store, 1, END)
    assert refused.code == exit_codes.REFUSED
    assert "11 messages that the broker has not delivered" in refused.err
    assert _content(store)["offsetTable"][1] == 60
    done = _set(store, 1, END, "--yes")
    assert done.code == exit_codes.OK
    assert "11 messages never delivered" in done.err
    assert _content(store)["offsetTable"][1] == END


def test_a_level_that_the_file_lacks_begins_at_0(store: Path) -> None:
    (store / FILE).write_text('{"offsetTable":{14:0}}')
    assert _set(store, 1, END).code == exit_codes.REFUSED
    report = json.loads(_set(store, 1, END, "--yes", "--json").out)
    assert (report["rows"][0]["before"], report["skipped"]) == (None, END)
    # 4.x writes no dataVersion
    assert _content(store) == {"offsetTable": {1: END, 14: 0}}


def test_without_a_file_there_is_one_afterwards(store: Path) -> None:
    for path in (store / FILE, store / (FILE + ".bak")):
        path.unlink(missing_ok=True)
    assert _set(store, 1, 5, "--yes").code == exit_codes.OK
    assert _content(store) == {"offsetTable": {1: 5}}
    assert run("undo", "-s", store).code == exit_codes.OK
    assert not (store / FILE).exists()


@pytest.mark.parametrize(
    ("level", "offset", "words"),
    [(1, END + 1, "is outside SCHEDULE_TOPIC_XXXX queue 0"), (5, 0, "has no files"), (19, 0, "18 levels")],
)
def test_bounds(store: Path, level: int, offset: int, words: str) -> None:
    before = tree_state(store)
    done = _set(store, level, offset, "--yes")
    assert done.code == exit_codes.REFUSED
    assert words in done.err
    assert tree_state(store) == before
    assert _set(store, level, offset, "--yes", "--anywhere").code == exit_codes.OK
    assert _content(store)["offsetTable"][level] == offset


def test_the_bounds_of_the_arguments(store: Path) -> None:
    assert _set(store, 0, 1).code == exit_codes.USAGE
    assert _set(store, 1, -1).code == exit_codes.USAGE


def test_the_backup_is_changed_where_the_file_is_damaged(store: Path) -> None:
    good = (store / FILE).read_bytes()
    (store / (FILE + ".bak")).write_bytes(good)
    (store / FILE).write_bytes(b"{{{")
    report = json.loads(_set(store, 1, 60, "--json").out)
    assert "its backup is what is changed" in report["notes"][0]
    assert _content(store)["offsetTable"] == {1: 60, 14: 0}
    assert (store / (FILE + ".bak")).read_bytes() == good


def test_an_offset_is_set_where_the_file_and_its_backup_are_damaged(store: Path) -> None:
    for path in (store / FILE, store / (FILE + ".bak")):
        path.write_bytes(b"{{{")
    report = json.loads(_set(store, 1, 60, "--yes", "--json").out)
    assert "0 entries can still be read" in report["notes"][0]
    assert _content(store)["offsetTable"] == {1: 60}


@pytest.mark.parametrize("content", [b"{{{", b""])
def test_a_repair_takes_the_offsets_from_what_was_delivered(store: Path, content: bytes) -> None:
    """71 messages of level 1 have copies in their topics, none of level 14."""
    for path in (store / FILE, store / (FILE + ".bak")):
        path.write_bytes(content)
    assert run("repair", "--only", "RMQ-CFG-002", "-s", store, "-y").code == exit_codes.OK
    assert _content(store)["offsetTable"] == {1: END, 14: 0}


def test_a_repair_waits_until_the_queues_are_whole(store: Path) -> None:
    for path in (store / FILE, store / (FILE + ".bak")):
        path.write_bytes(b"{{{")
    shutil.rmtree(store / "consumequeue" / "SCHEDULE_TOPIC_XXXX")
    done = run("repair", "--only", "RMQ-CFG-002", "-s", store, "-y")
    assert (done.code, (store / FILE).read_bytes()) == (exit_codes.DAMAGE_OR_NOTHING, b"{{{")
    assert run("recover", "-s", store, "-y").code == exit_codes.OK
    assert run("repair", "--only", "RMQ-CFG-002", "-s", store, "-y").code == exit_codes.OK
    assert _content(store)["offsetTable"] == {1: END, 14: 0}


def test_the_same_offset_is_no_change(store: Path) -> None:
    before = tree_state(store)
    assert _set(store, 1, END).code == exit_codes.OK
    assert (store / FILE).read_bytes() == (store_path("broker-real") / FILE).read_bytes()
    assert tree_state(store) == before
