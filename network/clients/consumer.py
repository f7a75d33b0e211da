"""Takes messages as a member of a group: its share of the queues, its offsets (DefaultLitePullConsumerImpl)."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Collection, Generator, Mapping
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any, NamedTuple, Unpack

from rmqctl.formats.errors import CorruptError, RemoteError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.channel import AddressError, SocketChannel, messages_of
from rmqctl.network.clients.client import (
    BrokerError,
    Client,
    Pull,
    PullNodes,
    Route,
    log_warning,
    namespace_of,
    pull_request,
    with_namespace,
    without_namespace,
    young_enough,
)
from rmqctl.network.clients.hooks import ConsumeHook, ConsumeHookContext, ConsumeReturn, begin_consumption, run_after
from rmqctl.network.clients.membership import (
    CLUSTERING,
    ConsumerOptions,
    averagely,
    consumer_heartbeat,
    look_at_others,
    not_a_member,
    not_committed,
    offsets_to_set,
    pulled_queue_info,
    running_info_answer,
    share_of,
    status_answer,
)
from rmqctl.network.clients.producing.settings import check_group
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.topic_config import retry_topic
from rmqctl.store.config.releases import DEFAULT_RELEASE
from rmqctl.store.read.filter import SUBSCRIBE_ALL, TagFilter

_LIMIT = 32
_REBALANCE_SECONDS = 20.0
# a retry topic that the broker has just made is routed a little later
_ROUTED_SECONDS = 1.0
# a broker that hangs is asked again after so many times what asking it took
_PATIENCE = 3
_COMMIT_SECONDS = 5.0
# a broker that refuses does so within this time
_RECOVERED_SECONDS = 3.0
# how often members that came or went are looked for
_LOOK_SECONDS = 0.2


_Found = tuple[MessageQueue, list[StoredMessage]]
_NOTHING: _Found = MessageQueue("", 0, ""), []


class _AtHand(NamedTuple):
    """Messages of a queue that the caller has: from `offset` on those without a verdict, up to `end`. `is_polled`: they
    count as consumed with the next call, or at the end without an exception."""

    queue: MessageQueue
    offset: int
    end: int
    is_polled: bool = False


class Consumer:
    """One member of a group. A context manager; for one thread.

    A member consumes the group's retry topic along with its own, as RocketMQ's push consumers do: the group's members
    share the queues of both. Queues are shared out again every 20 s, and at once when the broker says that a member
    came or went. Offsets are committed every 5 s and at the end, unless `commit` is False: then the group stays where
    it is. A message counts as consumed when the next one is asked for: one whose handling raises, in the body of a loop
    or of `with`, comes again.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        topic: str,
        tags: str = "*",
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Illegal tags are a UsageError, as is a group that RocketMQ's clients of `client_version` refuse. `begin`
        counts for queues in which the group has no offset. An onlooker, who does not join the group, gets all queues of
        the topic and begins there in each of them.

        The first call for messages joins. It raises RefusedError where live members of the group subscribe otherwise,
        unless `force`; `warn` takes a line where there are live members. Topic and group are those of `namespace`, else
        of the namespace in the name server's address, which the messages do not show.

        Name servers and brokers that fail or do not know the topic yet are tried for ever, as RocketMQ's consumers do,
        and `warn` takes a line. With `failing_seconds` that is an error: at once before there are queues and where a
        broker refuses, after that time where one is away.
        """
        namespace = options.get("namespace") or namespace_of(namesrv)
        group, topic = with_namespace(namespace, group), with_namespace(namespace, topic)
        self._joins = joins = options.get("joins", True)
        if joins:
            check_group(group, "consumer", options.get("client_version", DEFAULT_RELEASE.name))
        self._namespace = namespace
        self.hooks: list[ConsumeHook] = []
        """Hooks: those of `poll` get its messages, those of `messages` one at a time."""
        self._filter = TagFilter(tags)
        dial, unit = options.get("dial", SocketChannel), options.get("unit_name", "")
        self._client = Client(namesrv, dial, self._asked, unit=unit)
        self._unit_mode = options.get("unit_mode", False)
        self.client_id = self._client.client_id
        self.group = group
        self.topic = topic
        self._begin = options.get("begin", "last")
        self._commits = options.get("commit", True)
        self._allocate = options.get("allocate", averagely)
        self._force = options.get("force", False)
        self.warn = options.get("warn", log_warning)
        self._warned: set[str] = set()
        self._has_joined = False
        self._subscribed = {**({retry_topic(group): SUBSCRIBE_ALL} if joins else {}), topic: tags}
        self._offsets: dict[MessageQueue, int] = {}
        self._unsaved, self._committed = set[MessageQueue](), set[MessageQueue]()
        self.uncommitted: dict[MessageQueue, int] = {}
        """Offsets that could not be committed when their queue was given up, at the end too: messages come again."""
        self._balance_at = 0.0
        self._failing_seconds = options.get("failing_seconds")
        self._failing_since: float | None = None
        self._well_at, self._saved_at = 0.0, time.monotonic()
        self._changed = threading.Event()
        self._pulls, self._nodes = dict[MessageQueue, Pull](), PullNodes()
        self._at_hand: _AtHand | None = None
        # queues that begin at a store time, as long as no message was as young
        self._not_before: dict[MessageQueue, int] = {}
        self._announced: list[Any] = []
        self._started = time.time_ns() // 1_000_000
        self._to_set: dict[MessageQueue, int] = {}
        self._setting = threading.Lock()

    # ---- messages

    def poll(self, seconds: float) -> list[StoredMessage]:
        """Some messages; an empty list if none come within `seconds`. What was given before counts as consumed with the
        next call. RemoteError as `failing_seconds` says; AddressError for a name server that is no address."""
        self._settle()
        queue, messages = self._poll(seconds)
        if messages:
            self._at_hand = _AtHand(queue, messages[0].queue_offset, self._offsets[queue], is_polled=True)
            self._end_hooks(self._begin_hooks(queue, messages))
        return messages

    def _begin_hooks(self, queue: MessageQueue, messages: list[StoredMessage]) -> ConsumeHookContext:
        return begin_consumption(self.hooks, self.group, self._namespace, queue, messages, self.warn)

    def _end_hooks(self, context: ConsumeHookContext, *, is_success: bool = True) -> None:
        context.status, context.is_success = "CONSUME_SUCCESS" if is_success else "RECONSUME_LATER", is_success
        context.returned = ConsumeReturn.SUCCESS if is_success else ConsumeReturn.FAILED
        run_after(self.hooks, context, self.warn)

    def _poll(self, seconds: float, ends: Mapping[MessageQueue, int] | None = None) -> _Found:
        """Messages of the queue that has some first; with `ends` only of queues that have not come there."""
        until = time.monotonic() + seconds
        while True:
            found = _NOTHING
            problem: RemoteError | None
            begun = time.monotonic()
            pause = max(0.0, min(until - begun, _LOOK_SECONDS))
            try:
                found, problem = self._round(pause, ends)
            except RemoteError as error:
                problem = error
            if problem is not None:
                now = time.monotonic()
                # not before it was asked again
                self._well_at = now + max(_RECOVERED_SECONDS, (1 + _PATIENCE) * (now - begun))
                if not found[1]:
                    self._wait_out(problem, pause, now - begun)
            elif time.monotonic() > self._well_at:
                self._failing_since = None
            if found[1] or time.monotonic() >= until:
                return found

    def _round(self, pause: float, ends: Mapping[MessageQueue, int] | None) -> tuple[_Found, RemoteError | None]:
        """Do what is due, and take the messages of one queue that come within `pause` seconds; with them why a queue
        cannot be asked, which keeps back no messages of the others."""
        self._rebalance()
        self._set_offsets()
        self._save(is_due=True)
        problem: RemoteError | None = None
        try:
            self._pull_more(ends)
        except RemoteError as error:
            problem = error
        if not self._pulls and problem is None:
            self._changed.wait(pause)
        wait([pull.answer for pull in self._pulls.values()], pause, FIRST_COMPLETED)
        for queue, pull in list(self._pulls.items()):
            found = self._taken(queue, pull)
            if found:
                # the next ones are on their way while the caller has these; what is wrong the next call will say
                with contextlib.suppress(RemoteError):
                    self._pull_more(ends)
                return (queue, found), problem
        return _NOTHING, problem

    def _wait_out(self, error: RemoteError, pause: float, spent: float = 0.0) -> None:
        """Wait for a broker that is away or refuses. Raise the error as `failing_seconds` says. `spent`: seconds that
        asking it took, which messages of others had to wait."""
        now = time.monotonic()
        since = self._failing_since or now
        limit = self._failing_seconds
        is_refusal = not self._offsets or isinstance(error, BrokerError)
        if isinstance(error, AddressError) or (limit is not None and (is_refusal or now - since > limit)):
            raise error
        if self._failing_since is None or (not self._offsets and error.message not in self._warned):
            self._warned.add(error.message)
            self.warn(f"{error.message}: it is waited for")
        self._failing_since = since
        # a broker that comes back does not know this member
        self._balance_at = min(self._balance_at, now + max(_ROUTED_SECONDS, _PATIENCE * spent))
        time.sleep(pause)

    def messages(self, *, to_the_end: bool, limit: int | None = None) -> Generator[StoredMessage, None, None]:
        """Message after message: as `batches`, one at a time."""
        with contextlib.closing(self.batches(1, to_the_end=to_the_end, limit=limit)) as batches:
            for (message,) in batches:
                yield message

    def batches(
        self, size: int, *, to_the_end: bool, limit: int | None = None
    ) -> Generator[list[StoredMessage], None, None]:
        """Up to `size` messages of a queue at a time: for ever, up to `limit` messages in all, or up to where the
        queues end when that is found out first.

        A batch counts as consumed when the next one is asked for, or with `commit`. Where the loop is left, by `break`
        or an exception, its messages come again.
        """
        self._settle()
        ends = self._ends() if to_the_end else None
        left = sys.maxsize if limit is None else limit
        try:
            while left > 0 and (ends is None or any(self._offsets.get(one, end) < end for one, end in ends.items())):
                self._at_hand = None
                queue, messages = self._wanted(self._poll(1, ends), left, ends)
                left -= len(messages)
                for first in range(0, len(messages), size):
                    batch, following = messages[first : first + size], messages[first + size : first + size + 1]
                    end = following[0].queue_offset if following else self._offsets[queue]
                    self._at_hand = _AtHand(queue, batch[0].queue_offset, end)
                    context, is_consumed = self._begin_hooks(queue, batch), False
                    try:
                        yield batch
                        is_consumed = True
                    finally:
                        self._end_hooks(context, is_success=is_consumed)
                    self._consumed()
        finally:
            self._settle(is_lost=True)

    def _wanted(self, found: _Found, most: int, ends: Mapping[MessageQueue, int] | None) -> _Found:
        """Return up to `most` messages that are before the end of their queue. The others are left for next time."""
        queue, messages = found
        kept = [one for one in messages if ends is None or one.queue_offset < ends.get(queue, 0)][:most]
        if len(kept) < len(messages):
            self._go_to(queue, messages[len(kept)].queue_offset)
        return queue, kept

    def _consumed(self) -> None:
        if self._at_hand is not None:
            self._at_hand = self._at_hand._replace(offset=self._at_hand.end)

    def _settle(self, *, is_lost: bool = False) -> None:
        """Let what the caller has be over: polled messages are consumed unless they are lost, others come again."""
        at_hand, self._at_hand = self._at_hand, None
        if at_hand is not None and at_hand.queue in self._offsets:
            self._go_to(at_hand.queue, at_hand.end if at_hand.is_polled and not is_lost else at_hand.offset)

    def _go_to(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset of a queue."""
        if self._offsets[queue] != offset:
            self._offsets[queue] = offset
            # its answer counts no more
            self._pulls.pop(queue, None)

    def _ends(self) -> dict[MessageQueue, int]:
        while True:
            self._balance_at = 0.0
            try:
                self._rebalance()
                return {queue: self._client.bound_of(queue, RequestCode.GET_MAX_OFFSET) for queue in self._offsets}
            except RemoteError as error:
                self._wait_out(error, _ROUTED_SECONDS)

    def _pull_more(self, ends: Mapping[MessageQueue, int] | None) -> None:
        """Ask for messages of each queue of which none are asked for: no more than one answer of it is ever kept. The
        last RemoteError is raised when all queues were tried."""
        problem: RemoteError | None = None
        for queue, offset in self._offsets.items():
            if queue not in self._pulls and (ends is None or offset < ends.get(queue, 0)):
                try:
                    self._pulls[queue] = self._pull(queue, offset)
                except RemoteError as error:
                    problem = error
        if problem is not None:
            raise problem

    def _pull(self, queue: MessageQueue, offset: int) -> Pull:
        """Ask for messages; the answer comes when there are some, or after a while without any. A slave that cannot be
        asked is passed over."""
        found = self._nodes.find(queue, self._client.route(queue.topic))
        address, is_slave = found or (self._client.address_of(queue), False)
        command = pull_request(self.group, queue, offset, _LIMIT, self._subscribed[queue.topic])
        try:
            answer = self._client.connection(address).submit(command)
        except RemoteError:
            if not is_slave or not self._has_other(queue, address):
                raise
            return self._pull(queue, offset)
        return Pull(address, offset, time.monotonic(), answer, is_slave)

    def _has_other(self, queue: MessageQueue, slave: str) -> bool:
        """Avoid a slave that failed. Return whether the queue can be pulled from another broker."""
        self._nodes.failed(queue, slave)
        return self._nodes.find(queue, self._client.known_route(queue.topic)) != (slave, True)

    def _taken(self, queue: MessageQueue, pull: Pull) -> list[StoredMessage]:
        """What a pull has brought, which is over then; nothing if it goes on. RemoteError where it failed."""
        if not pull.is_over:
            return []
        del self._pulls[queue]
        try:
            answer = pull.result()
        except RemoteError:
            if not pull.is_at_slave or not self._has_other(queue, pull.address):
                raise
            return []
        self._nodes.suggested(queue, answer)
        if self._offsets.get(queue) != pull.offset:
            # the queue was given away meanwhile, or is taken from elsewhere on
            return []
        self._offsets[queue] = int(answer.fields["nextBeginOffset"])
        if self._offsets[queue] != pull.offset:
            self._unsaved.add(queue)
        # brokers compare hashes of tags only
        found = messages_of(answer.body)
        begin = self._not_before.pop(queue, None)
        if begin is not None and not (found := young_enough(found, begin)):
            self._not_before[queue] = begin
        if self._namespace:
            found = [one._replace(topic=without_namespace(self._namespace, one.topic)) for one in found]
        if queue.topic != self.topic:
            return found
        return [one for one in found if self._filter.is_all or self._filter.matches(one.properties().get("TAGS"))]

    # ---- requests of brokers, in threads of connections

    def _asked(self, address: str, command: RemotingCommand) -> RemotingCommand | None:
        match command.code:
            case RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                self._changed.set()
            case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                return status_answer(command, self.group, dict(self._offsets))
            case RequestCode.GET_CONSUMER_RUNNING_INFO if command.fields.get("consumerGroup") == self.group:
                return self._running_info(command)
            case RequestCode.GET_CONSUMER_RUNNING_INFO | RequestCode.CONSUME_MESSAGE_DIRECTLY:
                return not_a_member(command, self.group)
            case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                try:
                    found = offsets_to_set(command, self.group)
                except CorruptError as error:
                    return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=error.message)
                with self._setting:
                    self._to_set |= found
                return RemotingCommand(ResponseCode.SUCCESS)
        return None

    def _running_info(self, command: RemotingCommand) -> RemotingCommand:
        properties = {
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started),
            "consumerGroup": self.group,
            "messageModel": CLUSTERING,
            "namespace": self._namespace,
            "pullBatchSize": str(_LIMIT),
        }
        queues = {queue: pulled_queue_info(offset) for queue, offset in dict(self._offsets).items()}
        return running_info_answer(command, self._client, properties, queues, {}, self._announced)

    def _set_offsets(self) -> None:
        """Go on where an operator has set offsets."""
        with self._setting:
            wanted, self._to_set = self._to_set, {}
        for queue in wanted.keys() & self._offsets.keys():
            self._go_to(queue, wanted[queue])
            self._unsaved.add(queue)
            self._not_before.pop(queue, None)
            if self._at_hand is not None and self._at_hand.queue == queue:
                self._at_hand = None

    # ---- queues

    def _rebalance(self) -> None:
        now = time.monotonic()
        if now < self._balance_at and not self._changed.is_set():
            return
        self._changed.clear()
        self._balance_at = now + _REBALANCE_SECONDS
        routes = self._routes()
        if self._joins:
            self._look_at_others(routes)
            content = consumer_heartbeat(self.group, self._subscribed, self._begin, unit_mode=self._unit_mode)
            self._announced = content["consumerDataSet"][0]["subscriptionDataSet"]
            self._client.start_heartbeats(content)
            if not self._has_joined:
                # the broker makes the retry topic of a group when its first member comes
                self._has_joined = True
                routes = self._routes()
            if len(routes) < len(self._subscribed):
                self._balance_at = now + _ROUTED_SECONDS
        mine: set[MessageQueue] = set()
        for route in routes.values():
            mine |= set(self._share_of(route))
        problem = self._save_before(self._offsets.keys() - mine)
        self._offsets = {queue: offset for queue, offset in self._offsets.items() if queue in mine}
        self._committed &= mine
        away: set[str] = set()
        for queue in sorted(mine - self._offsets.keys()):
            if queue.broker_name not in away:
                try:
                    self._offsets[queue] = self._start_of(queue)
                except RemoteError as error:
                    # the other brokers' queues are not kept back
                    away.add(queue.broker_name)
                    problem = error
        if problem is not None:
            raise problem

    def _routes(self) -> dict[str, Route]:
        """Return the routes of what is subscribed, without a retry topic that no name server knows yet."""
        routes: dict[str, Route] = {}
        for topic in self._subscribed:
            route = self._looked_up(topic)
            if route is not None and route.readable:
                routes[topic] = route
            elif topic == self.topic:
                raise RemoteError(
                    f"no broker has messages of topic {self.topic!r}",
                    hint="`rmqctl topics` lists those that name servers know",
                )
        return routes

    def _looked_up(self, topic: str) -> Route | None:
        """Return the route of a topic. A member that has queues goes on without name servers, and where they have
        forgotten the topic, as after their restart."""
        known = self._client.known_route(topic) if self._offsets else None
        try:
            return self._client.route(topic, anew=True) or known
        except RemoteError:
            if known is None and not self._offsets:
                raise
            return known

    def _look_at_others(self, routes: Mapping[str, Route]) -> None:
        """Refuse to take queues away from live members that this one would not read, and warn of the others."""
        addresses = {address for route in routes.values() for address in route.addresses.values()}
        force, wanted = self._has_joined or self._force, {self.topic: self._subscribed[self.topic]}
        line, has_conflict = look_at_others(self._client, addresses, self.group, wanted, force=force)
        if line and line not in self._warned and (has_conflict or not self._has_joined):
            self._warned.add(line)
            self.warn(line)

    def _share_of(self, route: Route) -> list[MessageQueue]:
        """Return the queues of a topic that are for this member."""
        if not self._joins:
            return list(route.readable)
        return share_of(self._client, route, self.group, self._allocate)

    def _start_of(self, queue: MessageQueue) -> int:
        """The group's offset in a queue, or where it begins without one (computePullFromWhere)."""
        offset = self._client.group_offset(self.group, queue) if self._joins else None
        if offset is not None:
            return offset
        # no retry that is to come again may be left out
        begin = self._begin if queue.topic == self.topic else "first"
        if isinstance(begin, int):
            self._not_before[queue] = begin
        return self._client.first_offset(queue, begin)

    # ---- offsets

    def commit(self) -> None:
        """Commit what was given up to now, and nothing that was pulled with it."""
        self._consumed()
        self._save(is_due=False)

    def _save(self, *, is_due: bool) -> None:
        now = time.monotonic()
        if not self._commits or (is_due and now - self._saved_at < _COMMIT_SECONDS):
            return
        self._saved_at = now
        again = (self._committed & self._offsets.keys()) - self._unsaved if is_due else set()
        problem, away = None, set[str]()
        for queue in sorted(self._unsaved):
            if queue.broker_name not in away:
                try:
                    self._client.commit_offset(self.group, queue, self._reached(queue))
                    self._committed.add(queue)
                    self._unsaved.discard(queue)
                    self.uncommitted.pop(queue, None)
                except RemoteError as error:
                    away.add(queue.broker_name)
                    problem = error
        for queue in sorted(again):
            # a broker that was killed has lost what was committed last; one that is away is asked with the next pull
            with contextlib.suppress(RemoteError):
                self._client.commit_offset(self.group, queue, self._reached(queue), is_oneway=True)
        if problem is not None:
            raise problem

    def _save_before(self, given_up: Collection[MessageQueue]) -> RemoteError | None:
        """Commit before queues are given up, and return why that failed. `warn` gets what is not committed."""
        try:
            self._save(is_due=False)
        except RemoteError as error:
            for queue in sorted(self._unsaved.intersection(given_up)):
                self._unsaved.discard(queue)
                self.uncommitted[queue] = self._reached(queue)
                self.warn(not_committed(queue, self._reached(queue), error))
            return error
        return None

    def _reached(self, queue: MessageQueue) -> int:
        """Return the offset up to which a queue is consumed: of what was pulled the caller may have a part only."""
        at_hand = self._at_hand
        return at_hand.offset if at_hand is not None and at_hand.queue == queue else self._offsets[queue]

    def send_back(self, message: StoredMessage, level: int = 0) -> None:
        """Have a message come again later: behind a delay that grows with each time, or of that level; among the dead
        letters with a level of -1. It comes in the group's retry topic, `%RETRY%` and the group."""
        header = headers.SendMsgBack(offset=message.physical_offset, group=self.group, delay_level=level)
        self._client.ask(self._home_of(message), RequestCode.CONSUMER_SEND_MSG_BACK, header)

    def _home_of(self, message: StoredMessage) -> str:
        """Return the address of the broker that has a message: its physical offset means another message elsewhere."""
        route = self._client.route(self.topic)
        addresses = set(route.addresses.values()) if route is not None else set()
        stored_at = str(message.store_host)
        if stored_at in addresses or len(addresses) != 1:
            return stored_at
        return addresses.pop()

    def close(self) -> None:
        """Commit and leave the group. What cannot be committed goes to `warn` and stays in `uncommitted`."""
        self._settle()
        try:
            # what an operator was told is set must not be overwritten
            self._set_offsets()
            self._save_before(self._offsets.keys())
            self._pulls.clear()
            if self._has_joined:
                self._client.unregister(headers.UnregisterClient(consumer_group=self.group))
        finally:
            self._client.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._settle(is_lost=kind is not None)
        self.close()


__all__ = ["BrokerError", "Consumer"]
