"""What a broker.conf says of the broker and its services, with RocketMQ's defaults (BrokerConfig), and what of it can
be changed while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.store.clean.options import options_from_config
from rmqctl.store.config.config import StoreConfig, config_from_properties
from rmqctl.store.config.config_keys import CLEANING, KEYS


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
    store_reply_message_enable: bool = True
    enable_mixed_message_type: bool = False
    recall_message_enable: bool = False

    @property
    def slaves_to_wait_for(self) -> int:
        """How many slaves have to have a message of a SYNC_MASTER; inSyncReplicas counts the master."""
        return max(1, self.in_sync_replicas - 1)


_NAMES = {name.replace("_", ""): name for name in BrokerSettings._fields}


def settings_from_properties(properties: Mapping[str, str]) -> BrokerSettings:
    """Settings of camelCase keys; others are ignored. UsageError for a value of the wrong kind."""
    values: dict[str, object] = {}
    for key, value in properties.items():
        name, text = _NAMES.get(key.lower()), value.strip()
        if name is None:
            continue
        default = getattr(BrokerSettings(), name)
        if isinstance(default, bool) and text.lower() in ("true", "false"):
            values[name] = text.lower() == "true"
        elif isinstance(default, str) and text.isprintable():
            values[name] = text
        elif not isinstance(default, bool) and text.isascii() and text.isdigit():
            values[name] = int(text)
        else:
            raise UsageError(f"{key}={text} is no {type(default).__name__}")
    return BrokerSettings()._replace(**values)  # type: ignore[arg-type]  # each has its default's type


# looked at once, when a broker begins
_ONCE = {
    "defaulttopicqueuenums",
    "clustertopicenable",
    "brokertopicenable",
    "tracetopicenable",
    "mappedfilesizetimerlog",
    "cleanresourceinterval",
    "diskspacewarninglevelratio",
}


def is_cleaning(key: str) -> bool:
    """Whether a key says when and how expired files are removed."""
    return any(one.counts_for == CLEANING and one.name.lower() == key.lower() for one in KEYS)


def is_changeable(key: str) -> bool:
    """Whether a key of a broker.conf can be changed while a broker runs."""
    return key.lower() not in _ONCE and (key.lower() in _NAMES or is_cleaning(key))


def changed(
    settings: BrokerSettings, config: StoreConfig, properties: Mapping[str, str]
) -> tuple[BrokerSettings, StoreConfig]:
    """Both with what `properties` say, whose keys are changeable. UsageError for a value that is none."""
    told, stored = settings_from_properties(properties), config_from_properties(properties, "the request", refuses=True)
    options_from_config(stored)  # which refuses what no rule can be made of
    names = {key.lower() for key in properties}
    return (
        settings._replace(**{name: value for name, value in told._asdict().items() if name.replace("_", "") in names}),
        config._replace(**{name: value for name, value in stored._asdict().items() if name.replace("_", "") in names}),
    )
