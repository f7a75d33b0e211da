"""The compiled fast path is taken only where it is there, right and of these sources; else it is told why it is not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from rmqctl.store.compiled import extensions
from rmqctl.store.compiled.notices import tell_notices
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write.fast import extension
from tests.store.write.writing import message


@pytest.fixture
def loaded_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    extension._load.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    extension._load.cache_clear()


REASONS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "asked": ("RMQCTL_NO_EXTENSION=1", lambda patch: patch.setenv("RMQCTL_NO_EXTENSION", "1")),
    "no GIL": ("without GIL", lambda patch: patch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)),
    "not there": ("not compiled", lambda patch: patch.setitem(sys.modules, "rmqctl.store.write.fast.fast_path", None)),
    "another source": ("another source", lambda patch: patch.setattr(extensions, "source_number", lambda _: "0bad")),
    "wrong": ("wrong results", lambda patch: patch.setattr(extension, "_is_right", lambda _: False)),
}


@pytest.mark.parametrize("reason", REASONS)
def test_without_it_everything_works_and_it_is_told_why(
    loaded_anew: pytest.MonkeyPatch, tmp_path: Path, reason: str
) -> None:
    words, change = REASONS[reason]
    if reason == "not there":
        from rmqctl.store.write import fast

        loaded_anew.delattr(fast, "fast_path", raising=False)
    change(loaded_anew)
    said: list[str] = []
    tell_notices(said.append)
    try:
        with MessageStore.open(tmp_path / "s", "rw", create=True) as store:
            assert store._writer is not None
            assert store._writer._fast is None
            assert [one.queue_offset for one in store.put_many([message()] * 12_000)][-1] == 11_999
            store.put_many([message()] * 100)
    finally:
        tell_notices(None)
    assert [words in one for one in said if "put more slowly" in one] == [True]


def test_an_installed_one_needs_no_sources(loaded_anew: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded_anew.setattr(extensions, "ROOT", tmp_path)
    module, why = extension._load()
    assert module is not None
    assert why is None


def test_who_watches_what_is_written_does_not_make_it_wrong(loaded_anew: pytest.MonkeyPatch) -> None:
    loaded_anew.setattr(io, "observer", object())
    module, why = extension._load()
    assert module is not None
    assert why is None


def test_one_that_is_wrong_is_noticed() -> None:
    module = extension._load()[0]
    assert module is not None
    assert extension._is_right(module)
    made = module.FastPath

    class Wrong:
        """Puts what it should, but for one byte of the frame."""

        @staticmethod
        def FastPath(parts: tuple[Any, ...], *others: Any) -> Any:  # noqa: N802 - as the extension has it
            return made(parts, b"\x01" + others[0][1:], *others[1:])

    assert not extension._is_right(cast(ModuleType, Wrong))


def _takes_all(parts: Any, answer: Any) -> Any:
    return answer or 5


def _writes_what_it_leaves(parts: Any, answer: Any) -> Any:
    if answer is None and parts[0].window is not None:
        parts[0].window.mapped[3] = 1
    return answer


def _writes_behind(parts: Any, answer: Any) -> Any:
    if answer is not None:
        parts[0].window.mapped[-1] = 1
    return answer


def _miscounts(parts: Any, answer: Any) -> Any:
    if answer is not None:
        for topic in parts[2].values():
            topic.queues[3].value += 1
    return answer


def _forgets_the_time(parts: Any, answer: Any) -> Any:
    if answer is not None:
        parts[0].last_timestamp -= 1
    return answer


def _forgets(name: str) -> Callable[[Any, Any], Any]:
    def wrong(parts: Any, answer: Any) -> Any:
        if answer is not None:
            setattr(parts[0].window.file, name, 5)
        return answer

    return wrong


@pytest.mark.parametrize(
    "change",
    [
        _takes_all,
        _writes_what_it_leaves,
        _writes_behind,
        _miscounts,
        _forgets_the_time,
        _forgets("wrote_position"),
        _forgets("committed_position"),
        _forgets("store_timestamp"),
        lambda _, answer: answer and answer._replace(queue_offset=9),
        lambda _, answer: answer and (*answer,),
        lambda _, answer: None,
    ],
)
def test_one_that_is_wrong_in_one_thing_is_noticed(change: Callable[[Any, Any], Any]) -> None:
    module = extension._load()[0]
    assert module is not None
    made = module.FastPath

    class Wrong:
        """Does what it should, and one thing more."""

        class FastPath:
            def __init__(self, parts: tuple[Any, ...], *others: Any) -> None:
                self._parts, self._path = parts, made(parts, *others)

            def put(self, one: Any, as_stored: bool) -> Any:
                return change(self._parts, self._path.put(one, as_stored))

    assert not extension._is_right(cast(ModuleType, Wrong))


@pytest.mark.parametrize("number", range(len(extension._REFUSED) + 5))
def test_each_message_that_is_to_be_left_is_tried(number: int) -> None:
    """Whichever of them it takes."""
    module = extension._load()[0]
    assert module is not None
    made, puts = module.FastPath, 0

    class Wrong:
        """Takes one message too many."""

        class FastPath:
            def __init__(self, *parts: Any) -> None:
                self._path = made(*parts)

            def put(self, one: Any, as_stored: bool) -> Any:
                nonlocal puts
                puts += 1
                answer = self._path.put(one, as_stored)
                return 5 if puts == number + 1 else answer

    assert not extension._is_right(cast(ModuleType, Wrong))
    assert puts == len(extension._REFUSED) + 5
