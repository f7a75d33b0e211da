"""Follows the records of a log through bytes that are cut anywhere: where one begins, and how long files are."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2

_MESSAGES = (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)
_HEAD = BLANK_FRAME.size


class Trail:
    """Where records begin, going by their sizes alone. `next_record`: physical offset of the next one, None where the
    bytes are no records, so that nobody knows until `begin` is called again."""

    def __init__(self) -> None:
        self.next_record: int | None = None
        self.last_record: int | None = None
        self._rest = b""

    def begin(self, offset: int) -> None:
        """A record begins here."""
        self.next_record = offset
        self._rest = b""

    def feed(self, offset: int, body: bytes) -> Iterator[int]:
        """Go through the bytes that follow; yields the end of every blank frame, which is the end of its file, as soon
        as its head is there."""
        data, start = self._rest + body, offset - len(self._rest)
        end = start + len(data)
        while self.next_record is not None and self.next_record + _HEAD <= end:
            size, magic = BLANK_FRAME.unpack_from(data, self.next_record - start)
            if size <= 0 or magic not in (*_MESSAGES, BLANK_MAGIC):
                self.next_record = None
                break
            self.last_record = self.next_record
            self.next_record += size
            if magic == BLANK_MAGIC:
                yield self.next_record
        self._rest = b""
        if self.next_record is not None and self.next_record < end:
            self._rest = data[self.next_record - start :]
