"""`rmqctl watch`: numbers about a store for Prometheus, once or again and again."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, store_options
from rmqctl.flags.types import SPAN
from rmqctl.formats.errors import RmqctlError
from rmqctl.output import outcome as exit_codes

if TYPE_CHECKING:
    from rmqctl.reports.metrics import MetricSample


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
        time.sleep(max(0.0, begun + number * interval / 1000 - time.monotonic()))
    raise AssertionError("not reached")


def _written(store: StoreLocation, target: Path, full: bool, as_json: bool) -> int:
    """Write the file once; the exit code."""
    from rmqctl.output.outcome import exit_code_of, say_error
    from rmqctl.output.output import Output, json_line, talk
    from rmqctl.reports.metrics import as_text, row_of
    from rmqctl.store.files.outputs import new_file

    failures: list[RmqctlError] = []

    def failed(part: str, error: RmqctlError) -> None:
        failures.append(error)
        talk(f"not read: {part}: {error}")

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
    from rmqctl.reports.metrics import samples_of

    begun, now = time.monotonic(), now_ms()
    with open_store(store) as opened:
        yield from samples_of(opened, now, failed, full=full)
    yield "rmqctl_watch_timestamp_seconds", now / 1000, ()
    yield "rmqctl_watch_duration_seconds", time.monotonic() - begun, ()
