"""What has to be on disk before the next step of a move, a removal or a new log file is made."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.journal.kept import discard, move
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from tests.proof.crash.cuts import History
from tests.proof.crash.recording import Entry, Names, Recording, recorded
from tests.store.files.durable import recorded_disk
from tests.store.write.writing import FILE_SIZE, SMALL, message


def test_folders_are_on_disk_before_anything_is_moved_into_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with recorded(tmp_path) as recording:
        move(tmp_path / "file", tmp_path / "new" / "er" / "file")
    history = History(recording)
    made, made_below, moved = (at for at, event in enumerate(recording.events) if isinstance(event, Names) and at > 1)
    assert max(history.safe[made], history.safe[made_below]) < moved


@pytest.mark.parametrize("is_seen_where", ["it comes to", "it comes from"])
def test_what_is_moved_to_another_disk_is_there_before_it_leaves_the_first(
    tmp_path: Path, elsewhere: Path, is_seen_where: str
) -> None:
    source, target = tmp_path / "tree", elsewhere / "new" / "tree"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_bytes(b"x" * 5000)
    left: list[tuple[list[str], list[str]]] = []
    removed: list[str] = []

    def look(operation: str, path: str) -> None:
        if operation == "rename" and path == str(source):
            left.append((disk.unsafe_names(), disk.unsafe_bytes()))
        elif operation in ("rmtree", "remove"):
            # half of it must not look like all of it
            assert not source.exists()
            removed.append(path)

    with recorded_disk(elsewhere if is_seen_where == "it comes to" else tmp_path, look) as disk:
        move(source, target)
        assert (disk.unsafe_names(), disk.unsafe_bytes()) == ([], [])
    assert left == [([], [])]
    assert removed


def test_a_folder_that_goes_has_its_other_name_on_disk_before_anything_in_it_goes(tmp_path: Path) -> None:
    """Else a power cut leaves half of it under the name by which it counts as whole."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    with recorded(tmp_path) as recording:
        discard(tmp_path / "folder")
    renamed, first_removed = _names_made(recording)[:2]
    assert History(recording).safe[renamed] < first_removed


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_log_file_is_made_once_the_names_of_those_before_it_are_on_disk(tmp_path: Path, is_ahead: bool) -> None:
    """Else a power cut leaves a log without its beginning, which looks like one whose beginning has expired."""
    config = SMALL._replace(flush_interval_commit_log=60_000)
    with (
        recorded(tmp_path) as recording,
        MessageStore.open(tmp_path / "s", "rw", config, create=True, allocate_ahead=is_ahead) as store,
    ):
        while len(store.files.log.files) < 4:
            assert store.put(message(600)).status.is_stored
    history = History(recording)
    (commitlog,) = {entry.node for entry in _entries(recording) if entry.name == "commitlog"}
    made = [
        number
        for number, event in enumerate(recording.events)
        if isinstance(event, Names) and event.entries[0].directory == commitlog and event.entries[0].node is not None
    ]
    assert len(made) >= 4
    assert all(history.safe[before] < after for before, after in itertools.pairwise(made))


def test_a_name_that_cannot_be_flushed_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any failed fsync: that a later one succeeds would prove nothing."""

    def break_folders(operation: str, path: str, *_: int) -> None:
        if operation == "fsync" and path.endswith("/commitlog"):
            raise OSError(errno.EIO, "Input/output error")

    config = SMALL._replace(flush_interval_commit_log=60_000)
    store = MessageStore.open(tmp_path / "s", "rw", config, create=True, allocate_ahead=False)
    assert store.put(message(600)).status.is_stored
    statuses = []
    with monkeypatch.context() as patch:
        patch.setattr(io, "observer", break_folders)
        for _ in range(FILE_SIZE // 600):
            statuses.append(store.put(message(600)).status)
    statuses.append(store.put(message(600)).status)
    assert statuses[-2:] == [PutStatus.CREATE_MAPPED_FILE_FAILED] * 2
    with pytest.raises(WriteFailedError, match="Input/output"):
        store.flush()
    with pytest.raises(WriteFailedError, match="Input/output"):
        store.close()
    assert (tmp_path / "s" / "abort").exists()


def _entries(recording: Recording) -> Iterator[Entry]:
    return (entry for event in recording.events if isinstance(event, Names) for entry in event.entries)


def _names_made(recording: Recording) -> list[int]:
    """The numbers of all changes of names that the work made."""
    return [at for at, event in enumerate(recording.events) if isinstance(event, Names) and at >= recording.begun]
