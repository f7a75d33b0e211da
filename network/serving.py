"""Name server and broker of one store, at their addresses, until they are told to end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Set
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, UnreadableError, UsageError
from rmqctl.formats.hosts import Host
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.services import MASTER_SERVICES, known_to
from rmqctl.network.broker.services import SERVICES as BROKER_SERVICES
from rmqctl.network.broker.writable_broker import WritableBroker
from rmqctl.network.ha.log_source import LogSource
from rmqctl.network.ha.master_server import MasterServer
from rmqctl.network.nameserver.name_server import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.nameserver.name_server import NameServer
from rmqctl.network.registering import Registrar
from rmqctl.network.remoting.admission import Admission, connections_left
from rmqctl.network.remoting.server import Address, Limits, RemotingServer
from rmqctl.network.remoting.services import Caller, Processor, Tell
from rmqctl.network.remoting.waiting import Waiting
from rmqctl.network.unique_ids import own_address
from rmqctl.network.watching import Watched, metrics, serve_metrics, watch
from rmqctl.store.read.frames import message_at
from rmqctl.store.survey.tail import settled_end

_TICK_SECONDS = 5.0
_STEP_SECONDS = 0.1
# between two steps clients have their turn
_SOON_SECONDS = 0.005
_LARGEST_PORT = 65535
_VIP_PORTS_BELOW = 2


class Ready(NamedTuple):
    """Where they listen, as `host:port`; None for what nobody asked for. `slaves`: where these find the log."""

    namesrv: str
    broker: str
    metrics: str | None = None
    slaves: str | None = None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`; a name counts as if others could, but for localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_and_port(address: Address) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


async def serve(
    broker: Broker,
    name_server_on: socket.socket,
    broker_on: socket.socket,
    tell: Tell,
    on_ready: Callable[[Ready], None],
    ended: Callable[[], Awaitable[Any]],
    *,
    metrics_on: socket.socket | None = None,
    slaves_on: socket.socket | None = None,
    vip_on: socket.socket | None = None,
    watched: Watched | None = None,
    register_at: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve on two sockets (see `bound`) until `ended` returns; `on_ready` hears where they are.

    On further ones there are a page of metrics, the log for slaves, and the broker's requests once more (`vip_on`);
    `watched` hears every second what was seen.
    `register_at`: other name servers, separated by `;`, that are told of the broker. With `tls` clients may speak TLS.
    """
    name_server = NameServer(broker.elapsed, release=broker.identity.release)
    brokers, name_servers = _servers(broker, name_server, tell, tls)
    pages: asyncio.Server | None = None
    registrar: Registrar | None = None
    master: MasterServer | None = None

    def ha_address(caller: Caller) -> str | None:
        # known once slaves are served
        return broker.identity.ha_address(caller)

    try:
        own = await brokers.listen_on(broker_on)
        broker.identity = identity = broker.identity._replace(host=own[0], port=own[1])
        name_server.routes.add_own(identity.cluster, identity.name, identity.address, broker.routes, ha_address)
        at = await name_servers.listen_on(name_server_on)
        name_server.host, name_server.port = at
        broker.name_servers = ";".join([host_and_port(at), *([register_at] if register_at else [])])
        await _listen_where_ids_point(broker, brokers, own, tell)
        if vip_on is not None:
            await brokers.listen_on(vip_on)
        if slaves_on is not None:
            master = await _serve_slaves(broker, brokers, slaves_on, own if vip_on is None else None, tell)
        if isinstance(broker, MasterBroker):
            wake_on_news(broker, asyncio.get_running_loop(), brokers.shared.waiting)
        servers = {"broker": brokers, "name_server": name_servers}
        if metrics_on is not None:
            pages = await serve_metrics(metrics_on, lambda: metrics(servers, broker))
        ticking = (
            [go_on(broker, name_server)] if watched is None else [go_on(broker, name_server), watch(servers, watched)]
        )
        if register_at:
            registrar = Registrar(register_at, broker, _address_for_others(own, broker.properties.get("brokerIP1")))
            ticking.append(registrar.keep_on())
        metrics_at = None if metrics_on is None else host_and_port(metrics_on.getsockname()[:2])
        slaves_at = None if master is None else host_and_port(master.address)
        on_ready(Ready(host_and_port(at), host_and_port(own), metrics_at, slaves_at))
        await _until(ended(), *ticking)
    finally:
        if registrar is not None:
            await asyncio.to_thread(registrar.leave)
        if pages is not None:
            pages.close()
        if master is not None:
            await asyncio.to_thread(master.close)
        await name_servers.close()
        await brokers.close()


async def _serve_slaves(
    broker: Broker, server: RemotingServer, taken: socket.socket, own: Address | None, tell: Tell
) -> MasterServer:
    """Have slaves follow the log; they ask for the tables of config/ two ports below the broker's `own`, too
    (MixAll#brokerVIPChannel), which is None where that port is listened at already."""
    log = broker.files.log
    if isinstance(broker, WritableBroker):
        source = LogSource(log, lambda: log.max_offset)
    else:
        # what is damaged behind the last whole message is handed on as well: it stays as it is
        broker.hand_on_up_to(settled_end(log))
        source = LogSource(log, lambda: broker.log_end)
    master = MasterServer(taken, source, broker.slaves, tell)
    try:
        if own is not None:
            await server.listen(own[0], own[1] - _VIP_PORTS_BELOW)
    except (RefusedError, OverflowError) as error:
        tell(f"slaves of RocketMQ cannot ask for topics, groups and offsets: {error}")
    broker.identity = broker.identity._replace(ha_host=master.address[0], ha_port=master.address[1])
    master.start()
    return master


def _servers(
    broker: Broker, name_server: NameServer, tell: Tell, tls: ssl.SSLContext | None
) -> tuple[RemotingServer, RemotingServer]:
    """Return what serves the broker's requests and the name server's; both share one bound of connections."""
    services = MASTER_SERVICES if isinstance(broker, MasterBroker) else BROKER_SERVICES
    release = broker.identity.release
    version, known = release.number, known_to(release, services)
    admission = Admission(connections_left(2 * Limits().connections), tell)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: admission.say(_failed_in_loop(context)))
    of_messages = Processor(broker, known, tell, release)
    of_names = Processor(name_server, known_to(release, NAME_SERVER_SERVICES), tell, release)
    brokers = RemotingServer(of_messages, tell, on_lost=broker.lost, tls=tls, admission=admission, version=version)
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
    """Have the pulls that wait for a queue woken, in the loop's thread, when it gets messages."""

    def told(keys: Set[tuple[str, int]]) -> None:
        # a loop that has ended has nobody who waits
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
