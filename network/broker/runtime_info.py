"""The broker's state as texts by name, for brokerStatus and clusterList (BrokerRuntimeInfo, StoreStatsService).

Clients take single keys out of it and stumble over a missing one: every key that a 5.3.3 broker gives is there. What
does not exist here, such as a lock of the page cache, is 0.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.tables.counts import (
    BROKER_GET_NUMS_OF_USERS,
    BROKER_PUT_NUMS_OF_USERS,
    TIME_NAMES,
    Counts,
)
from rmqctl.network.remoting.server import Limits
from rmqctl.store.clean.options import used_percent
from rmqctl.store.config.config_files import read_config
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.read.frames import store_time_at

_POOLS = {"send": 10_000, "pull": 100_000, "litePull": 100_000, "ack": 100_000}
_ZEROS = (
    "dispatchMaxBuffer pageCacheLockTimeMills startAcceptSendRequestTimeStamp timerReadBehind timerOffsetBehind "
    "timerCongestNum EndTransactionQueueSize"
).split()
_FLOAT_ZEROS = ("timerEnqueueTps", "timerDequeueTps")
_SINCE_5_0 = ("ackThread", "litePullThread", "timer", "brokerActive")
_SECOND = 1000


def runtime_info(broker: Broker) -> dict[str, str]:
    """All texts by name."""
    table = dict.fromkeys(_ZEROS, "0") | dict.fromkeys(_FLOAT_ZEROS, "0.0") | _queues(broker) | _counts(broker.counts)
    earliest = store_time_at(broker.files.log, broker.files.log.min_offset)
    table |= {
        "bootTimestamp": str(broker.started_at),
        "runtime": _running_time(broker.running_ms),
        "brokerActive": "true",
        "brokerVersionDesc": broker.identity.release.text,
        "commitLogMinOffset": str(broker.files.log.min_offset),
        "commitLogMaxOffset": str(broker.log_end),
        "earliestMessageTimeStamp": str(-1 if earliest is None else earliest),
        "remainTransientStoreBufferNumbs": str(2**31 - 1),
        "remainHowManyDataToFlush": "0 B",
        "dispatchBehindBytes": "0",
    }
    if broker.identity.release.shows_number:
        table["brokerVersion"] = str(broker.identity.release.number)
    if broker.identity.release.is_of_4:
        table = {name: text for name, text in table.items() if not name.startswith(_SINCE_5_0)}
    return table | _disk(broker) | _delays(broker)


def _queues(broker: Broker) -> dict[str, str]:
    """Requests that wait, by kind. Those of most kinds are answered as they come: none waits, and a broker's own
    capacity stands beside that. Slow ones wait for one thread."""
    sizes = {pool: (0, capacity) for pool, capacity in _POOLS.items()}
    sizes["query"] = (broker.slow_requests(), Limits().slow_requests)
    table = {"EndTransactionThreadPoolQueueCapacity": "100000"}
    for pool, (size, capacity) in sizes.items():
        table[f"{pool}ThreadPoolQueueSize"] = str(size)
        table[f"{pool}ThreadPoolQueueCapacity"] = str(capacity)
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return table


def _counts(counts: Counts) -> dict[str, str]:
    """What was put and got since the broker began."""
    puts = counts.puts
    return counts.rates() | {
        "putMessageTimesTotal": str(puts),
        "putMessageFailedTimes": str(counts.failed_puts),
        "putMessageSizeTotal": str(counts.put_bytes),
        "putMessageAverageSize": str(counts.put_bytes / max(puts, 1)),
        "putMessageEntireTimeMax": str(counts.longest_put),
        "getMessageEntireTimeMax": str(counts.longest_get),
        "putMessageDistributeTime": "".join(
            f"{name}:{count} " for name, count in zip(TIME_NAMES, counts.put_times, strict=True)
        ),
        "putLatency99": f"{counts.put_percentile(0.99):.2f}",
        "putLatency999": f"{counts.put_percentile(0.999):.2f}",
        "msgPutTotalYesterdayMorning": str(counts.put_mornings[0]),
        "msgPutTotalTodayMorning": str(counts.put_mornings[1]),
        "msgPutTotalTodayNow": str(counts.of_users(BROKER_PUT_NUMS_OF_USERS)),
        "msgGetTotalYesterdayMorning": str(counts.get_mornings[0]),
        "msgGetTotalTodayMorning": str(counts.get_mornings[1]),
        "msgGetTotalTodayNow": str(counts.of_users(BROKER_GET_NUMS_OF_USERS)),
    }


def _running_time(milliseconds: int) -> str:
    minutes, seconds = divmod(max(milliseconds, 0) // _SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _disk(broker: Broker) -> dict[str, str]:
    """How full the disks are, as ratios of 1; -1.0 where that cannot be told (DefaultMessageStore#getRuntimeInfo)."""
    layout = broker.files.layout
    logs = {directory: _disk_ratio(directory) for directory in layout.commitlog}
    table = {f"commitLogDiskRatio_{directory}": str(ratio) for directory, ratio in logs.items()}
    table["commitLogDiskRatio"] = str(min(logs.values()))
    table["consumeQueueDiskRatio"] = str(_disk_ratio(layout.consumequeue))
    table["commitLogDirCapacity"] = _capacity(layout.commitlog[-1])
    return table


def _disk_ratio(path: Path) -> float:
    percent = used_percent(path)
    return -1.0 if percent is None else percent / 100


def _capacity(path: Path) -> str:
    try:
        disk = os.statvfs(path)
    except OSError:
        return ""
    total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    return f"Total : {_gibibytes(total)}, Free : {_gibibytes(free)}."


def _gibibytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _delays(broker: Broker) -> dict[str, str]:
    """By delay level, what is delivered and what there is; nothing where the store's own file is damaged."""
    try:
        content = read_config(broker.files.layout.config / "delayOffset.json")
    except (CorruptError, UnreadableError) as error:
        broker.tell_once(("delayOffset.json", 0), f"delivered delay levels are not known: {error}")
        return {}
    levels = content.get("offsetTable") if isinstance(content, dict) else None
    if not isinstance(levels, dict):
        return {}
    return {
        f"scheduleMessageOffset_{level}": f"{offset},{broker.bounds(SCHEDULE_TOPIC, level - 1)[1]}"
        for level, offset in levels.items()
        if isinstance(level, int) and isinstance(offset, int)
    }
