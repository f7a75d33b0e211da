"""The log as slaves get it over sockets, byte for byte; and slaves that are up to no good hold nobody else."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.network.ha.master import (
    LogSource,
    MasterServer,
    SlaveLimits,
    Slaves,
    Transfer,
    TransferDecoder,
    encode_report,
)
from rmqctl.network.ha.mirror import Following, Mirror, SocketLink
from rmqctl.network.remoting.server import bound
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.log.survey import settled_end
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore
from tests.network.ha.masters import TIMINGS, content, opened
from tests.quick import goldens_of

SECONDS = 60
LIMITS = SlaveLimits(heartbeat=0.05, look=0.02)


class Serving:
    """A server over a store, and what it told."""

    def __init__(self, path: Path, limits: SlaveLimits) -> None:
        self.files = StoreFiles(path)
        self.end = settled_end(self.files.log)
        self.slaves = Slaves()
        self.told: list[str] = []
        source = LogSource(self.files.log, lambda: self.end)
        self.server = MasterServer(bound("127.0.0.1", 0), source, self.slaves, self.told.append, limits)
        self.server.start()

    def slave(self, first: bytes = b"") -> socket.socket:
        """A connection that says `first`."""
        connection = socket.create_connection(self.server.address, SECONDS)
        connection.sendall(first)
        return connection

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for it; it comes, but for a test that fails."""
        end = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < end, self.told
            time.sleep(0.01)


@contextlib.contextmanager
def served(path: Path, limits: SlaveLimits = LIMITS) -> Iterator[Serving]:
    """A server that is gone in the end, with all of its threads."""
    one = Serving(path, limits)
    try:
        yield one
    finally:
        one.server.close()
        assert one.slaves.all() == []
        one.files.close()


def frames(connection: socket.socket, count: int, decoder: TransferDecoder | None = None) -> list[Transfer]:
    """The next frames that come, at least `count`: all that one read completes."""
    decoder = decoder or TransferDecoder()
    found: list[Transfer] = []
    while len(found) < count:
        data = connection.recv(1 << 16)
        assert data, found
        decoder.feed(data)
        while (one := decoder.next_transfer()) is not None:
            found.append(one)
    return found


@pytest.mark.parametrize("name", goldens_of([name for name in GOLDENS if not name.startswith("multi")], "torn-zero"))
def test_a_mirror_of_every_store_is_the_store(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    store = golden_store(name)
    with served(store) as master:
        log = master.files.log
        timings = TIMINGS._replace(silence=SECONDS)
        following = Following(max(0, log.min_offset) or 1, stop_when_quiet=True, timings=timings)
        mirror = Mirror(opened(tmp_path / "m", log.file_size), lambda: SocketLink(*master.server.address), following)
        mirror.run(lambda: False)
        assert master.told == []
    copied = content(tmp_path / "m")
    there = b"".join(file.path.read_bytes() for file in _contiguous(log.files))[: master.end - max(0, log.min_offset)]
    assert copied[: len(there)] == there
    assert not any(copied[len(there) :])


def _contiguous(files: list[MappedFile]) -> list[MappedFile]:
    """Up to the first gap: no slave follows over one."""
    gaps = (number for number, file in enumerate(files) if number and file.start_offset != files[number - 1].end_offset)
    return files[: next(gaps, len(files))]


def test_the_first_report_says_where_to_begin(golden_store: GoldenStore) -> None:
    with served(golden_store("clean")) as master:
        size = master.files.log.file_size
        expected = {0: master.end - master.end % size, 1: 1, 5: 5, size: size, size + 77: size + 77}
        for request, begin in expected.items():
            with master.slave(encode_report(request)) as slave:
                assert frames(slave, 1)[0].physical_offset == begin
        # nothing but heartbeats: beyond the end, and where no log can be
        for request in (master.end, master.end + 10, -2):
            with master.slave(encode_report(request)) as slave:
                assert frames(slave, 2) == [Transfer(request, b"")] * 2
        # -1 says nothing yet
        with master.slave(encode_report(-1)) as slave:
            slave.sendall(encode_report(9))
            assert frames(slave, 1)[0].physical_offset == 9
    assert len(master.told) == 1
    assert master.told[0].endswith(f"wants the log from {master.end + 10} on, which ends at {master.end}")


def test_bodies_never_cross_files_and_what_is_acknowledged_is_known(golden_store: GoldenStore) -> None:
    with served(golden_store("clean")) as master:
        size = master.files.log.file_size
        with master.slave(encode_report(size - 1000)) as slave:
            got = frames(slave, 5)
            assert [(one.physical_offset, len(one.body)) for one in got[:3]] == [
                (size - 1000, 1000),
                (size, 32768),
                (size + 32768, 32768),
            ]
            slave.sendall(encode_report(size + 5)[:3])
            slave.sendall(encode_report(size + 5)[3:] + encode_report(master.end + 99))
            master.until(lambda: [one.acknowledged for one in master.slaves.all()] == [master.end])
        master.until(lambda: master.slaves.all() == [])


def test_slaves_that_never_read_hold_nobody(golden_store: GoldenStore) -> None:
    with served(golden_store("clean"), LIMITS._replace(connections=4)) as master:
        # they ask for all of it, and take nothing; one is half a report, and one is nobody
        idle = [master.slave(encode_report(1)) for _ in range(2)] + [master.slave(b"\0\0\0")]
        with master.slave(encode_report(1)) as slave:
            whole = b"".join(one.body for one in frames(slave, 70))
            assert len(whole) > 1 << 20
            master.until(lambda: len(master.slaves.all()) == 4)
            # what it said may not have been read by then
            with master.slave(encode_report(1)) as refused, contextlib.suppress(ConnectionResetError):
                assert refused.recv(1) == b""
        assert [line.partition(": ")[2] for line in master.told] == ["there are 4 slaves already: connection closed"]
        for one in idle:
            one.close()
        master.until(lambda: master.slaves.all() == [])


def test_a_silent_slave_is_left(golden_store: GoldenStore) -> None:
    with served(golden_store("clean"), LIMITS._replace(silence=0.2)) as master, master.slave(b"\0") as slave:
        assert slave.recv(1) == b""
        master.until(lambda: len(master.told) == 1)
        assert "silent" in master.told[0]


def test_what_is_new_is_sent(golden_store: GoldenStore) -> None:
    with served(golden_store("clean")) as master:
        end, master.end = master.end, master.end - 5000
        with master.slave(encode_report(master.end)) as slave:
            # on a busy machine several heartbeats wait, and what is new follows them in one read
            decoder = TransferDecoder()
            assert set(frames(slave, 1, decoder)) == {Transfer(master.end, b"")}
            master.end = end
            master.slaves.wake()
            while not (news := [one for one in frames(slave, 1, decoder) if one.body]):
                pass
            assert news[0].end == end
