"""What a broker.conf says of the broker and its services, with RocketMQ's defaults (BrokerConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqctl.formats.errors import UsageError


class BrokerSettings(NamedTuple):
    """Keys of BrokerConfig in snake_case, and the one that the timer has of MessageStoreConfig; intervals in ms."""

    broker_permission: int = 6
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    default_topic_queue_nums: int = 8
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    reject_transaction_message: bool = False
    transaction_time_out: int = 6000
    transaction_check_max: int = 15
    transaction_check_interval: int = 30_000
    flush_consumer_offset_interval: int = 5000
    flush_delay_offset_interval: int = 10_000
    mapped_file_size_timer_log: int = 104_857_600
    slave_timeout: int = 3000
    in_sync_replicas: int = 1

    @property
    def slaves_to_wait_for(self) -> int:
        """How many slaves have to have a message of a SYNC_MASTER; inSyncReplicas counts the master."""
        return max(1, self.in_sync_replicas - 1)


_NAMES = {name.replace("_", ""): name for name in BrokerSettings._fields}


def settings_from_properties(properties: Mapping[str, str]) -> BrokerSettings:
    """Settings of camelCase keys; others are ignored. UsageError for a value of the wrong kind."""
    values: dict[str, object] = {}
    for key, text in properties.items():
        name = _NAMES.get(key.lower())
        if name is None:
            continue
        default = getattr(BrokerSettings(), name)
        if isinstance(default, bool) and text.lower() in ("true", "false"):
            values[name] = text.lower() == "true"
        elif isinstance(default, str):
            values[name] = text
        elif not isinstance(default, bool) and text.isascii() and text.isdigit():
            values[name] = int(text)
        else:
            raise UsageError(f"{key}={text} is no {type(default).__name__}")
    return BrokerSettings()._replace(**values)  # type: ignore[arg-type]  # each has its default's type
