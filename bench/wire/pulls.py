"""How the messages of a pull may leave: copied into one frame, the body after its head, as slices of a map, or by
sendfile.

`python -m bench.wire.pulls` prints a JSON line for each: microseconds a pull of the sender's processor time, in turns.
A frame holds 32 messages of 1 KiB, or 4 of 64 KiB (maxTransferBytesOnMessageInMemory is 256 KiB), which follow each
other in the log (`together`), or have messages of other queues between them (`apart`). All are in the page cache; the
receiver is another process.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.measure import Measurement, say, tell

_FILE_BYTES = 64 * 1024 * 1024
_HEAD = bytes(200)
_PULLS = 300
_ROUNDS = 5
_TURN = 64 * 1024


class Shape(NamedTuple):
    """A pull: messages of a size, next to each other or each with a gap after it."""

    name: str
    size: int
    messages: int
    is_together: bool

    def pieces(self, number: int) -> list[tuple[int, int]]:
        """Positions and sizes in the file for a pull."""
        step = self.size * (1 if self.is_together else 2)
        begin = number * step * self.messages % (_FILE_BYTES - step * self.messages)
        if self.is_together:
            return [(begin, self.size * self.messages)]
        return [(begin + step * one, self.size) for one in range(self.messages)]


SHAPES = [
    Shape(f"{size // 1024}-KiB-{'together' if is_together else 'apart'}", size, count, is_together)
    for size, count in ((1024, 32), (65536, 4))
    for is_together in (True, False)
]


class Log(NamedTuple):
    """A file of the log, opened and mapped."""

    descriptor: int
    mapped: memoryview


Way = Callable[[Log, list[tuple[int, int]]], None]


def copied(connection: socket.socket) -> Way:
    """Read, joined to a body, joined to a frame: what the server does."""

    def send(log: Log, pieces: list[tuple[int, int]]) -> None:
        connection.sendall(_frame(log, pieces))

    return send


def apart(connection: socket.socket) -> Way:
    """Read and joined to a body, which leaves after its head without being joined to it."""

    def send(log: Log, pieces: list[tuple[int, int]]) -> None:
        connection.sendall(_HEAD)
        connection.sendall(_body(log, pieces))

    return send


def sliced(connection: socket.socket) -> Way:
    """Slices of the map by one sendmsg, as long as the kernel takes them."""

    def send(log: Log, pieces: list[tuple[int, int]]) -> None:
        parts = [memoryview(_HEAD), *(log.mapped[at : at + size] for at, size in pieces)]
        while parts:
            sent = connection.sendmsg(parts)
            while parts and sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            if sent:
                parts[0] = parts[0][sent:]

    return send


def by_sendfile(connection: socket.socket) -> Way:
    """The head by send, each piece by sendfile."""
    out = connection.fileno()

    def send(log: Log, pieces: list[tuple[int, int]]) -> None:
        connection.sendall(_HEAD, socket.MSG_MORE)
        for begin, size in pieces:
            at, end = begin, begin + size
            while at < end:
                at += os.sendfile(out, log.descriptor, at, end - at)

    return send


def copied_tls(connection: socket.socket, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> Way:
    """The joined frame through TLS in memory, as asyncio has it."""

    def send(log: Log, pieces: list[tuple[int, int]]) -> None:
        tls.write(_frame(log, pieces))
        connection.sendall(outgoing.read())

    return send


def apart_tls(connection: socket.socket, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> Way:
    """Head and body, one after the other through TLS."""

    def send(log: Log, pieces: list[tuple[int, int]]) -> None:
        tls.write(_HEAD)
        tls.write(_body(log, pieces))
        connection.sendall(outgoing.read())

    return send


def sliced_tls(connection: socket.socket, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> Way:
    """Slices of the map, each through TLS."""

    def send(log: Log, pieces: list[tuple[int, int]]) -> None:
        tls.write(_HEAD)
        for at, size in pieces:
            tls.write(log.mapped[at : at + size])
        connection.sendall(outgoing.read())

    return send


def _frame(log: Log, pieces: list[tuple[int, int]]) -> bytes:
    return _HEAD + _body(log, pieces)


def _body(log: Log, pieces: list[tuple[int, int]]) -> bytes:
    return b"".join([os.pread(log.descriptor, size, at) for at, size in pieces])


def measured(folder: Path) -> Iterator[Measurement]:
    """Yield a line for each shape and way; `other` is what copies take, so that above 1 the way is faster."""
    path = folder / "log"
    path.write_bytes(os.urandom(1024 * 1024) * (_FILE_BYTES // 1024 // 1024))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = memoryview(mapped)
        log = Log(file.fileno(), view)
        with _Receiver() as plain:
            ways = {
                "apart": apart(plain.connection),
                "sendmsg": sliced(plain.connection),
                "sendfile": by_sendfile(plain.connection),
            }
            yield from _compared("plain", log, copied(plain.connection), ways)
        with _Receiver(_certificate(folder)) as secret:
            through = secret.connection, secret.tls, secret.outgoing
            ways = {"apart": apart_tls(*through), "slices": sliced_tls(*through)}
            yield from _compared("tls", log, copied_tls(*through), ways)
        view.release()


def _compared(kind: str, log: Log, copies: Way, ways: dict[str, Way]) -> Iterator[Measurement]:
    for shape in SHAPES:
        taken: dict[str, list[float]] = {name: [] for name in ("copies", *ways)}
        for _ in range(_ROUNDS):
            for name, way in {"copies": copies, **ways}.items():
                taken[name].append(_microseconds(way, log, shape))
        medians = {name: statistics.median(times) for name, times in taken.items()}
        base = medians.pop("copies")
        for name, ours in medians.items():
            bench = f"pull-{kind}-{shape.name}-{name}"
            yield Measurement(bench, ours, base, base / ours, "us", _ROUNDS, "copies into one frame")


def _microseconds(way: Way, log: Log, shape: Shape) -> float:
    pulls = [shape.pieces(number) for number in range(_PULLS)]
    begin = time.process_time()
    for pieces in pulls:
        way(log, pieces)
    return (time.process_time() - begin) / _PULLS * 1e6


def _certificate(folder: Path) -> Path:
    """Return a file with a key and a certificate of its own."""
    path = folder / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout".split()
    done = subprocess.run([*command, str(path), "-out", str(folder / "cert.pem")], check=True, capture_output=True)
    assert done.returncode == 0
    path.write_bytes(path.read_bytes() + (folder / "cert.pem").read_bytes())
    return path


class _Receiver:
    """A process that reads and forgets what comes over TCP; with a certificate, after a TLS handshake."""

    def __init__(self, certificate: Path | None = None) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self._process = os.fork()
        if not self._process:
            _receive(listening.getsockname(), is_tls=certificate is not None)
        self.connection, _ = listening.accept()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.close()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        if certificate is not None:
            context.load_cert_chain(certificate)
        self.tls = context.wrap_bio(incoming, self.outgoing, server_side=True)
        while certificate is not None:
            try:
                self.tls.do_handshake()
                certificate = None
            except ssl.SSLWantReadError:
                self.connection.sendall(self.outgoing.read())
                incoming.write(self.connection.recv(_TURN))

    def __enter__(self) -> _Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def _receive(address: tuple[str, int], *, is_tls: bool) -> None:
    try:
        connection = socket.create_connection(address)
        if is_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = context.wrap_socket(connection)
        buffer = bytearray(1024 * 1024)
        while connection.recv_into(buffer):
            pass
    finally:
        os._exit(0)


def main() -> int:
    """Measure in a temporary folder."""
    say(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        for one in measured(Path(folder)):
            tell(one)
    return 0


if __name__ == "__main__":
    sys.exit(main())
