"""The push consumer: a member of a group that hands every message to a callback (DefaultMQPushConsumer)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rmqctl.formats.errors import RemoteError, RmqctlError, UsageError
from rmqctl.network.clients.channel import AddressError, Answered, Dial, SocketChannel
from rmqctl.network.clients.client import BrokerError, Client, Warn, Where, log_warning, namespace_of, with_namespace
from rmqctl.network.clients.membership import STRATEGY_NAMES, Allocate, averagely, look_at_others, unrouted
from rmqctl.network.clients.producer import trace_dispatcher
from rmqctl.network.clients.producing.settings import check_group
from rmqctl.network.clients.push.consume_services import ConcurrentService, HeldLocks, OrderlyService, SendBack
from rmqctl.network.clients.push.member import (
    AskedMember,
    BrokerOffsets,
    Directly,
    LocalOffsets,
    NoOffsets,
    ProgressStore,
    PushMember,
    local_offsets_path,
)
from rmqctl.network.clients.push.process_queue import CallbackThreads, ProcessQueue, Tasks
from rmqctl.network.clients.push.pulling import ConsumeService, Pulls, Rebalance, is_busy
from rmqctl.network.clients.push.settings import ConcurrentListener, OrderlyListener, PushSettings
from rmqctl.network.clients.tracing import ConsumeTrace, TraceDispatcher, TraceOptions
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, RequestCode
from rmqctl.network.remoting.headers import UnregisterClient
from rmqctl.network.topic_config import retry_topic
from rmqctl.store.config.releases import DEFAULT_RELEASE
from rmqctl.store.read.filter import SUBSCRIBE_ALL, client_filter

_LOOK_SECONDS = 0.1
_JOIN_SECONDS = 1.0


@dataclass(frozen=True)
class MemberOptions:
    """How a push consumer takes part in its group.

    `begin`: where queues without an offset begin. `broadcast`: get all queues, keep progress in
    `offsets_directory`/client id/group/offsets.json (None: ~/.rocketmq_offsets, as RocketMQ's clients) under the client
    id of `instance`, which members on one host must not share. `force`: join although live members subscribe otherwise.
    `namespace`: that of topics and group, which callbacks do not see; else that of the name server's address. `warn`
    gets a line for what goes wrong. `unit_name`: part of the client id. `client_version`: the version whose
    names of groups are legal. `client_rebalance`: share out queues here; False: ask brokers for them, but in
    order and in a broadcast. `failing_seconds`: let `start` fail where servers or topics are missing, and
    `wait_to_the_end` where a queue cannot be pulled for so long; None: both are tried for ever, as Java's do.
    `joins`: False for an onlooker, whom no member knows and who gets all queues, and begins there in each of them.
    """

    begin: Where = "last"
    allocate: Allocate = averagely
    commit: bool = True
    broadcast: bool = False
    instance: str = "DEFAULT"
    offsets_directory: Path | None = None
    force: bool = False
    warn: Warn = log_warning
    dial: Dial = SocketChannel
    namespace: str = ""
    unit_name: str = ""
    unit_mode: bool = False
    client_version: str = DEFAULT_RELEASE.name
    client_rebalance: bool = True
    failing_seconds: float | None = None
    joins: bool = True


class PullingMember:
    """A member of a group that pulls ahead of what consumes its messages: what consumers of both kinds have in common.

    Messages of a group are shared out among its members, its retry topic included. In a broadcast every member gets
    all, and there are no retries.
    """

    first_persist_seconds = 10.0

    def __init__(
        self,
        namesrv: str,
        group: str,
        subscriptions: Mapping[str, str],
        settings: PushSettings,
        options: MemberOptions,
        *,
        is_orderly: bool = False,
    ) -> None:
        """UsageError for settings, names or tags that RocketMQ refuses; CorruptError for damaged progress."""
        self._options = options = replace(options, namespace=options.namespace or namespace_of(namesrv))
        self.settings = settings
        group = with_namespace(options.namespace, group)
        _check(group, subscriptions, options)
        self._own = {with_namespace(options.namespace, topic): tags for topic, tags in subscriptions.items()}
        subscribed = dict(self._own)
        gets_all = options.broadcast or not options.joins
        if not gets_all:
            subscribed.setdefault(retry_topic(group), SUBSCRIBE_ALL)
        instance = options.instance if options.broadcast else ""
        self._client = Client(namesrv, options.dial, self._asked, instance=instance, unit=options.unit_name)
        self._member = PushMember(
            self._client, group, subscribed, settings, options.warn, options.begin, options.allocate,
            is_orderly, gets_all, self._offsets(group), options.commit and options.joins,
            namespace=options.namespace, unit_name=options.unit_name, unit_mode=options.unit_mode,
            client_rebalance=options.client_rebalance or is_orderly or gets_all, joins=options.joins,
        )  # fmt: skip
        self.hooks = self._member.hooks
        """Hooks: append to the list before messages come."""
        self._trace: TraceDispatcher | None = None
        if settings.enable_trace:
            trace = TraceOptions(settings.trace_topic, settings.trace_msg_batch_num)
            self._trace = trace_dispatcher(namesrv, group, "CONSUME", options.dial, trace, options.warn)
            self.hooks.append(ConsumeTrace(self._trace))
        self._pulling = Tasks(f"pull-{group}", options.warn)
        self._background = Tasks(f"rebalance-{group}", options.warn)
        self._rounds = 0
        self._ends: dict[MessageQueue, int] | None = None
        self._is_started = False
        self._has_joined = False
        self._refused: RmqctlError | None = None
        self._missing: set[str] = set()
        self._is_shared = threading.Event()

    def _consume_by(self, service: ConsumeService, consume: Directly | None, locks: HeldLocks | None = None) -> None:
        """Have a service consume what is pulled; `consume` carries out requests for one message (309)."""
        self._pulls = Pulls(self._member, service, self._pulling, self._moved)
        self._rebalance = Rebalance(self._member, self._pulls, locks)
        self._answers = AskedMember(self._member, consume, self._moved)
        self._locks = locks

    def _offsets(self, group: str) -> ProgressStore:
        options = self._options
        if options.broadcast:
            path = local_offsets_path(self._client.client_id, group, options.offsets_directory)
            return LocalOffsets(path, options.warn)
        if not options.joins:
            return NoOffsets(None, options.warn)
        committed = BrokerOffsets(self._client, group, options.warn)
        return committed if options.commit else NoOffsets(committed, options.warn)

    @property
    def client_id(self) -> str:
        """Return the id by which brokers know this member."""
        return self._client.client_id

    @property
    def uncommitted(self) -> dict[MessageQueue, int]:
        """Offsets that a broker did not take when asked last: messages come again."""
        return dict(self._member.offsets.uncommitted)

    @property
    def queues(self) -> list[MessageQueue]:
        """Queues that are assigned to this member now."""
        return sorted(queue for queue, held in list(self._member.queues.items()) if not held.is_dropped)

    # ---- start and end

    def _run(self) -> None:
        """Pull, share out queues and keep offsets from now on."""
        self._is_started = True
        self._pulling.start()
        self._background.start()
        if self._trace is not None:
            self._trace.start()
        self._pulls.start()
        self._background.every(self.settings.persist_seconds, self._persist, first=self.first_persist_seconds)
        self._share_soon()

    def _join(self) -> None:
        """Announce this member once a broker of a topic answers. Each missing server or topic is warned of once.
        RefusedError where live members subscribe otherwise, unless that is forced; RemoteError as `failing_seconds`
        says, AddressError for a name server that is no address."""
        addresses: set[str] = set()
        try:
            for topic in self._member.subscriptions:
                route = self._client.route(topic, anew=True)
                if (route is None or not route.readable) and topic in self._own:
                    self._miss(unrouted(topic))
                addresses |= set(route.addresses.values()) if route is not None else set()
            if addresses and self._options.joins:
                line, _ = look_at_others(
                    self._client, addresses, self._member.group, self._own,
                    force=self._options.force, is_broadcast=self._options.broadcast,
                )  # fmt: skip
                if line:
                    self._options.warn(line)
                self._member.announce(min(addresses))
            self._has_joined = bool(addresses)
        except RemoteError as error:
            self._miss(error)

    def _miss(self, error: RemoteError) -> None:
        if self._options.failing_seconds is not None or isinstance(error, AddressError):
            raise error
        if error.message not in self._missing:
            self._missing.add(error.message)
            self._options.warn(f"{error.message}: it is waited for")

    def _end(self, end_service: Callable[[], None]) -> None:
        """Pull nothing more, end what consumes, commit and leave the group."""
        self._background.close()
        self._pulling.close()
        end_service()
        try:
            if self._is_started:
                self._persist()
                self._leave()
        finally:
            self.abandon()
            if self._trace is not None:
                self._trace.close()
            self._answers.close()
            self._client.close()

    def _leave(self) -> None:
        member = self._member
        if self._locks is not None:
            # one whose callback still runs is left to expire: no other member consumes it meanwhile
            self._locks.unlock([queue for queue, held in member.queues.items() if not held.consuming.locked()])
        if self._options.joins:
            self._client.unregister(UnregisterClient(consumer_group=member.group))

    # ---- queues

    def _asked(self, address: str, command: RemotingCommand) -> Answered:
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._share_soon()
            return None
        return self._answers.answer(command)

    def _share_soon(self) -> None:
        """Share out the queues at once, in the thread that does so; requests that wait are one."""
        self._rounds += 1
        number = self._rounds
        self._background.soon(lambda: self._share(number))

    def _share(self, number: int) -> None:
        if number != self._rounds or self._refused is not None:
            return
        if not self._has_joined:
            try:
                self._join()
            except RmqctlError as error:
                self._refuse(error)
                return
        pause = self._rebalance.run() if self._has_joined else _JOIN_SECONDS
        if self._rebalance.incomplete_since is None:
            self._is_shared.set()
        self._background.later(pause, lambda: self._share(number))

    def _refuse(self, error: RmqctlError) -> None:
        """Have the caller's next call raise an error."""
        self._refused = error

    def _moved(self, queue: MessageQueue, held: ProcessQueue, offset: int) -> None:
        """Drop what is held of a queue, and go on at an offset that its broker or an operator named."""
        if self._member.queues.get(queue) is held:
            # before it is dropped: a round that finds a dropped queue commits its offset and removes it
            self._member.offsets.freeze(queue, offset)
        held.is_dropped = True
        self._background.soon(lambda: self._rebalance.moved(queue, held, self._share_soon))

    # ---- consumption

    def _persist(self) -> None:
        """Keep the offsets of what is consumed up to now."""
        self._member.offsets.persist(list(self._member.queues))

    def pause(self) -> None:
        """Pull nothing more until `resume`; what is pulled is consumed."""
        self._pulls.is_paused = True

    def resume(self) -> None:
        """Pull again."""
        self._pulls.is_paused = False

    def _ends_now(self) -> dict[MessageQueue, int] | None:
        """Return where the assigned queues end; None as long as not all are assigned or a broker does not say. Errors
        as `failing_seconds` says."""
        limit, since = self._options.failing_seconds, self._rebalance.incomplete_since
        if since is not None:
            if limit is not None and time.monotonic() - since > limit:
                raise self._rebalance.problem
            return None
        try:
            return {queue: self._member.end_of(queue) for queue in self.queues}
        except RemoteError:
            if limit is not None:
                raise
            return None

    def _require_pulls(self, *, refusals: bool = False) -> None:
        """RemoteError where a queue cannot be pulled for so long as `failing_seconds` says, or with `refusals` where a
        broker refuses that."""
        limit, now = self._options.failing_seconds, time.monotonic()
        for pulls in self._pulls.failing() if limit is not None else ():
            is_refused = refusals and isinstance(pulls.problem, BrokerError) and not is_busy(pulls.problem)
            if pulls.problem is not None and (is_refused or now - pulls.failing_since > (limit or 0.0)):
                raise pulls.problem

    def _is_consumed(self, ends: Mapping[MessageQueue, int]) -> bool:
        return all(self._pulls.is_consumed(queue, end) for queue, end in ends.items())

    def abandon(self) -> None:
        """Let no verdict count from now on: messages without one are consumed again by their next owner."""
        for held in list(self._member.queues.values()):
            held.is_dropped = True


class PushConsumer(PullingMember):
    """A member of a group, with `subscriptions`: tag expressions, or a `BySql`, by topic. A context manager.

    `on_messages` consumes concurrently in several threads, `on_ordered` queue by queue in order; one of them is given.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        subscriptions: Mapping[str, str],
        on_messages: ConcurrentListener | None = None,
        *,
        on_ordered: OrderlyListener | None = None,
        settings: PushSettings | None = None,
        options: MemberOptions | None = None,
    ) -> None:
        """UsageError for settings, names or tags that RocketMQ refuses; CorruptError for damaged progress."""
        settings, options = settings or PushSettings(), options or MemberOptions()
        super().__init__(namesrv, group, subscriptions, settings, options, is_orderly=on_ordered is not None)
        self._workers = CallbackThreads(settings.threads, settings.limit, f"consume-{self._member.group}")
        self._timed = Tasks(f"later-{self._member.group}", options.warn)
        self._send_back = SendBack(self._member, namesrv, options.dial)
        parts = self._workers, self._send_back, self._timed
        self._service: ConcurrentService | OrderlyService
        locks: HeldLocks | None = None
        if on_ordered is not None and on_messages is None:
            self._service = OrderlyService(self._member, on_ordered, *parts)
            locks = self._service.locks if self._member.is_locking else None
        elif on_messages is not None and on_ordered is None:
            self._service = ConcurrentService(self._member, on_messages, *parts)
        else:
            raise UsageError("a push consumer needs one callback: on_messages or on_ordered")
        self._consume_by(self._service, self._service.consume_directly, locks)

    @property
    def count(self) -> int:
        """Number of messages that the callback has had."""
        return self._workers.count

    def start(self) -> None:
        """Join the group and consume, now or once a broker answers. RefusedError where live members subscribe
        otherwise, unless that is forced; RemoteError as `failing_seconds` says, AddressError for a name server that is
        no address."""
        if self._is_started:
            raise UsageError("a push consumer starts once")
        self._is_started = True
        self._join()
        self._timed.start()
        self._service.start()
        self._run()

    def _refuse(self, error: RmqctlError) -> None:
        super()._refuse(error)
        self._options.warn(error.message)

    def commit(self) -> None:
        """Keep the offsets of what is consumed up to now."""
        self._persist()

    def close(self) -> None:
        """Start no callback, wait for those that run (`close_seconds`), commit, unlock and leave the group."""

        def end_callbacks() -> None:
            self._workers.close(self.settings.close_seconds)
            self._timed.close()

        try:
            self._end(end_callbacks)
        finally:
            self._send_back.close()

    def wait(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until `until()` holds, or the limit of messages is reached. RefusedError as of `start`."""
        while not until() and not self._workers.wait_for_limit(_LOOK_SECONDS):
            if self._refused is not None:
                raise self._refused

    def wait_to_the_end(self) -> None:
        """Wait until all messages are consumed that the assigned queues had when they were assigned first, or the
        limit is reached. Retries that come later are not waited for. RefusedError as of `start`, RemoteError as
        `failing_seconds` says."""
        self.wait(lambda: self.has_ended(to_the_end=True))

    def has_ended(self, *, to_the_end: bool) -> bool:
        """Return whether the limit is reached or, with `to_the_end`, what `wait_to_the_end` waits for; errors as
        there."""
        if self._refused is not None:
            raise self._refused
        if self._workers.wait_for_limit(0):
            return True
        if not to_the_end:
            return False
        self._ends = self._ends_now() if self._ends is None else self._ends
        if self._ends is None:
            return False
        self._require_pulls()
        return self._is_consumed(self._ends)

    def __enter__(self) -> PushConsumer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check(group: str, subscriptions: Mapping[str, str], options: MemberOptions) -> None:
    if not subscriptions:
        raise UsageError("a consumer subscribes at least one topic")
    for tags in subscriptions.values():
        client_filter(tags)
    if not options.client_rebalance and options.allocate not in STRATEGY_NAMES:
        raise UsageError(f"brokers share out queues by {' or '.join(STRATEGY_NAMES.values())} only")
    if options.joins:
        check_group(group, "consumer", options.client_version)
    if "/" in options.instance or not options.instance:
        raise UsageError(f"instance {options.instance!r} is not a legal name")


__all__ = ["MemberOptions", "PushConsumer"]
