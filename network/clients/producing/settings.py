"""Settings of a producer, by RocketMQ's names and with its defaults (DefaultMQProducer, ClientConfig)."""

from __future__ import annotations

import enum
import struct
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_int
from rmqctl.formats.errors import RefusedError, UsageError
from rmqctl.formats.message import Message
from rmqctl.formats.properties import BUILT, encode_properties, in_java_order
from rmqctl.network.topic_config import DEFAULT_TOPIC
from rmqctl.store.config.config_files import NOT_ALLOWED_TO_SEND, group_problem, has_legal_characters
from rmqctl.store.config.releases import DEFAULT_RELEASE, RELEASES
from rmqctl.store.pop.records import RETRY_PREFIX

_COMPRESSION_TYPES = ("LZ4", "ZSTD", "ZLIB")
_TRUE, _FALSE = "true", "false"


class ProducerSettings(NamedTuple):
    """Settings of a producer, named as in RocketMQ: `send_msg_timeout` is sendMsgTimeout. Times are in milliseconds,
    sizes in bytes; -1 is no limit for a request, and for `back_pressure_for_async_send_num` that of the version.
    `client_version`: the version whose names of groups are legal."""

    create_topic_key: str = DEFAULT_TOPIC
    default_topic_queue_nums: int = 4
    send_msg_timeout: int = 3000
    send_msg_max_timeout_per_request: int = -1
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    compress_msg_body_over_howmuch: int = 4096
    compress_level: int = 5
    compress_type: str = "ZLIB"
    max_message_size: int = 4 * 1024 * 1024
    send_latency_enable: bool = False
    start_detector_enable: bool = False
    detect_interval: int = 2000
    detect_timeout: int = 200
    vip_channel_enabled: bool = False
    enable_backpressure_for_async_mode: bool = False
    back_pressure_for_async_send_num: int = -1
    back_pressure_for_async_send_size: int = 100 * 1024 * 1024
    enable_trace: bool = False
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    trace_msg_batch_num: int = 10
    namespace: str = ""
    instance_name: str = "DEFAULT"
    unit_name: str = ""
    unit_mode: bool = False
    poll_name_server_interval: int = 30_000
    heartbeat_broker_interval: int = 30_000
    client_version: str = DEFAULT_RELEASE.name


DEFAULTS = ProducerSettings()
_FIELDS = {
    name.split("_")[0] + "".join(part.capitalize() for part in name.split("_")[1:]): name
    for name in ProducerSettings._fields
}
_FIELDS["retryAnotherBrokerWhenNotStoreOK"] = _FIELDS.pop("retryAnotherBrokerWhenNotStoreOk")
NAMES = tuple(sorted(_FIELDS))
"""RocketMQ's names of the settings."""
_NUMBERS = {
    "defaultTopicQueueNums": (1, 1 << 16),
    "sendMsgTimeout": (1, 1 << 31),
    "sendMsgMaxTimeoutPerRequest": (-1, 1 << 31),
    "retryTimesWhenSendFailed": (0, 1000),
    "retryTimesWhenSendAsyncFailed": (0, 1000),
    "compressMsgBodyOverHowmuch": (0, 1 << 31),
    "compressLevel": (0, 9),
    "maxMessageSize": (1, 1 << 31),
    "backPressureForAsyncSendNum": (0, 1 << 31),
    "backPressureForAsyncSendSize": (0, 1 << 31),
    "traceMsgBatchNum": (1, 1 << 31),
    "detectInterval": (1, 1 << 31),
    "detectTimeout": (1, 1 << 31),
    "pollNameServerInterval": (10, 1 << 31),
    "heartbeatBrokerInterval": (10, 1 << 31),
}


def settings_from(texts: Mapping[str, str], base: ProducerSettings = DEFAULTS) -> ProducerSettings:
    """Return `base` with the settings in `texts`. Raises: UsageError for an unknown name or an invalid value."""
    found: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in _FIELDS:
            raise UsageError(f"a producer has no setting {name!r}", hint=f"its settings are: {', '.join(NAMES)}")
        found[_FIELDS[name]] = _value(name, text)
    return base._replace(**found)


def _value(name: str, text: str) -> Any:
    default = getattr(DEFAULTS, _FIELDS[name])
    if isinstance(default, bool):
        if text not in (_TRUE, _FALSE):
            raise UsageError(f"{name} is true or false, not {text!r}")
        return text == _TRUE
    if isinstance(default, int):
        least, most = _NUMBERS[name]
        is_number = text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 12
        if not is_number or not least <= int(text) <= most:
            raise UsageError(f"{name} is a number from {least} to {most}, not {text!r}")
        return int(text)
    if name == "clientVersion" and text not in RELEASES:
        raise UsageError(f"clientVersion is one of {', '.join(RELEASES)}, not {text!r}")
    if name == "compressType" and text not in _COMPRESSION_TYPES:
        raise UsageError(f"compressType is one of {', '.join(_COMPRESSION_TYPES)}, not {text!r}")
    return text


# Checks of a producer before it sends, with RocketMQ's messages (Validators of 5.3.3).

_LONGEST_TOPIC = 127
_LEGAL = "^[%|a-zA-Z0-9_-]+$"
_DEFAULT_GROUPS = {"producer": "DEFAULT_PRODUCER", "consumer": "DEFAULT_CONSUMER"}


def check_group(group: str, kind: str = "producer", version: str = DEFAULT_RELEASE.name) -> None:
    """Raises: UsageError where no client of the kind, a producer or a consumer, and version may have the group."""
    if version not in RELEASES:
        raise UsageError(f"clientVersion is one of {', '.join(RELEASES)}, not {version!r}")
    problem = group_problem(group, RELEASES[version])
    if problem is not None:
        raise UsageError(problem)
    if group == _DEFAULT_GROUPS[kind]:
        raise UsageError(f"{kind}Group can not equal {group}, please specify another one.")


def check_topic(topic: str) -> None:
    """Raises: UsageError where no producer may send to the topic."""
    if not topic.strip():
        raise UsageError("The specified topic is blank")
    if len(topic) > _LONGEST_TOPIC:
        raise UsageError(f"The specified topic is longer than topic max length {_LONGEST_TOPIC}.")
    if not has_legal_characters(topic):
        raise UsageError(f"The specified topic[{topic}] contains illegal characters, allowing only {_LEGAL}")
    if topic in NOT_ALLOWED_TO_SEND:
        raise UsageError(f"Sending message to topic[{topic}] is forbidden.")


def check_message(message: Message, largest: int) -> None:
    """Raises: UsageError where a producer refuses the message; `largest`: maxMessageSize, in bytes."""
    check_topic(message.topic)
    if not message.body:
        raise UsageError("the message body length is zero")
    if len(message.body) > largest:
        raise UsageError(f"the message body size over max value, MAX: {largest}")
    path = message.properties.get(names.INNER_MULTI_DISPATCH, "")
    if "/" in path:
        raise UsageError(f"INNER_MULTI_DISPATCH {path} can not contains / character")


# States of a producer, and the groups that have one in this process (ServiceState, MQClientInstance).


class ServiceState(enum.Enum):
    """State of a producer, by RocketMQ's names."""

    CREATE_JUST = "created"
    RUNNING = "running"
    SHUTDOWN_ALREADY = "shut down"
    START_FAILED = "failed"


_lock = threading.Lock()
_taken: set[Hashable] = set()


class Lifecycle:
    """Life cycle of one producer, which starts once and ends once. May be used by many threads."""

    def __init__(self) -> None:
        self.state = ServiceState.CREATE_JUST
        self._key: Hashable = None

    def start(self, check: Callable[[], Hashable], group: str) -> None:
        """Run `check`, and take the key that it returns for this process.

        Raises: what `check` raises, and the producer has failed; RefusedError where it was started before, or where
        the key is taken, and it can be started later.
        """
        with _lock:
            if self.state is not ServiceState.CREATE_JUST:
                raise RefusedError(f"The producer service state not OK, maybe started once, {self.state.name}")
            self.state = ServiceState.START_FAILED
            key = check()
            if key in _taken:
                self.state = ServiceState.CREATE_JUST
                raise RefusedError(
                    f"The producer group[{group}] has been created before, specify another name please.",
                    hint="close the other producer, or give one of them another group or instanceName",
                )
            _taken.add(key)
            self._key = key
            self.state = ServiceState.RUNNING

    def require_running(self) -> None:
        """Raises: RefusedError where the producer is not running."""
        if self.state is not ServiceState.RUNNING:
            hint = (
                "start it: start(), or a `with` block" if self.state is ServiceState.CREATE_JUST else "make a new one"
            )
            raise RefusedError(f"The producer service state not OK, {self.state.name}", hint=hint)

    def end(self) -> bool:
        """Leave the running state; return False where the producer was not running."""
        with _lock:
            if self.state is not ServiceState.RUNNING:
                return False
            _taken.discard(self._key)
            self.state = ServiceState.SHUTDOWN_ALREADY
            return True


# Batches: what may be in one, how it is encoded, and where a long list is split (MessageBatch, ListSplitter).

_HEAD = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")
SIZE_LIMIT = 1000 * 1000
"""Bytes of a batch, as RocketMQ's ListSplitter counts them."""
_OVERHEAD = 20


def check_batch(messages: Sequence[Message]) -> None:
    """Raises: UsageError where the messages cannot be one batch (MessageBatch#generateFromList of 5.5.0).

    Clients before 5.5 put messages with a delivery time into batches, and brokers deliver those at once.
    """
    if not messages:
        raise UsageError("the messages of a batch must have one topic, and there must be some")
    for message in messages:
        if _delay_level(message) > 0:
            raise UsageError("TimeDelayLevel is not supported for batching")
        if _is_timed(message):
            raise UsageError("Delayed messages are not supported for batching")
        if message.topic.startswith(RETRY_PREFIX):
            raise UsageError("Retry Group is not supported for batching")
        if message.topic != messages[0].topic:
            raise UsageError("The topic of the messages in one batch should be the same")
        if waits(message) != waits(messages[0]):
            raise UsageError("The waitStoreMsgOK of the messages in one batch should the same")


def waits(message: Message) -> bool:
    """Return whether the sender waits until the message is stored safely (isWaitStoreMsgOK)."""
    return message.properties.get(names.WAIT, "true").lower() == "true"


def _delay_level(message: Message) -> int:
    text = message.properties.get(names.DELAY, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def _is_timed(message: Message) -> bool:
    return any(name in message.properties for name in names.TIMER_PROPERTIES)


def _is_alone(message: Message) -> bool:
    return _delay_level(message) > 0 or _is_timed(message) or message.topic.startswith(RETRY_PREFIX)


def size_in_batch(message: Message) -> int:
    """Return the size that RocketMQ's ListSplitter counts: characters of texts, bytes of the body, 20 for the rest."""
    properties = sum(len(name) + len(value) for name, value in message.properties.items())
    return len(message.topic) + len(message.body) + properties + _OVERHEAD


def split(messages: Iterable[Message], most: int, limit: int = SIZE_LIMIT) -> Iterator[list[Message]]:
    """Yield lists of at most `most` messages and `limit` bytes, in order; each can be one batch.

    A message above the limit is alone, as is one that no batch may have: delayed and timed ones, and those of retry
    topics.
    """
    taken: list[Message] = []
    size = 0
    for message in messages:
        more = size_in_batch(message)
        if taken and (len(taken) >= most or size + more > limit or not _go_together(taken[0], message)):
            yield taken
            taken, size = [], 0
        taken.append(message)
        size += more
    if taken:
        yield taken


def _go_together(one: Message, other: Message) -> bool:
    try:
        check_batch([one, other])
    except UsageError:
        return False
    return True


def is_single(messages: Sequence[Message]) -> bool:
    """Return whether a list of `split` is one message that no batch may have."""
    return len(messages) == 1 and _is_alone(messages[0])


def encode_item(message: Message) -> bytes:
    """Return one message of a batch (MessageDecoder#encodeMessage).

    Raises: UsageError for properties or a flag that their fields cannot hold. RocketMQ cuts them, and the broker then
    reads the rest of the batch from a wrong place.
    """
    properties = encode_properties(in_java_order(message.properties, BUILT))
    if len(properties) > names.MAXIMUM_PROPERTIES_SIZE:
        raise UsageError(
            f"the properties of a message have {len(properties)} bytes: "
            f"a message of a batch may have {names.MAXIMUM_PROPERTIES_SIZE}"
        )
    if java_int(message.flag) != message.flag:
        raise UsageError(f"the flag of a message is {message.flag}: it must be a 32-bit integer")
    size = _HEAD.size + len(message.body) + _LENGTH.size + len(properties)
    head = _HEAD.pack(size, 0, 0, message.flag, len(message.body))
    return head + message.body + _LENGTH.pack(len(properties)) + properties
