"""Settings of a producer, by RocketMQ's names and with its defaults (DefaultMQProducer, ClientConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.network.topic_config import DEFAULT_TOPIC

_COMPRESSION_TYPES = ("LZ4", "ZSTD", "ZLIB")
_TRUE, _FALSE = "true", "false"


class ProducerSettings(NamedTuple):
    """Settings of a producer, named as in RocketMQ: `send_msg_timeout` is sendMsgTimeout. Times are in milliseconds,
    sizes in bytes; -1 is no limit for a request."""

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
    back_pressure_for_async_send_num: int = 10_000
    back_pressure_for_async_send_size: int = 100 * 1024 * 1024
    enable_trace: bool = False
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    trace_msg_batch_num: int = 10
    namespace: str = ""
    instance_name: str = "DEFAULT"
    unit_name: str = ""
    poll_name_server_interval: int = 30_000
    heartbeat_broker_interval: int = 30_000


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
    if name == "compressType" and text not in _COMPRESSION_TYPES:
        raise UsageError(f"compressType is one of {', '.join(_COMPRESSION_TYPES)}, not {text!r}")
    return text
