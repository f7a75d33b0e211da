"""On a network file system every call takes its time: what looks at little asks for little, and nothing asks more than
so often for each queue. Counted are the calls that NFS asks its server about, where no cache answers."""

from __future__ import annotations

import builtins
import io
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.opened import store_path
from tests.rmqctl.looking import run

_CALLS = ("open", "stat", "lstat", "listdir", "scandir", "pread", "preadv")
_TOPICS, _QUEUES_EACH = 5, 4


@pytest.fixture(scope="module")
def more_queues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store `clean`, of 41 queues, with twenty more."""
    store = shutil.copytree(store_path("clean"), tmp_path_factory.mktemp("more") / "store")
    for number in range(_TOPICS):
        shutil.copytree(store / "consumequeue" / "TopicTest", store / "consumequeue" / f"Other{number}")
        assert len(list((store / "consumequeue" / f"Other{number}").iterdir())) == _QUEUES_EACH
    return store


@contextmanager
def _counted(store: Path) -> Iterator[Counter[str]]:
    counted: Counter[str] = Counter()

    def counting(name: str, real: Any) -> Any:
        def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            # of what is open only the store's files are read
            if isinstance(path, int) or (isinstance(path, str | os.PathLike) and str(store) in os.fspath(path)):
                counted[name] += 1
            return real(path, *arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, counting(name, getattr(os, name)))
        opening = counting("open", io.open)
        patch.setattr(io, "open", opening)
        patch.setattr(builtins, "open", opening)
        yield counted


def _calls(store: Path, command: list[object]) -> Counter[str]:
    expected = run(command[0], "-s", store, *command[1:])  # what has to be imported is
    with _counted(store) as counted:
        done = run(command[0], "-s", store, *command[1:])
    assert (done.code, done.out) == (expected.code, expected.out)
    return counted


@pytest.mark.parametrize(
    ("command", "most", "most_of_a_queue"),
    [
        (["query", "-o", 0], 30, 0),
        (["query", "-t", "TopicTest", "-q", 0, "-o", 5], 120, 2),
        (["query", "-t", "TopicTest", "-k", "nokey"], 300, 2),
        (["cat", "-n", 3], 30, 0),
        (["cat", "-n", -3], 60, 0),
        (["groups"], 70, 0),
        (["where", "TopicTest", 0, 5], 1700, 8),
        (["info", "--quick"], 600, 8),
        (["info"], 620, 8),
        (["ls", "--queues"], 550, 12),
        (["check", "--quick"], 1000, 16),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, list) else None,
)
def test_calls_are_few(command: list[object], most: int, most_of_a_queue: int, more_queues: Path) -> None:
    few = _calls(store_path("clean"), command)
    assert 0 < few.total() <= most, few
    more = _calls(more_queues, command)
    assert more.total() - few.total() <= most_of_a_queue * _TOPICS * _QUEUES_EACH, (few, more)
