"""The server of the gRPC service: its port, its calls, and where topics are, in the loop of its broker."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import grpc

from rmqctl.formats.errors import RefusedError, counted
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.pop.service import PopBroker
from rmqctl.network.grpc.activities import Consuming, Halves, Producing
from rmqctl.network.grpc.clients import GrpcClient, GrpcClients, read, telemetry
from rmqctl.network.grpc.messages import accepted_types, set_milliseconds
from rmqctl.network.grpc.pops import Pops, ReadOnlyPops, StoredPops
from rmqctl.network.grpc.protocol import CALLS, SERVICE, AddressScheme, Code, Permission, v2
from rmqctl.network.grpc.service import OK, From, GrpcBroker, StatusError, caller_of, group_of, permit, topic_of
from rmqctl.network.remoting.requests import Shared, Tell
from rmqctl.network.remoting.server import Address, Seen, Traffic, bound
from rmqctl.network.remoting.tls import Admission, Listener, connections_left
from rmqctl.network.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from rmqctl.store.log.parallel import give_back_memory

# A port for gRPC over TLS and without, going by the first byte, as the ports of remoting are.
#
# The library of gRPC takes either at a port, so it listens at a socket of this machine, and what comes is handed on.

_BUFFER = 64 * 1024
_FIRST_BYTE_SECONDS = 120.0


class _End(asyncio.BufferedProtocol):
    """One end of a connection that is handed on: what comes here leaves at the other end."""

    def __init__(self, front: Front, other: _End | None = None) -> None:
        self._front = front
        self.other = other
        self.transport: asyncio.Transport | None = None
        # Python 3.11.2 reads from a transport that was paused as it was made
        self._early = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came, or the way to the service is there."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.other is None:
            self._front.ends.add(self)
            transport.pause_reading()
            self._task = asyncio.create_task(self._connect(transport))

    async def _connect(self, transport: asyncio.Transport) -> None:
        try:
            taken = await self._front.connected(transport.get_extra_info("peername"))
            _, self.other = await asyncio.get_running_loop().create_unix_connection(
                lambda: _End(self._front, self), sock=taken
            )
            if not transport.is_closing():
                self._hand_on(bytes(self._early))
                self._early.clear()
                transport.resume_reading()
                return
        except OSError as error:
            self._front.tell(f"a connection cannot be handed on: {error.strerror}")
        self.connection_lost(None)
        transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended: the other end does, too."""
        self._front.ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where bytes that come may be put: taken from there before any others come."""
        return self._front.incoming

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what came."""
        self._hand_on(bytes(self._front.incoming[:nbytes]))

    def _hand_on(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
        elif len(self._early) < _BUFFER:
            self._early += data
        elif self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        """What is handed on is not read: no more is taken."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """It is read again."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


class Front:
    """Takes connections at an address, and hands them on to `inside`, where the service listens."""

    def __init__(self, tls: ssl.SSLContext, most: int, tell: Tell) -> None:
        """`most`: connections at once."""
        self.tell = tell
        self.name = f"rmqctl-{secrets.token_hex(8)}"
        self.inside = f"unix-abstract:{self.name}"
        self.ends: set[_End] = set()
        self.incoming = memoryview(bytearray(_BUFFER))
        self._tls = tls
        self._admission = Admission(most, tell)
        self._admission.count(lambda: len(self.ends))
        self._numbers = itertools.count()
        self._listener: Listener | None = None

    async def listen(self, host: str, port: int) -> Address:
        """Take connections; port 0 is any free one. RefusedError where that cannot be."""
        taken = bound(host, port)
        address = taken.getsockname()
        self._listener = Listener(
            taken, self._tls, lambda: _End(self), self.tell, self._admission, _FIRST_BYTE_SECONDS, lambda: None
        )
        return address[0], address[1]

    async def connected(self, peer: Address | None) -> socket.socket:
        """Return a socket that is connected to the service, and bound to a name that tells it the client's address."""
        host, port = (peer or ("gone", 0))[:2]
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            taken.setblocking(False)
            taken.bind(f"\0{self.name}-{next(self._numbers)}/{where}")
            await asyncio.get_running_loop().sock_connect(taken, f"\0{self.name}")
        except OSError:
            taken.close()
            raise
        return taken

    async def close(self) -> None:
        """Take no more connections, and end those there are."""
        if self._listener is not None:
            await self._listener.close()
        for end in list(self.ends):
            if end.transport is not None:
                end.transport.close()


# Where topics are, and which queues consumers are to ask (RouteActivity).

_MOST_ADDRESSES = 64


def _endpoints(service: GrpcBroker, given: Any) -> Any:
    """Return where the client reaches us: at the hosts that it named, and at our port."""
    hosts = [one.host for one in given.addresses[:_MOST_ADDRESSES]] or [service.broker.identity.host]
    addresses = [v2.Address(host=host, port=service.port) for host in hosts]
    return v2.Endpoints(scheme=given.scheme or AddressScheme.IPv4, addresses=addresses)


def _topic(broker: Broker, resource: Any) -> TopicConfig:
    name = topic_of(resource)
    found = broker.routes().get(name)
    if found is None:
        raise StatusError(Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {name}")
    return found


def _queue(topic: Any, queue_id: int, permission: Permission, broker: Any) -> Any:
    return v2.MessageQueue(topic=topic, id=queue_id, permission=permission, broker=broker)


async def query_route(service: GrpcBroker, request: Any) -> Any:
    """Name every queue of a topic: those for both first, then those for one alone."""
    topic = _topic(service.broker, request.topic)
    endpoints = _endpoints(service, request.endpoints)
    broker = v2.Broker(name=service.broker.identity.name, endpoints=endpoints)
    reads = topic.read_queue_nums if topic.perm & PERM_READ else 0
    writes = topic.write_queue_nums if topic.perm & PERM_WRITE else 0
    both = min(reads, writes)
    alone = Permission.READ if reads > writes else Permission.WRITE
    queues = [
        _queue(request.topic, number, Permission.READ_WRITE if number < both else alone, broker)
        for number in range(max(reads, writes))
    ]
    for queue in queues:
        queue.accept_message_types.extend(accepted_types(topic))
    return v2.QueryRouteResponse(status=OK, message_queues=queues)


async def query_assignment(service: GrpcBroker, request: Any) -> Any:
    """Name the queues that a member of a group is to ask: all at once, for one that consumes in order one by one."""
    topic = _topic(service.broker, request.topic)
    group = service.broker.group(group_of(request.group))
    if not topic.perm & PERM_READ or not topic.read_queue_nums:
        raise StatusError(Code.FORBIDDEN, "no readable queue")
    broker = v2.Broker(name=service.broker.identity.name, endpoints=_endpoints(service, request.endpoints))
    permission = Permission.READ_WRITE if topic.perm & PERM_WRITE else Permission.READ
    numbers = range(topic.read_queue_nums) if group["consumeMessageOrderly"] is True else (-1,)
    assignments = [v2.Assignment(message_queue=_queue(request.topic, one, permission, broker)) for one in numbers]
    return v2.QueryAssignmentResponse(status=OK, assignments=assignments)


_OPTIONS = (
    # another process must not get a part of the connections
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.absolute_max_metadata_size", 32 * 1024),
    ("grpc.max_connection_idle_ms", 120_000),
    ("grpc.max_concurrent_streams", 1000),
)
_MOST_CONNECTIONS = 5000
_MOST_CALLS = 10_000
_EXPIRE_SECONDS = 5.0
_GRACE_SECONDS = 1.0
_Served = Callable[[Any, GrpcClient], Awaitable[Any]]


class GrpcServer:
    """Serves a broker to gRPC clients; what it asks of the broker goes the way of remoting's requests."""

    def __init__(self, broker: Broker, shared: Shared, tell: Tell) -> None:
        self.service = GrpcBroker(broker, shared, tell)
        self.answered = Counter[tuple[str, str]]()
        """How often a call was answered with a status."""
        self.traffic = Traffic()
        halves = Halves()
        self.clients = GrpcClients(broker, halves.asked, self._gone)
        producing = Producing(self.service, halves)
        self._served: dict[str, _Served] = {
            "QueryRoute": lambda request, _: query_route(self.service, request),
            "QueryAssignment": lambda request, _: query_assignment(self.service, request),
            "SendMessage": producing.send,
            "EndTransaction": producing.end_transaction,
            "RecallMessage": producing.recall,
            "NotifyClientTermination": self._terminated,
            "Heartbeat": self._heartbeat,
            "SyncLiteSubscription": _not_implemented,
        }
        pops: Pops = StoredPops(self.service, broker) if isinstance(broker, PopBroker) else ReadOnlyPops(broker)
        self._consuming = Consuming(self.service, pops)
        self._served |= {
            "AckMessage": self._consuming.acknowledge,
            "ChangeInvisibleDuration": self._consuming.change_invisible,
            "ForwardMessageToDeadLetterQueue": self._consuming.forward,
        }
        self._guard = MemoryGuard(tell)
        handlers = {name: self._handler(name, self._unary, is_short=True) for name in self._served}
        handlers["ReceiveMessage"] = self._handler("ReceiveMessage", self._receive, is_short=False)
        handlers["Telemetry"] = self._handler("Telemetry", self._telemetry, is_short=False)
        self._server = grpc.aio.server(
            options=[*_OPTIONS, ("grpc.max_allowed_incoming_connections", connections_left(_MOST_CONNECTIONS))],
            maximum_concurrent_rpcs=_MOST_CALLS,
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self._tasks: list[asyncio.Task[None]] = []
        self._front: Front | None = None
        self.address = ""
        """Where it listens, as `host:port`."""

    def seen(self) -> Seen:
        """What went through so far; what waits is counted where the broker's requests are."""
        return Seen(len(self.clients), self.answered.total(), self.traffic.bytes_in, self.traffic.bytes_out, 0)

    # ---- begin and end

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Take connections at an address, with `tls` encrypted ones, too; port 0 is any free one. RefusedError where
        that cannot be."""
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if tls is not None:
            self._front = Front(tls, connections_left(_MOST_CONNECTIONS), self.service.tell)
            self.service.port = (await self._front.listen(host, port))[1]
        try:
            taken = self._server.add_insecure_port(where if self._front is None else self._front.inside)
        except RuntimeError as error:
            raise RefusedError(
                f"cannot listen at {where}", hint="name another address, or port 0 for any free port"
            ) from error
        self.service.port = self.service.port or taken
        self.address = f"{where.rpartition(':')[0]}:{self.service.port}"
        await self._server.start()
        self._tasks = [asyncio.create_task(self._expire()), asyncio.create_task(self._guard.watch())]

    async def close(self) -> None:
        """Take no more calls, and end those there are."""
        for task in self._tasks:
            task.cancel()
        # the calls end before the loop does
        self._guard.end_all()
        if self._front is not None:
            await self._front.close()
        await self._server.stop(_GRACE_SECONDS)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_SECONDS)
            self.clients.expire()
            await self._consuming.renew()

    # ---- calls

    def _handler(self, name: str, served: Callable[[Any, Any], Coroutine[Any, Any, Any]], *, is_short: bool) -> Any:
        """Return what serves a call. All take streams: so a request is only read once the call is known, and one that
        never comes to its end can be ended."""
        call, traffic = CALLS[name], self.traffic

        async def serve(_: Any, context: Any) -> Any:
            return await self._guard.serve(served(name, context), context, is_short=is_short)

        def read_in(data: bytes) -> Any:
            traffic.bytes_in += len(data)
            return call.request.FromString(data)

        def written(answer: Any) -> bytes:
            data: bytes = answer.SerializeToString()
            traffic.bytes_out += len(data)
            return data

        made = grpc.stream_unary_rpc_method_handler if is_short else grpc.stream_stream_rpc_method_handler
        return made(serve, request_deserializer=read_in, response_serializer=written)

    def _count(self, name: str, status: Any) -> None:
        self.answered[name, Code(status.code).name] += 1

    def _permit(self, name: str, request: Any, who: From) -> None:
        guard = self.service.broker.guard
        if guard is not None:
            permit(guard, name, request, who)

    async def _unary(self, name: str, context: Any) -> Any:
        request = await read(context)
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "there is no request")
        try:
            who = caller_of(context)
            self._permit(name, request, who)
            answer = await self._served[name](request, self.clients.find(who))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            answer = CALLS[name].answer(status=self.service.failed(name, error))
        self._count(name, answer.status)
        return answer

    async def _receive(self, name: str, context: Any) -> None:
        request = await read(context)
        if request is None:
            return
        try:
            who = caller_of(context)
            self._permit(name, request, who)
            client = self.clients.find(who)
            answers = self._consuming.receive(request, client, context.time_remaining())
            # closed where the client goes: others get what it did not take
            async with contextlib.aclosing(answers):
                async for one in answers:
                    if one.HasField("status"):
                        self._count(name, one.status)
                    await context.write(one)
        except Exception as error:  # noqa: BLE001 - as above
            failed = v2.ReceiveMessageResponse(status=self.service.failed(name, error))
            self._count(name, failed.status)
            await context.write(failed)
        last = v2.ReceiveMessageResponse()
        set_milliseconds(last.delivery_timestamp, self.service.broker.clock())
        await context.write(last)

    async def _telemetry(self, _: str, context: Any) -> None:
        try:
            who = caller_of(context)
            await telemetry(self.clients, who, context, lambda command: self._permit("Telemetry", command, who))
        except StatusError as error:
            is_internal = error.code == Code.INTERNAL_SERVER_ERROR
            code = grpc.StatusCode.INTERNAL if is_internal else grpc.StatusCode.INVALID_ARGUMENT
            await context.abort(code, error.message)

    async def _heartbeat(self, request: Any, client: GrpcClient) -> Any:
        self.clients.heartbeat(client)
        if client.group:
            group_of(request.group)
        return v2.HeartbeatResponse(status=OK)

    async def _terminated(self, request: Any, client: GrpcClient) -> Any:
        self.clients.heartbeat(client)
        if client.group:
            group_of(request.group)
        self.clients.end(client.client_id)
        return v2.NotifyClientTerminationResponse(status=OK)

    def _gone(self, client: GrpcClient) -> None:
        self._consuming.gone(client)


async def _not_implemented(request: Any, client: GrpcClient) -> Any:
    raise StatusError(Code.NOT_IMPLEMENTED, "lite topics are not supported")


# Keeps clients from filling the memory with requests that never end and answers that are never read. gRPC's library
# holds a message until all of it is there, and does not say how much that is: so the memory of the process is watched.
# Where it grows by too much, calls that are under way for longer than usual end.
_LOOK_SECONDS = 0.2
_MOST_GROWTH = 256 * 1024 * 1024
# nearly all requests are there, and nearly all answers gone, within this time
_USUAL_SECONDS = 0.1
_LONGEST_SECONDS = 60.0
_MOST_IDLE = 5


def _anonymous_bytes() -> int:
    """Return the memory of this process that no file has; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


class MemoryGuard:
    """The calls that are under way: `short` ones, which read a request and answer it, and streams of telemetry."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._short: dict[asyncio.Task[Any], float] = {}
        self._streams: dict[asyncio.Task[Any], float] = {}
        self._ended: set[asyncio.Task[Any]] = set()
        self._usual = _anonymous_bytes()

    async def serve(self, call: Coroutine[Any, Any, Any], context: Any, *, is_short: bool) -> Any:
        """Serve a call until it ends, or is ended here: with an error that clients know as one of overload.

        It is served in the task that the library has for it: one more would cost a tenth of a send.
        """
        calls, task = self._short if is_short else self._streams, asyncio.current_task()
        assert task is not None
        calls[task] = time.monotonic()
        try:
            return await call
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the call takes too long, or the server ends")
        finally:
            calls.pop(task, None)
            self._ended.discard(task)

    def end_all(self) -> None:
        """End every call."""
        self._end((*self._short, *self._streams))

    def _end(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        for task in tasks:
            self._ended.add(task)
            task.cancel()

    async def watch(self) -> None:
        """Look at the memory from time to time, for ever."""
        looks = idle = 0
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now, used = time.monotonic(), _anonymous_bytes()
            self._usual = min(self._usual, used)
            is_too_much = used - self._usual > _MOST_GROWTH
            longest = _USUAL_SECONDS if is_too_much else _LONGEST_SECONDS
            # streams are long by nature: they end where the memory is not free without them
            calls = {**self._short, **self._streams} if is_too_much and looks else self._short
            ended = [task for task, begun in calls.items() if now - begun > longest]
            self._end(ended)
            if not is_too_much:
                looks = idle = 0
                continue
            looks, idle = looks + 1, 0 if ended else idle + 1
            if ended:
                self._tell(f"memory grows: {counted(len(ended), 'call')} of gRPC that took long ended")
            await asyncio.sleep(_LOOK_SECONDS)
            give_back_memory()
            if idle >= _MOST_IDLE:
                # no call has it: this is what the broker needs
                self._usual = _anonymous_bytes()
