"""Whose store it is: who is neither its owner nor root changes nothing in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.files import io
from rmqctl.store.files.layout import Ownership, StoreLayout, inherited, is_file_name, refuse_other_user
from tests.store.journal.failing import failing


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    """A store of the user who runs the tests."""
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "consumequeue").mkdir()
    (root / "checkpoint").touch()
    return StoreLayout(root, (root / "commitlog",))


def other_than(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Be another user than the owner of `path`; who owns it."""
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    return owner


def test_another_user_is_refused(layout: StoreLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = other_than(layout.root, monkeypatch)
    with pytest.raises(RefusedError, match=f"belongs to the user with id {owner}, and new files would") as refused:
        refuse_other_user(layout)
    assert refused.value.file == str(layout.root)
    # a store without its log is one as well
    layout.commitlog[0].rmdir()
    with pytest.raises(RefusedError, match=f"belongs to the user with id {owner}"):
        refuse_other_user(layout)


def test_the_owner_and_who_makes_a_store_are_not(
    layout: StoreLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid() or 12345
    os.chown(layout.commitlog[0], user, -1)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    refuse_other_user(layout)
    refuse_other_user(StoreLayout(tmp_path / "new", (tmp_path / "new" / "commitlog",)))


def test_whose_it_is_cannot_be_known(layout: StoreLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody is refused for it: whatever the user may not do, the system tells where he does it."""
    other_than(layout.root, monkeypatch)
    with failing(layout.commitlog[0], "look") as disk, pytest.raises(RefusedError):
        refuse_other_user(layout)
    assert disk.count > 1
    for at in range(1, disk.count + 1):
        with failing(layout.commitlog[0], "look", at):
            refuse_other_user(layout)


def test_who_can_give_files_away_gives_them_to_the_owner_of_the_log(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root can. In the store, in the journal beside it, and nowhere else."""
    os.chmod(layout.commitlog[0], 0o750)
    status = layout.commitlog[0].stat()
    wanted = Ownership(status.st_uid, status.st_gid, 0o640, 0o750)
    inside = (layout.root / "index" / "file", layout.root.with_name("store.rmqctl") / "change" / "journal.json")
    outside = layout.root.with_name("elsewhere") / "file"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert [inherited(path) for path in (*inside, outside)] == [wanted, wanted, None]
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert [inherited(path) for path in (*inside, outside)] == [None] * 3


def test_whoever_is_not_root_gives_permissions_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a copy of somebody else's file: to give it to him would fail."""
    path, given = tmp_path / "file", []
    path.touch()
    status = path.stat()
    owner = Ownership(status.st_uid + 1, status.st_gid, 0o640, 0o750)
    monkeypatch.setattr(os, "fchown", lambda _, user, group: given.append((user, group)))
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    io.give_to(path, owner)
    assert (given, stat.S_IMODE(path.stat().st_mode)) == ([], 0o640)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    io.give_to(path, owner)
    assert given == [(owner.user, owner.group)]
    io.give_to(path, owner._replace(user=status.st_uid))  # whose it is already
    assert len(given) == 1


def test_a_folder_of_many_topics_is_not_read_for_each_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new folder of a topic inherits from the store: what stands beside it is looked at only in part."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "commitlog").mkdir()
    for number in range(300):
        (tmp_path / "consumequeue" / f"Topic{number}").mkdir(parents=True)
    looked: list[str] = []

    def noted(name: str) -> bool:
        looked.append(name)
        return is_file_name(name)

    monkeypatch.setattr("rmqctl.store.files.layout.is_file_name", noted)
    assert inherited(tmp_path / "consumequeue" / "New") is not None
    assert len(looked) < 100
