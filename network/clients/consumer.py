"""Takes messages as a member of a group: its share of the queues, its offsets (DefaultLitePullConsumerImpl)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Generator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from rmqctl.formats.errors import CorruptError, RemoteError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.channel import AddressError, Dial, SocketChannel, messages_of
from rmqctl.network.clients.client import (
    BrokerError,
    Client,
    PullNodes,
    Route,
    Warn,
    log_warning,
    namespace_of,
    with_namespace,
    without_namespace,
)
from rmqctl.network.clients.hooks import ConsumeHook, ConsumeHookContext, run_after, run_before
from rmqctl.network.clients.membership import (
    CLUSTERING,
    Allocate,
    averagely,
    consumer_heartbeat,
    group_members,
    look_at_others,
    not_a_member,
    not_committed,
    offsets_to_set,
    pulled_queue_info,
    running_info_answer,
    status_answer,
)
from rmqctl.network.clients.producing.settings import check_group
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import request
from rmqctl.network.topic_config import retry_topic
from rmqctl.store.config.releases import DEFAULT_RELEASE
from rmqctl.store.read.filter import SUBSCRIBE_ALL, TagFilter

Where = Literal["first", "last"] | int
"""Where a group begins that has no offset: at the first message, behind the last, or at a store time (ms)."""

_LIMIT = 32
_REBALANCE_SECONDS = 20.0
# a retry topic that the broker has just made is routed a little later
_ROUTED_SECONDS = 1.0
_COMMIT_SECONDS = 5.0
# PullSysFlag: wait for messages; the subscription is in the request
_SUSPEND, _SUBSCRIPTION = 2, 4
# brokerSuspendMaxTimeMillis of a push consumer; a broker that looks at its pulls every 5 s answers up to 20 s later
_SUSPEND_MS = 15_000
_GIVEN_UP_SECONDS = 45.0
# a broker that refuses does so within this time
_RECOVERED_SECONDS = 3.0
# how often members that came or went are looked for
_LOOK_SECONDS = 0.2
_PULL_CODES = (
    int(ResponseCode.SUCCESS),
    int(ResponseCode.PULL_NOT_FOUND),
    int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    int(ResponseCode.PULL_OFFSET_MOVED),
)


class _Pull(NamedTuple):
    """A pull that waits for its answer: asked for messages from `offset` on, at a monotonic time in s."""

    address: str
    offset: int
    asked_at: float
    answer: Future[RemotingCommand]
    is_at_slave: bool = False


class ConsumerOptions(TypedDict, total=False):
    """How a member of a group consumes. `begin`: where it begins in queues without an offset of the group, else at
    their end. `commit` (the default): commit offsets. `allocate`: how queues are shared out; averagely. `joins`: be a
    member, else look on. `force`: join although live members subscribe otherwise. `warn` takes lines. `namespace`,
    `unit_name`, `unit_mode`: as of RocketMQ's clients. `failing_seconds`: when a broker that fails is an error; None:
    never. `client_version`: of the client whose groups are legal."""

    begin: Where
    commit: bool
    allocate: Allocate
    joins: bool
    force: bool
    warn: Warn
    dial: Dial
    namespace: str
    unit_name: str
    unit_mode: bool
    failing_seconds: float | None
    client_version: str


class Consumer:
    """One member of a group. A context manager; for one thread.

    A member consumes the group's retry topic along with its own, as RocketMQ's push consumers do: the group's members
    share the queues of both. Queues are shared out again every 20 s, and at once when the broker says that a member
    came or went. Offsets are committed every 5 s and at the end, unless `commit` is False: then the group stays where
    it is.
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
        self._failed_at, self._saved_at = 0.0, time.monotonic()
        self._changed = threading.Event()
        self._pulls, self._nodes = dict[MessageQueue, _Pull](), PullNodes()
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
        found = self._poll(seconds)
        messages = [message for _, message in found]
        if found:
            self._end_hooks(self._begin_hooks(found[0][0], messages))
        return messages

    def _begin_hooks(self, queue: MessageQueue, messages: list[StoredMessage]) -> ConsumeHookContext:
        queue = queue._replace(topic=without_namespace(self._namespace, queue.topic))
        context = ConsumeHookContext(self.group, self._namespace, queue, messages)
        run_before(self.hooks, context, self.warn)
        return context

    def _end_hooks(self, context: ConsumeHookContext) -> None:
        context.status, context.is_success = "CONSUME_SUCCESS", True
        run_after(self.hooks, context, self.warn)

    def _poll(
        self, seconds: float, ends: Mapping[MessageQueue, int] | None = None
    ) -> list[tuple[MessageQueue, StoredMessage]]:
        """Messages of the queue that has some first; with `ends` only of queues that have not come there."""
        until = time.monotonic() + seconds
        while True:
            found: list[tuple[MessageQueue, StoredMessage]] = []
            problem: RemoteError | None
            pause = max(0.0, min(until - time.monotonic(), _LOOK_SECONDS))
            try:
                found, problem = self._round(pause, ends)
            except RemoteError as error:
                problem = error
            if problem is not None:
                self._failed_at = time.monotonic()
                if not found:
                    self._wait_out(problem, pause)
            elif time.monotonic() - self._failed_at > _RECOVERED_SECONDS:
                self._failing_since = None
            if found or time.monotonic() >= until:
                return found

    def _round(
        self, pause: float, ends: Mapping[MessageQueue, int] | None
    ) -> tuple[list[tuple[MessageQueue, StoredMessage]], RemoteError | None]:
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
                return [(queue, message) for message in found], problem
        return [], problem

    def _wait_out(self, error: RemoteError, pause: float) -> None:
        """Wait for a broker that is away or refuses. Raise the error as `failing_seconds` says."""
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
        self._balance_at = min(self._balance_at, now + _ROUTED_SECONDS)
        time.sleep(pause)

    def messages(self, *, to_the_end: bool) -> Generator[StoredMessage, None, None]:
        """Message after message: for ever, or up to where the queues end when that is found out first."""
        ends: dict[MessageQueue, int] = {}
        if to_the_end:
            ends = self._ends()
        while not to_the_end or any(self._offsets.get(queue, end) < end for queue, end in ends.items()):
            for queue, message in self._poll(1, ends if to_the_end else None):
                if to_the_end and message.queue_offset >= ends.get(queue, 0):
                    # it came later, and is left for the next time
                    self._offsets[queue] = message.queue_offset
                    break
                context = self._begin_hooks(queue, [message])
                try:
                    yield message
                    self._end_hooks(context)
                except GeneratorExit:
                    self._end_hooks(context)
                    # what was pulled with it is not consumed
                    self._offsets[queue] = message.queue_offset + 1
                    raise

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

    def _pull(self, queue: MessageQueue, offset: int) -> _Pull:
        """Ask for messages; the answer comes when there are some, or after a while without any. A slave that cannot be
        asked is passed over."""
        found = self._nodes.find(queue, self._client.route(queue.topic))
        address, is_slave = found or (self._client.address_of(queue), False)
        header = headers.PullMessage(
            consumer_group=self.group, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
            max_msg_nums=_LIMIT, commit_offset=0, sub_version=0, sys_flag=_SUSPEND | _SUBSCRIPTION,
            suspend_timeout_millis=_SUSPEND_MS, subscription=self._subscribed[queue.topic], expression_type="TAG",
        )  # fmt: skip
        try:
            answer = self._client.connection(address).submit(request(RequestCode.PULL_MESSAGE, header))
        except RemoteError:
            if not is_slave or not self._has_other(queue, address):
                raise
            return self._pull(queue, offset)
        return _Pull(address, offset, time.monotonic(), answer, is_slave)

    def _has_other(self, queue: MessageQueue, slave: str) -> bool:
        """Avoid a slave that failed. Return whether the queue can be pulled from another broker."""
        self._nodes.failed(queue, slave)
        return self._nodes.find(queue, self._client.known_route(queue.topic)) != (slave, True)

    def _taken(self, queue: MessageQueue, pull: _Pull) -> list[StoredMessage]:
        """What a pull has brought, which is over then; nothing if it goes on. RemoteError where it failed."""
        if not pull.answer.done() and time.monotonic() - pull.asked_at <= _GIVEN_UP_SECONDS:
            return []
        del self._pulls[queue]
        try:
            answer = self._answered(pull)
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
        found = self._young_enough(queue, messages_of(answer.body))
        if self._namespace:
            found = [one._replace(topic=without_namespace(self._namespace, one.topic)) for one in found]
        if queue.topic != self.topic:
            return found
        return [one for one in found if self._filter.is_all or self._filter.matches(one.properties().get("TAGS"))]

    @staticmethod
    def _answered(pull: _Pull) -> RemotingCommand:
        if not pull.answer.done():
            raise RemoteError(f"{pull.address}: a pull is not answered")
        answer = pull.answer.result()
        if answer.code not in _PULL_CODES:
            raise BrokerError.of(pull.address, answer)
        return answer

    def _young_enough(self, queue: MessageQueue, found: list[StoredMessage]) -> list[StoredMessage]:
        """Messages without those before the time at which the queue begins."""
        begin = self._not_before.get(queue)
        if begin is None:
            return found
        for number, message in enumerate(found):
            if message.store_timestamp >= begin:
                del self._not_before[queue]
                return found[number:]
        return []

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
            self._offsets[queue] = wanted[queue]
            self._unsaved.add(queue)
            self._not_before.pop(queue, None)
            # its answer counts no more
            self._pulls.pop(queue, None)

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
            where = {"first": "FIRST_OFFSET", "last": "LAST_OFFSET"}.get(str(self._begin), "TIMESTAMP")
            begin = f"CONSUME_FROM_{where}"
            content = consumer_heartbeat(self.group, self._subscribed, begin, unit_mode=self._unit_mode)
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
        members = group_members(self._client, route, self.group)
        return list(self._allocate(sorted(route.readable), members, self.client_id))

    def _start_of(self, queue: MessageQueue) -> int:
        """The group's offset in a queue, or where it begins without one (computePullFromWhere)."""
        offset = self._client.group_offset(self.group, queue) if self._joins else None
        if offset is not None:
            return offset
        if self._begin == "first" or queue.topic != self.topic:
            # no message that is to come again may be left out
            return self._client.bound_of(queue, RequestCode.GET_MIN_OFFSET)
        if self._begin == "last":
            return self._client.bound_of(queue, RequestCode.GET_MAX_OFFSET)
        # brokers of 4.x give the nearest message, be it older, or any of those of that very time: never one that is
        # behind the first of them if the time is 1 ms earlier
        self._not_before[queue] = self._begin
        return self._client.bound_of(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, max(0, self._begin - 1))

    # ---- offsets

    def commit(self) -> None:
        """Commit what was given up to now."""
        self._save(is_due=False)

    def _save(self, *, is_due: bool) -> None:
        now = time.monotonic()
        if not self._commits or (is_due and now - self._saved_at < _COMMIT_SECONDS):
            return
        self._saved_at = now
        again = (self._committed & self._offsets.keys()) - self._unsaved if is_due else set()
        code, problem, away = RequestCode.UPDATE_CONSUMER_OFFSET, None, set[str]()
        for queue in sorted(self._unsaved):
            if queue.broker_name not in away:
                try:
                    self._client.ask(self._client.address_of(queue), code, self._commit_of(queue))
                    self._committed.add(queue)
                    self._unsaved.discard(queue)
                    self.uncommitted.pop(queue, None)
                except RemoteError as error:
                    away.add(queue.broker_name)
                    problem = error
        for queue in sorted(again):
            # a broker that was killed has lost what was committed last; one that is away is asked with the next pull
            with contextlib.suppress(RemoteError):
                command = request(code, self._commit_of(queue))
                self._client.connection(self._client.address_of(queue)).oneway(command)
        if problem is not None:
            raise problem

    def _save_before(self, given_up: Collection[MessageQueue]) -> RemoteError | None:
        """Commit before queues are given up, and return why that failed. `warn` gets what is not committed."""
        try:
            self._save(is_due=False)
        except RemoteError as error:
            for queue in sorted(self._unsaved.intersection(given_up)):
                self._unsaved.discard(queue)
                self.uncommitted[queue] = self._offsets[queue]
                self.warn(not_committed(queue, self._offsets[queue], error))
            return error
        return None

    def _commit_of(self, queue: MessageQueue) -> headers.UpdateConsumerOffset:
        return headers.UpdateConsumerOffset(
            consumer_group=self.group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=self._offsets[queue]
        )

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
        try:
            # what an operator was told is set must not be overwritten
            self._set_offsets()
            self._save_before(self._offsets.keys())
            self._pulls.clear()
            for address in sorted(self._client.brokers()) if self._has_joined else ():
                leave = headers.UnregisterClient(client_id=self.client_id, consumer_group=self.group)
                # a broker that is gone has forgotten its members
                with contextlib.suppress(RemoteError):
                    self._client.ask(address, RequestCode.UNREGISTER_CLIENT, leave)
        finally:
            self._client.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["BrokerError", "Consumer", "Where"]
