"""Cleaning of a store that is open: in which order, by which rules, and what is told where it cannot be done."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.clean import cleaner
from rmqctl.store.clean.cleaner import CleanReport, clean_locked
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import tell_notices
from rmqctl.store.write.dispatch import CleanService
from tests.store.write.writing import FILE_SIZE, NEVER, message, small

ALL = CleanOptions(at_once=True, batch_maximum=100)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What people are told."""
    found: list[str] = []
    tell_notices(found.append)
    yield found
    tell_notices(None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """One with four files of the log whose time is over, to be deleted at any hour but this one."""
    hours = ";".join(f"{hour:02}" for hour in range(24) if hour not in _hours_around())
    config = small(delete_when=hours, clean_resource_interval=NEVER, delete_commit_log_files_interval=0)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as opened:
        for _ in range(4):
            opened.put(message(FILE_SIZE * 3 // 4))
        opened.flush()
        for path in (tmp_path / "s" / "commitlog").iterdir():
            os.utime(path, (1_000_000, 1_000_000))
        yield opened


def _hours_around() -> set[int]:
    return {time.localtime(time.time() + seconds).tm_hour for seconds in (-600, 0, 3600)}


def service_of(store: MessageStore, settled: int = 1 << 62, flushed: list[str] | None = None) -> CleanService:
    """A service that nothing starts."""
    done: list[str] = [] if flushed is None else flushed

    def settled_end() -> int:
        done.append("settled")
        return settled

    return CleanService(
        store.files,
        lambda: time.time_ns() // 1_000_000,
        settled_end,
        lambda: done.append("flushed"),
        lambda _: None,
    )


def test_queues_are_flushed_before_anything_goes(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a file that goes may be waiting for its flush; and what counts as settled is asked before it."""
    done: list[str] = []

    def noted(*given: Any, **named: Any) -> CleanReport:
        done.append("cleaned")
        return clean_locked(*given, **named)

    monkeypatch.setattr(cleaner, "clean_locked", noted)
    report = service_of(store, flushed=done).clean(ALL, dry_run=False)
    assert done == ["settled", "flushed", "cleaned"]
    assert len([one for one in report.removed if one.kind == "commitlog"]) == 3


def test_a_scheduled_cleaning_keeps_to_its_hours_and_one_that_is_asked_for_does_not(store: MessageStore) -> None:
    service = service_of(store)
    scheduled = service.step()
    assert scheduled is not None
    assert scheduled.removed == []
    assert len(service.clean(None, dry_run=True).removed) > 0
    assert len(service.clean(None, dry_run=False).removed) > 0
    assert service.clean(None, dry_run=True).removed == []


def test_where_it_cannot_be_known_what_may_go_nothing_does_and_it_is_told(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    def refused(*_: object, **__: object) -> CleanReport:
        raise RefusedError("who reads what is not known")

    service = service_of(store)
    monkeypatch.setattr(cleaner, "clean_locked", refused)
    assert service.step() is None
    assert [text.endswith("who reads what is not known: nothing is cleaned") for text in said] == [True]
    with pytest.raises(RefusedError):
        service.clean(ALL, dry_run=False)
    monkeypatch.undo()
    assert service.step() is not None


def test_it_is_started_once_somebody_starts_it(store: MessageStore) -> None:
    service = service_of(store)
    seen = [service.is_started]
    service.stop()  # which changes nothing
    service.start()
    seen.append(service.is_started)
    service.stop()
    assert seen == [False, True]
