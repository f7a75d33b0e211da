"""A master without a socket: it sends its log by the rules of RocketMQ's, or whatever a test has it send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmqctl.formats.errors import RemoteError
from rmqctl.network.ha.master import ReportDecoder, encode_transfer_head
from rmqctl.network.ha.mirror import Following, Mirror, Timings
from rmqctl.network.ha.mirror_store import MirrorLog
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors

TIMINGS = Timings(retry=0, silence=0.05, give_up=0.2, flush=60, look=0.01)


@dataclass
class Master:
    """`data`: the log from `begin` on. `cuts`: after how many bytes each connection breaks, None for never. `reports`:
    what slaves said, connection by connection."""

    data: bytes
    file_size: int
    begin: int = 0
    batch: int = 32 * 1024
    cuts: list[int | None] = field(default_factory=list)
    reports: list[list[int]] = field(default_factory=list)
    before_dial: Callable[[], None] = lambda: None

    @property
    def end(self) -> int:
        return self.begin + len(self.data)

    def dial(self) -> MasterLink:
        self.before_dial()
        self.reports.append([])
        return MasterLink(self, self.cuts.pop(0) if self.cuts else None, self.reports[-1])

    def frames(self, request: int) -> Iterator[bytes]:
        """What follows a first report, heartbeats without an end."""
        offset = request or self.end - self.end % self.file_size
        while True:
            size = min(self.end - offset, self.batch, self.file_size - offset % self.file_size)
            if size <= 0 or offset < self.begin:
                yield encode_transfer_head(offset, 0)
                continue
            at = offset - self.begin
            yield encode_transfer_head(offset, size) + self.data[at : at + size]
            offset += size


class MasterLink:
    """A slave's connection to it, one frame at a time."""

    def __init__(self, master: Master, cut: int | None, reports: list[int]) -> None:
        self._master = master
        self._left = cut
        self._reports = reports
        self._decoder = ReportDecoder()
        self._frames: Iterator[bytes] | None = None

    def send(self, data: bytes) -> None:
        offset = self._decoder.feed(data)
        if offset is not None:
            self._reports.append(offset)
            self._frames = self._frames or self._master.frames(offset)

    def receive(self, seconds: float) -> bytes:
        assert self._frames is not None
        data = next(self._frames)
        if self._left is not None:
            if not self._left:
                raise RemoteError("the connection is cut")
            data = data[: self._left]
            self._left -= len(data)
        return data

    def close(self) -> None:
        pass


def opened(directory: Path, file_size: int | None = None) -> MirrorLog:
    """The log of a mirror at `directory`, made if there is none."""
    directory.mkdir(exist_ok=True)
    log = MappedFileQueue([directory], file_size, Descriptors())
    log.load()
    log.is_shared = False
    return MirrorLog(log, file_size)


def follow(master: Master, directory: Path, following: Following | None = None, *, size: int | None = None) -> Mirror:
    """Mirror until the master has nothing more."""
    following = following or Following(start=master.begin or 1, stop_when_quiet=True)
    mirror = Mirror(opened(directory, size), master.dial, following._replace(timings=TIMINGS))
    mirror.run(lambda: False)
    return mirror


def content(directory: Path) -> bytes:
    """All files, one behind the other."""
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
