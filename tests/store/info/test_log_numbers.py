"""Counting on columns and on arrays against counting one by one."""

from __future__ import annotations

import pytest

from rmqctl.formats.errors import UnsupportedError
from rmqctl.store.info import counts as log_numbers
from rmqctl.store.info.counts import arrays_count_queue, plain_count_queue
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import ConsumeQueue
from tests.goldens import GOLDENS
from tests.opened import reader
from tests.quick import goldens_of
from tests.store.columns.comparing import use_form
from tests.store.logs import bytes_to_read


@pytest.mark.parametrize("form", ["compiled", "plain"])
@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_the_log(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    log = reader(name).files.log
    assert log_numbers.columns_count_log(log) == log_numbers.plain_count_log(log)
    assert log_numbers.columns_count_topics(log) == log_numbers.plain_count_topics(log)


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_queues(name: str) -> None:
    look = reader(name)
    try:
        queues = look.files.queues.all()
    except UnsupportedError:
        return
    minimum = look.files.log.min_offset
    for queue in queues:
        if isinstance(queue, ConsumeQueue):
            for begin in (0, queue.min_offset(minimum)):
                expected = plain_count_queue(queue, begin, look.unit_store_time)
                assert arrays_count_queue(queue, begin, look.unit_store_time) == expected


def test_progress_is_told_every_byte_once() -> None:
    told: list[int] = []
    log_numbers.columns_count_log(reader("clean").files.log, Events(told.append))
    assert sum(told) == bytes_to_read(reader("clean").files.log)


def test_large_logs_are_counted_on_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    log = reader("clean").files.log
    assert not log_numbers.is_large(log)
    monkeypatch.setattr(log_numbers, "COLUMNS_FROM", 9 * 262144)
    assert log_numbers.is_large(log)
