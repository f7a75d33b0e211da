"""The broker's state as texts by name, for brokerStatus and clusterList (BrokerRuntimeInfo, StoreStatsService).

Clients take single keys out of it and stumble over a missing one: every key that a 5.3.3 broker gives is there. What is
not counted here, because nothing is written and reading has no threads of its own, is 0.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.network.broker.broker import Broker
from rmqctl.network.remoting.command import VERSION
from rmqctl.store.clean.options import used_percent
from rmqctl.store.config.config_files import read_config
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.read.frames import store_time_at

VERSION_TEXT = "V5_3_3"
_RATES = ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps")
_POOLS = ("send", "pull", "litePull", "query", "ack")
_ZEROS = (
    "putMessageEntireTimeMax putMessageTimesTotal putMessageFailedTimes putMessageSizeTotal "
    "getMessageEntireTimeMax dispatchMaxBuffer putLatency99 putLatency999 msgPutTotalYesterdayMorning "
    "msgPutTotalTodayMorning msgPutTotalTodayNow msgGetTotalYesterdayMorning msgGetTotalTodayMorning "
    "msgGetTotalTodayNow dispatchBehindBytes pageCacheLockTimeMills startAcceptSendRequestTimeStamp "
    "timerReadBehind timerOffsetBehind timerCongestNum EndTransactionQueueSize "
    "EndTransactionThreadPoolQueueCapacity"
).split()
_FLOAT_ZEROS = ("putMessageAverageSize", "timerEnqueueTps", "timerDequeueTps")
_SECOND = 1000
_NAMES_OF_TIMES = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip


def runtime_info(broker: Broker) -> dict[str, str]:
    """All texts by name."""
    table = dict.fromkeys(_ZEROS, "0") | dict.fromkeys(_FLOAT_ZEROS, "0.0") | dict.fromkeys(_RATES, "0.0 0.0 0.0 ")
    for pool in _POOLS:
        table[f"{pool}ThreadPoolQueueSize"] = "0"
        table[f"{pool}ThreadPoolQueueCapacity"] = "0"
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    earliest = store_time_at(broker.files.log, broker.files.log.min_offset)
    table |= {
        "bootTimestamp": str(broker.started_at),
        "runtime": _running_time(broker.running_ms),
        "brokerActive": "true",
        "brokerVersionDesc": VERSION_TEXT,
        "brokerVersion": str(VERSION),
        "commitLogMinOffset": str(broker.files.log.min_offset),
        "commitLogMaxOffset": str(broker.log_end),
        "earliestMessageTimeStamp": str(-1 if earliest is None else earliest),
        "remainTransientStoreBufferNumbs": str(2**31 - 1),
        "remainHowManyDataToFlush": "0 B",
        "putMessageDistributeTime": "".join(f"{name}:0 " for name in _NAMES_OF_TIMES),
    }
    return table | _disk(broker) | _delays(broker)


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
