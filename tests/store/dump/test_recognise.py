"""What a file is, by its place and by its content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.store.dump.recognise import FileKind, recognise
from tests.goldens import GOLDENS
from tests.opened import reader, store_path
from tests.quick import goldens_of

PLACES = {
    "commitlog/": FileKind.COMMITLOG,
    "cl-a/": FileKind.COMMITLOG,
    "cl-b/": FileKind.COMMITLOG,
    "consumequeue/": FileKind.CONSUMEQUEUE,
    "consumequeue_ext/": FileKind.CONSUMEQUEUE_EXT,
    "batchconsumequeue/": FileKind.BATCH_CONSUMEQUEUE,
    "index/": FileKind.INDEX,
    "timerlog/": FileKind.TIMER_LOG,
    "compaction/compactionLog/": FileKind.COMPACTION_LOG,
    "compaction/compactionCq/": FileKind.COMPACTION_QUEUE,
    "config/timercheck": FileKind.TIMER_CHECK,
    "config/": FileKind.CONFIG,
    "compaction/position-checkpoint": FileKind.CONFIG,
    "timerwheel": FileKind.TIMER_WHEEL,
    "checkpoint": FileKind.CHECKPOINT,
    "abort": FileKind.ABORT,
    "lock": FileKind.LOCK,
}


def _expected(name: str, relative: str) -> FileKind:
    if name == "rocksdb" and relative.startswith("consumequeue/"):
        return FileKind.ROCKSDB
    if relative == "commitlog/notes.txt":
        return FileKind.UNKNOWN
    return next(kind for place, kind in PLACES.items() if relative.startswith(place))


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_every_file_of_every_golden_by_its_place(name: str) -> None:
    root = store_path(name)
    for path in root.rglob("*"):
        if path.is_file():
            relative = path.relative_to(root).as_posix()
            found = recognise(path, commitlog=reader(name).files.layout.commitlog)
            assert found.kind is _expected(name, relative), relative


READ_BY_CONTENT = (
    FileKind.COMMITLOG,
    FileKind.CONSUMEQUEUE,
    FileKind.CONSUMEQUEUE_EXT,
    FileKind.BATCH_CONSUMEQUEUE,
    FileKind.INDEX,
    FileKind.CHECKPOINT,
    FileKind.CONFIG,
)
# a compacted topic's files have the very format of commitlog and batch consumequeue
SAME_FORMAT = {FileKind.COMPACTION_LOG: FileKind.COMMITLOG, FileKind.COMPACTION_QUEUE: FileKind.BATCH_CONSUMEQUEUE}


@pytest.mark.parametrize(
    "name", ["clean", "broker-real", "rocksdb", "compaction", "innerbatch", "cqext", "features", "v4-features"]
)
def test_loose_files_by_their_content(name: str, tmp_path: Path) -> None:
    root = store_path(name)
    loose = tmp_path / "loose"
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.stat().st_size > 1 << 20:
            continue
        kind = _expected(name, path.relative_to(root).as_posix())
        shutil.copy(path, loose)
        found = recognise(loose).kind
        if kind in READ_BY_CONTENT and any(path.read_bytes()):
            assert found is kind, path
        elif kind in SAME_FORMAT:
            assert found is SAME_FORMAT[kind], path
        else:
            assert found in (FileKind.UNKNOWN, kind), path


@pytest.mark.parametrize(
    ("relative", "kind"),
    [
        ("dledger-n0/data/00000000000000000000", FileKind.DLEDGER),
        ("dledger-n0/index/00000000000000000000", FileKind.DLEDGER),
        ("epochFileCheckpoint", FileKind.EPOCH),
        ("brokerIdentity", FileKind.BROKER_IDENTITY),
        ("brokerIdentity-temp", FileKind.BROKER_IDENTITY),
        ("config/consumerOffset.json.bak", FileKind.CONFIG),
        ("transaction/statetable", FileKind.TRANSACTION),
        ("abort.bak", FileKind.ABORT),
        ("consumequeue/T/0/notes", FileKind.UNKNOWN),
    ],
)
def test_places_that_no_golden_has(tmp_path: Path, relative: str, kind: FileKind) -> None:
    path = tmp_path / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    assert recognise(path).kind is kind


@pytest.mark.parametrize("data", [b"", b"\0" * 4096, b"hello\n", bytes(range(256)) * 40, b"\xff" * 2000])
def test_what_is_nothing_of_a_store(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    found = recognise(path)
    assert found.kind is FileKind.UNKNOWN
    assert not found.is_readable
