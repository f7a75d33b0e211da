"""Every file that is made, renamed or removed is so on disk when flush or close returns, or a verb has ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.store.clean.cleaner import clean
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.outputs import new_directory, new_file
from rmqctl.store.journal.log import changes
from rmqctl.store.journal.undo import forget, resume, undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.repair.repair import repair
from rmqctl.store.salvage.salvage import salvage
from rmqctl.store.snapshot.snapshot import take_snapshot
from rmqctl.store.store_files import StoreFiles, read_checkpoint
from tests.proof.crash.cuts import History
from tests.proof.crash.recording import Names, recorded
from tests.store.files.crashing import CrashError
from tests.store.files.durable import Disk, recorded_disk
from tests.store.write.writing import SMALL, message, small, stored_messages

NOW = 1_700_000_000_000


def assert_safe(disk: Disk, store: MessageStore | None = None) -> None:
    """Everything is on disk; but for the two next files of the log of an open `store`, which hold nothing yet."""
    unsafe = {*disk.unsafe_names(), *disk.unsafe_bytes()}
    if store is not None and store.files.log.files:
        log = store.files.log
        for start in (log.files[-1].end_offset, log.files[-1].end_offset + log.file_size):
            unsafe.discard(disk.name_of(log.path_of(start)))
    assert not unsafe


# ---- the model itself


def test_the_model(tmp_path: Path) -> None:
    with recorded_disk(tmp_path) as disk:
        io.make_directories(tmp_path / "a" / "b")
        io.create_file(tmp_path / "a" / "b" / "f", 10)
        assert disk.unsafe_names() == ["a", "a/b", "a/b/f"]
        io.flush_file(tmp_path / "a" / "b" / "f")
        io.flush_directory(tmp_path / "a" / "b")
        assert (disk.unsafe_names(), disk.unsafe_bytes()) == (["a", "a/b"], [])
        io.write_range(tmp_path / "a" / "b" / "f", 0, b"x")
        io.rename(tmp_path / "a", tmp_path / "c")
        assert disk.unsafe_names() == ["c", "c/b"]  # `a` was never safe, so nothing can come back
        assert disk.unsafe_bytes() == ["c/b/f"]
        io.flush_directory(tmp_path)
        io.flush_directory(tmp_path / "c")
        io.remove(tmp_path / "c" / "b" / "f")
        assert (disk.unsafe_names(), disk.unsafe_bytes()) == (["c/b/f"], [])
        io.remove_tree(tmp_path / "c")
        assert disk.unsafe_names() == ["c"]
        io.flush_directory(tmp_path)
        io.create_file(tmp_path / "passing", 1)
        io.remove(tmp_path / "passing")
        assert_safe(disk)


def test_a_change_that_comes_while_an_fsync_runs_is_not_covered(tmp_path: Path) -> None:
    with recorded_disk(tmp_path) as disk:
        io.create_file(tmp_path / "before", 0)
        descriptor = os.open(tmp_path, os.O_RDONLY)
        disk.fsync(descriptor, lambda _: io.create_file(tmp_path / "meanwhile", 0))
        os.close(descriptor)
        assert disk.unsafe_names() == ["meanwhile"]


# ---- appending


def ticking() -> Callable[[], int]:
    times = iter(range(NOW, 1 << 62, 1000))
    return times.__next__


_WAYS: dict[str, StoreConfig] = {
    "async": SMALL,
    "sync": small(flush_disk_type="SYNC_FLUSH"),
    "pool": small(transient_store_pool_enable=True),
}


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("config", _WAYS.values(), ids=_WAYS)
def test_what_was_put(tmp_path: Path, config: StoreConfig, ahead: bool) -> None:
    """New queues, second files of a queue, of the log and of the index; the parents of a new store; the next file of
    the log that nobody took."""
    root = tmp_path / "not" / "there" / "s"
    with recorded_disk(tmp_path) as disk:
        with MessageStore.open(root, "rw", config, create=True, allocate_ahead=ahead) as store:
            for number in range(130):
                store.put(message(700, queue_id=number % 2, properties={"KEYS": f"a{number} b c d"}))
            store.put_many([message(topic=f"T{number}") for number in range(5)])
            store.flush()
            assert_safe(disk, store)
            flushes = disk.directory_flushes
            for _ in range(5):
                store.put(message())
                store.flush()
            # five checkpoints, and those of the background on a slow machine; nothing for messages that go into files
            # which are there: those would be a flush for each of log, queue and index
            assert disk.directory_flushes < flushes + 5 + 5
            store.put(message(20_000, topic="Last"))
        assert_safe(disk)
    for folder, least in (("commitlog", 2), ("index", 2), ("consumequeue/TopicA/0", 1)):
        assert len(list((root / folder).iterdir())) >= least


def test_what_was_put_at_once(tmp_path: Path) -> None:
    import pyarrow

    rows = 3000
    columns = {
        "topic": pyarrow.array([f"T{number % 3}" for number in range(rows)]),
        "body": pyarrow.array([b"b" * 100] * rows, pyarrow.binary()),
        "keys": pyarrow.array([[f"k{number}"] for number in range(rows)]),
    }
    with recorded_disk(tmp_path) as disk:
        with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
            store.put_columns(pyarrow.RecordBatch.from_pydict(columns))
            store.flush()
            assert_safe(disk, store)
        assert_safe(disk)
    assert len(list((tmp_path / "s" / "consumequeue" / "T0" / "0").iterdir())) > 1


def test_several_directories_of_the_log(tmp_path: Path) -> None:
    root = tmp_path / "s"
    config = small(store_path_commit_log=f"{tmp_path}/a/cl,{tmp_path}/b/cl")
    with recorded_disk(tmp_path) as disk:
        with MessageStore.open(root, "rw", config, create=True) as store:
            for _ in range(5):
                store.put(message(40_000))
            store.flush()
            assert_safe(disk, store)
        assert_safe(disk)


def test_a_checkpoint_names_nothing_that_is_not_on_disk(tmp_path: Path) -> None:
    """Whenever one is written: of every message up to its times the log and the queue are safe, names and bytes; the
    index up to its own time."""
    root, seen = tmp_path / "s", []

    def look(operation: str, path: str) -> None:
        if operation == "rename to" and path == str(root / "checkpoint"):
            staged = next(root.glob(".checkpoint.*"))
            named = read_checkpoint(staged)
            assert named is not None
            seen.append((named, disk.unsafe_names(), disk.unsafe_bytes()))

    with recorded_disk(tmp_path, look) as disk:
        config = small(flush_interval_consume_queue=5, flush_interval_commit_log=1, max_index_num=100)
        with MessageStore.open(root, "rw", config, create=True, clock=ticking()) as store:
            for number in range(80):
                store.put(message(2000, topic=f"T{number}", properties={"KEYS": "a b"}))
            store.flush()
    messages = stored_messages(root, SMALL)
    assert seen[-1][0].logics_msg_timestamp == messages[-1].store_timestamp
    indexed = sorted(path.name for path in (root / "index").iterdir())
    assert len(indexed) == 2
    assert len(seen) > 1
    assert seen[-1][0].index_msg_timestamp
    for named, names, unsafe in seen:
        for one in messages:
            log = f"s/commitlog/{one.physical_offset // 65536 * 65536:020}"
            if one.store_timestamp <= named.physic_msg_timestamp:
                assert log not in names
            if one.store_timestamp <= named.logics_msg_timestamp:
                queue = f"s/consumequeue/{one.topic}"
                assert not [name for name in (*names, *unsafe) if name == queue or name.startswith(queue + "/")]
        if named.index_msg_timestamp:
            assert f"s/index/{indexed[0]}" not in (*names, *unsafe)
            assert "s/index" not in names


# ---- changes


def put(root: Path, count: int = 300) -> None:
    with MessageStore.open(root, "rw", SMALL, create=True) as store:
        for number in range(count):
            store.put(message(500, queue_id=number % 2, properties={"KEYS": f"k{number}"}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "s"
    put(root)
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A store of three log files whose queues and index need mending, and whose lock file is gone."""
    root = tmp_path / "s"
    shutil.copytree(whole, root)
    (root / "lock").unlink()
    (root / "abort").write_text("1")
    (root / "consumequeue" / "TopicA" / "1" / f"{2000:020}").unlink()
    shutil.rmtree(root / "consumequeue" / "TopicA" / "0")
    shutil.rmtree(root / "index")
    (root / "commitlog" / f"{3 * 65536:020}").write_bytes(b"")
    with (root / "commitlog" / f"{2 * 65536:020}").open("r+b") as file:
        file.seek(60_000)
        file.write(b"torn")
    return root


def run(root: Path, verb: Callable[..., object], *arguments: object, **options: object) -> object:
    with StoreFiles(root, SMALL) as files:
        return verb(files, *arguments, **options)


def truncate_half(files: StoreFiles, *, change: ChangeOptions) -> object:
    middle = stored_messages(files.root, SMALL)[150]
    return truncate(files, middle.physical_offset, change=change)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("verb", [recover, rebuild, repair, truncate_half])
def test_a_change_and_its_undo(root: Path, verb: Callable[..., object], keeps: bool) -> None:
    with recorded_disk(root.parent) as disk:
        run(root, verb, change=ChangeOptions(keep_undo=keeps))
        assert_safe(disk)
        if keeps:
            with StoreFiles(root, SMALL) as files:
                undo(files.layout)
                assert_safe(disk)
                forget(files.layout, changes(files.layout))
            assert_safe(disk)


def test_resume(root: Path) -> None:
    def killed(operation: str, path: str, *_: int) -> None:
        if operation == "rename to" and path.startswith(str(root / "index")):
            raise CrashError

    io.observer = killed
    try:
        with pytest.raises(CrashError):
            run(root, recover)
    finally:
        io.observer = None
    with recorded_disk(root.parent) as disk:
        resume(StoreFiles(root, SMALL).layout)
        assert_safe(disk)


def test_clean(whole: Path, tmp_path: Path) -> None:
    root = tmp_path / "s"
    shutil.copytree(whole, root)
    with recorded_disk(tmp_path) as disk:
        run(root, clean, CleanOptions(pause=0, at_once=True))
        assert_safe(disk)
    assert len(list((root / "commitlog").iterdir())) == 1


def test_the_times_of_a_snapshot(whole: Path, tmp_path: Path) -> None:
    """They stand in its manifest, and it is no good without them."""
    with recorded(tmp_path) as recording:
        run(whole, take_snapshot, tmp_path / "snapshot", "test")
    history = History(recording)
    assert not history.pending(len(recording.events))


def test_what_an_undo_moves_back_is_there_on_disk_before_it_leaves_the_journal(root: Path) -> None:
    """A cut in between left the file in neither place, and the undo refused to go on."""
    run(root, recover)
    with recorded(root.parent) as recording, StoreFiles(root, SMALL) as files:
        undo(files.layout)
    history, seen = History(recording), 0
    for number, event in enumerate(recording.events):
        if isinstance(event, Names) and len({entry.directory for entry in event.entries}) == 2:
            there, gone = (history.safe_in(number, entry.directory) for entry in event.entries)
            assert there < gone
            seen += 1
    assert seen


def test_copies_and_outputs(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    with recorded_disk(tmp_path) as disk:
        for hard_links in (False, True):
            run(whole, take_snapshot, tmp_path / "x" / f"snapshot{hard_links}", "test", hard_links=hard_links)
            assert_safe(disk)
        salvage([whole], tmp_path / "y" / "salvaged")
        assert_safe(disk)
        with new_file(tmp_path / "z" / "file") as output:
            output.write(b"x")
        assert_safe(disk)
        with new_directory(tmp_path / "deep" / "er" / "folder") as folder:
            io.make_directories(folder / "part")
            io.create_file(folder / "part" / "0", 5)
        assert_safe(disk)
