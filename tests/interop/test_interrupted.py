"""A real broker uses a store of which a change was interrupted: what it stored is there after whatever comes next."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.files import lock
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.log import refuse_unfinished, unfinished_change
from rmqctl.store.journal.undo import give_up, resume, undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import properties, tree_state
from tests.interop import harness
from tests.interop.harness import Job
from tests.store.files.crashing import crashed, recorded

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

GOLDEN = "torn-zero"
STORED = 30


def _recover(store: Path) -> None:
    with StoreFiles(store) as files:
        recover(files)
    lock._held.clear()


def _interrupted(folder: Path, point: str) -> Path:
    """The golden with a recovery, or the undo of one, that was killed: before `abort` is moved, or when it is gone."""
    store = goldens.golden(GOLDEN, folder)
    seen = recorded(partial(_recover, goldens.golden(GOLDEN, folder / "whole")))
    shutil.rmtree(folder / "whole")
    moved = next(place for place, row in enumerate(seen, start=1) if row[:2] == ("move", row[1]) and "abort" in row[1])
    if point == "undoing":
        _recover(store)
        layout = StoreLayout(store, (store / "commitlog",))
        assert crashed(partial(undo, layout), 40)
    else:
        assert crashed(
            partial(_recover, store), {"before": moved - 1, "behind": moved + 2, "late": len(seen) - 8}[point]
        )
    lock._held.clear()
    return store


@pytest.mark.parametrize(
    ("point", "version"), [("before", "5.3.3"), ("behind", "5.3.3"), ("undoing", "5.3.3"), ("late", "4.9.8")]
)
def test_what_a_broker_stored_in_between_stays(tmp_path: Path, point: str, version: str) -> None:
    store = _interrupted(tmp_path, point)
    layout = StoreLayout(store, (store / "commitlog",))
    assert unfinished_change(layout)
    written = harness.write_store(version, store, properties(GOLDEN), messages=STORED)
    stored = {row.physical_offset: row.body_sha256 for row in written if row.status == "PUT_OK"}
    assert len(stored) == STORED
    before = tree_state(store)
    for end in (undo, resume):
        with pytest.raises(RefusedError, match="has written to the store") as refused:
            end(layout)
        assert "rmqctl undo --give-up" in str(refused.value.hint)
    with pytest.raises(RefusedError, match="was interrupted"):
        MessageStore.open(store, "rw")
    assert tree_state(store) == before
    give_up(layout)
    assert tree_state(store) == before
    _recover(store)
    refuse_unfinished(layout)
    [view] = harness.open_many(version, [Job(store, properties(GOLDEN))])
    seen = {message.physical_offset: message.body_sha256 for message in view.messages}
    assert {offset: seen.get(offset) for offset in stored} == stored
    with MessageStore.open(store, "rw") as opened:
        assert opened.files.log.max_offset == view.max_offset
