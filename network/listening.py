"""A broker and its name server in a thread of this process, behind sockets: clients of any kind reach an open store."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future

from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.tables.identity import BrokerIdentity
from rmqctl.network.remoting.server import bound
from rmqctl.network.remoting.services import Tell
from rmqctl.network.serving import Ready, serve
from rmqctl.store.message_store import MessageStore


class ListeningBroker:
    """Serves an open store at free ports. A context manager; the store is closed by whoever opened it, afterwards.

    Within it `namesrv` is what any client is given as the name server's address, and `address` the broker's own, both
    as `host:port`.
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
    ) -> None:
        """Errors as for MasterBroker. `tell` takes lines for whoever looks after it; `register_at`: other name servers,
        separated by `;`, that are told of it."""
        self.broker = MasterBroker(store, identity or BrokerIdentity(), tell, properties=properties)
        self._tell = tell
        self._host = host
        self._register_at = register_at
        self._ready: Future[Ready] = Future()
        self._end: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="rmqctl-broker", daemon=True)
        self.namesrv = self.address = ""

    def __enter__(self) -> ListeningBroker:
        """RefusedError where it cannot listen."""
        self._thread.start()
        try:
            at = self._ready.result()
        except BaseException:
            self.__exit__()
            raise
        self.namesrv, self.address = at.namesrv, at.broker
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
        with bound(self._host, 0) as name_server_on, bound(self._host, 0) as broker_on:
            await serve(
                self.broker,
                name_server_on,
                broker_on,
                self._tell,
                self._ready.set_result,
                ended.wait,
                register_at=self._register_at,
            )
