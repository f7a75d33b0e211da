"""`rmqctl serve --tls-cert`: one port for those who speak TLS and those who do not; and our clients with --tls."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.clients.channel import EncryptedSocket, dial_encrypted
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import FrameDecoder, RemotingCommand, encode_frame
from rmqctl.network.remoting.tls import client_context
from tests.network.certificates import Certificate, certificate
from tests.network.serving import SECONDS, Served, serving
from tests.rmqctl.looking import run


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def served(shown: Certificate, tmp_path: Path) -> Iterator[Served]:
    options = ("--tls-cert", str(shown.certificate), "--tls-key", str(shown.key))
    with serving(tmp_path / "store", "--writable", "--create", *options) as process:
        yield process
        assert process.end() == 0
        assert "Traceback" not in process.errors


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def _answer(connection: socket.socket) -> RemotingCommand:
    """The answer to a question after a topic that nobody knows."""
    connection.sendall(encode_frame(RemotingCommand(105, {"topic": "None"}, opaque=5)))
    decoder = FrameDecoder()
    while (answer := decoder.next_command()) is None:
        data = connection.recv(1 << 16)
        assert data
        decoder.feed(data)
    return answer


def test_one_port_for_both(served: Served, shown: Certificate) -> None:
    dial = dial_encrypted(client_context(shown.certificate))
    large = bytes(range(256)) * 4_000
    with Producer(served.namesrv, "tls", dial) as encrypted, Producer(served.namesrv) as plain:
        assert encrypted.send(Message("T", b"encrypted")).status == "SEND_OK"
        assert plain.send(Message("T", b"plain")).status == "SEND_OK"
        # more than a record, and than a socket takes at once; and many at a time
        soon = [encrypted.send_soon(Message("T", large + b"%d" % number)) for number in range(8)]
        assert {future.result(SECONDS).status for future in soon} == {"SEND_OK"}
        bodies = {b"encrypted", b"plain", *(large + b"%d" % number for number in range(8))}
        with Consumer(served.namesrv, "g", "T", begin="first", dial=dial) as consumer:
            got: list[bytes] = []
            thread = threading.Timer(0.5, lambda: plain.send(Message("T", b"while it waits")))
            thread.start()
            end = time.monotonic() + SECONDS
            while len(got) < len(bodies) + 1 and time.monotonic() < end:
                got += [message.plain_body() for message in consumer.poll(1)]
            thread.join(SECONDS)
    assert (len(got), set(got)) == (len(bodies) + 1, bodies | {b"while it waits"})
    _require_that_peers_cost_nobody_anything(served)


def test_our_verbs(served: Served, shown: Certificate, tmp_path: Path) -> None:
    ca = ("--tls-ca", shown.certificate)
    assert run("produce", "-n", served.namesrv, "-t", "T", "--body", "x", *ca).code == 0
    for flags in (("--tls",), ca, ()):
        (got,) = run("consume", "-n", served.namesrv, "-t", "T", "--json", *flags).objects
        assert got["body"] == "x"
    assert run("consume", "-n", served.namesrv, "-t", "T", "-g", "g", *ca).code == 0
    for verb in ("topics", "cluster", "groups"):
        assert run(verb, "-n", served.namesrv, *ca).code == 0, verb
    other = certificate(tmp_path, "other")
    code, _, err = run("consume", "-n", served.namesrv, "-t", "T", "--tls-ca", other.certificate)
    assert (code, "does not speak TLS as it should" in err, "self-signed" in err) == (3, True, True)
    (tmp_path / "none.pem").write_text("nothing")
    code, _, err = run("topics", "-n", served.namesrv, "--tls-ca", tmp_path / "none.pem")
    assert (code, "none.pem cannot be used for TLS" in err) == (2, True)


def test_a_peer_that_is_gone_does_not_hide_why_the_handshake_failed() -> None:
    class Tls:
        def do_handshake(self) -> None:
            raise ssl.SSLCertVerificationError("self-signed certificate")

    class Context:
        check_hostname = False

        def wrap_bio(self, *_: object, **__: object) -> Tls:
            return Tls()

    class Gone:
        def sendall(self, _: bytes) -> None:
            raise BrokenPipeError

    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
        EncryptedSocket(Gone(), Context(), "127.0.0.1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("alternatives", "code", "said"),
    [("IP:127.0.0.1", 0, ""), ("DNS:broker.example", 3, "IP address mismatch"), ("", 3, "IP address mismatch")],
)
def test_names_are_checked_when_asked(tmp_path: Path, alternatives: str, code: int, said: str) -> None:
    shown = certificate(tmp_path, "somebody", alternatives)
    options = ("--tls-cert", str(shown.certificate), "--tls-key", str(shown.key))
    with serving(tmp_path / "store", "--writable", "--create", *options) as process:
        ca = ("-n", process.namesrv, "--tls-ca", shown.certificate)
        assert run("topics", *ca).code == 0
        checked = run("topics", *ca, "--tls-check-name")
        assert (checked.code, said in checked.err) == (code, True), checked.err
        assert process.end() == 0


def test_a_name_is_checked_against_authorities_only() -> None:
    code, _, err = run("topics", "-n", "127.0.0.1:1", "--tls", "--tls-check-name")
    assert (code, "--tls-check-name goes with --tls-ca" in err) == (2, True)


def _require_that_peers_cost_nobody_anything(served: Served) -> None:
    """Those that say nothing, half of a handshake, or nonsense."""
    silent = [_connected(served.broker) for _ in range(20)]
    with _connected(served.namesrv) as torn, _connected(served.namesrv) as wrong:
        torn.sendall(b"\x16\x03")  # a handshake that never comes whole
        wrong.sendall(b"\x16" + b"nonsense" * 100)
        with _connected(served.namesrv) as plain:
            assert _answer(plain).code == 17
        context = client_context(None)
        with _connected(served.namesrv) as raw, context.wrap_socket(raw) as encrypted:
            assert _answer(encrypted).code == 17
            assert encrypted.version() in ("TLSv1.2", "TLSv1.3")
        assert wrong.recv(1 << 16)[:1] in (b"\x15", b"")  # an alert, or nothing
    for one in silent:
        one.close()
    with Producer(served.namesrv) as producer:
        assert producer.send(Message("T", b"x")).status == "SEND_OK"


def test_what_goes_wrong(shown: Certificate, tmp_path: Path) -> None:
    where = ("-s", tmp_path / "new", "--writable", "--create", "--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0")
    (tmp_path / "none.pem").write_text("nothing")
    code, _, err = run("serve", *where, "--tls-cert", tmp_path / "none.pem")
    assert (code, "none.pem cannot be used for TLS" in err) == (2, True)
    code, _, err = run("serve", *where, "--tls-cert", shown.certificate)
    assert (code, "cannot be used for TLS" in err) == (2, True)
    assert run("serve", *where, "--tls-key", shown.key).code == 2
    assert not (tmp_path / "new").exists()
