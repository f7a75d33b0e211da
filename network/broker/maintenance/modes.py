"""Requests that only other modes of a broker act on (controller, RocksDB, cold data, files): answered as a broker does
whose mode is off."""

from __future__ import annotations

from typing import Any

from rmqctl.network.broker.broker import Broker
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import fastjson
from rmqctl.network.remoting.services import Caller, RequestError, Service
from rmqctl.store.timer.timer_state import CHECKPOINT_FILE

_COLD_READ_BYTES, _ALL_COLD_READ_BYTES = 3 * 1024 * 1024, 100 * 1024 * 1024
_CHECKPOINT_BYTES = 56
_READ_AHEAD, _NORMAL, _RANDOM = "READ_AHEAD_MODE", 0, 1


def get_epochs(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Epochs of the log, which only brokers under a controller have."""
    raise RequestError(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")


def accept(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """What concerns slaves or controllers and changes nothing at a master without them."""
    return RemotingCommand(ResponseCode.SUCCESS)


def get_cold_data_info(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Limits of reading cold data: coldDataFlowControlEnable is off, so no group has one."""
    content: dict[str, Any] = {
        "cgColdReadThreshold": _COLD_READ_BYTES, "configTable": {}, "globalAcc": 0,
        "globalColdReadThreshold": _ALL_COLD_READ_BYTES, "runtimeTable": {},
    }  # fmt: skip
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


def refuse_cold_data_limit(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """A limit of reading cold data for a group."""
    raise RequestError(
        ResponseCode.NO_PERMISSION, "no limit of cold data is set: coldDataFlowControlEnable is not supported here"
    )


def set_read_ahead(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """How the kernel reads ahead in the commitlog."""
    try:
        mode = int(request.fields.get(_READ_AHEAD, ""))
    except ValueError:
        has_fields = bool(request.fields)
        remark = "set commitlog readahead mode failed" if has_fields else "set commitlog readahead mode param error"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from None
    if mode not in (_NORMAL, _RANDOM):
        raise RequestError(ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error")
    if mode == _RANDOM:
        raise RequestError(ResponseCode.NO_PERMISSION, "dataReadAheadEnable=false is not supported here")
    return RemotingCommand(ResponseCode.SUCCESS, remark=f"set commitlog readahead mode success, mode: {mode}")


def check_rocksdb_queues(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Whether queues in a RocksDB agree with those in files: there are none."""
    raise RequestError(ResponseCode.SYSTEM_ERROR, "this broker has its queues in files alone, not in a RocksDB")


def export_rocksdb_config(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Configuration in a RocksDB as JSON: it is JSON already."""
    fields.text(request, "configType")
    return RemotingCommand(ResponseCode.SUCCESS, remark="export done.")


def switch_timer_engine(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Have a RocksDB or a wheel keep timed messages; here it is the wheel."""
    problem = None
    engine = request.fields.get("E_T", "")
    if not broker.files.config.timer_wheel_enable:
        problem = "broker timerWheelEnable is false"
    elif not request.fields:
        problem = "param error, extFields is null"
    elif engine not in ("R", "F"):
        problem = "param error"
    elif engine == "R":
        problem = "timerRocksDBEnable must be configured true when broker start"
    if problem is not None:
        raise RequestError(ResponseCode.INVALID_PARAMETER, problem)
    return RemotingCommand(ResponseCode.SUCCESS, remark="switch timer engine success")


def refuse_static_topic(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """A topic whose queues are mapped to brokers."""
    raise RequestError(ResponseCode.SYSTEM_ERROR, "static topics are not supported here: no queue is mapped")


def get_timer_checkpoint(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """How far the timer has come, as the store's timercheck has it; zeros where there is none yet."""
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


SERVICES: dict[int, Service[Broker]] = {
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
}
