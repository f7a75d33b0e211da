"""A mirror on a disk that fails: an error of ours, and a mirror that goes on when the disk is well."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError, WriteFailedError
from rmqctl.network.ha.mirror_store import MirrorStore, complete
from rmqctl.store.message_store import MessageStore
from tests.store.journal.failing import failing
from tests.store.write.writing import SMALL, message, stored_messages


def _follow(root: Path, log: bytes) -> None:
    with MirrorStore(root, SMALL) as mirror:
        if mirror.log.begin is None:
            mirror.log.start_at(0)
        begin = mirror.log.compare_from()
        mirror.log.take(begin, log[begin:])
        mirror.log.settle()
    complete(root, SMALL, lambda said: None)


@pytest.mark.parametrize("kind", ["look", "write"])
def test_a_mirror_on_a_failing_disk(tmp_path: Path, kind: str) -> None:
    with MessageStore.open(tmp_path / "master", "rw", SMALL, create=True) as master:
        for _ in range(5):
            master.put(message())
    log = (tmp_path / "master" / "commitlog" / f"{0:020}").read_bytes().rstrip(b"\0")
    root = tmp_path / "s"
    _follow(root, log)
    with failing(root, kind, single=True) as disk:
        _follow(root, log)
    for at in sorted({1, 2, 3, *range(4, disk.count + 1, max(1, disk.count // 12))}):
        with failing(root, kind, at, single=True), contextlib.suppress(UnreadableError, WriteFailedError):
            _follow(root, log)
    _follow(root, log)
    assert len(stored_messages(root, SMALL)) == 5
