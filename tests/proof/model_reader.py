"""What the model's second process sees of a store; also used in the same process."""

from __future__ import annotations

import sys
import zlib
from typing import NamedTuple

from rmqctl.store.message_store import MessageStore


class Seen(NamedTuple):
    """A message as it is in the log, and whether its queue has it in its slot."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    body_crc: int

    @classmethod
    def made(cls, physical_offset: int, topic: str, queue_id: int, queue_offset: int, body: bytes) -> Seen:
        """That of a message with this body."""
        return cls(physical_offset, topic, queue_id, queue_offset, zlib.crc32(body))

    @classmethod
    def of(cls, line: str) -> Seen:
        """That of a line as `main` prints it."""
        offset, topic, *numbers = line.split()
        return cls(int(offset), topic, *map(int, numbers))


def rows_of(store: MessageStore) -> list[Seen]:
    """Everything that is in the log; AssertionError where a queue does not have it too."""
    rows = []
    for one in store.messages():
        found = store.get(one.topic, one.queue_id, one.queue_offset, 1)
        assert found.messages == [one], f"{one.topic} {one.queue_id} {one.queue_offset}: {found.status} {found.damaged}"
        rows.append(Seen.made(one.physical_offset, one.topic, one.queue_id, one.queue_offset, one.body))
    return rows


def main() -> None:
    """Of every store that a line names: the number of its messages, and a line of each."""
    from tests.proof.model import CONFIG

    for line in sys.stdin:
        with MessageStore.open(line.rstrip("\n"), config=CONFIG) as store:
            rows = rows_of(store)
        print(len(rows))
        for row in rows:
            print(*row)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
