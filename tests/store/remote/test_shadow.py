"""A folder that stands for a store on a server: what is fetched, what happens to errors, and no hole is ever read."""

from __future__ import annotations

import mmap
import os
import pickle
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from fsspec.registry import _registry

from rmqctl.formats.errors import RemovedError, UnreadableError, UnsupportedError
from rmqctl.output import outcome as exit_codes
from rmqctl.store.files import remote_file_system as file_system
from rmqctl.store.files.reading import STAND_IN, Descriptors, data_extents, read_small_file
from rmqctl.store.files.remote import address_of, is_address, reachable_loose, without_scheme
from rmqctl.store.files.remote_file_system import ATTEMPTS, FsspecFiles, Listed
from rmqctl.store.files.remote_files import BLOCK, KEPT_BLOCKS, shadow_of
from rmqctl.store.message_store import MessageStore
from tests.opened import store_path
from tests.processes import run as run_process
from tests.rmqctl.looking import run
from tests.store.remote.served import FolderFiles, served
from tests.store.write.writing import wait_until

FIRST = "commitlog/00000000000000000000"


def test_addresses() -> None:
    assert is_address("s3://bucket/store")
    assert is_address(Path("s3a://bucket/store"))
    assert address_of(Path("s3a://bucket/store")) == "s3a://bucket/store"
    assert not is_address("/data/s3:/x")
    assert not is_address("file:///data/store")
    assert without_scheme("file:///data/store") == Path("/data/store")


@pytest.mark.parametrize(
    "door",
    [
        lambda path: path.read_bytes(),
        lambda path: np.fromfile(path, np.uint8).tobytes(),
        lambda path: bytes(np.memmap(path, np.uint8, "r")),
        lambda path: bytes(mmap.mmap(os.open(path, os.O_RDONLY), 0, prot=mmap.PROT_READ)),
        lambda path: Path(shutil.copyfile(path, path.with_name("copy"))).read_bytes(),
        lambda path: _linked(path).read_bytes(),
        lambda path: _descended(path),  # noqa: PLW0108 - defined below
        lambda path: Descriptors().read(path, 0, path.stat().st_size),
        lambda path: read_small_file(path, path.stat().st_size + 1),
    ],
    ids=["pathlib", "numpy", "numpy-map", "map", "copy", "link", "relative", "ours", "small"],
)
def test_whatever_opens_a_file_gets_it_whole(door: object) -> None:
    store = store_path("crash")
    with served(store) as (_, shadow):
        path = shadow.folder / FIRST
        assert path.stat().st_blocks == 0
        assert door(path) == (store / FIRST).read_bytes()  # type: ignore[operator]


def _linked(path: Path) -> Path:
    other = path.with_name("linked")
    os.link(path, other)
    return other


def _descended(path: Path) -> bytes:
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        return Path("..", path.parent.name, path.name).read_bytes()
    finally:
        os.chdir(before)


def test_another_process_reads_no_holes() -> None:
    with served(store_path("clean")) as (_, shadow):
        done = run_process([sys.executable, "-m", "rmqctl", "cat", "-s", shadow.folder])
        assert done.returncode == 3
        assert "is a placeholder that another process uses for a remote file" in done.stderr
    assert not shadow.top.exists()


class _Says(FolderFiles):
    """A server that lists any names."""

    def __init__(self, address: str, listed: list[Listed], folders: list[str]) -> None:
        super().__init__(address, Path("/nowhere"))
        self.says = listed, folders

    def listed(self) -> tuple[list[Listed], list[str]]:
        """As it was told."""
        return self.says


def _file(name: str, size: int = 1, modified_ns: int | None = 0) -> Listed:
    return Listed(name, size, modified_ns, "")


@pytest.mark.parametrize(
    ("listed", "folders", "named"),
    [
        ([_file("../../escaped")], [], "'../../escaped'"),
        ([_file("commitlog/../../../escaped")], [], "'commitlog/../../../escaped'"),
        ([_file("/escaped")], [], "'/escaped'"),
        ([_file("commitlog//0")], [], "'commitlog//0'"),
        ([_file("a\0b")], [], "'a\\x00b'"),
        ([_file("x" * 256)], [], "x" * 256),
        ([], ["../escaped"], "'../escaped'"),
        ([_file("commitlog"), _file("commitlog/0")], [], "commitlog: there are two of this name"),
        ([_file("commitlog")], ["commitlog"], "commitlog: there are two of this name"),
        ([_file("same"), _file("same")], [], "same: there are two of this name"),
        ([_file("0", 2**63)], [], "0: 9223372036854775808 bytes"),
        ([_file("0", -1)], [], "0: -1 bytes"),
        ([_file("0", 1, 2**70)], [], "0: 1 bytes, changed"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(
    listed: list[Listed], folders: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "one" / "two"
    inside.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(inside))
    with pytest.raises(UnreadableError, match=re.escape(named)):
        shadow_of(_Says("s3://bucket/store", listed, folders)).close()
    assert [path for path in tmp_path.rglob("*") if path != inside] == [inside.parent]


def test_an_address_that_ends_upwards_has_a_folder_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shadow = shadow_of(_Says("s3://bucket/..", [_file("0")], []))
    try:
        assert shadow.folder == shadow.top / "store"
    finally:
        shadow.close()


def test_holes_are_unknown() -> None:
    with served(store_path("clean")) as (_, shadow):
        size = (shadow.folder / FIRST).stat().st_size
        assert list(data_extents(shadow.folder / FIRST, 0, size)) == [(0, size)]


def test_only_what_is_asked_for_is_fetched() -> None:
    with served(store_path("clean")) as (files, shadow), MessageStore.open(shadow.folder) as store:
        store.reader.lookup(0)
        assert files.reads == [(FIRST, 0, BLOCK)]
        store.reader.lookup(223)
        assert len(files.reads) == 1


def test_who_goes_along_gets_more_with_every_request(tmp_path: Path) -> None:
    data = os.urandom(300 * BLOCK + 5)
    (tmp_path / "file").write_bytes(data)
    with served(tmp_path) as (files, shadow):
        descriptors, path = Descriptors(), shadow.folder / "file"
        for at in range(0, len(data), 10_000):
            assert descriptors.read(path, at, 10_000) == data[at : at + 10_000]
        assert files.bytes_read == len(data)
        assert len(files.reads) < 40
        assert len(shadow.blocks._kept) <= KEPT_BLOCKS
        assert descriptors.read(path, 7, len(data)) == data[7:]
        assert descriptors.read(path, len(data) - 3, 100) == data[-3:]


def test_a_file_that_vanishes_was_removed_and_is_listed_no_more(tmp_path: Path) -> None:
    store = shutil.copytree(store_path("clean"), tmp_path / "store")
    with served(store) as (_, shadow), MessageStore.open(shadow.folder) as opened:
        (store / FIRST).unlink()
        with pytest.raises(RemovedError, match=f"^s3://bucket/store/{FIRST}: was removed"):
            opened.files.log.files[0].read(0, 10)
        assert not (shadow.folder / FIRST).exists()


def test_errors_cross_processes_with_addresses() -> None:
    with served(store_path("clean")) as (_, shadow):
        error = UnreadableError("is bad", file=shadow.folder / FIRST, hint=f"see {shadow.folder}")
        assert str(error) == f"s3://bucket/store/{FIRST}: is bad"
        sent = pickle.loads(pickle.dumps(error))
    assert (sent.file, sent.hint) == (f"s3://bucket/store/{FIRST}", "see s3://bucket/store")


def test_folders_of_killed_processes_are_removed() -> None:
    program = (
        "import os; from pathlib import Path; from tests.store.remote.served import FolderFiles;"
        "from rmqctl.store.files.remote_files import shadow_of;"
        f"top = shadow_of(FolderFiles('s3://b/s', Path({str(store_path('clean'))!r}))).top;"
        "print(top.is_dir(), top, flush=True); os._exit(9)"
    )
    # whether it was there says the process itself: once it is dead, the watcher of any other process may remove it
    was_there, left = run_process([sys.executable, "-c", program]).stdout.split()
    assert (was_there, STAND_IN in left) == ("True", True)
    with served(store_path("clean")):
        # by who makes the next one, or by the watcher of the killed one, which needs a moment
        wait_until(lambda: not Path(left).exists())


class _Failing:
    """fsspec's memory, with errors before a file is read."""

    def __init__(self, errors: list[Exception], address: str = "memory://bucket/store") -> None:
        import fsspec

        system = fsspec.filesystem("memory")
        system.pipe("/bucket/store/commitlog/file", b"0123456789" * 100)
        self.files = FsspecFiles(address)
        self.listed: Listed = self.files.listed()[0][0]
        real = self.files._system

        def cat_file(path: str, start: int, end: int) -> bytes:
            if errors:
                raise errors.pop(0)
            data: bytes = type(real).cat_file(real, path, start=start, end=end)
            return data

        self.system = real
        real.cat_file = cat_file

    def read(self) -> bytes:
        """Some bytes."""
        return self.files.read(self.listed, 5, 15)


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long would have been waited."""
    pauses: list[float] = []
    monkeypatch.setattr(file_system, "sleep", pauses.append)
    return pauses


def test_what_a_server_answers_in_the_end_counts(no_pause: list[float]) -> None:
    try:
        failing = _Failing([TimeoutError("slow"), OSError("503 Slow Down")])
        assert failing.read() == b"5678901234"
        assert no_pause == [0.1, pytest.approx(0.3)]
    finally:
        del failing.system.cat_file


@pytest.mark.parametrize(
    ("error", "asked", "said"),
    [
        (OSError("503 Slow Down"), ATTEMPTS, "cannot be read, asked 5 times: 503 Slow Down"),
        (PermissionError("Forbidden"), 1, "the server refuses to show it: Forbidden"),
        (FileNotFoundError("gone"), 1, "was removed while the store was read"),
    ],
)
def test_retries_are_bounded(error: Exception, asked: int, said: str, no_pause: list[float]) -> None:
    errors = [error] * 20
    try:
        failing = _Failing(errors)
        with pytest.raises(UnreadableError, match=f"memory://bucket/store/commitlog/file: {said}"):
            failing.read()
        assert len(errors) == 20 - asked
    finally:
        del failing.system.cat_file


def test_a_file_that_is_replaced_is_not_mixed() -> None:
    try:
        failing = _Failing([])
        failing.system.pipe("/bucket/store/commitlog/file", b"x" * 1001)
        with pytest.raises(UnreadableError, match="was replaced while the store was read"):
            failing.read()
    finally:
        del failing.system.cat_file


def test_a_loose_file_is_found_with_its_store() -> None:
    store = store_path("clean")
    with served(store, "s3://bucket/data/store"):
        found = reachable_loose(f"s3://bucket/data/store/{FIRST}")
        assert found.read_bytes() == (store / FIRST).read_bytes()


@pytest.mark.parametrize(
    ("missing", "address"), [("fsspec", "s3://b/s"), ("s3fs", "s3://b/s"), ("requests", "hdfs://h/s")]
)
def test_an_extra_that_is_not_installed_is_named(missing: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.webhdfs", raising=False)
    monkeypatch.delitem(_registry, "webhdfs", raising=False)  # where another test has used it
    with pytest.raises(UnsupportedError, match="nothing is installed that reads") as raised:
        MessageStore.open(address)
    assert "rmqctl[remote]" in str(raised.value.hint)


def test_what_is_kept_beside_a_store_is_looked_at_there(tmp_path: Path) -> None:
    """`log` and `info` tell of changes beside a store on a server, of unfinished ones too."""
    store = shutil.copytree(store_path("clean"), tmp_path / "store")
    last = max(int(path.name) for path in (store / "commitlog").iterdir())
    assert run("truncate", "-s", store, "--at", last, "-y").code == exit_codes.OK
    for state, said in (("applied", None), ("prepared", "truncate")):
        for path in (tmp_path / "store.rmqctl").rglob("state.json"):
            path.write_text(path.read_text().replace('"applied"', f'"{state}"'))
        with served(store) as (files, _):
            done = run("log", "-s", "s3://bucket/store", "--json")
            assert [change["state"] for change in done.objects] == [state]
            assert done.objects[0]["folder"].startswith("s3://bucket/store.rmqctl/")
            unfinished = run("info", "-s", "s3://bucket/store", "--quick", "--json").objects[0]["unfinished_change"]
            assert (unfinished or "").endswith(said or "")
            assert bool(unfinished) == bool(said)
            assert files.listings.count("s3://bucket/store.rmqctl") == 1


def test_who_does_not_ask_for_changes_does_not_look_beside() -> None:
    with served(store_path("clean")) as (files, _):
        assert run("cat", "-s", "s3://bucket/store", "-n", 3).code == exit_codes.OK
        assert files.listings == ["s3://bucket/store"]
