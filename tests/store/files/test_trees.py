"""What a tree takes on its disk; a disk that says nothing of a part of it is an error of ours."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.store.files.io import tree_on_disk_bytes


def _tree(folder: Path) -> Path:
    (folder / "kept" / "below").mkdir(parents=True)
    (folder / "kept" / "one").write_bytes(b"x" * 5000)
    (folder / "kept" / "below" / "two").write_bytes(b"y" * 100)
    with (folder / "kept" / "hole").open("wb") as file:
        file.truncate(1 << 20)
    return folder / "kept"


def test_files_count_without_their_holes_and_folders_not(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    expected = sum((tree / name).stat().st_blocks * 512 for name in ("one", "below/two"))
    assert tree_on_disk_bytes(tree) == expected > 0
    assert tree_on_disk_bytes(tree / "one") == (tree / "one").stat().st_blocks * 512


@pytest.mark.parametrize("call", ["stat", "scandir"])
@pytest.mark.parametrize("error", [errno.EIO, errno.EINTR])
def test_a_disk_that_says_nothing_of_a_part_is_named(
    tmp_path: Path, call: str, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = _tree(tmp_path)
    whole = getattr(os, call)

    def fail(path: object, *arguments: object, **options: object) -> object:
        if str(path).endswith("two" if call == "stat" else "below"):
            raise OSError(error, os.strerror(error), str(path))
        return whole(path, *arguments, **options)

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(UnreadableError, match="cannot be looked at") as raised:
        tree_on_disk_bytes(tree)
    assert str(tree / "below") in str(raised.value)


def test_what_goes_meanwhile_is_left_to_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tree_on_disk_bytes(tmp_path / "gone")
