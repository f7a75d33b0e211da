"""The broker's lock between processes, and the search for processes that use the store."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import StoreInUseError, WriteFailedError
from rmqctl.formats.message import Message
from rmqctl.main import main
from rmqctl.store import MessageStore
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io, lock
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import StoreLock, holder_name, is_in_use, lock_holder, take_lock, users_of
from tests.goldens import tree_state
from tests.processes import run, start


def _layout(folder: Path) -> StoreLayout:
    (folder / "commitlog").mkdir(parents=True)
    (folder / "commitlog" / "0").write_bytes(b"x" * 4096)
    return StoreLayout(folder, (folder / "commitlog",))


@contextlib.contextmanager
def _process(script: str, *arguments: Path) -> Iterator[int]:
    """Another process that has run `script`, until the block ends; its id."""
    code = textwrap.dedent(script) + "\nprint('ready', flush=True); sys.stdin.read()"
    process = start(
        [sys.executable, "-c", "import fcntl, mmap, os, sys\n" + code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.communicate("")


# what Java's FileChannel.tryLock(0, 1, false) does on Linux: fcntl(F_SETLK, F_WRLCK, SEEK_SET, 0, 1), found by strace;
# written with the raw call here so that nothing of ours is asked about itself
JAVA_LOCK = """
    import struct
    file = open(sys.argv[1], "r+b")
    fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0))
"""


def _lock_file(folder: Path) -> Path:
    path = folder / "lock"
    path.write_bytes(b"lock")
    return path


def test_a_lock_taken_as_java_takes_it_keeps_us_out(tmp_path: Path) -> None:
    path = _lock_file(tmp_path)
    with _process(JAVA_LOCK, path) as holder:
        before = tree_state(tmp_path)
        with pytest.raises(StoreInUseError, match="holds the lock") as refused:
            StoreLock(path)
        assert refused.value.file == str(path)
        assert refused.value.hint
        assert lock_holder(path) == holder
        assert tree_state(tmp_path) == before
    StoreLock(path).release()


@pytest.mark.parametrize(("start", "length"), [(1, 1), (1, 0), (100, 5)])
def test_only_byte_0_counts(tmp_path: Path, start: int, length: int) -> None:
    path = _lock_file(tmp_path)
    code = f"file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX, {length}, {start})"
    with _process(code, path):
        assert lock_holder(path) is None
        StoreLock(path).release()


def test_a_lock_on_the_whole_file_counts(tmp_path: Path) -> None:
    path = _lock_file(tmp_path)
    with _process("file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX)", path) as holder:
        assert lock_holder(path) == holder


def test_a_holder_without_a_process_id_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel names no process for an open file description lock, nor for a lock of another PID namespace."""
    root = tmp_path / "store"
    with MessageStore.open(root, "rw", StoreConfig(mapped_file_size_commit_log=65536), create=True) as store:
        store.put(Message("T", b"x", 0, 0, {}))
    of_its_file = JAVA_LOCK.replace("fcntl.F_SETLK", "37")  # F_OFD_SETLK
    with _process(of_its_file, root / "lock"):
        assert lock_holder(root / "lock") == -1
        for verb, code_of_it, named in (("info", 0, "In use by"), ("predict", 1, "")):
            assert main([verb, "-s", str(root)]) == code_of_it
            said = "".join(capsys.readouterr())
            assert f"{named} a process of another container or machine".strip() in " ".join(said.split())
            assert "process -1" not in said
    assert holder_name(0) == holder_name(-1) == "a process of another container or machine"
    assert holder_name(7) == "process 7"


def test_flock_is_another_lock(tmp_path: Path) -> None:
    path = _lock_file(tmp_path)
    with _process("file = open(sys.argv[1], 'r+b'); fcntl.flock(file, fcntl.LOCK_EX)", path):
        assert lock_holder(path) is None


def test_our_lock_keeps_others_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = StoreLock(path)
    try:
        ask = (
            "import fcntl, sys\nfile = open(sys.argv[1], 'r+b')\nfcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
        )
        asked = run([sys.executable, "-c", ask, path])
        assert "BlockingIOError" in asked.stderr
    finally:
        held.release()
    assert run([sys.executable, "-c", ask, path]).returncode == 0
    # RocketMQ writes this word when it creates the file (read only now: closing the file would have dropped the lock)
    assert path.read_bytes() == b"lock"


def test_one_process_cannot_take_it_twice(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    (tmp_path / "link").symlink_to(tmp_path)
    held = StoreLock(path)
    for name in (path, tmp_path / "link" / "lock"):
        with pytest.raises(StoreInUseError, match="this process"):
            StoreLock(name)
        # asking must not open and close the file: that would give the lock away
        assert lock_holder(name) == os.getpid()
    with _process("pass"):
        code = f"file = open({str(path)!r}, 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
        assert run([sys.executable, "-c", "import fcntl\n" + code]).returncode == 1
    held.release()
    assert lock_holder(path) is None
    StoreLock(path).release()


def test_a_present_file_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"anything")
    before = tree_state(tmp_path)
    StoreLock(path).release()
    assert tree_state(tmp_path) == before


def test_asking_changes_nothing(tmp_path: Path) -> None:
    assert lock_holder(tmp_path / "lock") is None
    assert not (tmp_path / "lock").exists()
    path = _lock_file(tmp_path)
    before = tree_state(tmp_path)
    with _process(JAVA_LOCK, path) as holder:
        assert [lock_holder(path), lock_holder(path)] == [holder, holder]
        # and does not disturb the lock that is held
        with pytest.raises(StoreInUseError):
            StoreLock(path)
    assert lock_holder(path) is None
    assert tree_state(tmp_path) == before


def test_a_lock_file_that_cannot_be_asked(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "lock")
    assert lock_holder(tmp_path / "lock") is None  # no process can have opened it
    os.mkfifo(tmp_path / "fifo")
    assert lock_holder(tmp_path / "fifo") is None


def test_a_full_disk_does_not_leave_the_lock_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"

    def fail(operation: str, file: str, offset: int, length: int) -> None:
        if operation == "write":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(io, "observer", fail)
    with pytest.raises(WriteFailedError):
        StoreLock(path)
    monkeypatch.setattr(io, "observer", None)
    assert lock_holder(path) is None
    assert str(path) not in lock._held
    StoreLock(path).release()


# of the last one neither the byte is UTF-8 nor the line's end one of the system's
@pytest.mark.parametrize("name", ["store", "st\udcffore\u2028"])
def test_open_and_mapped_files_are_seen(name: str, tmp_path: Path) -> None:
    layout = _layout(tmp_path / name)
    file = layout.root / "commitlog" / "0"
    assert users_of(layout) == []
    with _process("file = open(sys.argv[1], 'rb')", file) as user:
        assert users_of(layout) == [(user, str(file))]
        with pytest.raises(StoreInUseError, match=f"process {user} ") as refused:
            take_lock(layout)
        assert refused.value.file == str(file)
        assert not layout.lock.exists()
    mapped = "file = open(sys.argv[1], 'r+b'); pages = mmap.mmap(file.fileno(), 0); file.close()\n"
    # mmap keeps a descriptor of its own, which is closed here so that nothing but the mapping is left
    mapped += (
        "for name in os.listdir('/proc/self/fd'):\n    "
        "if int(name) > 2 and os.path.exists(f'/proc/self/fd/{name}') "
        "and os.readlink(f'/proc/self/fd/{name}') == sys.argv[1]: os.close(int(name))"
    )
    with _process(mapped, file) as user:
        assert users_of(layout) == [(user, str(file))]
    take_lock(layout).release()


def test_who_lists_a_folder_uses_no_file_in_it(tmp_path: Path) -> None:
    """As find, du or a backup does that goes through the store."""
    layout = _layout(tmp_path)
    with _process("folder = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)", layout.root / "commitlog"):
        assert users_of(layout) == []
        take_lock(layout).release()


def test_a_user_is_seen_through_links_and_outside_the_root(tmp_path: Path) -> None:
    real = _layout(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    log = tmp_path / "elsewhere"
    log.mkdir()
    (log / "0").write_bytes(b"x")
    through = StoreLayout(tmp_path / "link", (log,))
    with _process("file = open(sys.argv[1], 'rb')", real.root / "commitlog" / "0") as user:
        assert [process for process, _ in users_of(through)] == [user]
    with _process("file = open(sys.argv[1], 'rb')", log / "0") as user:
        assert [process for process, _ in users_of(through)] == [user]


def test_neighbours_of_the_store_are_no_users(tmp_path: Path) -> None:
    layout = _layout(tmp_path / "store")
    (tmp_path / "store2").mkdir()
    (tmp_path / "store2" / "file").write_bytes(b"x")
    with _process("file = open(sys.argv[1], 'rb')", tmp_path / "store2" / "file"):
        assert users_of(layout) == []


def test_our_own_open_files_do_not_count(tmp_path: Path) -> None:
    layout = _layout(tmp_path / "store")
    with (layout.root / "commitlog" / "0").open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert users_of(layout) == []
        take_lock(layout).release()


def test_the_constants_are_those_of_the_system() -> None:
    """The question goes to the kernel as a struct of our own making."""
    assert lock._FLOCK.size == 32
    assert (fcntl.F_WRLCK, fcntl.F_UNLCK, os.SEEK_SET) == (1, 2, 0)


@pytest.mark.parametrize(
    ("work", "writes"),
    [
        ("file = open(sys.argv[1], 'rb')", False),
        ("file = open(sys.argv[1], 'r+b')", True),
        ("file = open(sys.argv[1], 'ab')", True),
        ("file = open(sys.argv[1], 'rb'); m = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)", False),
        ("file = open(sys.argv[1], 'r+b'); m = mmap.mmap(file.fileno(), 0); os.closerange(3, 9)", True),
    ],
    ids=["read", "changed", "appended", "read by a map", "changed by a map alone"],
)
def test_who_only_reads_is_no_writer(work: str, writes: bool, tmp_path: Path) -> None:
    """A backup, or another command that looks, makes no store one that is written to; a change waits for it still."""
    layout = _layout(tmp_path / "store")
    file = layout.root / "commitlog" / "0"
    file.write_bytes(bytes(8192))
    with _process(work, file) as user:
        assert [one for one, _ in users_of(layout)] == [user]
        assert [one for one, _ in users_of(layout, writing=True)] == ([user] if writes else [])
        assert is_in_use(layout) is writes


def test_processes_that_work_for_the_same_command_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with start([sys.executable, "-c", "import time; time.sleep(60)"]) as sibling:
        assert lock.is_another(str(sibling.pid))
        monkeypatch.setattr(lock, "own_workers", {os.getpid()})
        assert not lock.is_another(str(sibling.pid))
        assert lock.is_another("1")
        sibling.kill()
