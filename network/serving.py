"""Name server and broker of one store, at their addresses, until they are told to end."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError
from rmqctl.formats.hosts import Host
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.services import SERVICES as BROKER_SERVICES
from rmqctl.network.nameserver.name_server import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.nameserver.name_server import NameServer
from rmqctl.network.remoting.server import Address, RemotingServer
from rmqctl.network.remoting.services import Processor, Tell
from rmqctl.store.read.frames import message_at

_TICK_SECONDS = 5.0
_LARGEST_PORT = 65535


class Ready(NamedTuple):
    """Where the two listen, as `host:port`."""

    namesrv: str
    broker: str


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
    name_server_at: Address,
    broker_at: Address,
    tell: Tell,
    on_ready: Callable[[Ready], None],
    ended: Callable[[], Awaitable[Any]],
) -> None:
    """Serve until `ended` returns. RefusedError where an address cannot be had; `on_ready` hears where they are."""
    name_server = NameServer(broker.clock)
    brokers = RemotingServer(Processor(broker, BROKER_SERVICES, tell), tell, on_lost=broker.lost)
    name_servers = RemotingServer(Processor(name_server, NAME_SERVER_SERVICES, tell), tell)
    try:
        own = await brokers.listen(*broker_at)
        broker.identity = identity = broker.identity._replace(host=own[0], port=own[1])
        name_server.routes.add_own(identity.cluster, identity.name, identity.address, broker.topics.routes)
        at = await name_servers.listen(*name_server_at)
        name_server.port = at[1]
        await _listen_where_ids_point(broker, brokers, own, tell)
        on_ready(Ready(host_and_port(at), host_and_port(own)))
        await _until(ended(), _tick(broker, name_server))
    finally:
        await name_servers.close()
        await brokers.close()


async def _until(ended: Awaitable[Any], ticking: Coroutine[Any, Any, None]) -> None:
    """Tick until the end; what goes wrong with it is raised at once."""
    tasks = [asyncio.ensure_future(ended), asyncio.create_task(ticking)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


async def _tick(broker: Broker, name_server: NameServer) -> None:
    while True:
        await asyncio.sleep(_TICK_SECONDS)
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


def _address_of(host: Host) -> Address:
    return str(ipaddress.ip_address(host.ip)), host.port


def last_store_host(broker: Broker) -> Host | None:
    """The store host of a message at the end of a queue; None where there is none to be read."""
    for queue in broker.files.queues.all():
        unit = queue.unit(queue.max_offset - 1) if queue.max_offset else None
        if unit is None or not unit.is_written or unit.end != broker.log_end:
            continue
        try:
            return message_at(broker.files.log, unit.physical_offset, unit.size).store_host
        except (CorruptError, NotFoundError):
            continue
    return None
