"""Requests that only other modes of a broker act on (controller, RocksDB, cold data, files): answered as a broker does
whose mode is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError
from rmqctl.formats.hosts import parse_offset_message_id
from rmqctl.network.broker import transactions as halves
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.send import put_and_answer
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import RemotingCommand, ResponseCode, bean, fastjson
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.requests import Asked, Reply, RequestError
from rmqctl.store.read.frames import message_at
from rmqctl.store.timer.wheel import CHECKPOINT_FILE
from rmqctl.store.write.put import PutResult

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
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


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
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


def get_timer_metrics(broker: MasterBroker, header: Header, asked: Asked) -> RemotingCommand:
    """Timed messages that wait, by topic."""
    if broker.timer is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
    now = broker.clock()
    counts: dict[str, Any] = {
        topic: bean(count=count, timeStamp=now) for topic, count in sorted(broker.timer.waiting_by_topic().items())
    }
    version = bean(counter=0, stateVersion=0, timestamp=now)
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(bean(dataVersion=version, timingCount=counts)))
