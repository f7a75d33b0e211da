"""Takes messages as a member of a group: its share of the queues, its offsets (DefaultLitePullConsumerImpl)."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Collection, Generator, Mapping
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any, NamedTuple, TypeVar, Unpack

from rmqctl.formats.errors import CorruptError, RemoteError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.channel import AddressError, Connection, SocketChannel, messages_of
from rmqctl.network.clients.client import (
    BrokerError,
    Client,
    Pull,
    PullNodes,
    log_warning,
    namespace_of,
    pull_request,
    unknown_broker,
    with_namespace,
    without_namespace,
    young_enough,
)
from rmqctl.network.clients.hooks import ConsumeHook, ConsumeHookContext, ConsumeReturn, begin_consumption, run_after
from rmqctl.network.clients.membership import (
    CLUSTERING,
    ConsumerOptions,
    Joining,
    Share,
    not_a_member,
    offsets_to_set,
    pulled_queue_info,
    running_info_answer,
    status_answer,
)
from rmqctl.network.clients.producing.settings import check_group
from rmqctl.network.clients.progress import GroupProgress, Job
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, RequestCode, ResponseCode
from rmqctl.store.config.releases import DEFAULT_RELEASE
from rmqctl.store.read.filter import TagFilter

_LIMIT = 32
_REBALANCE_SECONDS = 20.0
# what is not routed yet is looked for so soon
_ROUTED_SECONDS = 1.0
# a broker that hangs is asked again after so many times what asking it took
_PATIENCE = 3
# a broker that refuses does so within this time
_RECOVERED_SECONDS = 3.0
# how often members that came or went are looked for
_LOOK_SECONDS = 0.2
# what a call began at servers that are well is over by then, however short the call
_GRACE_SECONDS = 0.5


_Found = tuple[MessageQueue, list[StoredMessage]]
_NOTHING: _Found = MessageQueue("", 0, ""), []


class _AtHand(NamedTuple):
    """Messages of a queue that the caller has: from `offset` on those without a verdict, up to `end`. `is_polled`: they
    count as consumed with the next call, or at the end without an exception."""

    queue: MessageQueue
    offset: int
    end: int
    is_polled: bool = False


_T = TypeVar("_T")


class Consumer:
    """One member of a group. A context manager; for one thread.

    Servers are asked in threads of its own: one that does not answer keeps no call waiting.

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
        joins = options.get("joins", True)
        if joins:
            check_group(group, "consumer", options.get("client_version", DEFAULT_RELEASE.name))
        self._namespace = namespace
        self.hooks: list[ConsumeHook] = []
        """Hooks: those of `poll` get its messages, those of `messages` one at a time."""
        self._filter = TagFilter(tags)
        dial, unit = options.get("dial", SocketChannel), options.get("unit_name", "")
        self._client = Client(namesrv, dial, self._asked, unit=unit)
        self.client_id = self._client.client_id
        self.group = group
        self.topic = topic
        self.warn = options.get("warn", log_warning)
        self._warned: set[str] = set()
        self._joining = Joining(self._client, group, (topic, tags), options)
        self._offsets: dict[MessageQueue, int] = {}
        commits = options.get("commit", True)
        self._progress = GroupProgress(self._client, group, self.warn, self._reached) if commits else None
        self._balance_at = 0.0
        self._failing_seconds = options.get("failing_seconds")
        self._failing_since: float | None = None
        self._well_at = 0.0
        # seconds that was asked for in vain in this round
        self._spent = 0.0
        self._sharing: Job[Share] | None = None
        self._connecting: dict[str, Job[Connection]] = {}
        self._changed = threading.Event()
        self._pulls, self._nodes = dict[MessageQueue, Pull](), PullNodes()
        self._at_hand: _AtHand | None = None
        # queues that begin at a store time, as long as no message was as young
        self._not_before: dict[MessageQueue, int] = {}
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
            self._spent = 0.0
            # what was begun by this call at servers that are well is not left to the next one
            begun = self._sharing.begun if self._sharing is not None else 0.0
            pause = max(0.0, min(max(until, begun + _GRACE_SECONDS) - time.monotonic(), _LOOK_SECONDS))
            try:
                found, problem = self._round(pause, ends)
            except RemoteError as error:
                problem = error
            if problem is not None:
                # not before it was asked again
                self._well_at = time.monotonic() + max(_RECOVERED_SECONDS, (1 + _PATIENCE) * self._spent)
                if found[1]:
                    self._is_failing(problem)
                else:
                    self._wait_out(problem, pause)
            elif time.monotonic() > self._well_at:
                self._failing_since = None
            begun = self._sharing.begun if self._sharing is not None else 0.0
            if found[1] or time.monotonic() >= max(until, begun + _GRACE_SECONDS):
                return found

    def _round(self, pause: float, ends: Mapping[MessageQueue, int] | None) -> tuple[_Found, RemoteError | None]:
        """Do what is due, and take the messages of one queue that come within `pause` seconds; with them why a queue
        cannot be asked, which keeps back no messages of the others."""
        problem = self._rebalance()
        self._set_offsets()
        if self._progress is not None:
            problem = self._progress.step() or problem
        try:
            self._pull_more(ends)
        except RemoteError as error:
            problem = error
        jobs: list[Job[Any]] = [*self._connecting.values(), *([self._sharing] if self._sharing is not None else [])]
        asked = [*(job.done for job in jobs), *(pull.answer for pull in self._pulls.values())]
        if not asked and problem is None:
            self._changed.wait(pause)
        wait(asked, pause, FIRST_COMPLETED)
        for queue, pull in list(self._pulls.items()):
            found = self._taken(queue, pull)
            if found:
                # the next ones are on their way while the caller has these; what is wrong the next call will say
                with contextlib.suppress(RemoteError):
                    self._pull_more(ends)
                return (queue, found), problem
        return _NOTHING, problem

    def _wait_out(self, error: RemoteError, pause: float) -> None:
        """Wait for a broker that is away or refuses. Raise the error as `failing_seconds` says."""
        since = self._failing_since or time.monotonic()
        limit = self._failing_seconds
        is_refusal = not self._offsets or isinstance(error, BrokerError)
        is_over = limit is not None and (is_refusal or time.monotonic() - since > limit)
        if isinstance(error, AddressError) or is_over:
            raise error
        self._is_failing(error)
        time.sleep(pause)

    def _is_failing(self, error: RemoteError) -> None:
        """Warn once, and share out again soon: a broker that comes back does not know this member."""
        now = time.monotonic()
        if self._failing_since is None or (not self._offsets and error.message not in self._warned):
            self._warned.add(error.message)
            self.warn(f"{error.message}: it is waited for")
        self._failing_since = self._failing_since or now
        self._balance_at = min(self._balance_at, now + max(_ROUTED_SECONDS, _PATIENCE * self._spent))

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
                problem = self._rebalance(waits=True)
                if problem is not None:
                    raise problem
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
                    pull = self._pull(queue, offset)
                except RemoteError as error:
                    problem = error
                    continue
                if pull is not None:
                    self._pulls[queue] = pull
        if problem is not None:
            raise problem

    def _pull(self, queue: MessageQueue, offset: int) -> Pull | None:
        """Ask for messages; the answer comes when there are some, or after a while without any. A slave that cannot be
        asked is passed over. None as long as the broker is not connected."""
        found = self._nodes.find(queue, self._client.known_route(queue.topic))
        if found is None:
            raise unknown_broker(queue)
        address, is_slave = found
        command = pull_request(self.group, queue, offset, _LIMIT, self._joining.subscribed[queue.topic])
        try:
            connection = self._connected(address)
            if connection is None:
                return None
            answer = connection.submit(command)
        except RemoteError:
            if not is_slave or not self._has_other(queue, address):
                raise
            return self._pull(queue, offset)
        return Pull(address, offset, time.monotonic(), answer, is_slave)

    def _connected(self, address: str) -> Connection | None:
        """Return a connection that is open; None as long as it is being made. RemoteError where that failed."""
        found = self._client.open_connection(address)
        if found is not None:
            return found
        job = self._connecting.get(address)
        if job is None:
            self._connecting[address] = Job(lambda: self._client.connection(address))
        elif job.done.done():
            del self._connecting[address]
            return self._result(job)
        return None

    def _result(self, job: Job[_T]) -> _T:
        """Wait for what a job brings. RemoteError where it failed."""
        try:
            return job.done.result()
        finally:
            self._spent = max(self._spent, time.monotonic() - job.begun)

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
            self._moved(queue)
        # brokers compare hashes of tags only
        found = messages_of(answer.body)
        begin = self._not_before.pop(queue, None)
        if begin is not None and not (found := young_enough(found, begin)):
            self._not_before[queue] = begin
        if self._namespace:
            found = [one._replace(topic=without_namespace(self._namespace, one.topic)) for one in found]
        if queue.topic != self.topic:
            return found
        return [one for one in found if self._filter.is_all or self._filter.matches_properties(one.properties())]

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
        return running_info_answer(command, self._client, properties, queues, {}, self._joining.announced)

    def _set_offsets(self) -> None:
        """Go on where an operator has set offsets."""
        with self._setting:
            wanted, self._to_set = self._to_set, {}
        for queue in wanted.keys() & self._offsets.keys():
            self._go_to(queue, wanted[queue])
            self._moved(queue)
            self._not_before.pop(queue, None)
            if self._at_hand is not None and self._at_hand.queue == queue:
                self._at_hand = None

    # ---- queues

    def _rebalance(self, *, waits: bool = False) -> RemoteError | None:
        """Have the queues shared out where that is due, and take up what came of it. Return why some are missing;
        RefusedError or RemoteError where all are."""
        if waits and self._sharing is not None:
            wait([self._sharing.done])
        problem = self._take_up()
        now = time.monotonic()
        is_due = now >= self._balance_at or self._changed.is_set()
        # queues that come back begin where they were given up
        if self._sharing is None and is_due and not (self._progress and self._progress.given_up):
            self._changed.clear()
            self._balance_at = now + _REBALANCE_SECONDS
            known = frozenset(self._offsets)
            self._sharing = Job(lambda: self._joining.share(known))
            if waits:
                wait([self._sharing.done])
                problem = self._take_up()
        return problem

    def _take_up(self) -> RemoteError | None:
        """Take and give up queues as they were shared out, once that is over; errors as of `_rebalance`."""
        job = self._sharing
        if job is None or not job.done.done():
            return None
        self._sharing = None
        share = self._result(job)
        self._give_up(self._offsets.keys() - share.mine)
        self._offsets = {**share.starts, **self._offsets}
        self._not_before |= share.not_before
        if not share.is_complete:
            self._balance_at = min(self._balance_at, time.monotonic() + _ROUTED_SECONDS)
        self._connecting.clear()
        return share.problem

    def _give_up(self, queues: Collection[MessageQueue]) -> None:
        """Forget queues; what is consumed of them is committed next."""
        if self._progress is not None:
            self._progress.give_up(queues)
        self._offsets = {queue: offset for queue, offset in self._offsets.items() if queue not in queues}

    # ---- offsets

    def commit(self) -> None:
        """Commit what was given up to now, and nothing that was pulled with it."""
        self._consumed()
        problem = self._progress.save_now() if self._progress is not None else None
        if problem is not None:
            raise problem

    @property
    def uncommitted(self) -> dict[MessageQueue, int]:
        """Offsets that could not be committed when their queue was given up, at the end too: messages come again."""
        return {} if self._progress is None else self._progress.uncommitted

    def _moved(self, queue: MessageQueue) -> None:
        if self._progress is not None:
            self._progress.unsaved.add(queue)

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
            self._give_up(set(self._offsets))
            if self._progress is not None:
                self._progress.save_now()
            self._pulls.clear()
            if self._joining.has_joined:
                self._client.unregister(headers.UnregisterClient(consumer_group=self.group))
        finally:
            self._client.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._settle(is_lost=kind is not None)
        self.close()


__all__ = ["BrokerError", "Consumer"]
