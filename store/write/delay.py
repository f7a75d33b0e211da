"""Delayed messages: rewriting to the schedule topic (levels) or to the timer topic (HookUtils)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.hashing import java_long, parse_int, parse_long
from rmqctl.formats.message import Message
from rmqctl.formats.sys_flag import has_queue_slot
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.status import PutStatus
from rmqctl.store.write.put_checks import Refusal

_DELAY_SECONDS, _DELAY_MS, _DELIVER_MS = names.TIMER_PROPERTIES
# MessageStoreConfig.timerPrecisionMs
_PRECISION_MS = 1000


class Destination(NamedTuple):
    """Where a message goes and with which properties."""

    topic: str
    queue_id: int
    properties: Mapping[str, str]


def schedule(wanted: Destination, sys_flag: int, config: StoreConfig, now: int) -> Destination | Refusal:
    """The place where a message with a delay waits, `wanted` itself for one without (HookUtils#handleScheduleMessage).

    `now` in ms. A delay level wins over timer properties, which are removed then. A message that was delivered after
    its delay keeps all of its properties when it is stored for good: its real topic is the one that it is in then, and
    it is not delayed again. Prepared and rolled back messages wait for their transaction first. A message that already
    is in one of the two topics stays as it is, so that a copy keeps its real topic. WHEEL_TIMER_FLOW_CONTROL cannot
    arise: nothing here knows the broker's wheel.
    """
    properties = wanted.properties
    if not has_queue_slot(sys_flag) or wanted.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        return wanted
    if names.DELAY not in properties and not any(name in properties for name in names.TIMER_PROPERTIES):
        return wanted
    if properties.get(names.REAL_TOPIC) == wanted.topic:
        return wanted
    level = parse_int(properties.get(names.DELAY, "0"))
    if level is None:
        return Refusal(PutStatus.MESSAGE_ILLEGAL, f"delay level {properties[names.DELAY]!r} is no number")
    if level > 0:
        return _to_level(wanted, level, config)
    return _to_timer(wanted, config, now)


def topic_in_log(message: Message) -> str:
    """Return the topic under which a message is stored, which for one that waits is that of the delays."""
    properties = message.properties
    if message.topic == properties.get(names.REAL_TOPIC) or not has_queue_slot(message.sys_flag):
        return message.topic
    if (parse_int(properties.get(names.DELAY, "0")) or 0) > 0:
        return SCHEDULE_TOPIC
    waits = names.TIMER_OUT_MS not in properties and any(name in properties for name in names.TIMER_PROPERTIES)
    return TIMER_TOPIC if waits else message.topic


def _with_origin(wanted: Destination, properties: dict[str, str]) -> dict[str, str]:
    return properties | {names.REAL_TOPIC: wanted.topic, names.REAL_QUEUE_ID: str(wanted.queue_id)}


def _to_level(wanted: Destination, level: int, config: StoreConfig) -> Destination:
    properties = {name: value for name, value in wanted.properties.items() if name not in names.TIMER_PROPERTIES}
    highest = len(config.delay_levels())
    if level > highest:
        level = highest
        properties[names.DELAY] = str(level)
    return Destination(SCHEDULE_TOPIC, level - 1, _with_origin(wanted, properties))


def _to_timer(wanted: Destination, config: StoreConfig, now: int) -> Destination | Refusal:
    properties = wanted.properties
    if names.TIMER_OUT_MS in properties or not any(name in properties for name in names.TIMER_PROPERTIES):
        return wanted
    if not config.timer_wheel_enable:
        return Refusal(
            PutStatus.WHEEL_TIMER_NOT_ENABLE, "the message has a delivery time, but timerWheelEnable is false"
        )
    deliver = _deliver_at(properties, now)
    if deliver is None:
        return Refusal(PutStatus.WHEEL_TIMER_MSG_ILLEGAL, "the delivery time of the message is no number")
    if deliver <= now:
        if names.TIMER_DELETE_UNIQUE_KEY in properties:
            return Refusal(PutStatus.WHEEL_TIMER_MSG_ILLEGAL, "the timer to be deleted is due already")
        return wanted
    if java_long(deliver - now) > config.timer_max_delay_sec * 1000:
        return Refusal(
            PutStatus.WHEEL_TIMER_MSG_ILLEGAL, f"the delay is longer than timerMaxDelaySec={config.timer_max_delay_sec}"
        )
    # an exact multiple is lowered by one step as well
    deliver = (deliver - 1) // _PRECISION_MS * _PRECISION_MS
    return Destination(TIMER_TOPIC, 0, _with_origin(wanted, dict(properties) | {names.TIMER_OUT_MS: str(deliver)}))


def _deliver_at(properties: Mapping[str, str], now: int) -> int | None:
    if _DELAY_SECONDS in properties:
        seconds = parse_long(properties[_DELAY_SECONDS])
        return None if seconds is None else java_long(now + seconds * 1000)
    if _DELAY_MS in properties:
        delay = parse_long(properties[_DELAY_MS])
        return None if delay is None else java_long(now + delay)
    return parse_long(properties[_DELIVER_MS])
