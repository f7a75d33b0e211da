"""Messages and calls of apache.rocketmq.v2, made at run time from a table of their names, types and numbers.

They are in a pool of their own: a client in the same process may have its own definition of the same names.
"""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any, NamedTuple

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"

Code = enum.IntEnum(
    "Code",
    {
        "CODE_UNSPECIFIED": 0, "OK": 20000, "MULTIPLE_RESULTS": 30000, "BAD_REQUEST": 40000,
        "ILLEGAL_ACCESS_POINT": 40001, "ILLEGAL_TOPIC": 40002, "ILLEGAL_CONSUMER_GROUP": 40003,
        "ILLEGAL_MESSAGE_TAG": 40004, "ILLEGAL_MESSAGE_KEY": 40005, "ILLEGAL_MESSAGE_GROUP": 40006,
        "ILLEGAL_MESSAGE_PROPERTY_KEY": 40007, "INVALID_TRANSACTION_ID": 40008, "ILLEGAL_MESSAGE_ID": 40009,
        "ILLEGAL_FILTER_EXPRESSION": 40010, "ILLEGAL_INVISIBLE_TIME": 40011, "ILLEGAL_DELIVERY_TIME": 40012,
        "INVALID_RECEIPT_HANDLE": 40013, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE": 40014,
        "UNRECOGNIZED_CLIENT_TYPE": 40015, "MESSAGE_CORRUPTED": 40016, "CLIENT_ID_REQUIRED": 40017,
        "ILLEGAL_POLLING_TIME": 40018, "ILLEGAL_OFFSET": 40019, "ILLEGAL_LITE_TOPIC": 40020, "UNAUTHORIZED": 40100,
        "PAYMENT_REQUIRED": 40200, "FORBIDDEN": 40300, "NOT_FOUND": 40400, "MESSAGE_NOT_FOUND": 40401,
        "TOPIC_NOT_FOUND": 40402, "CONSUMER_GROUP_NOT_FOUND": 40403, "OFFSET_NOT_FOUND": 40404,
        "REQUEST_TIMEOUT": 40800, "PAYLOAD_TOO_LARGE": 41300, "MESSAGE_BODY_TOO_LARGE": 41301,
        "MESSAGE_BODY_EMPTY": 41302, "PRECONDITION_FAILED": 42800, "TOO_MANY_REQUESTS": 42900,
        "LITE_TOPIC_QUOTA_EXCEEDED": 42901, "LITE_SUBSCRIPTION_QUOTA_EXCEEDED": 42902,
        "REQUEST_HEADER_FIELDS_TOO_LARGE": 43100, "MESSAGE_PROPERTIES_TOO_LARGE": 43101, "INTERNAL_ERROR": 50000,
        "INTERNAL_SERVER_ERROR": 50001, "HA_NOT_AVAILABLE": 50002, "NOT_IMPLEMENTED": 50100, "PROXY_TIMEOUT": 50400,
        "MASTER_PERSISTENCE_TIMEOUT": 50401, "SLAVE_PERSISTENCE_TIMEOUT": 50402, "UNSUPPORTED": 50500,
        "VERSION_UNSUPPORTED": 50501, "VERIFY_FIFO_MESSAGE_UNSUPPORTED": 50502, "FAILED_TO_CONSUME_MESSAGE": 60000,
    },
)  # fmt: skip
AddressScheme = enum.IntEnum("AddressScheme", "ADDRESS_SCHEME_UNSPECIFIED IPv4 IPv6 DOMAIN_NAME", start=0)
ClientType = enum.IntEnum(
    "ClientType",
    "CLIENT_TYPE_UNSPECIFIED PRODUCER PUSH_CONSUMER SIMPLE_CONSUMER PULL_CONSUMER LITE_PUSH_CONSUMER "
    "LITE_SIMPLE_CONSUMER",
    start=0,
)
DigestType = enum.IntEnum("DigestType", "DIGEST_TYPE_UNSPECIFIED CRC32 MD5 SHA1", start=0)
Encoding = enum.IntEnum("Encoding", "ENCODING_UNSPECIFIED IDENTITY GZIP", start=0)
FilterType = enum.IntEnum("FilterType", "FILTER_TYPE_UNSPECIFIED TAG SQL", start=0)
MessageTypeV2 = enum.IntEnum(
    "MessageTypeV2", "MESSAGE_TYPE_UNSPECIFIED NORMAL FIFO DELAY TRANSACTION LITE PRIORITY", start=0
)
Permission = enum.IntEnum("Permission", "PERMISSION_UNSPECIFIED NONE READ WRITE READ_WRITE", start=0)
TransactionResolution = enum.IntEnum(
    "TransactionResolution", "TRANSACTION_RESOLUTION_UNSPECIFIED COMMIT ROLLBACK", start=0
)
TransactionSource = enum.IntEnum("TransactionSource", "SOURCE_UNSPECIFIED SOURCE_CLIENT SOURCE_SERVER_CHECK", start=0)
_Language = enum.IntEnum(
    "_Language",
    "LANGUAGE_UNSPECIFIED JAVA CPP DOT_NET GOLANG RUST PYTHON PHP NODE_JS RUBY OBJECTIVE_C DART KOTLIN",
    start=0,
)
_LiteAction = enum.IntEnum("_LiteAction", "PARTIAL_ADD PARTIAL_REMOVE COMPLETE_ADD COMPLETE_REMOVE", start=0)
_ENUMS: dict[str, Any] = {
    "AddressScheme": AddressScheme, "ClientType": ClientType, "Code": Code, "DigestType": DigestType,
    "Encoding": Encoding, "FilterType": FilterType, "Language": _Language, "LiteSubscriptionAction": _LiteAction,
    "MessageType": MessageTypeV2, "Permission": Permission, "TransactionResolution": TransactionResolution,
    "TransactionSource": TransactionSource,
}  # fmt: skip

# A message a line, its fields numbered from 1 on: name, then `:` and the type unless it is a string, `*` where it is
# repeated, `?` where it says whether it was set, `@` and a name for one of several.
_MESSAGES = """
Resource resource_namespace name
Address host port:int32
Endpoints scheme:AddressScheme addresses:Address*
Broker name id:int32 endpoints:Endpoints
MessageQueue topic:Resource id:int32 permission:Permission broker:Broker accept_message_types:MessageType*
Status code:Code message
Digest type:DigestType checksum
DeadLetterQueue topic message_id
SystemProperties tag? keys* message_id body_digest:Digest body_encoding:Encoding message_type:MessageType \
born_timestamp:Timestamp born_host store_timestamp:Timestamp store_host delivery_timestamp:Timestamp receipt_handle? \
queue_id:int32 queue_offset:int64? invisible_duration:Duration delivery_attempt:int32? message_group? trace_context? \
orphaned_transaction_recovery_duration:Duration dead_letter_queue:DeadLetterQueue lite_topic? priority:int32?
Message topic:Resource user_properties:map system_properties:SystemProperties body:bytes
Assignment message_queue:MessageQueue
FilterExpression type:FilterType expression
SubscriptionEntry topic:Resource expression:FilterExpression
ExponentialBackoff initial:Duration max:Duration multiplier:float
CustomizedBackoff next:Duration*
RetryPolicy max_attempts:int32 exponential_backoff:ExponentialBackoff@strategy \
customized_backoff:CustomizedBackoff@strategy
UA language:Language version platform hostname
Publishing topics:Resource* max_body_size:int32 validate_message_type:bool
Subscription group:Resource subscriptions:SubscriptionEntry* fifo:bool? receive_batch_size:int32? \
long_polling_timeout:Duration lite_subscription_quota:int32? max_lite_topic_size:int32?
Metric on:bool endpoints:Endpoints
Settings client_type:ClientType? access_point:Endpoints backoff_policy:RetryPolicy request_timeout:Duration \
publishing:Publishing@pub_sub subscription:Subscription@pub_sub user_agent:UA metric:Metric
QueryRouteRequest topic:Resource endpoints:Endpoints
QueryRouteResponse status:Status message_queues:MessageQueue*
SendMessageRequest messages:Message*
SendResultEntry status:Status message_id transaction_id offset:int64 recall_handle
SendMessageResponse status:Status entries:SendResultEntry*
QueryAssignmentRequest topic:Resource group:Resource endpoints:Endpoints
QueryAssignmentResponse status:Status assignments:Assignment*
ReceiveMessageRequest group:Resource message_queue:MessageQueue filter_expression:FilterExpression batch_size:int32 \
invisible_duration:Duration auto_renew:bool long_polling_timeout:Duration attempt_id?
ReceiveMessageResponse status:Status@content message:Message@content delivery_timestamp:Timestamp@content
AckMessageEntry message_id receipt_handle lite_topic?
AckMessageRequest group:Resource topic:Resource entries:AckMessageEntry*
AckMessageResultEntry message_id receipt_handle status:Status
AckMessageResponse status:Status entries:AckMessageResultEntry*
ForwardMessageToDeadLetterQueueRequest group:Resource topic:Resource receipt_handle message_id delivery_attempt:int32 \
max_delivery_attempts:int32 lite_topic?
ForwardMessageToDeadLetterQueueResponse status:Status
HeartbeatRequest group:Resource client_type:ClientType
HeartbeatResponse status:Status
EndTransactionRequest topic:Resource message_id transaction_id resolution:TransactionResolution \
source:TransactionSource trace_context
EndTransactionResponse status:Status
PrintThreadStackTraceCommand nonce
ReconnectEndpointsCommand nonce
ThreadStackTrace nonce thread_stack_trace?
VerifyMessageCommand nonce message:Message
VerifyMessageResult nonce
RecoverOrphanedTransactionCommand message:Message transaction_id
NotifyUnsubscribeLiteCommand lite_topic
TelemetryCommand status:Status settings:Settings@command thread_stack_trace:ThreadStackTrace@command \
verify_message_result:VerifyMessageResult@command \
recover_orphaned_transaction_command:RecoverOrphanedTransactionCommand@command \
print_thread_stack_trace_command:PrintThreadStackTraceCommand@command \
verify_message_command:VerifyMessageCommand@command reconnect_endpoints_command:ReconnectEndpointsCommand@command \
notify_unsubscribe_lite_command:NotifyUnsubscribeLiteCommand@command
NotifyClientTerminationRequest group:Resource
NotifyClientTerminationResponse status:Status
ChangeInvisibleDurationRequest group:Resource topic:Resource receipt_handle invisible_duration:Duration message_id \
lite_topic? suspend:bool?
ChangeInvisibleDurationResponse status:Status receipt_handle
RecallMessageRequest topic:Resource recall_handle
RecallMessageResponse status:Status message_id
SyncLiteSubscriptionRequest action:LiteSubscriptionAction topic:Resource group:Resource lite_topic_set* version:int64?
SyncLiteSubscriptionResponse status:Status
"""
_WELL_KNOWN = {"Timestamp", "Duration"}


class Call(NamedTuple):
    """A call of the service. `request` and `answer`: their message classes."""

    request: Any
    answer: Any
    is_request_stream: bool = False
    is_answer_stream: bool = False


def _add_field(message: DescriptorProto, text: str, number: int) -> None:
    field = message.field.add(number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    text, _, group = text.partition("@")
    if group:
        names = [one.name for one in message.oneof_decl]
        field.oneof_index = names.index(group) if group in names else len(names)
        if group not in names:
            message.oneof_decl.add(name=group)
    if text.endswith("*"):
        field.label = FieldDescriptorProto.LABEL_REPEATED
    field.proto3_optional = text.endswith("?")
    field.name, _, kind = text.rstrip("*?").partition(":")
    if kind == "map":
        entry = message.nested_type.add(name="UserPropertiesEntry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1)
        _add_field(entry, "value", 2)
        kind, field.label = f"{message.name}.{entry.name}", FieldDescriptorProto.LABEL_REPEATED
    if kind[:1].isupper():
        field.type = FieldDescriptorProto.TYPE_ENUM if kind in _ENUMS else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".google.protobuf.{kind}" if kind in _WELL_KNOWN else f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(FieldDescriptorProto, f"TYPE_{(kind or 'string').upper()}")


def _classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="rmqctl/grpc.proto", package=PACKAGE, syntax="proto3")
    pool = DescriptorPool()
    for known in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        file.dependency.append(known.DESCRIPTOR.name)
    for name, values in _ENUMS.items():
        described = file.enum_type.add(name=name)
        for value in values:
            described.value.add(name=value.name, number=value.value)
    for line in _MESSAGES.strip().splitlines():
        name, *fields = line.split()
        message = file.message_type.add(name=name)
        for number, text in enumerate(fields, 1):
            _add_field(message, text, number)
        # one that says whether it was set is one of a group of its own, which come last
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    pool.AddSerializedFile(file.SerializeToString())
    return {one.name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{one.name}")) for one in file.message_type}


v2: Any = SimpleNamespace(**_classes())
"""The message classes, by their names."""
_UNARY = (
    "QueryRoute Heartbeat SendMessage QueryAssignment AckMessage ForwardMessageToDeadLetterQueue EndTransaction "
    "NotifyClientTermination ChangeInvisibleDuration RecallMessage SyncLiteSubscription"
)
CALLS = {
    **{name: Call(getattr(v2, f"{name}Request"), getattr(v2, f"{name}Response")) for name in _UNARY.split()},
    "ReceiveMessage": Call(v2.ReceiveMessageRequest, v2.ReceiveMessageResponse, is_answer_stream=True),
    "Telemetry": Call(v2.TelemetryCommand, v2.TelemetryCommand, is_request_stream=True, is_answer_stream=True),
}
"""All calls that are answered, by name."""
