"""The exchange: every row in its partition, in the order of the items, on every engine; nothing left over."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.pipeline.engine import Engine
from rmqctl.pipeline.exchange import exchange
from tests.pipeline.engines import ENGINES, engine_named


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_named(request.param, request)


def dealt(partitions: int, item: int) -> tuple[int, list[bytes]]:
    """Item n has its number for every partition that divides it."""
    rows = [f"{item} ".encode() if item % (partition + 1) == 0 else b"" for partition in range(partitions)]
    return -item, rows


def collected(pieces: Iterable[bytes]) -> bytes:
    return b"".join(pieces)


def failing(item: int) -> tuple[int, list[bytes]]:
    if item == 2:
        raise CorruptError("no good", file="/some/file", physical_offset=5)
    return item, [b"x"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_rows_come_to_their_partitions_in_the_order_of_the_items(engine: Engine, temporary: Path) -> None:
    told: list[int] = []
    task = functools.partial(dealt, 4)
    results, partitions = exchange(engine, "dealing", task, range(13), 4, collected, told.append)
    assert results == [-number for number in range(13)]
    assert sum(told) == 13
    assert partitions == [
        b"".join(f"{number} ".encode() for number in range(13) if number % divisor == 0) for divisor in (1, 2, 3, 4)
    ]
    assert os.listdir(temporary) == []


def test_nothing_to_exchange(engine: Engine) -> None:
    assert exchange(engine, "nothing", functools.partial(dealt, 3), [], 3, collected) == ([], [b"", b"", b""])
    assert exchange(engine, "one", functools.partial(dealt, 3), [1], 3, collected) == ([-1], [b"1 ", b"", b""])


def test_an_error_arrives_as_it_was_and_nothing_is_left(engine: Engine, temporary: Path) -> None:
    with pytest.raises(CorruptError) as caught:
        exchange(engine, "failing", failing, range(5), 1, collected)
    assert (caught.value.file, caught.value.physical_offset) == ("/some/file", 5)
    assert os.listdir(temporary) == []
