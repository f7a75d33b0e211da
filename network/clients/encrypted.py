"""TLS over a socket for one thread that reads and others that write, none of whom waits for another."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

_CHUNK = 1 << 18


class EncryptedSocket:
    """Reads and writes through a TLS connection. Whoever writes does so one at a time, as with a plain socket.

    The library's own TLS sockets may not be used by two threads at once; here nothing is locked while a peer is waited
    for.
    """

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Shake hands with `host`, within the socket's timeout. OSError (ssl.SSLError) where that fails."""
        self._plain = plain
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_hostname=host if context.check_hostname else None)
        self._lock = threading.Lock()
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(self._goes.read())
                data = plain.recv(_CHUNK)
                if not data:
                    raise OSError("the server ends the connection instead of shaking hands") from None
                self._came.write(data)
            except ssl.SSLError:
                # a peer that is gone by now must not hide why the handshake failed
                with contextlib.suppress(OSError):
                    plain.sendall(self._goes.read())
                raise
        plain.sendall(self._goes.read())

    def recv(self, size: int) -> bytes:
        """Some bytes; none when the server has ended the connection."""
        while True:
            with self._lock:
                try:
                    return self._tls.read(size)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return b""
            data = self._plain.recv(size)
            if not data:
                return b""
            with self._lock:
                self._came.write(data)

    def sendall(self, data: bytes) -> None:
        """Send all of `data`."""
        with self._lock:
            self._tls.write(data)
            encrypted = self._goes.read()
        self._plain.sendall(encrypted)

    def shutdown(self, how: int) -> None:
        """End the connection."""
        self._plain.shutdown(how)

    def close(self) -> None:
        """Give the socket back."""
        self._plain.close()
