"""Sends the commitlog to slaves: a thread for each, so that slaves delay neither one another nor the broker."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, RemovedError, UnreadableError
from rmqctl.network.remoting.requests import Tell
from rmqctl.store.files.background import sleep
from rmqctl.store.files.mapped_file_queue import MappedFileQueue

# The commitlog as a master hands it on: stretches of its files, as they lie on disk.


class LogStretch(NamedTuple):
    """`size` readable bytes from `physical_offset` on, `position` bytes behind the beginning of their file."""

    physical_offset: int
    start_offset: int
    position: int
    size: int


class LogSource:
    """What there is to send. Any thread may ask."""

    def __init__(self, log: MappedFileQueue, end: Callable[[], int]) -> None:
        """`end`: physical offset behind what slaves may have."""
        self._log = log
        self.end = end

    def last_file(self) -> int:
        """Where the last file begins: what a slave without a log is sent (WriteSocketService#run)."""
        end, size = self.end(), self._log.file_size
        return end - end % size if size else end

    def stretch(self, offset: int, most: int) -> LogStretch | None:
        """Up to `most` bytes of one file from `offset` on; None where there are none now."""
        if offset < 0 or (file := self._log.find(offset)) is None:
            return None
        size = min(self.end(), file.end_offset) - offset
        if size <= 0:
            return None
        return LogStretch(offset, file.start_offset, offset - file.start_offset, min(size, most))

    def open(self, stretch: LogStretch) -> int | None:
        """Return a descriptor of a stretch's file, which the caller closes: a file that is removed meanwhile can be
        read to its end. None where it is removed already. UnreadableError."""
        file = self._log.find(stretch.physical_offset)
        try:
            return None if file is None else self._log.descriptors.duplicate(file.path)
        except RemovedError:
            return None


# The bytes between a master and its slave (DefaultHAConnection, DefaultHAClient; HAConnection of 4.x): no socket, no
# clock.
#
# A slave reports an int64, where its log ends; its first report says from where it wants the log. A master sends
# frames: int64 physical offset, int32 size, and so many bytes of the commitlog from there on. A frame of no bytes is
# a heartbeat.

REPORT = struct.Struct(">q")
TRANSFER_HEAD = struct.Struct(">qi")
BATCH = 32 * 1024
"""The most that a master sends in one frame unless it is configured otherwise (haTransferBatchSize)."""
LARGEST_BODY = 4 * 1024 * 1024
"""A frame has to fit into the buffer that a slave reads into (READ_MAX_BUFFER_SIZE), and no larger one is taken."""


class Transfer(NamedTuple):
    """Bytes of the log from a physical offset on; none in a heartbeat."""

    physical_offset: int
    body: bytes

    @property
    def end(self) -> int:
        """Physical offset behind the bytes."""
        return self.physical_offset + len(self.body)


def encode_report(offset: int) -> bytes:
    """What a slave says: its first report asks for the log from `offset` on, later ones say that all before it is
    there."""
    return REPORT.pack(offset)


def encode_transfer_head(physical_offset: int, size: int) -> bytes:
    """Encode the head before `size` bytes of the log."""
    return TRANSFER_HEAD.pack(physical_offset, size)


class ReportDecoder:
    """A slave's reports, as its master takes them in."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The last whole report after more bytes came; None if none was completed. Those before it are passed over, as
        RocketMQ does (ReadSocketService#processReadEvent)."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return REPORT.unpack_from(data, whole - REPORT.size)[0] if whole else None


class TransferDecoder:
    """A master's frames, as its slave takes them in: in any pieces. It holds what a frame lacks, so at most
    `largest_body` bytes and what was fed last."""

    def __init__(self, largest_body: int = LARGEST_BODY) -> None:
        self._largest_body = largest_body
        self._data = bytearray()
        self._position = 0

    def feed(self, data: bytes) -> None:
        """More bytes came."""
        del self._data[: self._position]
        self._position = 0
        self._data += data

    def next_transfer(self) -> Transfer | None:
        """The next whole frame; None until more bytes come. CorruptError for a head that no master sends; nothing more
        can be understood then."""
        begin = self._position + TRANSFER_HEAD.size
        if len(self._data) < begin:
            return None
        offset, size = TRANSFER_HEAD.unpack_from(self._data, self._position)
        if not 0 <= size <= self._largest_body:
            raise CorruptError(f"a frame of {size} bytes; a master sends 0 to {self._largest_body}")
        if size and offset < 0:
            raise CorruptError(f"a frame from physical offset {offset} on")
        if len(self._data) < begin + size:
            return None
        self._position = begin + size
        return Transfer(offset, bytes(memoryview(self._data)[begin : begin + size]))


# What a slave goes by on one connection to its master: what it says, and what it takes (DefaultHAClient).

LAST_FILE = 0
"""A first report that a master takes for the beginning of its last file, not of its log."""
WHOLE_LOG = 1
"""A first report that gets a log from its second byte on. There is no way to ask for the first one, if the log has more
than one file; it is the high byte of a message's size, and 0 for every message of less than 16 MiB."""


class SlaveSession:
    """One connection. `next_offset`: where the next body has to begin, None until a master that was asked for its last
    file has said where that is."""

    def __init__(self, request: int) -> None:
        """`request`: the first report."""
        self._decoder = TransferDecoder()
        self._request = request
        self.next_offset = None if request == LAST_FILE else request
        self._beats = 0
        self._has_body = False

    @property
    def is_quiet(self) -> bool:
        """Whether the master has nothing more just now: it says so every 5 s (haSendHeartbeatInterval). The first time
        may be before it has begun."""
        return self._beats > (0 if self._has_body else 1)

    def report(self, offset: int | None = None) -> bytes:
        """What is to be sent first, and every few seconds from then on. Without `offset` it asks for the log and
        reports nothing; with `offset` it confirms that everything before it is on disk here."""
        return encode_report(self._request if offset is None else max(offset, self._request))

    def received(self, data: bytes) -> list[Transfer]:
        """The bodies that bytes of the master complete, one behind the other. CorruptError where they are not: nothing
        that comes after that can be trusted."""
        self._decoder.feed(data)
        bodies: list[Transfer] = []
        while (transfer := self._decoder.next_transfer()) is not None:
            if self.next_offset is None and transfer.physical_offset >= 0:
                self.next_offset = transfer.physical_offset
            if transfer.physical_offset != self.next_offset:
                raise CorruptError(
                    f"a frame from physical offset {transfer.physical_offset} on, where {self.next_offset} is next"
                )
            self.next_offset = transfer.end
            if transfer.body:
                self._beats, self._has_body = 0, True
                bodies.append(transfer)
            else:
                self._beats += 1
        return bodies


# A master's slaves, how far each has come, and puts that wait for them (DefaultHAService, GroupTransferService).

IN_SYNC_BYTES = 256 * 1024 * 1024
"""A slave that is no further behind counts as one that keeps up (haMaxGapNotInSync, haSlaveFallbehindMax)."""

_RATE_SECONDS = 1.0


class Slave:
    """One connection. Offsets are physical. `acknowledged`: what it says that it has; `next_offset`: what it is sent
    next, -1 before it has asked; `sent`: bytes of the log."""

    def __init__(self, remote: str) -> None:
        self.remote = remote
        self.acknowledged = -1
        self.next_offset = -1
        self.sent = 0
        self._before = (time.monotonic(), 0)
        self._rate = 0

    def bytes_per_second(self) -> int:
        """Bytes of the log a second, over the last few seconds before the call."""
        (at, sent), now = self._before, time.monotonic()
        if now - at >= _RATE_SECONDS:
            self._rate = round((self.sent - sent) / (now - at))
            self._before = (now, self.sent)
        return self._rate


class _Wait(NamedTuple):
    offset: int
    slaves: int
    told: Callable[[], None]


class Slaves:
    """All of them. Any thread may ask and tell."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slaves: list[Slave] = []
        self._waits: list[_Wait] = []
        self.wake: Callable[[], None] = lambda: None
        """Have what was put sent at once, and not only when the connections look next."""

    def add(self, slave: Slave) -> None:
        """One came."""
        with self._lock:
            self._slaves.append(slave)

    def remove(self, slave: Slave) -> None:
        """One went."""
        with self._lock:
            self._slaves.remove(slave)

    def all(self) -> list[Slave]:
        """Those that are here."""
        with self._lock:
            return list(self._slaves)

    def keeping_up(self, log_end: int, most: int = IN_SYNC_BYTES) -> int:
        """Number of connected slaves less than `most` bytes from the end of the log: the master waits for such."""
        return sum(log_end - slave.acknowledged < most for slave in self.all() if slave.acknowledged >= 0)

    def acknowledge(self, slave: Slave, offset: int) -> None:
        """A slave has all before `offset`."""
        with self._lock:
            slave.acknowledged = offset
            due = [wait for wait in self._waits if self._is_due(wait)]
            self._waits = [wait for wait in self._waits if wait not in due]
        for wait in due:
            wait.told()

    def _is_due(self, wait: _Wait) -> bool:
        return sum(slave.acknowledged >= wait.offset for slave in self._slaves) >= wait.slaves

    def tell_when_acknowledged(self, offset: int, slaves: int, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` when `count` slaves have everything before `offset`, which may be now. Gives what ends the
        waiting."""
        wait = _Wait(offset, slaves, told)
        with self._lock:
            is_due = self._is_due(wait)
            if not is_due:
                self._waits.append(wait)
        if is_due:
            told()
        else:
            self.wake()

        def forget() -> None:
            with self._lock:
                self._waits = [one for one in self._waits if one is not wait]

        return forget


_JOIN_SECONDS = 10.0


class SlaveLimits(NamedTuple):
    """`connections`: slaves at the same time; `batch`: bytes in a frame (haTransferBatchSize). Seconds: `heartbeat`
    after the last frame (haSendHeartbeatInterval); `silence` of a slave that counts as gone (haHousekeepingInterval);
    `look` for new messages, unless a put waits for it. `rate`: most bytes a second for a slave
    (maxHaTransferByteInSecond), None without haFlowControlEnable."""

    connections: int = 16
    batch: int = BATCH
    heartbeat: float = 5.0
    silence: float = 20.0
    look: float = 0.1
    rate: int | None = None


class MasterServer:
    """Takes slaves at a socket (see `remoting.server.bound`) until `close`."""

    def __init__(
        self, taken: socket.socket, source: LogSource, slaves: Slaves, tell: Tell, limits: SlaveLimits | None = None
    ) -> None:
        """`slaves` records connections and progress of slaves."""
        self.address = taken.getsockname()[:2]
        self.limits = limits or SlaveLimits()
        self.source = source
        self.slaves = slaves
        self.tell = tell
        self._taken = taken
        self._lock = threading.Lock()
        self._connections: set[SlaveConnection] = set()
        self._closing = threading.Event()
        slaves.wake = self._wake
        self._thread = threading.Thread(target=self._accept, name="rmqctl-slaves", daemon=True)

    def start(self) -> None:
        """Take slaves from now on."""
        self._thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                peer, address = self._taken.accept()
            except OSError:
                if self._closing.is_set():
                    return
                # out of descriptors, or a peer that is gone already
                sleep(self.limits.look)
                continue
            remote = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
            with self._lock:
                is_one_too_many = self._closing.is_set() or len(self._connections) >= self.limits.connections
            if is_one_too_many:
                self.tell(f"{remote}: there are {self.limits.connections} slaves already: connection closed")
                peer.close()
            else:
                self._take(peer, remote)

    def _take(self, peer: socket.socket, remote: str) -> None:
        try:
            connection = SlaveConnection(self, peer, remote)
        except OSError as error:
            self.tell(f"{remote}: connection closed: {error.strerror or error}")
            peer.close()
            return
        with self._lock:
            self._connections.add(connection)
        connection.start()

    def _wake(self) -> None:
        with self._lock:
            for connection in self._connections:
                connection.wake()

    def ended(self, connection: SlaveConnection) -> None:
        """A slave's connection is over."""
        with self._lock:
            self._connections.discard(connection)

    def close(self) -> None:
        """Take no more slaves, and end the connections of those that are here."""
        self._closing.set()
        with contextlib.suppress(OSError):
            # wakes the thread that accepts, which a close alone does not
            self._taken.shutdown(socket.SHUT_RDWR)
        self._taken.close()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        for connection in connections:
            connection.thread.join(_JOIN_SECONDS)


class SlaveConnection:
    """One slave: a thread that hears its reports and sends what it lacks. Bodies go from file to socket within the
    kernel."""

    def __init__(self, server: MasterServer, peer: socket.socket, remote: str) -> None:
        peer.setblocking(False)
        with contextlib.suppress(OSError):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = server
        self._peer = peer
        self._slave = Slave(remote)
        self._reports = ReportDecoder()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._head = b""
        self._stretch: LogStretch | None = None
        self._file: tuple[int, int] | None = None
        self._second, self._sent_since = 0.0, 0
        self._is_closing = False
        self.thread = threading.Thread(target=self._run, name=f"rmqctl-slave-{remote}", daemon=True)

    def start(self) -> None:
        """Serve it from now on."""
        self._server.slaves.add(self._slave)
        self.thread.start()

    def wake(self) -> None:
        """There may be something new."""
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """End it."""
        self._is_closing = True
        self.wake()

    def _run(self) -> None:
        tell, remote = self._server.tell, self._slave.remote
        try:
            self._serve()
        except ConnectionError:
            pass  # a slave may go whenever it likes
        except (OSError, UnreadableError) as error:
            if not self._is_closing:
                tell(f"slave {remote}: {error}")
        finally:
            self._server.slaves.remove(self._slave)
            self._server.ended(self)
            self._peer.close()
            self._waker.close()
            self._woken.close()
            self._forget_file()

    def _serve(self) -> None:
        limits = self._server.limits
        poller = select.poll()
        poller.register(self._woken, select.POLLIN)
        heard = sent = time.monotonic()
        while not self._is_closing:
            now = time.monotonic()
            if not self._is_sending and self._slave.next_offset != -1:
                self._prepare(now - sent >= limits.heartbeat)
            poller.register(self._peer, select.POLLIN | (select.POLLOUT if self._is_sending else 0))
            events = dict(poller.poll(limits.look * 1000))
            if self._woken.fileno() in events:
                self._woken.recv(4096)
            event = events.get(self._peer.fileno(), 0)
            if event & (select.POLLIN | select.POLLERR | select.POLLHUP):
                if not self._hear():
                    return
                heard = now
            elif now - heard >= limits.silence:
                raise TimeoutError(f"it was silent for {limits.silence:g} s: connection closed")
            if event & select.POLLOUT and self._send():
                sent = time.monotonic()

    # ---- what comes

    def _hear(self) -> bool:
        """Take a report in; False when the slave is gone."""
        try:
            data = self._peer.recv(4096)
        except BlockingIOError:
            return True
        if not data:
            return False
        offset = self._reports.feed(data)
        if offset is None:
            return True
        slave, source = self._slave, self._server.source
        end = source.end()
        if slave.next_offset == -1:
            slave.next_offset = source.last_file() if offset == 0 else offset
            if offset > max(end, WHOLE_LOG):
                self._server.tell(f"slave {slave.remote} wants the log from {offset} on, which ends at {end}")
        # what nobody has cannot have arrived
        self._server.slaves.acknowledge(slave, min(offset, end))
        return True

    # ---- what goes

    @property
    def _is_sending(self) -> bool:
        return bool(self._head) or self._stretch is not None

    def _prepare(self, is_beat_due: bool) -> None:
        """The next frame, if there is one; a heartbeat where it is time for one."""
        slave, source = self._slave, self._server.source
        stretch = source.stretch(slave.next_offset, most) if (most := self._allowed()) else None
        if stretch is not None and self._open(stretch):
            self._sent_since += stretch.size
            self._stretch = stretch
            self._head = encode_transfer_head(stretch.physical_offset, stretch.size)
        elif is_beat_due:
            self._head = encode_transfer_head(slave.next_offset, 0)

    def _allowed(self) -> int:
        """Return the bytes that may go now (FlowMonitor)."""
        limits, now = self._server.limits, time.monotonic()
        if now - self._second >= 1.0:
            self._second, self._sent_since = now, 0
        return limits.batch if limits.rate is None else max(0, min(limits.batch, limits.rate - self._sent_since))

    def _open(self, stretch: LogStretch) -> bool:
        if self._file is not None and self._file[0] == stretch.start_offset:
            return True
        self._forget_file()
        descriptor = self._server.source.open(stretch)
        if descriptor is not None:
            self._file = stretch.start_offset, descriptor
        return descriptor is not None

    def _forget_file(self) -> None:
        if self._file is not None:
            os.close(self._file[1])
            self._file = None

    def _send(self) -> bool:
        """Send what the slave takes now; whether the frame is out."""
        try:
            if self._head:
                self._head = self._head[self._peer.send(self._head, socket.MSG_MORE if self._stretch else 0) :]
            if not self._head and self._stretch is not None:
                self._send_body(self._stretch)
        except BlockingIOError:
            return False
        return not self._is_sending

    def _send_body(self, stretch: LogStretch) -> None:
        assert self._file is not None
        count = os.sendfile(self._peer.fileno(), self._file[1], stretch.position, stretch.size)
        if not count:
            raise UnreadableError("a commitlog file has become shorter", physical_offset=stretch.physical_offset)
        self._slave.sent += count
        self._slave.next_offset = stretch.physical_offset + count
        rest = stretch.size - count
        self._stretch = None
        if rest:
            self._stretch = LogStretch(
                stretch.physical_offset + count, stretch.start_offset, stretch.position + count, rest
            )
