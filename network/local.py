"""A broker and its name server in this process, without a socket: for producers and consumers on an open store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rmqctl.formats.errors import RemoteError
from rmqctl.network.broker.broker import wall_clock
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.services import MASTER_SERVICES
from rmqctl.network.broker.tables.identity import BrokerIdentity
from rmqctl.network.clients.channel import Answers
from rmqctl.network.nameserver.name_server import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.nameserver.name_server import NameServer
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.server import Limits
from rmqctl.network.remoting.services import Processor, Tell
from rmqctl.network.remoting.session import Session, Shared
from rmqctl.network.serving import go_on, wake_on_news
from rmqctl.store.message_store import MessageStore


class LocalBroker:
    """Serves an open store to clients in this process. A context manager; the store is closed by whoever opened it.

    `namesrv` is what a Producer or Consumer is given as the name server's address, and `dial` how it is reached:
    `Producer(local.namesrv, dial=local.dial)`.
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
        """Errors as for MasterBroker. `tell` takes lines for whoever looks after it."""
        self.broker = MasterBroker(store, identity or BrokerIdentity(), tell, clock, properties)
        self._name_server = NameServer(self.broker.elapsed)
        self._name_server.routes.add_own(
            self.broker.identity.cluster,
            self.broker.identity.name,
            self.broker.identity.address,
            self.broker.routes,
        )
        limits = Limits()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="slow-requests")
        bounds = self._executor, limits.slow_requests, limits.suspended
        self._shared = Shared(Processor(self.broker, MASTER_SERVICES, tell), *bounds)
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
        """Take the client's answer to a request of ours. In the thread of the loop."""
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

    def send(self, command: RemotingCommand) -> None:
        """See Channel."""
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
