"""Name server and broker of one store, at their addresses, until the end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, RemoteError, UnreadableError, UsageError
from rmqctl.formats.message import Host
from rmqctl.network.broker.broker import Broker, WritableBroker, wall_clock
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.services import known_to, services_of
from rmqctl.network.broker.settings import BrokerIdentity
from rmqctl.network.clients.channel import SEND_SECONDS, Answers
from rmqctl.network.ha.master import LogSource, MasterServer, SlaveLimits
from rmqctl.network.nameserver import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.nameserver import NameServer
from rmqctl.network.registration import Registrar
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.requests import Caller, Processor, Session, Shared, Tell, Waiting
from rmqctl.network.remoting.server import VIP_PORTS_BELOW, Address, Limits, RemotingServer, bound, bound_pair
from rmqctl.network.remoting.tls import Admission, connections_left
from rmqctl.network.unique_ids import own_address
from rmqctl.network.watching import Watched, metrics, serve_metrics, watch
from rmqctl.store.log.survey import settled_end
from rmqctl.store.message_store import MessageStore
from rmqctl.store.read.frames import message_at

if TYPE_CHECKING:
    from rmqctl.network.grpc.server import GrpcServer

_TICK_SECONDS = 5.0
_STEP_SECONDS = 0.1
# between two steps clients have their turn
_SOON_SECONDS = 0.005
_LARGEST_PORT = 65535


class Ready(NamedTuple):
    """Addresses in use, as `host:port`; None for what was not requested. `slaves`: where these find the log."""

    namesrv: str
    broker: str
    metrics: str | None = None
    slaves: str | None = None
    grpc: str | None = None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`; a name counts as if others could, but for localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_and_port(address: Address) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


class Listening(NamedTuple):
    """The sockets to serve on (see `bound`): besides the two, a page of metrics, the log for slaves, and the broker's
    requests once more (`vip`). `grpc` keeps the address for gRPC clients, and does not listen."""

    name_server: socket.socket
    broker: socket.socket
    metrics: socket.socket | None = None
    slaves: socket.socket | None = None
    vip: socket.socket | None = None
    grpc: socket.socket | None = None


async def serve(
    broker: Broker,
    on: Listening,
    tell: Tell,
    on_ready: Callable[[Ready], None],
    ended: Callable[[], Awaitable[Any]],
    *,
    watched: Watched | None = None,
    register_at: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until `ended` returns; `on_ready` hears where. `watched` hears every second what was seen.

    `register_at`: other name servers, separated by `;`, at which the broker is registered. With `tls` clients may speak
    TLS.
    """
    name_server = NameServer(broker.elapsed, release=broker.identity.release)
    brokers, name_servers = _servers(broker, name_server, tell, tls)
    pages: asyncio.Server | None = None
    registrar: Registrar | None = None
    master: MasterServer | None = None
    calls: GrpcServer | None = None

    def ha_address(caller: Caller) -> str | None:
        # known once slaves are served
        return broker.identity.ha_address(caller)

    try:
        own = await brokers.listen_on(on.broker)
        broker.identity = identity = broker.identity._replace(host=own[0], port=own[1])
        name_server.routes.add_own(identity.cluster, identity.name, identity.address, broker.routes, ha_address)
        at = await name_servers.listen_on(on.name_server)
        name_server.host, name_server.port = at
        broker.queues_of = name_server.routes.queues_of
        broker.name_servers = ";".join([host_and_port(at), *([register_at] if register_at else [])])
        await _listen_where_ids_point(broker, brokers, own, tell)
        if on.vip is not None:
            await brokers.listen_on(on.vip)
        if on.slaves is not None:
            master = await _serve_slaves(broker, brokers, on.slaves, own if on.vip is None else None, tell)
        if isinstance(broker, MasterBroker):
            wake_on_news(broker, asyncio.get_running_loop(), brokers.shared.waiting)
        calls = await _serve_calls(broker, brokers.shared, on.grpc, tell, tls)
        servers = {"broker": brokers, "name_server": name_servers}
        if on.metrics is not None:
            pages = await serve_metrics(on.metrics, lambda: metrics(servers, broker, calls))
        counting = [one.seen for one in (brokers, name_servers, calls) if one is not None]
        ticking = [go_on(broker, name_server), *([] if watched is None else [watch(counting, watched)])]
        if register_at:
            registrar = Registrar(register_at, broker, _address_for_others(own, broker.properties.get("brokerIP1")))
            ticking.append(registrar.keep_on())
            broker.queues_of = registrar.queues_of
        metrics_at = None if on.metrics is None else host_and_port(on.metrics.getsockname()[:2])
        slaves_at = None if master is None else host_and_port(master.address)
        calls_at = None if calls is None else calls.address
        on_ready(Ready(host_and_port(at), host_and_port(own), metrics_at, slaves_at, calls_at))
        await _until(ended(), *ticking)
    finally:
        if registrar is not None:
            await asyncio.to_thread(registrar.leave)
        if pages is not None:
            pages.close()
        if master is not None:
            await asyncio.to_thread(master.close)
        if calls is not None:
            await calls.close()
        await name_servers.close()
        await brokers.close()


async def _serve_calls(
    broker: Broker, shared: Shared, kept: socket.socket | None, tell: Tell, tls: ssl.SSLContext | None
) -> GrpcServer | None:
    """Serve gRPC clients at an address, if one is kept."""
    if kept is None:
        return None
    from rmqctl.network.grpc.server import GrpcServer

    calls = GrpcServer(broker, shared, tell)
    with kept:
        host, port = kept.getsockname()[:2]
    await calls.listen(host, port, tls)
    return calls


async def _serve_slaves(
    broker: Broker, server: RemotingServer, taken: socket.socket, own: Address | None, tell: Tell
) -> MasterServer:
    """Let slaves follow the log; they ask for the tables of config/ two ports below the broker's `own`, too
    (MixAll#brokerVIPChannel), which is None if that port is used already."""
    log = broker.files.log
    if isinstance(broker, WritableBroker):
        source = LogSource(log, lambda: log.max_offset)
    else:
        # what is damaged behind the last whole message is handed on as well: it stays as it is
        broker.hand_on_up_to(settled_end(log))
        source = LogSource(log, lambda: broker.log_end)
    settings = broker.settings
    limits = SlaveLimits(
        batch=settings.ha_transfer_batch_size,
        heartbeat=settings.ha_send_heartbeat_interval / 1000,
        silence=settings.ha_housekeeping_interval / 1000,
        rate=settings.max_ha_transfer_byte_in_second if settings.ha_flow_control_enable else None,
    )
    master = MasterServer(taken, source, broker.slaves, tell, limits)
    try:
        if own is not None:
            await server.listen(own[0], own[1] - VIP_PORTS_BELOW)
    except (RefusedError, OverflowError) as error:
        tell(f"slaves of RocketMQ cannot ask for topics, groups and offsets: {error}")
    broker.identity = broker.identity._replace(ha_host=master.address[0], ha_port=master.address[1])
    master.start()
    return master


def _servers(
    broker: Broker, name_server: NameServer, tell: Tell, tls: ssl.SSLContext | None
) -> tuple[RemotingServer, RemotingServer]:
    """Return what serves the broker's requests and the name server's; both share one bound of connections."""
    release = broker.identity.release
    version, known = release.number, services_of(writable=broker.is_writable, release=release)
    admission = Admission(connections_left(2 * Limits().connections), tell)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: admission.say(_failed_in_loop(context)))
    of_messages = Processor(broker, known, tell, release)
    of_messages.intercept = broker.intercept
    of_messages.guard = None if broker.guard is None else broker.guard.check
    of_names = Processor(name_server, known_to(release, NAME_SERVER_SERVICES), tell, release)
    limits = Limits(idle_seconds=broker.settings.server_channel_max_idle_time_seconds)
    brokers = RemotingServer(
        of_messages, tell, limits, on_lost=broker.lost, tls=tls, admission=admission, version=version
    )
    broker.slow_requests = lambda: brokers.shared.slow
    return brokers, RemotingServer(
        of_names, tell, on_lost=name_server.lost, tls=tls, admission=admission, version=version
    )


def _failed_in_loop(context: dict[str, Any]) -> str:
    """Return in a line what asyncio found wrong outside of any request, such as an accept without descriptors."""
    error = context.get("exception")
    said = str(context.get("message", "the loop failed"))
    return said if error is None else f"{said}: {type(error).__name__}: {error}"


def wake_on_news(broker: MasterBroker, loop: asyncio.AbstractEventLoop, waiting: Waiting) -> None:
    """Have what waits for a queue woken, in the loop's thread, when it gets messages."""
    broker.wake = waiting.wake

    def told(keys: Set[tuple[str, int]]) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(waiting.wake, keys)

    broker.store.tell_arrivals(told)


async def _until(ended: Awaitable[Any], *ticking: Coroutine[Any, Any, None]) -> None:
    """Tick until the end; what goes wrong with it is raised at once."""
    tasks = [asyncio.ensure_future(ended), *map(asyncio.create_task, ticking)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


async def go_on(broker: Broker, name_server: NameServer) -> None:
    """What goes on by itself: small steps often, the rest from time to time."""
    is_master = isinstance(broker, MasterBroker)
    ticked = time.monotonic()
    while True:
        is_behind = isinstance(broker, MasterBroker) and broker.is_behind
        await asyncio.sleep(_SOON_SECONDS if is_behind else _STEP_SECONDS if is_master else _TICK_SECONDS)
        if isinstance(broker, MasterBroker):
            broker.step()
        if time.monotonic() - ticked >= _TICK_SECONDS or not is_master:
            ticked = time.monotonic()
            broker.tick()
            name_server.tick()


async def _listen_where_ids_point(broker: Broker, server: RemotingServer, own: Address, tell: Tell) -> None:
    """Clients look a message up at the address inside its offset id: be there too, if that opens no new door."""
    host = last_store_host(broker)
    if host is None or not 0 < host.port <= _LARGEST_PORT:
        return
    pointed_at = _address_of(host)
    if pointed_at == own or (pointed_at[1] == own[1] and own[0] in ("0.0.0.0", "::")):
        return
    if is_loopback(pointed_at[0]) or pointed_at[0] == own[0]:
        try:
            await server.listen(*pointed_at)
        except RefusedError as error:
            tell(f"offset ids of the store's messages cannot be asked for by clients: {error.message}")
    else:
        where = host_and_port(pointed_at)
        tell(f"clients look messages up by offset id at {where}, where nothing listens; --listen {where} would")


def store_host(taken: socket.socket, ip: str | None) -> Host:
    """What messages get as their store host: where the broker listens; `ip` (brokerIP1) or, listening at all addresses,
    the one that others see."""
    address, port = taken.getsockname()[:2]
    if ip is None and address in ("0.0.0.0", "::"):
        ip = own_address()
    try:
        return Host(ipaddress.ip_address(ip or address).packed, port)
    except ValueError as error:
        raise UsageError(f"brokerIP1={ip} is no address", hint="write it as 10.0.0.1") from error


def _address_for_others(own: Address, ip: str | None) -> str:
    """Where clients of other name servers reach the broker; `ip` as for `store_host`."""
    if ip is None and own[0] in ("0.0.0.0", "::"):
        ip = own_address()
    return host_and_port((ip or own[0], own[1]))


def _address_of(host: Host) -> Address:
    return str(ipaddress.ip_address(host.ip)), host.port


def last_store_host(broker: Broker) -> Host | None:
    """The store host of the last message that a queue knows; None where that cannot be read."""
    unit = broker.last_unit
    try:
        return None if unit is None else message_at(broker.files.log, unit.physical_offset, unit.size).store_host
    except (CorruptError, NotFoundError, UnreadableError):
        return None


# A broker and its name server in a thread of this process, behind sockets: clients of any kind reach an open store.


class ListeningBroker:
    """Serves an open store at free ports. A context manager; the opener closes the store afterwards. Within it
    `namesrv` and `address` are the addresses of name server and broker for clients, as `host:port`.
    """

    def __init__(
        self,
        store: MessageStore,
        identity: BrokerIdentity | None = None,
        tell: Tell = lambda line: None,
        properties: dict[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
        register_at: str | None = None,
        clock: Callable[[], int] = wall_clock,
        ports: tuple[int, ...] = (0, 0),
    ) -> None:
        """Errors as for MasterBroker. `register_at`: other name servers. `ports`: of name server and broker; a third
        one is for gRPC clients, at the address `grpc`."""
        self.broker = MasterBroker(store, identity or BrokerIdentity(), tell, clock, properties)
        self._ports = ports
        self._tell = tell
        self._host = host
        self._register_at = register_at
        self._ready: Future[Ready] = Future()
        self._end: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="rmqctl-broker", daemon=True)
        self.namesrv = self.address = ""
        self.grpc: str | None = None

    def __enter__(self) -> ListeningBroker:
        """RefusedError where it cannot listen."""
        self._thread.start()
        try:
            at = self._ready.result()
        except BaseException:
            self.__exit__()
            raise
        self.namesrv, self.address, self.grpc = at.namesrv, at.broker, at.grpc
        return self

    def __exit__(self, *_: object) -> None:
        # a loop that has ended is not told
        with contextlib.suppress(RuntimeError):
            self._end()
        self._thread.join()
        self.broker.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            # whoever waits for it is told
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self._end = lambda: loop.call_soon_threadsafe(ended.set)
        broker_on, vip_on = bound_pair(self._host, self._ports[1], self._tell)
        with (
            broker_on,
            vip_on or contextlib.nullcontext(),
            bound(self._host, self._ports[0]) as name_server_on,
            contextlib.ExitStack() as kept,
        ):
            calls_on = [kept.enter_context(bound(self._host, port, listens=False)) for port in self._ports[2:]]
            await serve(
                self.broker,
                Listening(name_server_on, broker_on, vip=vip_on, grpc=calls_on[0] if calls_on else None),
                self._tell,
                self._ready.set_result,
                ended.wait,
                register_at=self._register_at,
            )


# A broker and its name server in this process, without a socket: for producers and consumers on an open store.


class LocalBroker:
    """Serves an open store to clients in this process. A context manager; the opener closes the store. Clients are
    given both of its places: `Producer(local.namesrv, dial=local.dial)`.
    """

    namesrv = "local"

    def __init__(
        self,
        store: MessageStore,
        identity: BrokerIdentity | None = None,
        tell: Tell = lambda line: None,
        clock: Callable[[], int] = wall_clock,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Errors as for MasterBroker. `tell` takes lines for the operator."""
        self.broker = MasterBroker(store, identity or BrokerIdentity(), tell, clock, properties)
        self._name_server = NameServer(self.broker.elapsed)
        self._name_server.routes.add_own(
            self.broker.identity.cluster, self.broker.identity.name, self.broker.identity.address, self.broker.routes
        )
        limits = Limits()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="slow-requests")
        bounds = self._executor, limits.slow_requests, limits.suspended
        self._shared = Shared(
            Processor(self.broker, services_of(writable=True, release=self.broker.identity.release), tell), *bounds
        )
        self._names = Shared(Processor(self._name_server, NAME_SERVER_SERVICES, tell), *bounds)
        self._loop = asyncio.new_event_loop()
        self._channels: set[LocalChannel] = set()
        self._thread = threading.Thread(target=self._run, name="rmqctl-broker", daemon=True)
        wake_on_news(self.broker, self._loop, self._shared.waiting)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        ticking = self._loop.create_task(go_on(self.broker, self._name_server))
        try:
            self._loop.run_forever()
        finally:
            ticking.cancel()
            self._loop.run_until_complete(_quietly(ticking))
            self._loop.close()

    def dial(self, address: str, answers: Answers) -> LocalChannel:
        """A channel to the name server, or to the broker under any other address."""
        shared = self._names if address == self.namesrv else self._shared
        channel = LocalChannel(self, shared, self._loop, answers)
        self._channels.add(channel)
        return channel

    def forget(self, channel: LocalChannel) -> None:
        """A client has ended its channel."""
        self._channels.discard(channel)
        self._loop.call_soon_threadsafe(self.broker.lost, channel.caller)

    def close(self) -> None:
        """End all clients' channels, then what goes on by itself; what is not written yet is written."""
        for channel in list(self._channels):
            channel.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._executor.shutdown()
        self.broker.close()

    def __enter__(self) -> LocalBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Caller:
    """A client in this process, as the broker sees it."""

    remote = "127.0.0.1:0"
    local_ip = "127.0.0.1"

    def __init__(self, answers: Answers, loop: asyncio.AbstractEventLoop) -> None:
        self._answers = answers
        self._loop = loop
        self._opaque = 0
        self._asked: dict[int, Future[RemotingCommand | None]] = {}

    def send(self, command: RemotingCommand) -> None:
        """See Caller."""
        self._answers.received(command)

    def ask(self, command: RemotingCommand, seconds: float) -> Future[RemotingCommand | None]:
        """See Caller. In the thread of the loop."""
        self._opaque += 1
        opaque = self._opaque
        future = self._asked[opaque] = Future[RemotingCommand | None]()
        self._loop.call_later(seconds, self.answered, opaque, None)
        self._answers.received(command._replace(opaque=opaque))
        return future

    def answered(self, opaque: int, answer: RemotingCommand | None) -> None:
        """Take the client's answer to a request. In the thread of the loop."""
        future = self._asked.pop(opaque, None)
        if future is not None:
            future.set_result(answer)


class LocalChannel:
    """A client's way to the broker, or to the name server."""

    def __init__(self, local: LocalBroker, shared: Shared, loop: asyncio.AbstractEventLoop, answers: Answers) -> None:
        self._local = local
        self._loop = loop
        self._answers = answers
        self.caller = _Caller(answers, loop)
        self._session = Session(shared, loop, self.caller, answers.received)
        self.is_open = True

    def send(self, command: RemotingCommand, seconds: float = SEND_SECONDS) -> None:
        """See Channel. Nothing is waited for."""
        if not self.is_open:
            raise RemoteError("the broker in this process has ended")
        if command.is_response:
            self._loop.call_soon_threadsafe(self.caller.answered, command.opaque, command)
        else:
            self._loop.call_soon_threadsafe(self._session.serve, command)

    def close(self) -> None:
        """See Channel."""
        if self.is_open:
            self.is_open = False
            self._loop.call_soon_threadsafe(self._session.close)
            self._local.forget(self)
            self._answers.lost("the channel is closed")


async def _quietly(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
