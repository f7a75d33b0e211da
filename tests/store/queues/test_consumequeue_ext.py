"""Ext units by address."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqctl.store.files.layout import topic_directory
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.queues.consumequeue import ext_offset
from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt, ExtUnit
from tests.goldens import truth
from tests.opened import reader


def _ext(folder: Path, data: bytes) -> ConsumeQueueExt:
    folder.mkdir(exist_ok=True)
    (folder / ("0" * 20)).write_bytes(data)
    ext = ConsumeQueueExt(folder, None, Descriptors())
    ext.load()
    return ext


@pytest.mark.parametrize("name", ["cqext", "v4-cqext"])
def test_every_address_of_the_goldens(name: str) -> None:
    files = reader(name).files
    messages = {row["phyOffset"]: row for row in truth(name).messages}
    found = 0
    for queue in files.queues.all():
        directory = topic_directory(files.layout.consumequeue_ext, queue.topic) / str(queue.queue_id)
        ext = ConsumeQueueExt(directory, None, Descriptors())
        ext.load()
        for unit in queue.units(0):
            address = ext_offset(unit.tags_code)
            assert address is not None
            row = messages[unit.physical_offset]
            extended = ext.unit(address)
            assert extended is not None
            assert extended.tags_code == row["dispatchTagsCode"]
            assert extended.store_timestamp == row["storeTimestamp"]
            assert extended.size == 20 + len(extended.bit_map)
            found += 1
    assert found == 200


def _packed(size: int, bit_map_size: int, bit_map: bytes = b"") -> bytes:
    return struct.pack(">hqqh", size, 5, 6, bit_map_size) + bit_map


def test_bit_map(tmp_path: Path) -> None:
    ext = _ext(tmp_path / "q", _packed(20, 0) + _packed(23, 3, b"abc") + bytes(100))
    assert ext.unit(0) == ExtUnit(20, 5, 6, b"")
    assert ext.unit(20) == ExtUnit(23, 5, 6, b"abc")


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 19, bytes(20), _packed(21, 0), _packed(20, -1), _packed(19, -1), _packed(-1, -21), _packed(120, 100)],
)
def test_no_whole_unit(tmp_path: Path, data: bytes) -> None:
    ext = _ext(tmp_path / "q", data or b"x")
    assert ext.unit(0) is None
    assert ext.unit(-5) is None
    assert ext.unit(10_000) is None
