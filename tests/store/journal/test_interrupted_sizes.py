"""A change that keeps nothing and is interrupted once the old files are gone: the next one makes files of the same
sizes, although no file is left to tell them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io, lock
from rmqctl.store.journal.journal import keep_interrupted_sizes
from rmqctl.store.journal.log import changes
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.store.files.crashing import CrashError

WRITTEN = StoreConfig(
    mapped_file_size_commit_log=65536,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=50,
    max_index_num=200,
)
OTHERS = StoreConfig(mapped_file_size_consume_queue=4000, max_hash_slot_num=70, max_index_num=300)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ten messages of one queue with keys; one index file, which is damaged."""
    root = tmp_path / "store"
    with MessageStore.open(root, "rw", WRITTEN, create=True) as opened:
        opened.put_many([Message("T", b"body", 0, 0, {"KEYS": f"key-{number}"}) for number in range(10)])
    [index] = (root / "index").iterdir()
    data = bytearray(index.read_bytes())
    data[40:240] = bytes(200)  # all slots: no entry can be found, but the entries still tell the sizes
    index.write_bytes(data)
    return root


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _killed_without(folder: Path, work: Callable[[], object]) -> None:
    """`work`, killed as soon as there is no file in `folder`."""

    def kill(*_: object) -> None:
        if not _files(folder):
            raise CrashError

    io.observer = kill
    try:
        with pytest.raises(CrashError):
            work()
    finally:
        io.observer = None
        lock._held.clear()  # the process is gone, and its lock


def _recovered(root: Path, config: StoreConfig | None) -> None:
    with StoreFiles(root, config) as files:
        recover(files, change=ChangeOptions(keep_undo=False))


def _rebuilt(root: Path, config: StoreConfig | None) -> None:
    with StoreFiles(root, config) as files:
        rebuild(files, change=ChangeOptions(keep_undo=False))


@pytest.mark.parametrize("again", [_recovered, _rebuilt])
@pytest.mark.parametrize(("config", "expected"), [(None, 40 + 4 * 50 + 20 * 200), (OTHERS, 40 + 4 * 70 + 20 * 300)])
def test_index_files(
    store: Path, config: StoreConfig | None, expected: int, again: Callable[[Path, StoreConfig | None], None]
) -> None:
    _killed_without(store / "index", lambda: _recovered(store, config))
    again(store, None)
    assert [path.stat().st_size for path in _files(store / "index")] == [expected]
    with StoreFiles(store) as files:
        # a rebuild ends only what a rebuild began
        assert [change.state for change in changes(files.layout)][-1] == "permanent"
        assert files.index.problems == []


@pytest.mark.parametrize(("config", "expected"), [(None, 2000), (OTHERS, 4000)])
def test_queue_files(store: Path, config: StoreConfig | None, expected: int) -> None:
    _killed_without(store / "consumequeue", lambda: _rebuilt(store, config))
    _recovered(store, None)
    assert [path.stat().st_size for path in _files(store / "consumequeue")] == [expected]


def test_a_configuration_says_more(store: Path) -> None:
    _killed_without(store / "index", lambda: _recovered(store, None))
    _recovered(store, OTHERS)
    assert [path.stat().st_size for path in _files(store / "index")] == [40 + 4 * 70 + 20 * 300]


def test_a_note_that_makes_no_sense_is_passed_over(store: Path) -> None:
    _killed_without(store / "index", lambda: _recovered(store, None))
    with StoreFiles(store) as files:
        [note] = files.layout.kept.glob("*/state.json")
        text = note.read_text()
        assert '"max_index_num": 200' in text
        note.write_text(text.replace('"max_index_num": 200', '"max_index_num": "many"'))
        keep_interrupted_sizes(files)
        assert (files.config.max_hash_slot_num, files.config.max_index_num) == (50, None)
        note.write_text("{")
        files.config = StoreConfig()
        keep_interrupted_sizes(files)
        assert files.config == StoreConfig()
