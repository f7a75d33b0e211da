"""`rmqctl serve`: a name server and a broker that give clients the messages of a store, and take theirs."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from rmqctl.flags.options import StoreLocation, release_option, store_options, summary_options
from rmqctl.flags.types import ADDRESS, PEM, AddressType, decide_sizes, tell_index_size
from rmqctl.formats.errors import NotAStoreError, RefusedError, RmqctlError, counted
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import ending_signals
from rmqctl.output.table import said

if TYPE_CHECKING:
    from rmqctl.store.recover.report import RecoverReport

# What `serve --recover` does before it serves: a crashed store is made whole, as a broker does at its start.


def recover_first(store: StoreLocation, tell: Callable[[str], None]) -> None:
    """Recover the store if it was not closed cleanly; say what that did.

    It is the recovery of `rmqctl recover`, with its journal. Raises what that raises: RefusedError where damage has
    good messages behind it, StoreInUseError. A store that was closed, or is not there, is left to `serve`.
    """
    from rmqctl.opening import log_bytes, open_store
    from rmqctl.output.outcome import confirm_loss
    from rmqctl.output.terminal import progress
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

    from rmqctl.network.broker.broker import Broker
    from rmqctl.network.broker.settings import BrokerIdentity
    from rmqctl.network.remoting.authentication import Guard
    from rmqctl.network.remoting.server import Seen
    from rmqctl.network.serving import Listening, Ready
    from rmqctl.network.watching import Watched
    from rmqctl.output.output import Output
    from rmqctl.store.message_store import MessageStore

_GRPC_PORT = 8081
# how often it is looked whether more was loaded, and how often while that goes on
_SETTLE_SECONDS = 1.0
_LOADING_SECONDS = 0.1
# How long another thread may keep the interpreter when the loop wants it back, which it does after every call of the
# kernel, ten times for some requests: Python's own 5 ms, each time, were half of a second's tenth while kernels load.
_TURN_SECONDS = 0.0005


class GrpcAddressType(AddressType):
    """HOST:PORT or HOST, then at the port of RocketMQ's proxy."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """See AddressType."""
        is_host = isinstance(value, str) and re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+", value) is not None
        return super().convert(f"{value}:{_GRPC_PORT}" if is_host else value, param, ctx)


@click.command(
    epilog="""\b
Examples:
  rmqctl serve -s /data/store
  mqadmin topicList -n 127.0.0.1:9876
  rmqctl serve -s /data/store --listen 127.0.0.1:0 --namesrv 127.0.0.1:0 --json
  rmqctl serve -s /tmp/new --writable --create --metrics 127.0.0.1:9090
  rmqctl serve -s /data/store --writable --grpc 127.0.0.1:8081        for the clients of RocketMQ 5
  rmqctl serve -s /data/store --namesrv 127.0.0.1:0 --register ns1:9876
  rmqctl serve -s /data/store --as 5.5.0
  rmqctl serve -s /data/store --tls-cert cert.pem --tls-key key.pem
  rmqctl serve -s /data/store --writable --ha-listen 127.0.0.1:10912
  rmqctl serve -s /data/store --writable --recover          after a crash
  rmqctl serve --ephemeral --topic Orders:FIFO:4 --topic Bills        for development and tests

Without --writable not one byte of the store changes: what clients commit is kept in memory, what they send is refused.
A store at rest whose queues or index lag, as after a crash, is served as `rmqctl recover` would leave it.
Without --auth any client that reaches the ports can read all messages, and with --writable send and delete.
docs/network.md lists the requests. On a terminal, a line shows the traffic of each second; with --json all messages
on stderr are JSON, one object a line."""
)
@store_options
@click.option("--listen", type=ADDRESS, default="127.0.0.1:10911", metavar="HOST:PORT", show_default=True,
              help="Address of the broker.")  # fmt: skip
@click.option("--namesrv", type=ADDRESS, default="127.0.0.1:9876", metavar="HOST:PORT", show_default=True,
              help="Address of the name server.")  # fmt: skip
@click.option("--metrics", type=ADDRESS, metavar="HOST:PORT",
              help="Address of GET /metrics for Prometheus.")  # fmt: skip
@click.option("--grpc", "grpc_at", type=GrpcAddressType(), is_flag=False, flag_value="127.0.0.1", metavar="[HOST:PORT]",
              help="Serve gRPC clients too; default 127.0.0.1:8081.")  # fmt: skip
@click.option("--register", "register_at", metavar="HOST:PORT",
              help="Register the broker with these name servers too, separated by semicolons.")  # fmt: skip
@click.option("--tls-cert", type=PEM, metavar="FILE",
              help="Speak TLS too, at the same ports, with this certificate (PEM).")  # fmt: skip
@click.option("--tls-key", type=PEM, metavar="FILE", help="Its key, if it is not in the same file.")
@click.option("--auth", "users", type=click.Path(path_type=Path), is_flag=False, flag_value="", metavar="[FILE]",
              help="Permit what users of the store, or of plain_acl.yml, may do.")  # fmt: skip
@click.option("--ha-listen", type=ADDRESS, metavar="HOST:PORT",
              help="Address for slaves and `rmqctl mirror`.")  # fmt: skip
@release_option.but(help="RocketMQ version to act as.")
@click.option("--writable", is_flag=True, help="Accept messages and offsets; run retries, delays, transactions.")
@click.option("--ephemeral", is_flag=True, help="Serve a new store in a temporary folder, --writable, and remove it.")
@click.option("--topic", "topics", multiple=True, metavar="NAME[:TYPE[:QUEUES]]",
              help="With --writable: create a topic. TYPE: NORMAL, FIFO, DELAY, TRANSACTION. Repeatable.")  # fmt: skip
@click.option("--create", is_flag=True, help="With --writable: create a new store if none exists.")
@click.option("--clean", is_flag=True, help="With --writable: remove expired files, as a broker does.")
@click.option(
    "--recover", is_flag=True, help="With --writable: after a crash recover the store first, as a broker does."
)
@click.option(
    "--as-recovered/--as-stored",
    "as_recovered",
    default=None,
    help="Serve what `rmqctl recover` would leave, or what is there. Default: the former where queues or index lag.",
)
@summary_options
def serve(
    store: StoreLocation,
    output: Output,
    listen: tuple[str, int],
    namesrv: tuple[str, int],
    metrics: tuple[str, int] | None,
    grpc_at: tuple[str, int] | None,
    register_at: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    users: Path | None,
    ha_listen: tuple[str, int] | None,
    release: str,
    writable: bool,
    ephemeral: bool,
    topics: tuple[str, ...],
    create: bool,
    clean: bool,
    recover: bool,
    as_recovered: bool | None,
) -> int:
    """Serve a store as a name server and a broker, read-only or --writable.

    It prints one line when both are ready. SIGTERM and Ctrl-C end it. A writable store is locked, as by a broker; after
    a crash it needs `rmqctl recover` first, or --recover.
    """
    from rmqctl.network.broker.settings import identity_from_properties
    from rmqctl.network.remoting.server import bound, bound_pair
    from rmqctl.network.remoting.tls import raise_descriptor_limit, server_context
    from rmqctl.network.serving import Listening
    from rmqctl.output.output import Beside
    from rmqctl.store.config.config import read_properties
    from rmqctl.store.config.releases import RELEASES
    from rmqctl.store.files.outputs import temporary_folder

    writable, create = writable or ephemeral, create or ephemeral
    _refuse_flags(click.get_current_context(), writable=writable)
    tls = None if tls_cert is None else server_context(tls_cert, tls_key)
    raise_descriptor_limit()
    properties = read_properties(store.config_path) if store.config_path else {}
    identity = identity_from_properties(properties)._replace(release=RELEASES[release])
    beside = Beside(output.talk)
    tell = _Teller(beside.say, output.is_json)
    _tell_of_strangers(click.get_current_context().params, tell, writable=writable)
    with beside, contextlib.ExitStack() as taken:
        if ephemeral:
            store = store._replace(path=taken.enter_context(temporary_folder("rmqctl-ephemeral-")) / "store")

        def take(address: tuple[str, int] | None) -> socket.socket | None:
            return None if address is None else taken.enter_context(bound(*address))

        name_server_on = taken.enter_context(bound(*namesrv))
        broker_on, vip_on = bound_pair(*listen, tell)
        for one in (broker_on, vip_on):
            taken.enter_context(one or contextlib.nullcontext())
        calls_on = None if grpc_at is None else taken.enter_context(bound(*grpc_at, listens=False))
        on = Listening(name_server_on, broker_on, take(metrics), take(ha_listen), vip_on, calls_on)
        guard = None if users is None else _guard(users if users.name else store.path, identity)
        if guard is None:
            _tell_of_users(store.path, tell)
        places = _Places(on, register_at, tls, guard)
        if recover:
            recover_first(store, tell)
        if writable:
            _serve_writable(store, identity, properties, places, output, tell, create, clean, topics)
        else:
            _serve_readable(store, identity, properties, places, output, tell, as_recovered)
    return exit_codes.OK


def _refuse_flags(context: click.Context, *, writable: bool) -> None:
    """UsageError for flags that do not go together."""
    given = context.params
    if given["grpc_at"] is not None:
        import rmqctl.network.grpc.server  # noqa: F401 - before anything is opened: what to install is said where it is missing

    if given["users"] is not None and given["ephemeral"] and not given["users"].name:
        raise click.UsageError("--ephemeral makes a store without users: name a file after --auth")
    if given["ephemeral"] and context.get_parameter_source("store_path") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--ephemeral makes a store of its own: leave out -s")
    if not writable and (given["create"] or given["clean"] or given["recover"] or given["topics"]):
        raise click.UsageError("--topic, --create, --clean and --recover go with --writable")
    if writable and given["as_recovered"] is not None:
        raise click.UsageError("--as-recovered and --as-stored go without --writable")
    if given["tls_key"] is not None and given["tls_cert"] is None:
        raise click.UsageError("--tls-key goes with --tls-cert")


def _tell_of_strangers(given: dict[str, Any], tell: _Teller, *, writable: bool) -> None:
    """Say what those can do who reach an address that is not this machine's alone."""
    from rmqctl.network.serving import is_loopback

    doing = "read, send and delete messages" if writable else "read all messages"
    doings = dict.fromkeys((given["listen"], given["namesrv"], given["grpc_at"]), f"can {doing}")
    if given["users"] is not None:
        doings = {given["namesrv"]: "can read the routes"}
    doings |= {given["ha_listen"]: "can copy the whole log"}
    doings = {at: f"{what}: there is no authentication" for at, what in doings.items()}
    doings |= {given["metrics"]: "can read the page of metrics, which has no text of the store"}
    for line in sorted({f"{at[0]} {what}" for at, what in doings.items() if at and not is_loopback(at[0])}):
        tell(f"any client that reaches {line}")


def _tell_of_users(path: Path, tell: _Teller) -> None:
    """Say where a broker would refuse who is served here."""
    from rmqctl.store.config.accounts import has_accounts

    if has_accounts(path / "config"):
        tell("the store has users, and clients need no signature: with --auth only those who may read are served")


class _Places(NamedTuple):
    """Taken addresses, name servers to register at, the TLS certificate, and the check of requests."""

    on: Listening
    register_at: str | None
    tls: ssl.SSLContext | None
    guard: Guard | None = None


def _guard(path: Path, identity: BrokerIdentity) -> Guard:
    """Return what refuses requests by the users of a store, or of a file. RefusedError if no user could log in."""
    from rmqctl.formats.errors import RefusedError
    from rmqctl.network.remoting.authentication import Guard
    from rmqctl.output.output import talk
    from rmqctl.store.config.accounts import DISABLE, accounts_of, accounts_of_files

    accounts = accounts_of_files(path) if path.is_file() else accounts_of(path)
    for problem in accounts.problems:
        talk(f"{problem.place}: {problem.text}")
    if all(user.status == DISABLE for user in accounts.users.values()):
        raise RefusedError("--auth: no user can log in, all requests would be refused", file=path)
    return Guard(accounts, identity.cluster)


class _Teller:
    """Lines for the operator of the server, on stderr, as JSON with --json. `say` never blocks."""

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
    as_recovered: bool | None,
) -> None:
    from rmqctl.network.broker.broker import Broker
    from rmqctl.opening import open_store

    with contextlib.ExitStack() as made:
        opened = made.enter_context(open_store(store, tell))
        shown = _shown(made, store, opened, tell, as_recovered)
        if shown != store:
            opened = made.enter_context(open_store(shown, tell))
        broker = Broker(opened.files, identity, tell, properties=properties)
        broker.tell_of_unserved()
        _run(broker, places, output, tell)


def _shown(
    made: contextlib.ExitStack, store: StoreLocation, opened: MessageStore, tell: _Teller, as_recovered: bool | None
) -> StoreLocation:
    """Return what is served: the store, or its view as a recovery would leave it where that is asked for or differs."""
    from rmqctl.opening import recovered
    from rmqctl.store.recover.view import looks_unrecovered

    try:
        if looks_unrecovered(opened.files) if as_recovered is None else as_recovered:
            return made.enter_context(recovered(opened.files, store, tell))
    except RmqctlError as error:
        if as_recovered:
            raise
        tell(f"served as it is stored: {error}")
    return store


def _serve_writable(
    store: StoreLocation,
    identity: BrokerIdentity,
    properties: dict[str, str],
    places: _Places,
    output: Output,
    tell: _Teller,
    create: bool,
    clean: bool,
    topics: tuple[str, ...],
) -> None:
    from rmqctl.network.broker.master_broker import MasterBroker
    from rmqctl.network.broker.settings import written_by
    from rmqctl.network.serving import store_host
    from rmqctl.network.topic_config import topic_from_text
    from rmqctl.opening import broker_config, listen, naming_create, noting_stored
    from rmqctl.output.terminal import progress
    from rmqctl.store.message_store import MessageStore

    listen(tell)
    config = written_by(identity.release, broker_config(store, tell))
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
            if topics:
                queues = broker.settings.default_topic_queue_nums
                broker.have_topics([topic_from_text(text, queues) for text in topics])
            _run(broker, places, output, tell)
        finally:
            broker.close()


def _run(broker: Broker, places: _Places, output: Output, tell: _Teller) -> None:
    import asyncio

    from rmqctl.network.serving import serve as serve_until

    def ready(at: Ready) -> None:
        if output.is_json:
            line = {"namesrv": at.namesrv, "broker": at.broker, "writable": broker.is_writable}
            more = {"metrics": at.metrics, "slaves": at.slaves, "grpc": at.grpc}
            output.record(line | {name: place for name, place in more.items() if place is not None})
        else:
            how = "writable" if broker.is_writable else "read-only"
            page = "" if at.metrics is None else f", metrics at http://{at.metrics}/metrics"
            slaves = "" if at.slaves is None else f", for slaves {at.slaves}"
            calls = "" if at.grpc is None else f", gRPC {at.grpc}"
            output.text(said(f"name server {at.namesrv}, broker {at.broker}{calls}{slaves}, {how}{page}"))
        output.flush()

    broker.guard = places.guard

    async def run() -> None:
        end = asyncio.Event()
        for number in ending_signals():
            asyncio.get_running_loop().add_signal_handler(number, end.set)
        watched = _watcher(tell)
        # kept: a task that nobody holds may be collected
        settling = asyncio.create_task(_settle())
        await serve_until(
            broker, places.on, tell, ready, end.wait, watched=watched, register_at=places.register_at, tls=places.tls
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
    """Reports events: a line on a terminal, an object with --json; otherwise nothing."""

    def told(before: Seen, now: Seen, seconds: float) -> None:
        line = _traffic_line(before, now, seconds)
        if line is not None and tell.is_json:
            tell.log(seconds=round(seconds, 3), **now._asdict())
        elif line is not None:
            tell.say(line)

    return told if tell.is_json or (sys.stderr is not None and sys.stderr.isatty()) else None


def _traffic_line(before: Seen, now: Seen, seconds: float) -> str | None:
    """Return the events of the last `seconds` as a line; None without traffic and connections."""
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
