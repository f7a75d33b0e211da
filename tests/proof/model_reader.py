"""What the model's second process sees of a store; also used in the same process."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

from rmqctl.store.message_store import MessageStore
from tests.processes import start


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


class SecondProcess:
    """A second process that reads the store, started when it is first asked."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, root: Path) -> list[Seen]:
        """What it sees of a store."""
        if self._process is None:
            command = [sys.executable, "-m", "tests.proof.model_reader"]
            self._process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, seconds=36_000)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{root}\n")
        stdin.flush()
        count = stdout.readline()
        assert count, "the second process has ended"
        return [Seen.of(stdout.readline()) for _ in range(int(count))]

    def end(self) -> None:
        """Let it go."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


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
