"""Plans as data: what they touch and how they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.journal.plan import (
    ClearRange,
    CreateFile,
    Entry,
    Install,
    MoveAway,
    Operation,
    Plan,
    Resize,
    SetTime,
    WriteRange,
)

ROOT = Path("/store")
OPERATIONS: list[tuple[Operation, dict[str, object]]] = [
    (WriteRange(ROOT / "a", 5, b"123"), {"operation": "write", "path": "a", "offset": 5, "bytes": 3}),
    (ClearRange(ROOT / "a", 7, 9), {"operation": "clear", "path": "a", "offset": 7, "bytes": 9}),
    (Resize(ROOT / "d" / "b", 11), {"operation": "resize", "path": "d/b", "offset": 11, "bytes": 11}),
    (CreateFile(ROOT / "c", 13), {"operation": "create", "path": "c", "offset": 0, "bytes": 13}),
    (MoveAway(ROOT / "b"), {"operation": "move away", "path": "b", "offset": 0, "bytes": 0}),
    (
        Install(Path("/log/x"), Path("/log/x"), 17),
        {"operation": "install", "path": "/log/x", "offset": 0, "bytes": 17, "replaced_bytes": 0},
    ),
]


@pytest.mark.parametrize(("operation", "described"), OPERATIONS)
def test_described(operation: Operation, described: dict[str, object]) -> None:
    assert operation.describe(ROOT) == described


def test_what_is_there_is_measured(tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "0").write_bytes(bytes(30))
    (tmp_path / "queue" / "1").write_bytes(bytes(12))
    (tmp_path / "queue" / "link").symlink_to("/proc")
    (tmp_path / "staged").write_bytes(bytes(5))
    link = (tmp_path / "queue" / "link").lstat().st_size
    away = MoveAway(tmp_path / "queue").describe(tmp_path)
    assert away == {"operation": "move away", "path": "queue", "offset": 0, "bytes": 42 + link}
    assert Resize(tmp_path / "queue" / "0", 10).describe(tmp_path)["bytes"] == 20
    installed = Install(tmp_path / "staged", tmp_path / "queue").describe(tmp_path)
    assert (installed["bytes"], installed["replaced_bytes"]) == (5, 42 + link)
    file = tmp_path / "queue" / "0"
    going = [MoveAway(tmp_path / "queue"), Install(tmp_path / "staged", tmp_path / "queue"), Resize(file, 10)]
    staying = [CreateFile(tmp_path / "new", 9), SetTime(file, 1), Resize(file, 90)]
    over = [WriteRange(file, 25, bytes(7)), WriteRange(file, 99, b"1"), ClearRange(file, 3, 4)]
    gone = [42 + link, 42 + link, 20, 0, 0, 0, 5, 0, 4]
    assert [one.gone() for one in (*going, *staying, *over)] == gone
    assert Plan([*going, *staying, *over]).loss(keep_undo=False).bytes == sum(gone)


def test_paths_once_and_in_order() -> None:
    plan = Plan()
    assert not plan
    assert plan.paths() == []
    assert (plan.messages_gone, plan.messages_made, plan.messages_skipped) == (0, 0, 0)
    for operation, _ in OPERATIONS:
        plan.add(operation)
    assert plan
    assert plan.paths() == [ROOT / "a", ROOT / "d" / "b", ROOT / "c", ROOT / "b", Path("/log/x")]
    assert plan.changed_bytes() == 12


def test_of_an_operation_nothing_is_said_that_it_does_not_have(tmp_path: Path) -> None:
    """Journals hold no numbers that mean nothing."""
    entry = Entry("ClearRange", tmp_path / "file")
    assert (entry.offset, entry.length, entry.new_size, entry.after_at, entry.directory_mtime_ns) == (0, 0, 0, 0, 0)
    assert (entry.size, entry.mtime_ns, entry.moved, entry.staged, entry.directory) == (None, None, None, None, None)
