"""Hooks of producers: called before and after sends and at the end of transactions (SendMessageHook and others)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.client import Warn, without_namespace
from rmqctl.network.clients.producing.requests import Outgoing, SendResult
from rmqctl.network.remoting.codec import MessageQueue

SYNC, ASYNC, ONEWAY = "SYNC", "ASYNC", "ONEWAY"


class MessageType(enum.IntEnum):
    """Kind of a message; the numbers are those in traces."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


@dataclass
class SendHookContext:
    """One send: an attempt of a synchronous one, or an asynchronous one with all its attempts.

    `message`: as the producer was given it, the first one of a batch; `body`: as it is sent; `mode`: SYNC, ASYNC or
    ONEWAY. `result` or `error` is set after the send, neither after a oneway one.
    `notes` is for hooks to keep what they need between both calls.
    """

    group: str
    namespace: str
    message: Message
    is_batch: bool
    unique_key: str
    body: bytes
    queue: MessageQueue
    address: str
    mode: str
    message_type: MessageType
    result: SendResult | None = None
    error: RmqctlError | None = None
    notes: dict[Any, Any] = field(default_factory=dict)


class SendHook:
    """Base of hooks that are called before and after sends. An exception of a hook is reported, and changes nothing."""

    def before(self, context: SendHookContext) -> None:
        """Take note of a send that begins."""

    def after(self, context: SendHookContext) -> None:
        """Take note of a send that ended."""


class EndTransactionContext(NamedTuple):
    """The end of a transaction. `state`: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW, which RocketMQ spells so;
    `is_from_check`: the broker asked for it."""

    group: str
    message: Message
    unique_key: str
    address: str
    state: str
    is_from_check: bool


CheckForbidden = Callable[[SendHookContext], None]
"""Called before each attempt. RemoteError has another broker tried, another RmqctlError ends the send."""

EndTransactionHook = Callable[[EndTransactionContext], None]
"""Called before a transaction ends. An exception of it is reported, and changes nothing."""


class ProducerHooks:
    """Hooks of one producer, in the order in which they are called. `warn` gets a line for a hook that fails."""

    def __init__(self, group: str, namespace: str, warn: Callable[[str], object]) -> None:
        self.sending: list[SendHook] = []
        self.forbidding: list[CheckForbidden] = []
        self.ending: list[EndTransactionHook] = []
        self._group = group
        self._namespace = namespace
        self._warn = warn

    def begin(self, outgoing: Outgoing, queue: MessageQueue, address: str, mode: str) -> SendHookContext | None:
        """Call the hooks before a send. Return its context, None without hooks. Raises: what a CheckForbidden does."""
        if not self.sending and not self.forbidding:
            return None
        context = SendHookContext(
            self._group, self._namespace, outgoing.message, outgoing.is_batch, outgoing.unique_keys, outgoing.body,
            queue, address, mode, _type_of(outgoing),
        )  # fmt: skip
        for check in self.forbidding:
            check(context)
        for hook in self.sending:
            self._call(hook, partial(hook.before, context))
        return context

    def end(
        self, context: SendHookContext | None, result: SendResult | None = None, error: RmqctlError | None = None
    ) -> None:
        """Call the hooks after a send."""
        if context is None:
            return
        context.result, context.error = result, error
        for hook in self.sending:
            self._call(hook, partial(hook.after, context))

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Call the hooks of the end of a transaction."""
        for hook in self.ending:
            self._call(hook, partial(hook, context))

    def _call(self, hook: object, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a hook that fails is not the producer's failure
            name = getattr(hook, "__name__", type(hook).__name__)
            self._warn(f"hook {name} failed: {type(error).__name__}: {error}")


def _type_of(outgoing: Outgoing) -> MessageType:
    """Return the type of a message as sendKernelImpl finds it."""
    given = {} if outgoing.is_batch else outgoing.message.properties
    if "__STARTDELIVERTIME" in given or names.DELAY in given:
        return MessageType.DELAY
    return MessageType.TRANSACTION_HALF if given.get("TRAN_MSG") == "true" else MessageType.NORMAL


# Hooks of consumers: called before and after messages are consumed (ConsumeMessageHook).


class ConsumeReturn(enum.IntEnum):
    """How a callback ended; the numbers are those in traces (ConsumeReturnType)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


@dataclass
class ConsumeHookContext:
    """One consumption. `status`, `is_success` and `returned` are known after it; `notes` is for hooks to keep what they
    need between both calls."""

    group: str
    namespace: str
    queue: MessageQueue
    messages: Sequence[StoredMessage]
    is_success: bool = False
    status: str = ""
    returned: ConsumeReturn = ConsumeReturn.SUCCESS
    notes: dict[Any, Any] = field(default_factory=dict)


class ConsumeHook:
    """Base of hooks that are called before and after messages are consumed. An exception of a hook is reported, and
    changes nothing."""

    def before(self, context: ConsumeHookContext) -> None:
        """Take note that messages are about to be consumed."""

    def after(self, context: ConsumeHookContext) -> None:
        """Take note that messages were consumed, or were not."""


def begin_consumption(
    hooks: Sequence[ConsumeHook],
    group: str,
    namespace: str,
    queue: MessageQueue,
    messages: Sequence[StoredMessage],
    warn: Warn,
) -> ConsumeHookContext:
    """Call the hooks before a consumption. Return its context, in which the topic has no namespace."""
    queue = queue._replace(topic=without_namespace(namespace, queue.topic))
    context = ConsumeHookContext(group, namespace, queue, messages)
    _run(hooks, lambda hook: hook.before(context), warn)
    return context


def run_after(hooks: Sequence[ConsumeHook], context: ConsumeHookContext, warn: Warn) -> None:
    """Call the hooks after a consumption."""
    _run(hooks, lambda hook: hook.after(context), warn)


def _run(hooks: Sequence[ConsumeHook], call: Callable[[ConsumeHook], None], warn: Warn) -> None:
    for hook in hooks:
        try:
            call(hook)
        except Exception as error:  # noqa: BLE001 - a hook that fails is not the consumer's failure
            warn(f"hook {type(hook).__name__} failed: {type(error).__name__}: {error}")
