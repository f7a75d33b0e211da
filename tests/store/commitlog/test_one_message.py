"""One message at a known place, its checksums aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.message import FrameDamage, Reason, StoredMessage
from rmqctl.store.log.walk import frame_without_crc, message_if_any, message_without_crc, walk, walked_message
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.store.logs import frame, log_of


def _first(files: StoreFiles) -> StoredMessage:
    return next(record for record in walk(files.log) if isinstance(record, StoredMessage))


def _change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_a_wrong_checksum_does_not_hide_a_message(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    with StoreFiles(store) as files:
        message = _first(files)
        path, start = files.log.files[0].path, files.log.files[0].start_offset
        _change(path, message.physical_offset - start + 8, b"\xff\xff\xff\xff")
        found = message_without_crc(files.log, message.physical_offset)
        assert found._replace(body_crc=0) == message._replace(body_crc=0)
        assert not found.has_good_crc()
        frame, again = frame_without_crc(files.log, message.physical_offset, message.total_size)
        assert (len(frame), again) == (message.total_size, found)
        assert message_if_any(files.log, message.physical_offset) == found
        assert walked_message(files.log, message.physical_offset, message.total_size) == found


def test_what_is_no_message_is_said(golden_store: GoldenStore) -> None:
    with StoreFiles(golden_store("clean")) as files:
        message = _first(files)
        beside, size = message.physical_offset + 1, message.total_size
        for arguments in ((beside,), (beside, size), (message.physical_offset, None, size - 1), (1 << 40,)):
            with pytest.raises(FrameDamage) as raised:
                message_without_crc(files.log, *arguments)
            assert raised.value.reason in (Reason.SIZE, Reason.MAGIC)
        assert message_if_any(files.log, beside) is None
        assert message_if_any(files.log, message.physical_offset, size - 1) is None
        with pytest.raises(UnreadableError, match="has changed while it was read"):
            walked_message(files.log, beside, size)


def test_a_message_that_has_gone_since_is_an_error_with_its_place(tmp_path: Path) -> None:
    data = frame(0)
    log = log_of(tmp_path, data.ljust(500, b"\0"))
    assert walked_message(log, 0, len(data)).topic == "T"
    next(tmp_path.iterdir()).write_bytes(bytes(500))
    with pytest.raises(UnreadableError, match="has changed while it was read") as raised:
        walked_message(log, 0, len(data))
    assert raised.value.physical_offset == 0
    assert raised.value.file == str(log.files[0].path)


def test_the_borders_of_what_is_read_as_a_message(tmp_path: Path) -> None:
    """The shortest of all at the end of the log; one that would reach behind it; one more byte than it may have."""
    first = frame(0)
    last = frame(len(first), b"")
    log = log_of(tmp_path, first + last)
    assert frame_without_crc(log, len(first))[0] == last
    assert frame_without_crc(log, len(first), None, len(last))[0] == last
    for size, available in ((None, len(last) - 1), (len(last) - 1, 1 << 20), (0, 1 << 20), (-1, 1 << 20)):
        with pytest.raises(FrameDamage, match="is that of no message"):
            frame_without_crc(log, len(first), size, available)
    with pytest.raises(FrameDamage, match=f"only {len(last)} bytes are left of {len(last) + 1}"):
        frame_without_crc(log, len(first), len(last) + 1)
