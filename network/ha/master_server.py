"""Hands the commitlog on to slaves: a thread for each, so that none of them waits for another, and nobody for them."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from typing import NamedTuple

from rmqctl.formats.errors import UnreadableError
from rmqctl.network.ha.log_source import LogSource, LogStretch
from rmqctl.network.ha.protocol import BATCH, ReportDecoder, encode_transfer_head
from rmqctl.network.ha.slave_session import WHOLE_LOG
from rmqctl.network.ha.slaves import Slave, Slaves
from rmqctl.network.remoting.services import Tell

_JOIN_SECONDS = 10.0


class SlaveLimits(NamedTuple):
    """`connections`: slaves at the same time; `batch`: bytes in a frame (haTransferBatchSize). Seconds: `heartbeat`
    after the last frame (haSendHeartbeatInterval); `silence` of a slave that is taken for gone
    (haHousekeepingInterval); `look` for what was put, unless somebody waits for it."""

    connections: int = 16
    batch: int = BATCH
    heartbeat: float = 5.0
    silence: float = 20.0
    look: float = 0.1


class MasterServer:
    """Takes slaves at a socket (see `remoting.server.bound`) until `close`."""

    def __init__(
        self, taken: socket.socket, source: LogSource, slaves: Slaves, tell: Tell, limits: SlaveLimits | None = None
    ) -> None:
        """`slaves` is told of all that come and go, and how far they are."""
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
                time.sleep(self.limits.look)
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
        stretch = source.stretch(slave.next_offset, self._server.limits.batch)
        if stretch is not None and self._open(stretch):
            self._stretch = stretch
            self._head = encode_transfer_head(stretch.physical_offset, stretch.size)
        elif is_beat_due:
            self._head = encode_transfer_head(slave.next_offset, 0)

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
