"""The header of every request, declared once: the server decodes it, our clients encode it (...RequestHeader).

A field is declared by its type and, where it may be missing, its default; its name on the wire follows from its own.
Both serialisations of a command carry the fields as texts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple, Self, dataclass_transform

from rmqctl.formats.errors import CorruptError
from rmqctl.network.remoting.codec import ONEWAY_FLAG, RemotingCommand
from rmqctl.network.remoting.codec import RequestCode as Code

Long = int
"""A 64-bit integer; `int` is one of 32 bits."""

# Long.parseLong; int() alone would take "1_000" and digits of other scripts
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
# fewer digits than these are a 32-bit integer
_ALWAYS_FIT = 10
# most numbers in headers are among these, which takes less time to see than to read them
_USUAL = {str(number): number for number in range(1000)}
_BITS = {"int": 32, "Long": 64}
_REQUIRED: Final = object()


class WireField(NamedTuple):
    """A field as it is declared. `kind`: str, int, Long or bool."""

    attribute: str
    name: str
    kind: str
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether a request without it is refused."""
        return self.default is _REQUIRED

    def value(self, text: str) -> Any:
        """What the text of a field that is no str says. CorruptError, with RocketMQ's word for a field."""
        if self.kind == "bool":
            return text.lower() == "true"
        if len(text) < _ALWAYS_FIT and text.isdigit() and text.isascii():
            return int(text)
        limit = 1 << (_BITS[self.kind] - 1)
        if not _NUMBER.fullmatch(text) or not -limit <= int(text) < limit:
            raise CorruptError(f"the custom field <{self.name}> is no {_BITS[self.kind]}-bit integer")
        return int(text)


def _wire_name(attribute: str) -> str:
    first, *others = attribute.split("_")
    return first + "".join(map(str.capitalize, others))


HEADERS: dict[int, type[Header]] = {}
"""The header of each request that has fields, by its code."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Header:
    """A header; itself it is that of a request without fields. `NAMES`: names on the wire that do not follow from those
    of the attributes."""

    NAMES: ClassVar[Mapping[str, str]] = {}
    FIELDS: ClassVar[tuple[WireField, ...]] = ()

    def __init_subclass__(cls, codes: tuple[int, ...] = ()) -> None:
        HEADERS.update(dict.fromkeys(codes, cls))
        dataclasses.dataclass(kw_only=True, frozen=True)(cls)
        cls.FIELDS = tuple(
            WireField(
                one.name,
                cls.NAMES.get(one.name) or _wire_name(one.name),
                str(one.type).removesuffix(" | None"),
                _REQUIRED if one.default is dataclasses.MISSING else one.default,
            )
            for one in dataclasses.fields(cls)  # type: ignore[arg-type]  # it has just become one
        )

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> Self:
        """The header of a request's fields. CorruptError for a field that is missing, or no number."""
        header = cls.__new__(cls)
        values = header.__dict__
        for field in cls.FIELDS:
            attribute, name, kind, default = field
            text = fields.get(name)
            if text is None:
                if default is _REQUIRED:
                    raise CorruptError(f"the custom field <{name}> is null")
                values[attribute] = default
            elif kind == "str":
                values[attribute] = text
            else:
                value = None if kind == "bool" else _USUAL.get(text)
                values[attribute] = field.value(text) if value is None else value
        return header

    def encode(self) -> dict[str, str]:
        """Encode its fields as texts, without those that are None."""
        values = ((field.name, getattr(self, field.attribute)) for field in self.FIELDS)
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in values
            if value is not None
        }


def request(code: int, header: Header | None = None, body: bytes = b"", *, oneway: bool = False) -> RemotingCommand:
    """A request that this process sends. `oneway`: it wants no answer."""
    return RemotingCommand(code, {} if header is None else header.encode(), body, flag=ONEWAY_FLAG if oneway else 0)


class TopicHeader(
    Header,
    codes=(
        Code.GET_TOPIC_STATS_INFO,
        Code.QUERY_TOPIC_CONSUME_BY_WHO,
        Code.GET_TOPIC_CONFIG,
        Code.DELETE_TOPIC_IN_BROKER,
    ),
):
    """A topic."""

    topic: str


class QueueHeader(Header, codes=(Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME)):
    """A queue."""

    topic: str
    queue_id: int


class GroupHeader(Header, codes=(Code.QUERY_TOPICS_BY_CONSUMER, Code.GET_SUBSCRIPTIONGROUP_CONFIG)):
    """A group."""

    group: str


class GroupTopicHeader(
    Header,
    codes=(
        Code.RESET_CONSUMER_CLIENT_OFFSET,
        Code.QUERY_CONSUME_TIME_SPAN,
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
        Code.GET_CONSUMER_STATUS_FROM_CLIENT,
    ),
):
    """A group and a topic."""

    group: str
    topic: str


class ConsumerGroupHeader(
    Header, codes=(Code.NOTIFY_CONSUMER_IDS_CHANGED, Code.GET_CONSUMER_LIST_BY_GROUP, Code.GET_CONSUMER_CONNECTION_LIST)
):
    """A consumer group."""

    consumer_group: str


class ProducerGroupHeader(Header, codes=(Code.GET_PRODUCER_CONNECTION_LIST,)):
    """A producer group."""

    producer_group: str


class BrokerNameHeader(Header, codes=(Code.WIPE_WRITE_PERM_OF_BROKER, Code.ADD_WRITE_PERM_OF_BROKER)):
    """A broker's name."""

    broker_name: str


# ---- messages


class MessageHeader(Header):
    """What is said of a message on its way. `properties`: in stored form."""

    producer_group: str
    topic: str
    default_topic: str = ""
    default_topic_queue_nums: int = 4
    queue_id: int
    sys_flag: int = 0
    born_timestamp: Long = 0
    flag: int = 0
    properties: str = ""
    reconsume_times: int = 0
    unit_mode: bool = False


class SendMessage(MessageHeader, codes=(Code.SEND_MESSAGE, Code.SEND_REPLY_MESSAGE)):
    """What a producer says of its message."""

    NAMES: ClassVar = {"broker_name": "bname"}

    max_reconsume_times: int | None = None
    batch: bool = False
    broker_name: str | None = None


class SendMessageV2(SendMessage, codes=(Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE_V2)):
    """The same in its short form."""

    NAMES: ClassVar = {
        "producer_group": "a", "topic": "b", "default_topic": "c", "default_topic_queue_nums": "d", "queue_id": "e",
        "sys_flag": "f", "born_timestamp": "g", "flag": "h", "properties": "i", "reconsume_times": "j",
        "unit_mode": "k", "max_reconsume_times": "l", "batch": "m", "broker_name": "n",
    }  # fmt: skip


class PushReply(MessageHeader, codes=(Code.PUSH_REPLY_MESSAGE_TO_CLIENT,)):
    """A reply as it is pushed to the producer that asked (ReplyMessageRequestHeader)."""

    producer_group: str = ""
    default_topic_queue_nums: int = 0
    queue_id: int = 0
    born_host: str = ""
    store_host: str = ""
    store_timestamp: Long = 0


class SendMsgBack(Header, codes=(Code.CONSUMER_SEND_MSG_BACK,)):
    """A message that a consumer could not process (ConsumerSendMsgBackRequestHeader)."""

    NAMES: ClassVar = {"broker_name": "bname"}

    offset: Long
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    broker_name: str | None = None


class PullMessage(Header, codes=(Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE)):
    """A pull."""

    NAMES: ClassVar = {"broker_name": "bname"}

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    broker_name: str | None = None


class EndTransaction(Header, codes=(Code.END_TRANSACTION,)):
    """How a transaction ends."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None


class CheckTransactionState(Header, codes=(Code.CHECK_TRANSACTION_STATE,)):
    """A producer is asked how a transaction ends."""

    NAMES: ClassVar = {"broker_name": "bname"}

    broker_name: str | None = None
    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str = ""
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessage(Header, codes=(Code.RESUME_CHECK_HALF_MESSAGE,)):
    """A half message whose producer is to be asked again."""

    msg_id: str


class RecallMessage(Header, codes=(Code.RECALL_MESSAGE,)):
    """A timed message that is taken back."""

    producer_group: str = ""
    topic: str
    recall_handle: str = ""


class QueryMessage(Header, codes=(Code.QUERY_MESSAGE,)):
    """Messages by key."""

    NAMES: ClassVar = {"unique_key_query": "_UNIQUE_KEY_QUERY"}

    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    unique_key_query: bool = False


class ViewMessage(Header, codes=(Code.VIEW_MESSAGE_BY_ID,)):
    """A message by its physical offset."""

    offset: Long


class QueryConsumeQueue(Header, codes=(Code.QUERY_CONSUME_QUEUE,)):
    """Units of a queue."""

    topic: str
    queue_id: int
    index: Long
    count: int
    consumer_group: str | None = None


# ---- offsets


class SearchOffset(Header, codes=(Code.SEARCH_OFFSET_BY_TIMESTAMP,)):
    """A time in a queue."""

    topic: str
    queue_id: int
    timestamp: Long
    boundary_type: str | None = None


class QueryConsumerOffset(Header, codes=(Code.QUERY_CONSUMER_OFFSET,)):
    """A group in a queue."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool = True


class UpdateConsumerOffset(Header, codes=(Code.UPDATE_CONSUMER_OFFSET,)):
    """How far a group is in a queue."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: Long


class QueryCorrectionOffset(Header, codes=(Code.QUERY_CORRECTION_OFFSET,)):
    """Offsets of groups in a topic. `filter_groups`: separated by commas."""

    topic: str
    compare_group: str = ""
    filter_groups: str = ""


class ResetOffset(Header, codes=(Code.INVOKE_BROKER_TO_RESET_OFFSET,)):
    """Where a group is to go on. `queue_id`: -1 for all."""

    topic: str
    group: str
    queue_id: int = -1
    offset: Long = -1
    timestamp: Long
    is_force: bool = False


class CloneGroupOffset(Header, codes=(Code.CLONE_GROUP_OFFSET,)):
    """A group that is to be where another one is."""

    src_group: str
    dest_group: str
    topic: str = ""
    offline: bool = False


class GetConsumeStats(Header, codes=(Code.GET_CONSUME_STATS,)):
    """A group, in all of its topics, in one or in those of a list."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetBrokerConsumeStats(Header, codes=(Code.GET_BROKER_CONSUME_STATS,)):
    """All groups."""

    is_order: bool = False


class ViewBrokerStatsData(Header, codes=(Code.VIEW_BROKER_STATS_DATA,)):
    """One of the broker's counts."""

    stats_name: str
    stats_key: str


# ---- clients


class UnregisterClient(Header, codes=(Code.UNREGISTER_CLIENT,)):
    """A client that leaves its groups."""

    NAMES: ClassVar = {"client_id": "clientID"}

    client_id: str | None = None
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerRunningInfo(Header, codes=(Code.GET_CONSUMER_RUNNING_INFO,)):
    """A client of a group."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectly(Header, codes=(Code.CONSUME_MESSAGE_DIRECTLY,)):
    """A client of a group, and a message for it. What follows the message's id is the broker's to say."""

    consumer_group: str
    client_id: str
    msg_id: str
    topic: str = ""
    broker_name: str = ""


class GetConsumerStatus(Header, codes=(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,)):
    """Members of a group, or the one at an address, and a topic."""

    topic: str
    group: str
    client_addr: str = ""


# ---- what is configured


class CreateTopic(Header, codes=(Code.UPDATE_AND_CREATE_TOPIC,)):
    """A topic as it is to be. `attributes`: changes."""

    topic: str
    default_topic: str | None = None
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = ""
    topic_sys_flag: int = 0
    order: bool = False
    attributes: str = ""


class DeleteGroup(Header, codes=(Code.DELETE_SUBSCRIPTIONGROUP,)):
    """A group that goes."""

    group_name: str
    clean_offset: bool = False
    remove_offset: bool | None = None


class UpdateGroupForbidden(Header, codes=(Code.UPDATE_AND_GET_GROUP_FORBIDDEN,)):
    """Whether a group may read a topic; None asks."""

    group: str
    topic: str
    readable: bool | None = None


class SetReadMode(Header, codes=(Code.SET_COMMITLOG_READ_MODE,)):
    """How the kernel reads ahead."""

    NAMES: ClassVar = {"mode": "READ_AHEAD_MODE"}

    mode: str = ""


class SwitchTimerEngine(Header, codes=(Code.SWITCH_TIMER_ENGINE,)):
    """What keeps timed messages."""

    NAMES: ClassVar = {"engine": "E_T"}

    engine: str = ""


class ExportRocksdbConfig(Header, codes=(Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,)):
    """A table of the configuration."""

    config_type: str


# ---- the name server


class GetRouteInfo(Header, codes=(Code.GET_ROUTEINFO_BY_TOPIC,)):
    """A topic, and how the client reads JSON."""

    topic: str
    accept_standard_json_only: bool = False


class GetTopicsByCluster(Header, codes=(Code.GET_TOPICS_BY_CLUSTER,)):
    """A cluster."""

    cluster: str


class DeleteTopicInNamesrv(Header, codes=(Code.DELETE_TOPIC_IN_NAMESRV,)):
    """A topic that goes."""

    topic: str
    cluster_name: str | None = None


class GetBrokerMemberGroup(Header, codes=(Code.GET_BROKER_MEMBER_GROUP,)):
    """The brokers of a name."""

    cluster_name: str
    broker_name: str


class KvKey(Header, codes=(Code.GET_KV_CONFIG, Code.DELETE_KV_CONFIG)):
    """A setting of a namespace."""

    namespace: str
    key: str


class PutKvConfig(Header, codes=(Code.PUT_KV_CONFIG,)):
    """A setting of a namespace, and its value."""

    namespace: str | None = None
    key: str | None = None
    value: str


class KvNamespace(Header, codes=(Code.GET_KVLIST_BY_NAMESPACE,)):
    """A namespace."""

    namespace: str


class RegisterBroker(Header, codes=(Code.REGISTER_BROKER,)):
    """A broker and where it is."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long
    ha_server_addr: str = ""
    compressed: bool = False
    body_crc32: int = 0


class UnregisterBroker(Header, codes=(Code.UNREGISTER_BROKER,)):
    """A broker that leaves."""

    broker_name: str
    broker_addr: str | None = None
    cluster_name: str | None = None
    broker_id: Long


class BrokerHeartbeat(Header, codes=(Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION)):
    """A broker that is still there."""

    broker_name: str
    broker_addr: str
