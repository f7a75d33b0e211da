"""`rmqctl watch`: numbers about a store for Prometheus, once or again and again."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.flags.options import StoreLocation, store_options
from rmqctl.flags.types import SPAN
from rmqctl.formats.errors import CorruptError, RmqctlError
from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import said, visible
from rmqctl.store.files.background import sleep
from rmqctl.store.files.remote import is_address
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.store.message_store import MessageStore


@click.command(
    epilog="""\b
Examples:
  rmqctl watch -s /data/store
  rmqctl watch -s /data/store -o /var/lib/node_exporter/rocketmq.prom
  rmqctl watch -s /data/store -o /var/lib/node_exporter/rocketmq.prom --interval 1m
  */5 * * * * rmqctl watch -s /data/store -o /var/lib/node_exporter/rocketmq.prom     by cron

docs/monitoring has a dashboard for Grafana and rules for alerts.
Exit code 0: the numbers were read. 1: a part could not be read. 3: no store, or it cannot be read: the file says
rmqctl_store_readable 0."""
)
@store_options
@click.option(
    "-o", "--output", "target", type=click.Path(dir_okay=False, path_type=Path), default="-", metavar="FILE",
    help="Replace this file in one step.  [default: stdout]",
)  # fmt: skip
@click.option("--interval", type=SPAN, metavar="SPAN", help="Repeat every 30s, 5m or 1h.")
@click.option("--full", is_flag=True, help="Check every message.")
@click.option("--json", "as_json", is_flag=True, help="JSON Lines: name, labels and value.")
def watch(store: StoreLocation, target: Path, interval: int | None, full: bool, as_json: bool) -> int:
    """Write numbers about a store for Prometheus.

    Health, size, last message, disk and when it will be full, messages by topic, lag and oldest unread message by group
    and topic, delayed messages, findings by code. Only heads, tails, queues and configuration are read. It works with
    or without a running broker.
    """
    begun = time.monotonic()
    for number in itertools.count(1):
        code = _written(store, target, full, as_json)
        if interval is None:
            return code
        # a fixed beat, however long a look takes
        sleep(max(0.0, begun + number * interval / 1000 - time.monotonic()))
    raise AssertionError("not reached")


def _written(store: StoreLocation, target: Path, full: bool, as_json: bool) -> int:
    """Write the file once; the exit code."""
    from rmqctl.output.outcome import exit_code_of, say_error
    from rmqctl.output.output import Output, json_line, talk
    from rmqctl.store.files.outputs import new_file

    failures: list[RmqctlError] = []

    def failed(part: str, error: RmqctlError) -> None:
        failures.append(error)
        talk(said(f"not read: {part}: {error}"))

    name = str(store.path)
    code = exit_codes.OK
    try:
        samples = list(_samples(store, failed, full))
        code = exit_codes.DAMAGE_OR_NOTHING if failures else exit_codes.OK
    except RmqctlError as error:
        code = exit_code_of(error)
        say_error(error, as_json)
        samples = [("rmqctl_store_readable", 0.0, ())]
    lines = "".join(json_line(row_of(name, one)) for one in samples).encode() if as_json else as_text(name, samples)
    if str(target) == "-":
        output = Output(as_json)
        output.raw(lines)
        output.flush()
        return code
    with new_file(target, overwrite=True) as file:
        file.write(lines)
    return code


def _samples(store: StoreLocation, failed: Callable[[str, RmqctlError], None], full: bool) -> Iterator[MetricSample]:
    from rmqctl.opening import open_store
    from rmqctl.output.times import now_ms

    begun, now = time.monotonic(), now_ms()
    with open_store(store) as opened:
        yield from samples_of(opened, now, failed, full=full)
    yield "rmqctl_watch_timestamp_seconds", now / 1000, ()
    yield "rmqctl_watch_duration_seconds", time.monotonic() - begun, ()


# Numbers about a store as Prometheus reads them: gauges with the labels `store`, and topic, group or code.


class Metric(NamedTuple):
    """What a gauge counts, and its labels beside `store`."""

    about: str
    labels: tuple[str, ...] = ()


METRICS: dict[str, Metric] = {
    "rmqctl_store_readable": Metric("1 where the store could be opened and read, else 0."),
    "rmqctl_store_part_read": Metric("1 where this part of the store could be read, else 0.", ("part",)),
    "rmqctl_store_part_damages": Metric(
        "Damaged or unread places that make the numbers of a part uncertain.", ("part",)
    ),
    "rmqctl_store_open": Metric("1 while a broker or another program has the store open."),
    "rmqctl_store_clean": Metric("1 where the store is open or was closed cleanly, 0 after a crash."),
    "rmqctl_store_accepts_writes": Metric("1 where a broker takes messages here as far as files show, else 0."),
    "rmqctl_store_unfinished_change": Metric("1 where a change by rmqctl was interrupted and waits to be ended."),
    "rmqctl_commitlog_files": Metric("Files of the commitlog."),
    "rmqctl_commitlog_min_offset_bytes": Metric("Physical offset of the first byte of the commitlog."),
    "rmqctl_commitlog_end_offset_bytes": Metric("Physical offset behind the last message."),
    "rmqctl_last_message_timestamp_seconds": Metric("Store time of the newest message, in seconds since 1970."),
    "rmqctl_disk_used_ratio": Metric("Share of the disk that is used, 0 to 1.", ("part",)),
    "rmqctl_disk_level_bytes_left": Metric("Bytes until the disk reaches a level of broker.conf.", ("setting",)),
    "rmqctl_disk_level_reached_timestamp_seconds": Metric(
        "When the disk reaches that level if the log goes on growing as it did.", ("setting",)
    ),
    "rmqctl_topic_messages": Metric("Messages that the queues of a topic lead to.", ("topic",)),
    "rmqctl_topic_bytes": Metric("Bytes of these messages.", ("topic",)),
    "rmqctl_incomplete_queues": Metric("Queues that lack messages which a sample of the log holds."),
    "rmqctl_group_lag_messages": Metric(
        "Messages that a group has not consumed, of queues where that is known.", ("group", "topic")
    ),
    "rmqctl_group_oldest_unread_timestamp_seconds": Metric(
        "Store time of the oldest message that a group has not consumed.", ("group", "topic")
    ),
    "rmqctl_group_unknown_queues": Metric("Queues of which it is not known how far a group is.", ("group", "topic")),
    "rmqctl_delayed_messages": Metric("Messages that wait for their time.", ("kind", "state")),
    "rmqctl_findings": Metric("Findings of `rmqctl check`.", ("code", "severity")),
    "rmqctl_watch_timestamp_seconds": Metric("When these numbers were read."),
    "rmqctl_watch_duration_seconds": Metric("How long that took."),
}
"""By name: docs/monitoring and what is written go by it."""

MetricSample = tuple[str, float, tuple[str, ...]]
"""The name of a metric, the value, and the values of its labels beside `store`."""


def as_text(store: str, samples: Iterable[MetricSample]) -> bytes:
    """The samples as gauges of one store, in Prometheus' text format. A metric without a sample is left out."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    gauges: dict[str, Gauge] = {}
    for name, value, labels in samples:
        gauge = gauges.get(name)
        if gauge is None:
            metric = METRICS[name]
            gauge = gauges[name] = Gauge(name, metric.about, ("store", *metric.labels), registry=registry)
        gauge.labels(visible(store), *map(visible, labels)).set(value)
    return generate_latest(registry)


def row_of(store: str, sample: MetricSample) -> dict[str, Any]:
    """A sample as an object of JSON."""
    name, value, labels = sample
    named = dict(zip(("store", *METRICS[name].labels), (store, *labels), strict=True))
    return {"name": name, "labels": named, "value": value}


def samples_of(
    store: MessageStore, now: int, failed: Callable[[str, RmqctlError], None], *, full: bool = False
) -> Iterator[MetricSample]:
    """Yield what is known of a store; `now` in ms. A part that cannot be read is handed to `failed` and counted as not
    read; the others follow. The disks of a server are not measured. With `full` every message is checked, else heads
    and tails."""
    yield "rmqctl_store_readable", 1, ()
    parts = {part: read for part, read in _PARTS.items() if part != "disk" or not is_address(store.files.root)}
    for part, read in parts.items():
        damages: list[CorruptError] = []
        try:
            # as a whole: half of a part would look like all of it
            samples = list(read(store, now, Events(damage=damages.append)))
            yield "rmqctl_store_part_read", 1, (part,)
            yield "rmqctl_store_part_damages", len(damages), (part,)
        except RmqctlError as error:
            failed(part, error)
            samples = [("rmqctl_store_part_read", 0, (part,))]
        yield from samples
    counts: Counter[tuple[str, str]] = Counter()
    for finding in store.check("default" if full else "quick"):
        counts[finding.code, str(finding.severity)] += 1
    for labels, count in counts.items():
        yield "rmqctl_findings", count, labels


def _state(store: MessageStore, now: int, events: Events) -> Iterator[MetricSample]:
    from rmqctl.store.log.survey import look_at_tail

    row = store.info(walk_log=False, events=events)
    yield "rmqctl_store_open", row["locked"], ()
    yield "rmqctl_store_clean", row["locked"] or row["clean_shutdown"], ()
    if row["writes"]["accepted"] is not None:
        yield "rmqctl_store_accepts_writes", row["writes"]["accepted"], ()
    yield "rmqctl_store_unfinished_change", row["unfinished_change"] is not None and not row["locked"], ()
    yield "rmqctl_commitlog_files", row["commitlog"]["files"], ()
    log = store.files.log
    if log.files:
        yield "rmqctl_commitlog_min_offset_bytes", log.min_offset, ()
        yield "rmqctl_commitlog_end_offset_bytes", log.written_end(), ()
        newest = look_at_tail(log).largest_store_timestamp
        if newest > 0:
            yield "rmqctl_last_message_timestamp_seconds", newest / 1000, ()


def _disk(store: MessageStore, now: int, events: Events) -> Iterator[MetricSample]:
    found = store.forecast_clean(now=now)
    for number, percent in enumerate(found.usage.commitlog):
        if percent is not None:
            part = "commitlog" if number == 0 else f"commitlog-{number}"
            yield "rmqctl_disk_used_ratio", percent / 100, (part,)
    if found.usage.consumequeue is not None:
        yield "rmqctl_disk_used_ratio", found.usage.consumequeue / 100, ("consumequeue",)
    for level in found.levels:
        if level.bytes_left is not None:
            yield "rmqctl_disk_level_bytes_left", level.bytes_left, (level.setting,)
        if level.reached_timestamp is not None:
            yield "rmqctl_disk_level_reached_timestamp_seconds", level.reached_timestamp / 1000, (level.setting,)


def _topics(store: MessageStore, now: int, events: Events) -> Iterator[MetricSample]:
    from rmqctl.store.answers.undispatched import lost_queues

    for topic in store.disk_usage(quick=True, events=events).topics:
        yield "rmqctl_topic_messages", topic.messages, (topic.topic,)
        yield "rmqctl_topic_bytes", topic.bytes, (topic.topic,)
    yield "rmqctl_incomplete_queues", len(lost_queues(store.files).found), ()


def _groups(store: MessageStore, now: int, events: Events) -> Iterator[MetricSample]:
    from rmqctl.reports.consumers import WantedGroups

    lags: Counter[tuple[str, str]] = Counter()
    unknown: Counter[tuple[str, str]] = Counter()
    oldest: dict[tuple[str, str], float] = {}
    rows = (row._asdict() for row in store.groups(events=events))
    for row in WantedGroups(system=False).chosen(rows, set()):
        if row["topic"] is None:
            continue
        labels = row["group"], row["topic"]
        unknown[labels] += row["lag"] is None
        if row["lag"] is not None:
            lags[labels] += row["lag"]
        first = row["first_unread_timestamp"]
        if first is not None:
            oldest[labels] = min(oldest.get(labels, math.inf), first / 1000)
    # without a queue whose lag is known there is none: 0 is that of a group that has read all
    for labels, lag in lags.items():
        yield "rmqctl_group_lag_messages", lag, labels
    for labels, queues in unknown.items():
        yield "rmqctl_group_unknown_queues", queues, labels
    for labels, first in oldest.items():
        yield "rmqctl_group_oldest_unread_timestamp_seconds", first, labels


def _delays(store: MessageStore, now: int, events: Events) -> Iterator[MetricSample]:
    waiting: Counter[tuple[str, str]] = Counter()
    for level in store.delays(now=now, events=events):
        if level.pending:
            waiting["timer" if level.level is None else "level", level.state] += level.pending
    for labels, count in waiting.items():
        yield "rmqctl_delayed_messages", count, labels


_PARTS: dict[str, Callable[[MessageStore, int, Events], Iterator[MetricSample]]] = {
    "state": _state,
    "disk": _disk,
    "topics": _topics,
    "groups": _groups,
    "delays": _delays,
}
