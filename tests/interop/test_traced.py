"""Message traces: mqadmin reads ours, and those of Java's clients are read here and encoded alike."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.clients.client import Client
from rmqctl.network.clients.tracing import TraceType, decode, encode
from rmqctl.network.remoting.codec import RequestCode
from tests.interop.brokers import java, mqadmin, real_broker, rmqctl
from tests.interop.harness import NEWEST
from tests.network.callers import with_header
from tests.network.serving import serving

pytestmark = pytest.mark.interop

VERSION = "5.3.3"


@contextlib.contextmanager
def _broker(kind: str, version: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Addresses of name server and broker, RocketMQ's or ours."""
    if kind == "ours":
        with serving(folder / "store", "--writable", "--create") as served:
            yield served.namesrv, served.broker
    else:
        settings = {"timerWheelEnable": "false"}
        with real_broker(version, folder / "real", folder / "store", settings) as real:
            yield real.namesrv, real.broker


def _create(namesrv: str, broker: str, *topics: str) -> None:
    client = Client(namesrv)
    for topic in topics:
        fields = {"topic": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "defaultTopic": "TBW102"}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        client.ask(broker, *with_header(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
    client.close()


@pytest.mark.parametrize(("kind", "version"), [("ours", VERSION), ("real", VERSION), ("real", NEWEST)])
def test_traces_are_read_on_both_sides(kind: str, version: str, tmp_path: Path) -> None:
    with _broker(kind, version, tmp_path) as (namesrv, broker):
        _create(namesrv, broker, "Ours", "Java")
        at = ("-n", namesrv, "-t", "Ours")
        (sent,) = rmqctl("produce", *at, "--body", "one", "-k", "k1", "--tags", "paid", "--group", "makes", "--trace")
        (half,) = rmqctl("produce", *at, "--body", "two", "--transaction", "commit", "--group", "makes", "--trace")
        consumed = _until(2, lambda: rmqctl("consume", *at, "-g", "prints", "--trace", code=None))
        assert len(consumed) == 2
        rows = _until(2, lambda: rmqctl("consume", *at, "-g", "runs", "--exec", "false", "--trace", code=None))
        assert {row["result"] for row in rows} == {"later"}
        ids = {
            line[0]: line[1] for line in (one.split("\t") for one in java(version, tmp_path, "Trace", namesrv, "Java"))
        }
        traced = rmqctl("consume", "-n", namesrv, "-t", "RMQ_SYS_TRACE_TOPIC")
        ours, halves, theirs = mqadmin(
            version, tmp_path, namesrv,
            *(f"queryMsgTraceById -i {one}" for one in (sent["unique_key"], half["unique_key"], ids["keyed"])),
        )  # fmt: skip
    for lines in (ours, halves):
        assert _views(lines) == [("Pub", "makes", "success"), ("Sub", "prints", "success"), ("Sub", "runs", "failed")]
    assert _views(theirs) == [("Pub", "java-traced", "success"), ("Sub", "java-traces", "success")]
    found: list[tuple[TraceType, str | None, str]] = []
    for message in traced:
        records = decode(message["body"].encode())
        assert "".join(map(encode, records)) == message["body"]
        found += [(one.type, one.group, one.beans[0].message_id) for one in records]
    for kind_of_record in (TraceType.PUB, TraceType.END_TRANSACTION):
        assert (kind_of_record, "java-traced", ids["half"]) in found
        assert (kind_of_record, "makes", half["unique_key"]) in found
    assert (TraceType.PUB, "java-traced", ids["batch"]) in found


def _until(count: int, ask: Any) -> list[Any]:
    """What is asked for, as soon as there are so many: a queue has a message shortly after its producer knows."""
    found: list[Any] = []
    for _ in range(50):
        found += ask()
        if len(found) >= count:
            break
        time.sleep(0.2)
    return found


def _views(lines: list[str]) -> list[tuple[str, str, str]]:
    """Kind, group and status of what queryMsgTraceById printed."""
    rows = [line.split() for line in lines if not line.startswith("#")]
    return sorted((row[0], row[1], row[-1]) for row in rows)
