"""A folder that is moved away and made anew by one change, interrupted while it is empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.files import lock
from rmqctl.store.journal.journal import changing
from rmqctl.store.journal.plan import CreateFile, MoveAway, Operation, WriteRange
from rmqctl.store.journal.undo import undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.store_files import StoreFiles
from tests.goldens import tree_state
from tests.store.files.crashing import crashed, recorded
from tests.store.journal import verbs
from tests.store.journal.changing import small_store
from tests.store.journal.commands import COMMANDS, CONFIG
from tests.store.journal.test_underway import killed_at


def index_made_anew(root: Path) -> None:
    with StoreFiles(root, CONFIG) as files, changing(files, "rebuild", ChangeOptions()) as change:
        change.plan.add(MoveAway(root / "index"))
        change.plan.add(CreateFile(root / "index" / "20990101000000000", 400))


@pytest.mark.parametrize("name", ["undo", "resume"])
def test_an_empty_folder_is_the_change_s_own(name: str, tmp_path: Path) -> None:
    first, root = tmp_path / "first" / "s", tmp_path / "s"
    verbs.whole(first)
    seen = recorded(lambda: index_made_anew(first))
    made = next(at for at, (operation, path, *_) in enumerate(seen) if (operation, path) == ("mkdir", f"{first}/index"))
    verbs.whole(root)
    before = tree_state(root)
    assert crashed(lambda: index_made_anew(root), made + 2)
    assert not list((root / "index").iterdir())
    lock._held.clear()
    COMMANDS[name](root)
    if name == "undo":
        assert tree_state(root) == before
    else:
        assert [path.name for path in (root / "index").iterdir()] == ["20990101000000000"]


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_an_empty_folder_where_one_was_taken_out(tmp_path: Path, is_made_anew: bool) -> None:
    """It is of the change if that puts something into it later, else somebody's, whose files may be under way."""
    layout = small_store(tmp_path)
    before, index = tree_state(layout.root), layout.root / "index"
    later: list[Operation] = [CreateFile(index / "new", 100)] if is_made_anew else []
    killed_at(layout, "write", "checkpoint", MoveAway(index), WriteRange(layout.checkpoint, 5, b"N"), *later)
    assert not index.exists()
    index.mkdir()
    if not is_made_anew:
        with pytest.raises(RefusedError, match="has written to the store"):
            undo(layout)
        index.rmdir()
    assert undo(layout).state == "undone"
    assert tree_state(layout.root) == before
