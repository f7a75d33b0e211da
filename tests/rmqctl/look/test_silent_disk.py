"""A file of the store of which the disk says nothing: never an answer as if it were not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.message_store import MessageStore
from tests.rmqctl.looking import run
from tests.store.journal.failing import failing
from tests.store.write.writing import SMALL, message


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as opened:
        for _ in range(3):
            opened.put(message())
    (tmp_path / "s" / "config").mkdir()
    (tmp_path / "s" / "config" / "consumerOffset.json").write_text('{"offsetTable":{"TopicA@g":{0:2}}}')
    return tmp_path / "s"


# the queue seemed to be empty, and the group to stand behind its end
@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "-t", "TopicA", "-q", 0, "--offset", 1),
        ("cat", "-t", "TopicA", "-q", 0, "--order", "queue"),
        ("groups",),
        ("where", "TopicA", 0, 1),
        ("check",),
        ("offsets", "reset", "-g", "g", "-t", "TopicA", "--to", "latest", "--yes"),
        ("append", "-t", "TopicA", "--body", "b"),
    ],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.parametrize("part", ["consumequeue/TopicA/0", "commitlog"])
def test_is_unreadable(store: Path, arguments: tuple[object, ...], part: str) -> None:
    (path,) = (store / part).iterdir()
    with failing(path, "look", 1, lasting=True, single=True) as disk:
        done = run(*arguments, "-s", store)
    assert disk.is_reached
    assert done.code == exit_codes.UNREADABLE, done
    assert f"{path}: cannot be looked at: Input/output error" in done.err
