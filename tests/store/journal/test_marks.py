"""What is noted of the files that every writer touches: it stands in journals, and any change of the files shows."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.used import marks_of, marks_with_lock, name_of

TIME = 1_700_000_000_123_456_789
TAIL = 1 << 16


def marked(path: Path, data: bytes) -> list[int]:
    """The mark of a file that holds these bytes."""
    path.write_bytes(data)
    os.utime(path, ns=(TIME, TIME))
    return marks_of(StoreLayout(path.parents[1], (path.parent,)))[f"commitlog/{path.name}"]


def test_size_time_and_the_last_bytes(tmp_path: Path) -> None:
    path = tmp_path / "commitlog" / "0"
    path.parent.mkdir()
    for data in (b"", bytes(5000), b"\1" + bytes(4999), b"\2" + bytes(4999), bytes(4999) + b"\1", b"head" * 20_000):
        end = len(data.rstrip(b"\0"))
        assert marked(path, data) == [len(data), TIME, end, zlib.crc32(data[max(0, end - TAIL) : end])]
    # of a large file all but its end may change: nobody writes there without writing at the end as well
    first = marked(path, b"a" + b"x" * TAIL + bytes(100))
    assert marked(path, b"b" + b"x" * TAIL + bytes(100)) == first
    assert marked(path, b"a" + b"y" + b"x" * (TAIL - 1) + bytes(100)) != first


def test_which_files_and_their_names(tmp_path: Path) -> None:
    other = tmp_path / "other"
    root = tmp_path / "store"
    for folder in (root / "commitlog", other):
        folder.mkdir(parents=True)
        (folder / "7").write_bytes(b"x")
    layout = StoreLayout(root, (root / "commitlog", other, root / "gone"))
    assert sorted(marks_of(layout)) == sorted(["commitlog/7", str(other / "7")])
    for path in (layout.checkpoint, layout.abort, layout.lock):
        path.write_bytes(b"lock")
    assert sorted(marks_of(layout)) == sorted(["abort", "checkpoint", "commitlog/7", str(other / "7")])
    assert marks_with_lock(layout) == marks_of(layout) | {"lock": marks_with_lock(layout)["lock"]}
    assert name_of(layout.lock, layout) == "lock"
    layout.lock.unlink()
    assert marks_with_lock(layout) == marks_of(layout)


def test_what_is_no_file_has_no_bytes(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    (log / "folder").mkdir(parents=True)
    os.mkfifo(log / "pipe")
    (log / "link").symlink_to("nowhere")
    found = marks_of(StoreLayout(tmp_path, (log,)))
    assert {name: len(mark) for name, mark in found.items()} == {"commitlog/folder": 2, "commitlog/pipe": 2}
