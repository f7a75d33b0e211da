"""Changes of single fields in the logs of copied stores: what no checksum covers, as real stores come to have it."""

from __future__ import annotations

from pathlib import Path

from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.store.store_files import StoreFiles


def patch(root: Path, physical_offset: int, position: int, data: bytes) -> None:
    """Overwrite bytes of the frame at `physical_offset`, `position` bytes from its start."""
    with StoreFiles(root) as files:
        file = files.log.find(physical_offset)
        assert file is not None
        path, at = file.path, physical_offset - file.start_offset + position
    with path.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


def patch_field(root: Path, physical_offset: int, field: str, value: int) -> None:
    """Give a number in the head of a frame another value; hosts are IPv4."""
    _, code, position, size = next(one for one in FRAME_HEADS[0].fields if one[0] == field)
    assert code in "iqI"
    patch(root, physical_offset, position, value.to_bytes(size, "big", signed=True))


def patch_text(root: Path, physical_offset: int, old: str, new: str) -> None:
    """Replace a text of the frame by another of the same length."""
    assert len(old.encode()) == len(new.encode())
    with StoreFiles(root) as files:
        frame = files.log.read(physical_offset, 65536)
    position = frame.index(old.encode())
    patch(root, physical_offset, position, new.encode())
