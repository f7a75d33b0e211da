"""Where the wall clock may be read: only for dates. Intervals, limits and waits go by a clock that is never set."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.syntax import dotted, nodes
from tests.test_tidy import FLOORS, modules

DATES = {
    "network/broker/broker.py": "the clock of a broker: store times, due times, versions of configuration files",
    "network/clients/client.py": "a part of a client's id",
    "network/clients/membership.py": "the version of a subscription, which is a date (SubscriptionData#subVersion)",
    "network/clients/push/member.py": "the date at which a consumer started, which it reports",
    "network/clients/push/process_queue.py": "the dates of pulls, locks and consumption that a consumer reports",
    "network/clients/producing/requests.py": "the born timestamp of a message",
    "network/clients/tracing.py": "the timestamps of trace records",
    "network/unique_ids.py": "the time in a unique id",
    "pipeline/spark/sink_record.py": "the date in a dataVersion",
    "rmqctl/demo.py": "the mtime of files, which makes them old",
    "rmqctl/output/times.py": "now, for times that are relative to it and for ages that are printed",
    "rmqctl/testing.py": "the clock of a broker that tests move",
    "store/check/check.py": "the date at which a pass of check began, and the age of files by their mtime",
    "store/check/log_findings.py": "store times in the future",
    "store/check/cross.py": "dates in the state of a check",
    "store/clean/cleaner.py": "the age of files by their mtime, and deleteWhen",
    "store/index/index_service.py": "the name of an index file",
    "store/journal/entry.py": "the date at which messages were stored",
    "store/journal/folder.py": "the date in the state of a change",
    "store/journal/log.py": "the date of a change; the order of changes is that of their ids",
    "store/message_store.py": "now, for ages and due times that are answered",
    "store/offsets/change.py": "the date in a dataVersion",
    "store/offsets/deliveries.py": "the date in a dataVersion",
    "store/files/outputs.py": "the start of a process, compared with the ctime of a file",
    "store/predict/prediction.py": "whether delayed messages are due by now",
    "store/predict/timer.py": "which messages a broker that starts now finds due for too long",
    "store/repair/entries.py": "the date in a dataVersion",
    "store/repair/repair.py": "the date up to which the mtime of a file may be set",
    "store/snapshot/snapshot.py": "the date of a snapshot in its manifest",
    "store/timer/recovered.py": "times up to which a timer cannot have delivered yet",
    "store/timer/wheel.py": "near which time the slots of a wheel are whose broker has read none yet",
    "store/native/put.py": "store timestamps",
    "store/write/writer.py": "store timestamps",
}
"""Module -> which date it makes of the wall clock."""

_ALWAYS = re.compile(r"(.*\.)?(time\.time(_ns)?|(datetime|date)\.(now|utcnow|today))|(time\.)?clock_gettime(_ns)?")
_WITHOUT_A_TIME = re.compile(r"time\.(localtime|gmtime|ctime|asctime|strftime)")


def wall_clock_reads(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that name a function that reads the wall clock, whether it is called there or handed on."""
    whole = {id(node.value) for node in nodes(tree, ast.Attribute)}
    for node in (*nodes(tree, ast.Attribute), *nodes(tree, ast.Name)):
        if id(node) not in whole and _ALWAYS.fullmatch(dotted(node)):
            yield node.lineno
    for call in nodes(tree, ast.Call):
        name = dotted(call.func)
        most = 1 if name == "time.strftime" else 0
        if _WITHOUT_A_TIME.fullmatch(name) and len(call.args) <= most:
            yield call.lineno
    for taken in nodes(tree, ast.ImportFrom):
        if taken.module == "time":
            yield taken.lineno


def test_the_wall_clock_is_read_for_dates_only() -> None:
    readers = {path for path, (_, tree) in modules().items() if path.startswith(FLOORS) and any(wall_clock_reads(tree))}
    assert sorted(readers) == sorted(DATES)


def test_one_function_sleeps_and_not_by_the_one_of_python() -> None:
    sleeps = {path for path, (text, _) in modules().items() if path.startswith(FLOORS) and "time.sleep" in text}
    assert sleeps == set()


@pytest.mark.parametrize(
    "line",
    [
        "time.time()",
        "time.time_ns()",
        "clock = time.time",
        "call(default=time.time_ns)",
        "datetime.now(UTC)",
        "datetime.datetime.now()",
        "date.today()",
        "time.localtime()",
        "time.strftime('%Y')",
        "from time import time",
        "time.clock_gettime(time.CLOCK_REALTIME)",
    ],
)
def test_a_read_of_the_wall_clock_is_seen(line: str) -> None:
    assert list(wall_clock_reads(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "time.monotonic()",
        "time.monotonic_ns()",
        "loop.time()",
        "time.localtime(now / 1000)",
        "time.strftime('%Y', time.gmtime(now))",
        "datetime.fromtimestamp(now, UTC)",
        "time.sleep(1)",
    ],
)
def test_other_clocks_and_given_times_are_no_read_of_it(line: str) -> None:
    assert not list(wall_clock_reads(ast.parse(line)))
