"""What a broker.conf says of the broker and its services, with RocketMQ's defaults (BrokerConfig), and what of it can
be changed while it runs.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.network.remoting.requests import Caller
from rmqctl.store.clean.options import options_from_config
from rmqctl.store.config.config import CLEANING, KEYS, StoreConfig, config_from_properties
from rmqctl.store.config.releases import DEFAULT_RELEASE, Release
from rmqctl.store.read.get import physical_memory


class BrokerSettings(NamedTuple):
    """Keys of BrokerConfig in snake_case, and of MessageStoreConfig those of the timer, of slaves and of memory;
    intervals in ms, ratios in percent."""

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
    slave_read_enable: bool = False
    access_message_in_memory_max_ratio: int = 40
    server_load_balancer_enable: bool = True
    enable_property_filter: bool = False
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1000
    lite_pull_message_enable: bool = True
    reject_pull_consumer_enable: bool = False
    default_query_max_num: int = 32
    start_accept_send_request_time_stamp: int = 0
    allow_recall_when_broker_not_writeable: bool = True
    validate_system_topic_when_update_topic: bool = True
    notify_consumer_ids_changed_enable: bool = True
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    channel_expired_timeout: int = 120_000
    server_channel_max_idle_time_seconds: int = 120
    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = 24_000
    ha_send_heartbeat_interval: int = 5000
    ha_housekeeping_interval: int = 20_000
    ha_transfer_batch_size: int = 32_768
    ha_max_gap_not_in_sync: int = 268_435_456
    max_msgs_num_batch: int = 64
    timer_stop_enqueue: bool = False
    timer_stop_dequeue: bool = False
    enable_register_producer: bool = True
    revive_queue_num: int = 8
    pop_from_retry_probability: int = 20
    pop_from_retry_probability_for_priority: int = 0
    use_separate_retry_queue: bool = False
    clear_retry_topic_when_delete_topic: bool = True
    pop_polling_size: int = 1024
    max_pop_polling_size: int = 100_000
    pop_response_return_actual_retry_topic: bool = False
    enable_pop_message_threshold: bool = False
    pop_inflight_message_threshold: int = 10_000
    enable_skip_long_awaiting_ack: bool = False
    retrieve_message_from_pop_retry_topic_v1: bool = True
    priority_order_asc: bool = True
    use_message_filter_for_notification: bool = True
    max_message_filter_num_for_notification: int = 64
    enable_notify_after_pop_order_lock_release: bool = True
    enable_create_sys_group: bool = True
    config_black_list: str = "configBlackList;brokerConfigPath"
    append_topic_for_timer_delete_key: bool = False
    revive_ack_wait_ms: int = 180_000
    init_pop_offset_by_check_msg_in_mem: bool = True
    default_message_request_mode: str = "PULL"
    default_pop_share_queue_num: int = -1
    expect_consumer_num_use_filter: int = 32
    max_error_rate_of_bloom_filter: int = 20
    filter_data_clean_time_span: int = 86_400_000
    real_time_notify_consumer_change: bool = True
    disable_consume_if_consumer_read_slowly: bool = False
    consumer_fallbehind_threshold: int = 17_179_869_184
    disk_fall_recorded: bool = True
    disappear_time_after_start: int = -1
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = 104_857_600
    ha_slave_fallbehind_max: int = 268_435_456
    timer_congest_num_each_slot: int = 2_147_483_647
    timer_flush_interval_ms: int = 1000
    use_server_side_reset_offset: bool = True
    subscription_expired_timeout: int = 600_000
    offset_check_in_slave: bool = False

    @property
    def slaves_to_wait_for(self) -> int:
        """How many slaves have to have a message of a SYNC_MASTER; inSyncReplicas counts the master."""
        return max(1, self.in_sync_replicas - 1)

    @property
    def bytes_in_memory(self) -> int:
        """Bytes at the end of the log that are taken to be in memory (estimateInMemByCommitOffset)."""
        return physical_memory() * self.access_message_in_memory_max_ratio // 100


_NAMES = {name.replace("_", ""): name for name in BrokerSettings._fields}
_WRONG = {bool: "neither true nor false", int: "no whole number", str: "no text that can be printed"}


def settings_from_properties(
    properties: Mapping[str, str], tell: Callable[[str], None] | None = None
) -> BrokerSettings:
    """Settings of camelCase keys; others are ignored. Of a value of the wrong kind `tell` gets to know, and it counts
    as a broker takes it at its start: for false, or not at all. UsageError where there is no `tell`."""
    values: dict[str, object] = {}
    for key, value in properties.items():
        name = _NAMES.get(key.lower())
        if name is None:
            continue
        default = getattr(BrokerSettings(), name)
        text = value.strip() if isinstance(default, str) else value
        digits = text.removeprefix("-") if default == -1 else text
        if isinstance(default, bool) and text.lower() in ("true", "false"):
            values[name] = text.lower() == "true"
        elif isinstance(default, str) and text.isprintable():
            values[name] = text
        elif not isinstance(default, bool) and digits.isascii() and digits.isdigit():
            values[name] = int(text)
        elif tell is None:
            raise UsageError(f"{key}={text!r} is {_WRONG[type(default)]}")
        else:
            values[name] = False if isinstance(default, bool) else default
            tell(f"{key}={text!r} is {_WRONG[type(default)]}: a broker takes {str(values[name]).lower()}")
    return BrokerSettings()._replace(**values)  # type: ignore[arg-type]  # each has its default's type


# looked at once, when a broker begins
_ONCE = {
    "expectconsumernumusefilter",
    "maxerrorrateofbloomfilter",
    "filterdatacleantimespan",
    "defaulttopicqueuenums",
    "clustertopicenable",
    "brokertopicenable",
    "tracetopicenable",
    "msgtracetopicname",
    "serverchannelmaxidletimeseconds",
    "hasendheartbeatinterval",
    "hahousekeepinginterval",
    "hatransferbatchsize",
    "mappedfilesizetimerlog",
    "cleanresourceinterval",
    "diskspacewarninglevelratio",
    "revivequeuenum",
    "enablecreatesysgroup",
    "configblacklist",
    "disappeartimeafterstart",
    "haflowcontrolenable",
    "maxhatransferbyteinsecond",
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
    """Both with what `properties` say, whose keys are changeable. UsageError for an invalid value."""
    told, stored = settings_from_properties(properties), config_from_properties(properties, "the request", refuses=True)
    options_from_config(stored)  # which refuses what no rule can be made of
    names = {key.lower() for key in properties}
    return (
        settings._replace(**{name: value for name, value in told._asdict().items() if name.replace("_", "") in names}),
        config._replace(**{name: value for name, value in stored._asdict().items() if name.replace("_", "") in names}),
    )


# Who the broker is for the others: cluster, name, and an address that can be reached.

MASTER_ID = 0
ANY_ADDRESS = ("", "0.0.0.0", "::")


class BrokerIdentity(NamedTuple):
    """Cluster and name as brokerClusterName and brokerName say, and where it listens: for clients, and at `ha_port` for
    slaves; None where none can come. `release`: the version of RocketMQ that it names as its own."""

    cluster: str = "DefaultCluster"
    name: str = "broker-a"
    broker_id: int = MASTER_ID
    host: str = "127.0.0.1"
    port: int = 10911
    ha_host: str = ""
    ha_port: int | None = None
    release: Release = DEFAULT_RELEASE

    def address(self, caller: Caller) -> str:
        """Where `caller` can reach the broker: where it listens, or, listening at all addresses of the machine, the one
        of them that the caller came to already."""
        return _reachable(caller, self.host, self.port)

    def reachable_host(self, caller: Caller) -> str:
        """Return the host of `address`, an IPv6 address without brackets."""
        return caller.local_ip if self.host in ANY_ADDRESS else self.host

    def ha_address(self, caller: Caller) -> str | None:
        """The same for slaves; None where none can come."""
        return None if self.ha_port is None else _reachable(caller, self.ha_host, self.ha_port)


def _reachable(caller: Caller, host: str, port: int) -> str:
    host = caller.local_ip if host in ANY_ADDRESS else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def identity_from_properties(properties: Mapping[str, str]) -> BrokerIdentity:
    """The names that a broker.conf gives; RocketMQ's example names where it gives none."""
    default = BrokerIdentity()
    return default._replace(
        cluster=properties.get("brokerClusterName") or default.cluster,
        name=properties.get("brokerName") or default.name,
    )


# What a broker counts: puts and pulls by topic and group, their rates, and how long puts took.
#
# (StoreStatsService, BrokerStatsManager, StatsItem). Whoever calls says what time it is: ms of a clock that is never
# set, and for what is counted by the day ms since 1970.

TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, TOPIC_PUT_LATENCY = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "TOPIC_PUT_LATENCY"
GROUP_GET_NUMS, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
BROKER_PUT_NUMS, BROKER_GET_NUMS = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
BROKER_PUT_NUMS_OF_USERS = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
BROKER_GET_NUMS_OF_USERS = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"
_OF_USERS = BROKER_PUT_NUMS_OF_USERS, BROKER_GET_NUMS_OF_USERS
SNDBCK_PUT_NUMS, DLQ_PUT_NUMS = "SNDBCK_PUT_NUMS", "DLQ_PUT_NUMS"
TIMER_ENQUEUE, TIMER_DEQUEUE = "TIMER_ENQUEUE", "TIMER_DEQUEUE"

_SECOND, _MINUTE = 1000, 60_000
_MOST_ITEMS = 100_000
# for the last minute, hour and day: how often a value is noted (ms), and how many notes are kept
_SAMPLINGS = ((10 * _SECOND, 7), (10 * _MINUTE, 7), (60 * _MINUTE, 25))
_RATE_SAMPLES = 660
_RATES = (10, 60, 600)
# upper ends (ms) of what putMessageDistributeTime counts; the last one has none
TIME_NAMES = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
_TIME_ENDS = (0, 9, 49, 99, 199, 499, 999, 1999, 2999, 3999, 4999, 9999)


class Figures(NamedTuple):
    """A count over a span: its sum, its rate a second, and its average a call."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0


class TimerFigures(NamedTuple):
    """How far the timer is: seconds that the next message is overdue, messages that are not read yet, those that wait,
    and messages a second that came and went."""

    read_behind: int = 0
    offset_behind: int = 0
    waiting: int = 0
    enqueue_tps: float = 0.0
    dequeue_tps: float = 0.0


def written_by(release: Release, config: StoreConfig) -> StoreConfig:
    """Return the configuration with which a broker of that version writes its store, and any that it takes over."""
    if release.has_tag_queries and config.index_tags is None:
        config = config._replace(index_tags=True)
    return config._replace(timer_wheel_enable=None) if release.is_of_4 else config


class _Item:
    """One count with its notes, each a time (ms), the number of calls and the value."""

    __slots__ = ("notes", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self.notes: tuple[deque[tuple[int, int, int]], ...] = tuple(deque(maxlen=most) for _, most in _SAMPLINGS)

    def figures(self, span: int, now: int) -> Figures:
        """Return what was counted in the last minute (0), hour (1) or day (2), up to now."""
        notes = self.notes[span]
        since, times, value = notes[0] if notes else (now - _SAMPLINGS[span][0], 0, 0)
        total, calls = self.value - value, self.times - times
        passed = now - since
        rate = total * 1000.0 / passed if passed > 0 else 0.0
        return Figures(total, rate, total / calls if calls > 0 else 0.0)


class Counts:
    """Counts since the broker began. For the thread that serves; others may read."""

    def __init__(self, cluster: str, now: int, date: int, *, of_users: bool = True) -> None:
        """`of_users`: the totals of a broker leave out system topics, as since 5.0 (BrokerStats)."""
        self._cluster = cluster
        self._of_users = of_users
        self._items: dict[tuple[str, str], _Item] = {}
        self._noted_at = [now] * len(_SAMPLINGS)
        self._rated_at = now
        self._day = _day_of(date)
        self.puts = self.put_bytes = self.failed_puts = 0
        self.found = self.missed = self.transferred = 0
        self.longest_put = self.longest_get = 0
        self._put_times = [0] * len(TIME_NAMES)
        # of the minute before, which is the one that brokers show
        self.put_times = [0] * len(TIME_NAMES)
        self._durations: list[int] = []
        self._last_durations: list[int] = []
        self._minute_at = now
        self._samples: deque[tuple[int, int, int, int, int]] = deque([(now, 0, 0, 0, 0)], maxlen=_RATE_SAMPLES)
        self.put_mornings, self.get_mornings = (0, 0), (0, 0)

    # ---- counting

    def add(self, name: str, key: str, value: int, times: int = 1) -> None:
        """Count `value` in `times` calls."""
        item = self._items.get((name, key))
        if item is None:
            if len(self._items) >= _MOST_ITEMS:
                return
            item = self._items[name, key] = _Item()
        item.value += value
        item.times += times

    def put(self, topic: str, queue_id: int, count: int, size: int, milliseconds: int, *, is_system: bool) -> None:
        """Count `count` messages of `size` bytes that were put to a queue in one call."""
        self.puts += count
        self.put_bytes += size
        self.longest_put = max(self.longest_put, milliseconds)
        self._put_times[bisect_left(_TIME_ENDS, milliseconds)] += 1
        if len(self._durations) < _MOST_ITEMS:
            self._durations.append(milliseconds)
        add, cluster = self.add, self._cluster
        add(TOPIC_PUT_NUMS, topic, count)
        add(TOPIC_PUT_SIZE, topic, size)
        add(TOPIC_PUT_LATENCY, f"{queue_id}@{topic}", milliseconds)
        add(BROKER_PUT_NUMS, cluster, count, 0)
        if not is_system:
            add(BROKER_PUT_NUMS_OF_USERS, cluster, count, 0)

    def got(self, group: str, topic: str, count: int, size: int, *, is_system: bool) -> None:
        """Count a pull that found `count` messages of `size` bytes; one that found none has 0."""
        if not count:
            self.missed += 1
            return
        self.found += 1
        self.transferred += count
        add, cluster = self.add, self._cluster
        add(GROUP_GET_NUMS, f"{topic}@{group}", count)
        add(GROUP_GET_SIZE, f"{topic}@{group}", size)
        add(BROKER_GET_NUMS, cluster, count, 0)
        if not is_system:
            add(BROKER_GET_NUMS_OF_USERS, cluster, count, 0)

    # ---- what goes on

    def step(self, now: int, date: int) -> None:
        """Note what has to be noted by now."""
        if now - self._rated_at >= _SECOND:
            self._rated_at = now
            self._samples.append((now, self.puts, self.found, self.missed, self.transferred))
        if now - self._minute_at >= _MINUTE:
            self._minute_at = now
            self.put_times, self._put_times = self._put_times, [0] * len(TIME_NAMES)
            self._last_durations, self._durations = sorted(self._durations), []
        for span, (interval, _) in enumerate(_SAMPLINGS):
            if now - self._noted_at[span] >= interval:
                before, self._noted_at[span] = self._noted_at[span], now
                for item in list(self._items.values()):
                    notes = item.notes[span]
                    if not notes:
                        notes.append((before, 0, 0))
                    notes.append((now, item.times, item.value))
        if _day_of(date) != self._day:
            self._day = _day_of(date)
            puts, gets = self.totals()
            self.put_mornings, self.get_mornings = (self.put_mornings[1], puts), (self.get_mornings[1], gets)

    # ---- figures

    def totals(self) -> tuple[int, int]:
        """Return the messages that were put and got since the broker began, as its version counts them."""
        if not self._of_users:
            return self.puts, self.transferred
        put, got = (self._items.get((name, self._cluster)) for name in _OF_USERS)
        return 0 if put is None else put.value, 0 if got is None else got.value

    def figures(self, name: str, key: str, now: int) -> tuple[Figures, Figures, Figures] | None:
        """Return a count over the last minute, hour and day; None for one that was never counted."""
        item = self._items.get((name, key))
        return None if item is None else (item.figures(0, now), item.figures(1, now), item.figures(2, now))

    def per_second(self, name: str, key: str, now: int) -> float:
        """Return a count's rate over the last minute, 0 for one that was never counted."""
        item = self._items.get((name, key))
        return 0.0 if item is None else item.figures(0, now).tps

    def rates(self) -> dict[str, str]:
        """Return messages or pulls a second over the last 10, 60 and 600 s, as far as the broker is that old."""
        by_name: dict[str, list[str]] = {}
        for seconds in _RATES:
            rate = self._rates_over(seconds)
            names = ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps")
            for name, one in zip(names, rate or (None, None, None, 0.0, None), strict=True):
                by_name.setdefault(name, []).append("" if one is None else str(one))
        return {name: " ".join(texts) for name, texts in by_name.items()}

    def _rates_over(self, seconds: int) -> tuple[float, ...] | None:
        samples = list(self._samples)
        last, *now = samples[-1]
        # a sample may be late by a step
        old = [one for one in samples if last - one[0] >= seconds * _SECOND - _SECOND // 2]
        if not old:
            return None
        since, *before = old[-1]
        passed = max(1, last - since)
        put, found, missed, transferred = (
            (end - begin) / passed * 1000.0 for end, begin in zip(now, before, strict=True)
        )
        return put, found, missed, found + missed, transferred

    def put_percentile(self, part: float) -> float:
        """Return how long (ms) this part of the puts of the last whole minute took at most."""
        known = self._last_durations
        return float(known[min(len(known) - 1, int(len(known) * part))]) if known else 0.0


def _day_of(now: int) -> int:
    moment = time.localtime(now // 1000)
    return moment.tm_year * 1000 + moment.tm_yday
