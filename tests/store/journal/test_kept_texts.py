"""Texts among the journals that say nothing of a change: told, never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store.journal.entry import Reach, from_json
from rmqctl.store.journal.folder import read_state
from rmqctl.store.journal.log import changes
from rmqctl.store.journal.plan import WRITE
from rmqctl.store.journal.undo import undo
from tests.store.journal.changing import start


@pytest.mark.parametrize("state", ['{"state": "else"}', "{}", '{"state": "interrupted"}'])
def test_a_state_that_no_change_is_in(tmp_path: Path, state: str) -> None:
    layout, work = start(tmp_path)
    folder = work().folder
    (folder / "state.json").write_text(state)
    with pytest.raises(CorruptError, match="says nothing of the change's state"):
        read_state(folder)
    with pytest.raises(CorruptError):
        undo(layout)


def test_a_file_that_is_no_history_is_not_read(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    work()
    with (layout.kept / "history.jsonl").open("wb") as file:
        file.truncate((1 << 26) + 1)
    with pytest.raises(CorruptError, match="larger than any history"):
        changes(layout)


@pytest.mark.parametrize("name", ["size", "offset", "length", "new_size", "after_at"])
@pytest.mark.parametrize("value", [-1, "5", 1.5, [5]])
def test_an_operation_with_a_place_that_is_none(tmp_path: Path, name: str, value: object) -> None:
    """Whoever wrote it: a negative length must not get as far as a file of the store."""
    layout, _ = start(tmp_path)
    log = layout.root / "commitlog"
    reach = Reach(layout.kept / "journal.json", layout.root, (log,))
    row = {"kind": WRITE, "path": "commitlog/0", "size": 10, "mtime_ns": 5}
    assert from_json(row, reach).path == log / "0"
    with pytest.raises(CorruptError, match="makes no sense"):
        from_json({**row, name: value}, reach)
