"""`rmqctl log` lists what was stored, which no undo takes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal import entry as stored
from tests.goldens import GoldenStore
from tests.rmqctl.looking import run


def test_appends_are_listed_with_their_place_and_without_their_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    command = ["append", "-s", str(store), "--create", "-t", "T", "--body", "very secret"]
    monkeypatch.setattr("sys.argv", ["rmqctl", *command])
    assert run(*command).code == 0
    assert run(*command).code == 0
    first, second = run("log", "-s", store, "--json").objects
    assert [first["verb"], first["state"], first["undoable"]] == ["append", "stored", False]
    assert (first["begin_offset"], first["end_offset"]) == (0, second["begin_offset"])
    assert "secret" not in json.dumps([first, second])
    done = run("undo", "-s", store, "-y")
    assert (done.code, "nothing to undo" in done.err) == (1, True)


def test_an_undo_passes_over_what_was_stored(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    assert run("recover", "-s", store).code == 0
    assert run("append", "-s", store, "-t", "T", "--body", "x", "--anywhere").code == 0
    listed = run("log", "-s", store, "--json").objects
    assert [row["verb"] for row in listed] == ["recover", "append"]
    assert [row["undoable"] for row in listed] == [True, False]


def test_a_command_that_stores_nothing_is_not_listed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    run("append", "-s", store, "--create", "-t", "T", "--body", "x")
    assert run("append", "-s", store, "-t", "bad topic!", "--body", "x").code != 0
    assert len(run("log", "-s", store, "--json").objects) == 1


def test_the_oldest_lines_go_when_there_are_very_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_LARGEST", 2000)
    layout = StoreLayout(tmp_path / "store", (tmp_path / "store/commitlog",))
    for number in range(40):
        stored.note_stored(layout, "append", ["append"], number, number + 1)
    found = stored.stored(layout)
    assert 5 < len(found) < 40
    assert [one.begin for one in found] == list(range(40 - len(found), 40))


def test_a_line_that_does_not_parse_hides_no_other(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path / "store", (tmp_path / "store/commitlog",))
    stored.note_stored(layout, "append", [], 0, 1)
    path = layout.kept / "stored.jsonl"
    path.write_bytes(b'{"verb": 7}\nnot json\n[]\n\xff\n' + path.read_bytes())
    assert [one.end for one in stored.stored(layout)] == [1]
