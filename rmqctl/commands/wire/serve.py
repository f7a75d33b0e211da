"""`rmqctl serve`: a name server and a broker that give clients the messages of a store, and take theirs."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.flags.options import StoreLocation, release_option, store_options, summary_options
from rmqctl.flags.types import PEM, decide_sizes, tell_index_size
from rmqctl.formats.errors import NotAStoreError, RefusedError, counted
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import ending_signals

if TYPE_CHECKING:
    from rmqctl.store.recover.report import RecoverReport

# What `serve --recover` does before it serves: a crashed store is made whole, as a broker does at its start.


def recover_first(store: StoreLocation, tell: Callable[[str], None]) -> None:
    """Recover the store if it was not closed cleanly; say what that did.

    It is the recovery of `rmqctl recover`, with its journal. Raises what that raises: RefusedError where damage has
    good messages behind it, StoreInUseError. A store that was closed, or is not there, is left to `serve`.
    """
    from rmqctl.confirm import confirm_loss
    from rmqctl.opening import log_bytes, open_store
    from rmqctl.output.progress import progress
    from rmqctl.store.options import ChangeOptions

    with contextlib.suppress(NotAStoreError), open_store(store, tell) as opened:
        if not opened.files.has_abort():
            return
        assumes_index = decide_sizes(opened.files, None, None)
        with progress("recovering the store", log_bytes(opened.files, passes=1), "bytes") as bar:
            change = ChangeOptions(command_line=sys.argv[1:], progress=bar.advance, confirm=confirm_loss(False))
            report = opened.recover(change=change)
        tell_index_size(assumes_index, report.index_files_rebuilt, dry_run=False)
        tell(_outcome(report, store))


def _outcome(report: RecoverReport, store: StoreLocation) -> str:
    parts = [
        f"{counted(report.messages, 'message')} up to physical offset {report.end_offset}",
        f"{counted(report.truncated_bytes, 'byte')} cut",
        f"{counted(report.units_added, 'unit')} added and {report.units_removed} removed in "
        f"{counted(report.queues_changed, 'queue')}",
        f"{counted(report.index_files_rebuilt, 'index file')} rebuilt",
    ]
    text = f"recovered after a crash: {', '.join(parts)}"
    if report.damaged or report.left:
        text += "; damage that no broker looks at is left: `rmqctl check` names it"
    if report.journal is not None:
        text += f"; `rmqctl undo -s {shlex.quote(str(store.path))}` takes it back once this has ended"
    return text


@contextlib.contextmanager
def naming_recover(store: StoreLocation) -> Iterator[None]:
    """Have the refusal of a crashed store name --recover too."""
    try:
        yield
    except RefusedError as error:
        if error.hint is not None and "rmqctl recover" in error.hint and (store.path / "abort").exists():
            error.hint += "; or add --recover, which does so and then serves it"
        raise


if TYPE_CHECKING:
    import socket
    import ssl
    from pathlib import Path

    from rmqctl.network.broker.broker import Broker
    from rmqctl.network.broker.settings import BrokerIdentity
    from rmqctl.network.remoting.server import Seen
    from rmqctl.network.serving import Listening, Ready
    from rmqctl.network.watching import Watched
    from rmqctl.output.output import Output

    _Parameter = click.ParamType[tuple[str, int]]
else:
    _Parameter = click.ParamType

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")
_LARGEST_PORT = 65535
# how often it is looked whether more was loaded, and how often while that goes on
_SETTLE_SECONDS = 1.0
_LOADING_SECONDS = 0.1
# How long another thread may keep the interpreter when the loop wants it back, which it does after every call of the
# kernel, ten times for some requests: Python's own 5 ms, each time, were half of a second's tenth while kernels load.
_TURN_SECONDS = 0.0005


class AddressType(_Parameter):
    """HOST:PORT, an IPv6 address in brackets."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Host and port; a usage error that names the option if `value` is no address."""
        if isinstance(value, tuple):
            return value
        match = _HOST_AND_PORT.fullmatch(value)
        if match is None or int(match[2]) > _LARGEST_PORT:
            self.fail(f"{value!r} is no address: write it as 127.0.0.1:10911, with port 0 for any free one", param, ctx)
        return match[1].strip("[]"), int(match[2])


ADDRESS = AddressType()


@click.command(
    epilog="""\b
Examples:
  rmqctl serve -s /data/store
  mqadmin topicList -n 127.0.0.1:9876
  rmqctl serve -s /data/store --listen 127.0.0.1:0 --namesrv 127.0.0.1:0 --json
  rmqctl serve -s /tmp/new --writable --create --metrics 127.0.0.1:9090
  rmqctl serve -s /data/store --namesrv 127.0.0.1:0 --register ns1:9876
  rmqctl serve -s /data/store --as 5.5.0
  rmqctl serve -s /data/store --tls-cert cert.pem --tls-key key.pem
  rmqctl serve -s /data/store --writable --ha-listen 127.0.0.1:10912
  rmqctl serve -s /data/store --writable --recover          after a crash

Without --writable not one byte of the store changes: what clients commit is kept in memory, what they send is refused.
There is no authentication: any client that reaches the ports can read all messages, and with --writable send and
delete.
docs/network.md says what is served. On a terminal a line tells each second in which something happens; with --json all
messages on stderr are JSON, one object a line."""
)
@store_options
@click.option("--listen", type=ADDRESS, default="127.0.0.1:10911", metavar="HOST:PORT", show_default=True,
              help="Address of the broker.")  # fmt: skip
@click.option("--namesrv", type=ADDRESS, default="127.0.0.1:9876", metavar="HOST:PORT", show_default=True,
              help="Address of the name server.")  # fmt: skip
@click.option("--metrics", type=ADDRESS, metavar="HOST:PORT",
              help="Address of GET /metrics for Prometheus.")  # fmt: skip
@click.option("--register", "register_at", metavar="HOST:PORT",
              help="Register the broker with these name servers too, separated by semicolons.")  # fmt: skip
@click.option("--tls-cert", type=PEM, metavar="FILE",
              help="Speak TLS too, at the same ports, with this certificate (PEM).")  # fmt: skip
@click.option("--tls-key", type=PEM, metavar="FILE", help="Its key, if it is not in the same file.")
@click.option("--ha-listen", type=ADDRESS, metavar="HOST:PORT",
              help="Address for slaves and `rmqctl mirror`.")  # fmt: skip
@release_option.but(help="RocketMQ version to act as.")
@click.option("--writable", is_flag=True, help="Accept messages and offsets; run retries, delays, transactions.")
@click.option("--create", is_flag=True, help="With --writable: create a new store if none exists.")
@click.option("--clean", is_flag=True, help="With --writable: remove expired files, as a broker does.")
@click.option(
    "--recover", is_flag=True, help="With --writable: after a crash recover the store first, as a broker does."
)
@summary_options
def serve(
    store: StoreLocation,
    output: Output,
    listen: tuple[str, int],
    namesrv: tuple[str, int],
    metrics: tuple[str, int] | None,
    register_at: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    ha_listen: tuple[str, int] | None,
    release: str,
    writable: bool,
    create: bool,
    clean: bool,
    recover: bool,
) -> int:
    """Serve a store as a name server and a broker, read-only or --writable.

    When both are ready one line is printed. SIGTERM and Ctrl-C end them. A writable store is locked meanwhile, as by a
    broker; after a crash it needs `rmqctl recover` first, or --recover.
    """
    from rmqctl.network.broker.settings import identity_from_properties
    from rmqctl.network.remoting.server import bound, bound_pair
    from rmqctl.network.remoting.tls import raise_descriptor_limit, server_context
    from rmqctl.network.serving import Listening, is_loopback
    from rmqctl.output.output import Beside
    from rmqctl.store.config.config import read_properties
    from rmqctl.store.config.releases import RELEASES

    if (create or clean or recover) and not writable:
        raise click.UsageError("--create, --clean and --recover go with --writable")
    if tls_key is not None and tls_cert is None:
        raise click.UsageError("--tls-key goes with --tls-cert")
    tls = None if tls_cert is None else server_context(tls_cert, tls_key)
    raise_descriptor_limit()
    properties = read_properties(store.config_path) if store.config_path else {}
    identity = identity_from_properties(properties)._replace(release=RELEASES[release])
    beside = Beside(output.talk)
    tell = _Teller(beside.say, output.is_json)
    for host in sorted({listen[0], namesrv[0]}):
        if not is_loopback(host):
            doing = "read, send and delete messages" if writable else "read all messages"
            tell(f"anybody who reaches {host} can {doing}: there is no authentication")
    if metrics is not None and not is_loopback(metrics[0]):
        tell(f"anybody who reaches {metrics[0]} can read the page of metrics, which has no text of the store")
    if ha_listen is not None and not is_loopback(ha_listen[0]):
        tell(f"anybody who reaches {ha_listen[0]} can copy the whole log: there is no authentication")
    with beside, contextlib.ExitStack() as taken:

        def take(address: tuple[str, int] | None) -> socket.socket | None:
            return None if address is None else taken.enter_context(bound(*address))

        name_server_on = taken.enter_context(bound(*namesrv))
        broker_on, vip_on = bound_pair(*listen, tell)
        for one in (broker_on, vip_on):
            taken.enter_context(one or contextlib.nullcontext())
        on = Listening(name_server_on, broker_on, take(metrics), take(ha_listen), vip_on)
        places = _Places(on, register_at, tls)
        if recover:
            recover_first(store, tell)
        if writable:
            _serve_writable(store, identity, properties, places, output, tell, create, clean)
        else:
            _serve_readable(store, identity, properties, places, output, tell)
    return exit_codes.OK


class _Places(NamedTuple):
    """Taken addresses, name servers of others that are told of the broker, and what is shown to those who speak TLS."""

    on: Listening
    register_at: str | None
    tls: ssl.SSLContext | None


class _Teller:
    """Lines for whoever looks after the server, on stderr, as JSON with --json. `say` keeps nobody waiting."""

    def __init__(self, say: Callable[[str], None], is_json: bool) -> None:
        self.say = say
        self.is_json = is_json

    def __call__(self, line: str) -> None:
        if self.is_json:
            self.log(message=line)
        else:
            self.say(line)

    def log(self, **fields: object) -> None:
        """One object on a line of its own, with the time."""
        from rmqctl.output.times import format_time, now_ms

        self.say(json.dumps({"time": format_time(now_ms()), **fields}))


def _serve_readable(
    store: StoreLocation,
    identity: BrokerIdentity,
    properties: dict[str, str],
    places: _Places,
    output: Output,
    tell: _Teller,
) -> None:
    from rmqctl.network.broker.broker import Broker
    from rmqctl.opening import open_store

    with open_store(store, tell, needs_messages=True) as opened:
        broker = Broker(opened.files, identity, tell, properties=properties)
        broker.tell_of_unserved()
        _run(broker, places, output, tell)


def _serve_writable(
    store: StoreLocation,
    identity: BrokerIdentity,
    properties: dict[str, str],
    places: _Places,
    output: Output,
    tell: _Teller,
    create: bool,
    clean: bool,
) -> None:
    from rmqctl.network.broker.master_broker import MasterBroker
    from rmqctl.network.serving import store_host
    from rmqctl.opening import broker_config, listen, naming_create, noting_stored
    from rmqctl.output.progress import progress
    from rmqctl.store.message_store import MessageStore

    listen(tell)
    config = broker_config(store, tell)
    if identity.release.has_tag_queries and config.index_tags is None:
        # as a broker of that version writes its store, and any that it takes over
        config = config._replace(index_tags=True)
    with (
        naming_recover(store),
        naming_create(store.path, config),
        progress("checking the end of the commitlog", None, "bytes") as bar,
    ):
        opened = MessageStore.open(
            store.path,
            "rw",
            config,
            create=create,
            obey_disk_ratio=True,
            clean_expired=clean,
            store_host=store_host(places.on.broker, properties.get("brokerIP1")),
            progress=bar.advance,
        )
    with opened, noting_stored(opened, "serve", tell):
        broker = MasterBroker(opened, identity, tell, properties=properties)
        try:
            _run(broker, places, output, tell)
        finally:
            broker.close()


def _run(broker: Broker, places: _Places, output: Output, tell: _Teller) -> None:
    import asyncio

    from rmqctl.network.serving import serve as serve_until

    def ready(at: Ready) -> None:
        if output.is_json:
            line = {"namesrv": at.namesrv, "broker": at.broker, "writable": broker.is_writable}
            more = {"metrics": at.metrics, "slaves": at.slaves}
            output.record(line | {name: place for name, place in more.items() if place is not None})
        else:
            how = "writable" if broker.is_writable else "read-only"
            page = "" if at.metrics is None else f", metrics at http://{at.metrics}/metrics"
            slaves = "" if at.slaves is None else f", for slaves {at.slaves}"
            output.text(f"name server {at.namesrv}, broker {at.broker}{slaves}, {how}{page}")
        output.flush()

    async def run() -> None:
        end = asyncio.Event()
        for number in ending_signals():
            asyncio.get_running_loop().add_signal_handler(number, end.set)
        watched = _watcher(tell)
        # kept: a task that nobody holds may be collected
        settling = asyncio.create_task(_settle())
        await serve_until(
            broker,
            places.on,
            tell,
            ready,
            end.wait,
            watched=watched,
            register_at=places.register_at,
            tls=places.tls,
        )
        settling.cancel()

    _require_descriptors()
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_SECONDS)
    try:
        asyncio.run(run())
    finally:
        sys.setswitchinterval(usual)


async def _settle() -> None:
    """Have garbage collections leave out what stays: with all that is loaded, one of them takes tens of milliseconds,
    in which no client is served. Most is loaded before the first client comes, more when there are many messages: that
    is left out while it comes, with what garbage there is among it, for to find that out would take as long."""
    import asyncio
    import gc

    gc.collect()
    settled = -1
    while True:
        loaded = len(sys.modules)
        if loaded != settled:
            gc.freeze()
        interval = _SETTLE_SECONDS if loaded == settled else _LOADING_SECONDS
        settled = loaded
        await asyncio.sleep(interval)


def _watcher(tell: _Teller) -> Watched | None:
    """Tells what happens: a line for a person at a terminal, an object with --json; otherwise nobody would read it."""

    def told(before: Seen, now: Seen, seconds: float) -> None:
        line = _traffic_line(before, now, seconds)
        if line is not None and tell.is_json:
            tell.log(seconds=round(seconds, 3), **now._asdict())
        elif line is not None:
            tell.say(line)

    return told if tell.is_json or (sys.stderr is not None and sys.stderr.isatty()) else None


def _traffic_line(before: Seen, now: Seen, seconds: float) -> str | None:
    """What happened in the last `seconds`, as a line; None where nothing did and nobody came or went."""
    from rmqctl.output.table import human_size

    requests = now.requests - before.requests
    if not requests and (now.connections, now.held) == (before.connections, before.held):
        return None
    came, went = (
        human_size(round(count / seconds))
        for count in (now.bytes_in - before.bytes_in, now.bytes_out - before.bytes_out)
    )
    rates = f"{requests / seconds:.0f} requests/s, {came}/s in, {went}/s out"
    return f"{counted(now.connections, 'connection')}, {rates}, {counted(now.held, 'pull')} held"


def _require_descriptors() -> None:
    """Raise ExhaustedError where there are too few for an event loop, which asyncio would leave half made."""
    import select
    import socket

    from rmqctl.store.files.background import naming_exhaustion

    with naming_exhaustion(), select.epoll():
        for end in socket.socketpair():
            end.close()
