"""What `serve` takes for pulls of long runs of the log, from request to the last byte: as it is, and with sendfile.

`python -m bench.wire.served_pulls` starts `serve` twice over the same store, once with a trial that is not part of it:
the body of a pull that lies in the log without gaps leaves by sendfile, up to what the socket takes at once, the rest
from memory. Clients pull from one and then from the other, in turns, and throw away what comes. A line says what a GB
takes of the processor of `serve`, and how many MB come a second; with TLS there is `serve` as it is alone.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import Measurement, say, tell
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, encode_frame, encode_head
from rmqctl.store import Message, MessageStore
from tests.network.certificates import certificate
from tests.network.serving import ANY
from tests.processes import processor_seconds, start

_TOPIC, _GROUP = "Pulled", "bench"
_SIZES = {"1-KiB": (1024, 65536), "64-KiB": (65536, 2048)}
_CLIENTS, _ROUNDS, _SECONDS = 4, 7, 2.0


# ---- the trial, in the process of `serve`


class _Run(NamedTuple):
    body: bytes
    descriptor: int
    position: int


def _try_sendfile() -> None:
    """Let bodies without gaps leave by sendfile."""
    from rmqctl.network.remoting import server

    get: Any = importlib.import_module("rmqctl.store.read.get")
    read, write = get.usual_frames, server.PeerConnection._write
    last: list[_Run] = []
    descriptors: dict[str, int] = {}

    def remembered(queue: Any, log: Any, offset: int, count: int, most_bytes: int) -> Any:
        found = read(queue, log, offset, count, most_bytes)
        last.clear()
        if found is not None:
            units = queue.unit_run(offset, found[1])
            begin = CONSUMEQUEUE_UNIT.unpack_from(units, 0)[0]
            end, size, _ = CONSUMEQUEUE_UNIT.unpack_from(units, (found[1] - 1) * CONSUMEQUEUE_UNIT.size)
            if end + size - begin == len(found[0]):
                file = log.find(begin)
                if str(file.path) not in descriptors:
                    descriptors[str(file.path)] = os.open(file.path, os.O_RDONLY)
                last.append(_Run(found[0], descriptors[str(file.path)], begin - file.start_offset))
        return found

    def sent(self: Any, command: Any) -> None:
        transport = self._transport
        is_run = command is not None and last and command.body is last[0].body and transport is not None
        if not is_run or transport.get_write_buffer_size() or transport.get_extra_info("sslcontext") is not None:
            write(self, command)
            return
        self._send_out()
        self._last_active = self._loop.time()
        run, out = last[0], transport._sock
        out.send(encode_head(command), socket.MSG_MORE)
        at, left = run.position, len(run.body)
        with contextlib.suppress(BlockingIOError):
            while left and (count := os.sendfile(out.fileno(), run.descriptor, at, left)):
                at, left = at + count, left - count
        # the kernel may wait for more after sendfile: this lets go of what it has
        out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if left:
            transport.write(memoryview(run.body)[len(run.body) - left :])

    get.usual_frames = remembered
    server.PeerConnection._write = sent  # type: ignore[method-assign]


# ---- clients


class _Client(threading.Thread):
    """Pulls from the beginning of the queue to its end, again and again, until `seconds` are over."""

    def __init__(self, address: str, messages: int, size: int, is_tls: bool) -> None:
        super().__init__(daemon=True)
        host, port = address.split(":")
        self._socket: socket.socket = socket.create_connection((host, int(port)))
        if is_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._socket = context.wrap_socket(self._socket)
        self._messages, self._size = messages, size
        self.received = 0
        self.end = 0.0

    def run(self) -> None:
        requests = [_pull(offset) for offset in range(0, self._messages, 32 if self._size < 65536 else 4)]
        buffer, number = memoryview(bytearray(1 << 20)), 0
        while time.monotonic() < self.end:
            self._socket.sendall(requests[number % len(requests)])
            got = self._socket.recv_into(buffer)
            whole = 4 + struct.unpack_from(">I", buffer)[0]
            self.received += whole
            while got < whole:
                got += self._socket.recv_into(buffer)
            number += 1
        self._socket.close()


def _pull(offset: int) -> bytes:
    fields = {
        "consumerGroup": _GROUP, "topic": _TOPIC, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    return encode_frame(RemotingCommand(RequestCode.PULL_MESSAGE, fields))


class _Served(NamedTuple):
    address: str
    process_id: int


@contextlib.contextmanager
def _serving(store: Path, way: str, *options: str) -> Iterator[_Served]:
    """`serve`, with the trial where `way` is sendfile."""
    command = [sys.executable, "-m", "bench.wire.served_pulls", way, "serve", "-s", str(store), "--json", *options]
    command += ["--listen", ANY, "--namesrv", ANY]
    with start(command, seconds=3600, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield _Served(json.loads(process.stdout.readline())["broker"], process.pid)
        process.kill()


class _Figures(NamedTuple):
    """Processor seconds of `serve` for a GB, and MB a second."""

    processor: float
    rate: float


def _pulled(served: _Served, messages: int, size: int, is_tls: bool) -> _Figures:
    clients = [_Client(served.address, messages, size, is_tls) for _ in range(_CLIENTS)]
    before, begin = processor_seconds(served.process_id), time.monotonic()
    for client in clients:
        client.end = begin + _SECONDS
        client.start()
    for client in clients:
        client.join()
    taken, spent = time.monotonic() - begin, processor_seconds(served.process_id) - before
    received = sum(client.received for client in clients)
    return _Figures(spent / received * 1e9, received / taken / 1e6)


def measured(folder: Path) -> Iterator[Measurement]:
    """Yield lines for each size of messages; `other` is `serve` as it is."""
    made = certificate(folder)
    options = ("--tls-cert", str(made.certificate), "--tls-key", str(made.key))
    for name, (size, count) in _SIZES.items():
        store = folder / f"store-{name}"
        with MessageStore.open(store, "rw", create=True) as opened:
            for _ in range(0, count, 64):
                opened.put_many([Message(_TOPIC, os.urandom(size), 0)] * 64)
        with _serving(store, "as-it-is", *options) as plain, _serving(store, "sendfile", *options) as trial:
            taken: dict[str, list[_Figures]] = {"as-it-is": [], "sendfile": [], "tls": []}
            for number in range(_ROUNDS + 1):
                for way, served in {"as-it-is": plain, "sendfile": trial, "tls": plain}.items():
                    figures = _pulled(served, count, size, way == "tls")
                    # the first round warms up
                    taken[way] += [figures] if number else []
        base = _median(taken.pop("as-it-is"))
        for way, rounds in taken.items():
            ours = _median(rounds)
            against = "serve as it is, plain"
            yield Measurement(
                f"served-pull-{name}-{way}-processor", ours.processor, base.processor,
                base.processor / ours.processor, "s/GB", _ROUNDS, against,
            )  # fmt: skip
            yield Measurement(
                f"served-pull-{name}-{way}", ours.rate, base.rate, ours.rate / base.rate, "MB/s", _ROUNDS, against
            )


def _median(rounds: list[_Figures]) -> _Figures:
    return _Figures(*(statistics.median(part) for part in zip(*rounds, strict=True)))


def main() -> int:
    """Measure in a temporary folder; or be one of the processes that are measured."""
    if len(sys.argv) > 1:
        from rmqctl.start import main as serve

        if sys.argv.pop(1) == "sendfile":
            _try_sendfile()
        serve()
        return 0
    say(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        for one in measured(Path(folder)):
            tell(one)
    return 0


if __name__ == "__main__":
    sys.exit(main())
