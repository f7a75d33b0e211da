"""All that a broker serves: one that only reads, which refuses what would be written, and one that writes.

Also the handlers of few lines that belong to no other module: maintenance, other modes of a broker, transactions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import whole_number
from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError
from rmqctl.formats.message import StoredMessage, parse_offset_message_id
from rmqctl.formats.properties import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmqctl.network.broker import admin, clients, pull, query, reply, send
from rmqctl.network.broker import transactions as halves
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.pop import acks, requests
from rmqctl.network.broker.send import put_and_answer
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode, bean, json_answer
from rmqctl.network.remoting.headers import EndTransaction, Header
from rmqctl.network.remoting.requests import Asked, Reply, RequestError, Service, WhenReadOnly
from rmqctl.store.answers import undispatched as half_topics
from rmqctl.store.config.releases import DEFAULT_RELEASE, Release
from rmqctl.store.read.frames import message_at
from rmqctl.store.timer.wheel import CHECKPOINT_FILE
from rmqctl.store.write.put import PutResult

# Producers say how their transactions end (EndTransactionProcessor).


def end_transaction(broker: MasterBroker, header: EndTransaction, asked: Asked) -> Reply:
    """Commit a half message or roll it back; an answer that is neither changes nothing."""
    how = header.commit_or_rollback
    if how not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        return RemotingCommand(ResponseCode.SUCCESS)
    half = _half_message(broker, header)
    _require_time(broker, header, half)
    transactions = broker.transactions
    if transactions.is_ended(half.queue_offset):
        return RemotingCommand(ResponseCode.SUCCESS)
    if how == TRANSACTION_ROLLBACK:
        transactions.end(half.queue_offset)
        return RemotingCommand(ResponseCode.SUCCESS)
    properties = half.properties()
    topic, queue_id = properties.get(names.REAL_TOPIC), whole_number(properties.get(names.REAL_QUEUE_ID, ""))
    if topic is None or queue_id is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "the half message does not say which topic it is for")

    message = halves.committed(half, topic, queue_id)

    def end(_: Sequence[PutResult]) -> dict[str, str]:
        broker.see_to_topic(message)
        transactions.end(half.queue_offset)
        return {}

    return put_and_answer(broker, [message], end, always={})


def _half_message(broker: MasterBroker, header: EndTransaction) -> StoredMessage:
    """Return the half message of the request; RequestError without one, or for another one."""
    offset = header.commit_log_offset
    try:
        half = message_at(broker.files.log, offset)
    except (NotFoundError, CorruptError) as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"Find prepared transaction message failed: {error.message}"
        ) from error
    if (
        half.topic != half_topics.HALF_TOPIC
        or half.properties().get(half_topics.PRODUCER_GROUP) != header.producer_group
    ):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != header.tran_state_table_offset:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    return half


def _require_time(broker: MasterBroker, header: EndTransaction, half: StoredMessage) -> None:
    """A transaction with a time without checks must end within it."""
    seconds = half.properties().get(half_topics.IMMUNITY, "")
    if header.from_transaction_check or not seconds.isdecimal() or len(seconds) > 9:
        return
    limit = max(int(seconds) * 1000, broker.settings.transaction_time_out)
    if broker.clock() - half.born_timestamp > limit:
        raise RequestError(
            ResponseCode.ILLEGAL_OPERATION, f"the transaction was to be ended within {limit} ms: its producer is asked"
        )


# Requests that only other modes of a broker act on (controller, RocksDB, cold data, files): answered as a broker does
# whose mode is off.

_COLD_READ_BYTES, _ALL_COLD_READ_BYTES = 3 * 1024 * 1024, 100 * 1024 * 1024
_CHECKPOINT_BYTES = 56
_READ_AHEAD, _NORMAL, _RANDOM = "READ_AHEAD_MODE", 0, 1


def get_epochs(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Epochs of the log, which only brokers under a controller have."""
    raise RequestError(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")


def accept(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """What concerns slaves or controllers and changes nothing at a master without them."""
    return RemotingCommand(ResponseCode.SUCCESS)


def get_cold_data_info(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Limits of reading cold data: coldDataFlowControlEnable is off, so no group has one."""
    content: dict[str, Any] = {
        "cgColdReadThreshold": _COLD_READ_BYTES, "configTable": {}, "globalAcc": 0,
        "globalColdReadThreshold": _ALL_COLD_READ_BYTES, "runtimeTable": {},
    }  # fmt: skip
    return json_answer(content)


def refuse_cold_data_limit(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """A limit of reading cold data for a group."""
    raise RequestError(
        ResponseCode.NO_PERMISSION, "no limit of cold data is set: coldDataFlowControlEnable is not supported here"
    )


def set_read_ahead(broker: Broker, header: headers.SetReadMode, asked: Asked) -> RemotingCommand:
    """How the kernel reads ahead in the commitlog."""
    try:
        mode = int(header.mode)
    except ValueError:
        has_fields = bool(asked.request.fields)
        remark = "set commitlog readahead mode failed" if has_fields else "set commitlog readahead mode param error"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from None
    if mode not in (_NORMAL, _RANDOM):
        raise RequestError(ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error")
    if mode == _RANDOM:
        raise RequestError(ResponseCode.NO_PERMISSION, "dataReadAheadEnable=false is not supported here")
    return RemotingCommand(ResponseCode.SUCCESS, remark=f"set commitlog readahead mode success, mode: {mode}")


def check_rocksdb_queues(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Whether queues in a RocksDB agree with those in files: there are none."""
    raise RequestError(ResponseCode.SYSTEM_ERROR, "this broker has its queues in files alone, not in a RocksDB")


def export_rocksdb_config(broker: Broker, header: headers.ExportRocksdbConfig, asked: Asked) -> RemotingCommand:
    """Configuration in a RocksDB as JSON: it is JSON already."""
    return RemotingCommand(ResponseCode.SUCCESS, remark="export done.")


def switch_timer_engine(broker: Broker, header: headers.SwitchTimerEngine, asked: Asked) -> RemotingCommand:
    """Have a RocksDB or a wheel keep timed messages; here it is the wheel."""
    problem = None
    engine = header.engine
    if not broker.files.config.timer_wheel_enable:
        problem = "broker timerWheelEnable is false"
    elif not asked.request.fields:
        problem = "param error, extFields is null"
    elif engine not in ("R", "F"):
        problem = "param error"
    elif engine == "R":
        problem = "timerRocksDBEnable must be configured true when broker start"
    if problem is not None:
        raise RequestError(ResponseCode.INVALID_PARAMETER, problem)
    return RemotingCommand(ResponseCode.SUCCESS, remark="switch timer engine success")


def refuse_static_topic(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """A topic whose queues are mapped to brokers."""
    raise RequestError(ResponseCode.SYSTEM_ERROR, "static topics are not supported here: no queue is mapped")


def get_timer_checkpoint(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Return the progress of the timer, as the store's timercheck has it; zeros without one."""
    if not broker.files.config.timer_wheel_enable:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
    path = broker.files.layout.config / CHECKPOINT_FILE
    try:
        body = path.read_bytes()[:_CHECKPOINT_BYTES]
    except FileNotFoundError:
        body = b""
    except OSError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{path}: {error.strerror}") from error
    return RemotingCommand(ResponseCode.SUCCESS, body=body.ljust(_CHECKPOINT_BYTES, b"\0"))


# What operators ask for that changes files or half messages (cleanExpiredCQ, deleteExpiredCommitLog and others).

_NOT_AGAIN = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
_READ_BIT = 1 << 2


def clean_expired(broker: MasterBroker, header: Header, asked: Asked) -> RemotingCommand:
    """Have expired files removed, which the cleaner does every 10 s by itself."""
    if not broker.store.is_cleaning:
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            "this broker removes no files, `serve --clean` would; `rmqctl clean` shows which",
        )
    return RemotingCommand(ResponseCode.SUCCESS)


def clean_unused_topics(broker: MasterBroker, header: Header, asked: Asked) -> RemotingCommand:
    """Queues of topics that are not configured: they stay, because log and queues have to agree."""
    known = {topic.name for topic in broker.topics.all()}
    if all(queue.topic in known for queue in broker.files.queues.all()):
        return RemotingCommand(ResponseCode.SUCCESS)
    raise RequestError(
        ResponseCode.NO_PERMISSION, "queues of deleted topics stay until their messages expire: log and queues agree"
    )


def check_half_again(broker: MasterBroker, header: headers.ResumeCheckHalfMessage, asked: Asked) -> Reply:
    """Put a half message back, so that its producer is asked again from the first time on."""
    try:
        _, offset = parse_offset_message_id(header.msg_id)
        stored = message_at(broker.files.log, offset)
    except (UsageError, NotFoundError, CorruptError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, _NOT_AGAIN) from error
    if not stored.properties().get("REAL_TOPIC"):
        raise RequestError(ResponseCode.SYSTEM_ERROR, _NOT_AGAIN)

    def answer(_: Sequence[PutResult]) -> dict[str, str]:
        return {}

    return put_and_answer(broker, [halves.asked_about(stored, 0)], answer, always={})


def group_forbidden(broker: MasterBroker, header: headers.UpdateGroupForbidden, asked: Asked) -> RemotingCommand:
    """Whether a group may read a topic, after it was allowed or forbidden to."""
    group, topic = header.group, header.topic
    if "readable" in asked.request.fields:
        broker.groups.forbid(group, topic, _READ_BIT, not header.readable)
        broker.save_groups()
    content = bean(group=group, readable=not broker.groups.is_forbidden(group, topic, _READ_BIT), topic=topic)
    return json_answer(content)


def get_timer_metrics(broker: MasterBroker, header: Header, asked: Asked) -> RemotingCommand:
    """Timed messages that wait, by topic."""
    if broker.timer is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
    now = broker.clock()
    counts: dict[str, Any] = {
        topic: bean(count=count, timeStamp=now) for topic, count in sorted(broker.timer.waiting_by_topic().items())
    }
    version = bean(counter=0, stateVersion=0, timestamp=now)
    return json_answer(bean(dataVersion=version, timingCount=counts))


def refuse_to_write(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Refuse requests that would store a message; oneway requests are dropped."""
    raise RequestError(
        ResponseCode.SERVICE_NOT_AVAILABLE, f"the broker[{broker.identity.name}] serves its store for reading only"
    )


_REFUSED = Service(refuse_to_write, "refused with 14, oneway ones are dropped: nothing is written", is_refusal=True)
# what stores messages, and what changes anything else
_stores = partial(Service[Any], when_read_only=WhenReadOnly.REFUSED)
_changes = partial(Service[Any], when_read_only=WhenReadOnly.UNKNOWN)

_PULL = Service(pull.pull_message, "messages of a queue, as they are stored; without new ones the answer waits")
_REPLY = _stores(
    reply.send_reply, "pushed to the producer that asked (326), and stored unless storeReplyMessageEnable=false"
)
_CLEAN = _changes(clean_expired, "0 with --clean, which removes them; else 16")

SERVICES: dict[int, Service[Any]] = {
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.QUERY_MESSAGE: Service(query.query_message, "messages by key through the index", is_slow=True),
    RequestCode.VIEW_MESSAGE_BY_ID: Service(query.view_message, "a message by its physical offset", is_slow=True),
    RequestCode.QUERY_CONSUME_QUEUE: Service(query.query_consume_queue, "units of a queue as stored, 800 at most"),
    RequestCode.QUERY_CONSUMER_OFFSET: Service(
        query.query_consumer_offset,
        "where a group is in a queue, else 22; with --writable 0 as long as the first message is young",
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: Service(
        query.update_consumer_offset,
        "kept until the broker ends; with --writable written every 5 s, never beyond what is on disk",
    ),
    RequestCode.QUERY_CORRECTION_OFFSET: Service(
        query.query_correction_offset, "by queue, the smallest offset of a group"
    ),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Service(
        query.search_offset_by_timestamp, "the offset for a store time, LOWER and UPPER", is_slow=True
    ),
    RequestCode.GET_MAX_OFFSET: Service(query.get_max_offset, "the end of a queue"),
    RequestCode.GET_MIN_OFFSET: Service(query.get_min_offset, "the beginning of a queue"),
    RequestCode.GET_EARLIEST_MSG_STORETIME: Service(
        query.get_earliest_store_time, "store time of a queue's first message"
    ),
    RequestCode.GET_TOPIC_STATS_INFO: Service(
        query.get_topic_stats, "bounds and last times of a topic's queues", is_slow=True
    ),
    RequestCode.VIEW_BROKER_STATS_DATA: Service(query.view_stats, "a count over the last minute, hour and day"),
    RequestCode.GET_CONSUME_STATS: Service(query.get_consume_stats, "how far a group has come", is_slow=True),
    RequestCode.GET_BROKER_CONSUME_STATS: Service(
        query.get_broker_consume_stats, "how far all groups have come", is_slow=True
    ),
    RequestCode.QUERY_CONSUME_TIME_SPAN: Service(
        query.query_consume_time_span, "store times of a group's queues", is_slow=True
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Service(
        query.query_who_consumes, "groups that subscribe a topic or have offsets"
    ),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: Service(query.query_topics_by_consumer, "topics that a group has offsets of"),
    RequestCode.QUERY_ASSIGNMENT: Service(
        requests.query_assignment, "a member's queues, by AVG or AVG_BY_CIRCLE, and its mode", is_slow=True
    ),
    RequestCode.HEART_BEAT: Service(
        clients.heart_beat, "remembered for 120 s; the other members of a group are notified (40)"
    ),
    RequestCode.UNREGISTER_CLIENT: Service(clients.unregister_client, "the client leaves its groups"),
    RequestCode.CHECK_CLIENT_CONFIG: Service(
        clients.check_client_config, "an SQL92 filter is parsed, if enablePropertyFilter is set"
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Service(clients.get_consumer_list, "ids of a group's clients, sorted"),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Service(clients.get_consumer_connections, "clients of a consumer group"),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: Service(clients.get_producer_connections, "clients of a producer group"),
    RequestCode.GET_ALL_PRODUCER_INFO: Service(clients.get_all_producers, "clients of all producer groups"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Service(
        clients.query_subscription, "what a group subscribes of a topic"
    ),
    RequestCode.GET_CONSUMER_RUNNING_INFO: Service(
        clients.get_consumer_running_info, "asked of the client itself; 207 where it does not answer within 10 s"
    ),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Service(
        clients.get_consumer_status, "how far members of a group are, asked of each (221)"
    ),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: Service(
        clients.consume_message_directly, "a message given to the client that is named, and its answer; 207 as for 307"
    ),
    RequestCode.LOCK_BATCH_MQ: Service(clients.lock_batch, "queues for one client of a group, for 60 s"),
    RequestCode.UNLOCK_BATCH_MQ: Service(clients.unlock_batch, "queues are unlocked"),
    RequestCode.UPDATE_BROKER_CONFIG: _changes(
        admin.update_broker_config,
        "settings count at once, until the broker ends; all of them or none, others refused with 16",
    ),
    RequestCode.UPDATE_AND_CREATE_TOPIC: _changes(
        admin.update_and_create_topic, "a topic, answered when it is written"
    ),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _changes(admin.update_and_create_topics, "several topics, all or none"),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _changes(admin.update_groups, "several groups, all or none"),
    RequestCode.DELETE_TOPIC_IN_BROKER: _changes(
        admin.delete_topic, "it is hidden, its offsets are gone; created again it continues after its old messages"
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _changes(
        admin.update_group, "a group, answered when it is written"
    ),
    RequestCode.SET_MESSAGE_REQUEST_MODE: _changes(
        requests.set_request_mode, "how a group gets messages of a topic, PULL or POP, answered when it is written"
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _changes(admin.delete_group, "a group, and its offsets if asked for"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _changes(
        admin.reset_offset, "a group's next pulls begin at a time or an offset (21)", is_slow=True
    ),
    RequestCode.CLONE_GROUP_OFFSET: _changes(admin.clone_offsets, "a group is where another one is"),
    RequestCode.GET_ALL_DELAY_OFFSET: Service(
        admin.get_all_delay_offset, "delivered delay levels: as in the store, with --writable as they are now"
    ),
    RequestCode.GET_TOPIC_CONFIG: Service(admin.get_topic_config, "one topic"),
    RequestCode.GET_ALL_TOPIC_CONFIG: Service(admin.get_all_topic_config, "all topics"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Service(admin.get_group_config, "one group"),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Service(admin.get_all_group_config, "all groups"),
    RequestCode.GET_ALL_CONSUMER_OFFSET: Service(admin.get_all_consumer_offset, "offsets of all groups, as in memory"),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Service(requests.get_all_request_mode, "how groups get messages"),
    RequestCode.GET_BROKER_CONFIG: Service(
        admin.get_broker_config, "every key of the version, with the values that count"
    ),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Service(admin.get_system_topics, "topics of the broker's own"),
    RequestCode.GET_BROKER_RUNTIME_INFO: Service(admin.get_runtime_info, "every key of 5.3.3", is_slow=True),
    RequestCode.GET_BROKER_HA_STATUS: Service(admin.get_ha_status, "slaves, and how far each has come"),
    RequestCode.EXCHANGE_BROKER_HA_INFO: Service(admin.exchange_ha_info, "where slaves find the log"),
    RequestCode.GET_BROKER_EPOCH_CACHE: Service(get_epochs, "1: only under a controller"),
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: Service(accept, "0: nothing changes without a controller"),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: Service(accept, "0: nothing changes at a master"),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: Service(accept, "0: nothing changes at a master"),
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: Service(get_cold_data_info, "no group has a limit"),
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: Service(refuse_cold_data_limit, "16: not supported"),
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: Service(accept, "0: no group has a limit"),
    RequestCode.SET_COMMITLOG_READ_MODE: Service(set_read_ahead, "the kernel's own reading ahead; 16 for another"),
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: Service(check_rocksdb_queues, "1: there are none"),
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: Service(export_rocksdb_config, "0: it is JSON already"),
    RequestCode.SWITCH_TIMER_ENGINE: Service(switch_timer_engine, "the wheel; 29 for a RocksDB"),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: Service(refuse_static_topic, "1: not supported"),
    RequestCode.GET_TIMER_CHECK_POINT: Service(get_timer_checkpoint, "how far the timer is, as timercheck has it"),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _CLEAN,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _CLEAN,
    RequestCode.CLEAN_UNUSED_TOPIC: _changes(clean_unused_topics, "0 where there are none; 16 where there are"),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _changes(check_half_again, "the producer is asked again from the start"),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _changes(group_forbidden, "whether a group may read a topic"),
    RequestCode.GET_TIMER_METRICS: _changes(get_timer_metrics, "timed messages that wait, by topic", is_slow=True),
    RequestCode.SEND_MESSAGE: _stores(send.send_message, "stored; with SYNC_FLUSH answered when it is on disk"),
    RequestCode.SEND_MESSAGE_V2: _stores(send.send_message, "the same"),
    RequestCode.SEND_BATCH_MESSAGE: _stores(send.send_message, "all messages of the batch stored, or none"),
    RequestCode.SEND_REPLY_MESSAGE: _REPLY,
    RequestCode.SEND_REPLY_MESSAGE_V2: _REPLY,
    RequestCode.RECALL_MESSAGE: _stores(
        reply.recall_message, "a timed message is not delivered; 16 unless recallMessageEnable=true"
    ),
    RequestCode.CONSUMER_SEND_MSG_BACK: _stores(
        reply.send_back, "again after a delay that grows, among the dead letters when it was tried often enough"
    ),
    RequestCode.POP_MESSAGE: _stores(
        requests.pop_message, "messages for a time, and a checkpoint stored first; without messages the answer waits"
    ),
    RequestCode.PEEK_MESSAGE: _stores(requests.peek_message, "messages that a pop would find; they stay"),
    RequestCode.NOTIFICATION: _stores(
        requests.notification, "whether a pop would find messages; without any the answer waits"
    ),
    RequestCode.POLLING_INFO: _stores(requests.polling_info, "the number of pops that wait for a queue"),
    RequestCode.ACK_MESSAGE: _stores(
        acks.ack_message, "stored, if the handle is of a message in flight; else nothing changes"
    ),
    RequestCode.BATCH_ACK_MESSAGE: _stores(acks.batch_ack_message, "the same for many messages"),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _stores(
        acks.change_invisible_time,
        "a new checkpoint, then the old one acknowledged; 208 for a handle of no message in flight",
    ),
    RequestCode.POP_ROLLBACK: _stores(accept, "nothing: kvStore/ was moved at the start"),
    RequestCode.END_TRANSACTION: _stores(
        end_transaction, "committed or rolled back; producers are asked (39) for the end of what has none"
    ),
}
"""All that a broker can do, and what one that only reads does with it."""


def services_of(*, writable: bool, release: Release = DEFAULT_RELEASE) -> dict[int, Service[Any]]:
    """Return the services of a broker, as one of a version knows them."""
    served = dict(SERVICES)
    for code, service in SERVICES.items() if not writable else ():
        if service.when_read_only is WhenReadOnly.REFUSED:
            served[code] = _REFUSED
        elif service.when_read_only is WhenReadOnly.UNKNOWN:
            del served[code]
    return known_to(release, served)


_OF_5_5 = {RequestCode.SWITCH_TIMER_ENGINE}
# of what is served, codes that brokers of 4.x do not know
_OF_5_0 = {
    code
    for code in RequestCode
    if code in (18, 60, 61, 225, 343, 345)
    or 351 <= code <= 402
    or 513 <= code <= 908
    or code >= RequestCode.GET_BROKER_EPOCH_CACHE
}


def known_to(release: Release, services: Mapping[int, Service[Any]]) -> dict[int, Service[Any]]:
    """Return the services that a broker or name server of a version knows; it answers other codes with 3."""
    unknown: set[RequestCode] = set() if release.has_lite_topics else {*_OF_5_5}
    if release.is_of_4:
        unknown |= _OF_5_0
    return {code: service for code, service in services.items() if code not in unknown}
