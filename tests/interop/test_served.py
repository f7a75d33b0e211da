"""Unmodified clients and mqadmin take from `rmqctl serve` what a real broker's store holds, and change nothing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.network.clients.client import BrokerError, Client
from rmqctl.network.remoting.codec import RequestCode, parse_body
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.goldens import golden, tree_state, truth
from tests.interop.brokers import java, mqadmin
from tests.interop.toolchain import CLIENTS, Toolchain, Unavailable, clients, run
from tests.network.callers import with_header
from tests.network.serving import Served, serving
from tests.processes import SHORT_LIVED_JVM, start

# clients ask for messages by id at the address inside of it, which one server at a time can take
pytestmark = pytest.mark.interop

SECONDS = 240
Row = tuple[int, int, int, str]


class Store:
    """A copy of the golden `broker-real`, and what it holds."""

    def __init__(self, folder: Path) -> None:
        self.path = golden("broker-real", folder)
        self.reader = StoreReader(StoreFiles(self.path))

    def messages(self, topic: str, tags: str | None = None) -> list[Row]:
        """Queue, queue offset, physical offset and digest of the plain body of every message, in order."""
        rows: list[Row] = []
        for queue in self.reader.queues(topic):
            offset = queue.min_offset(0)
            while offset < queue.max_offset:
                result = self.reader.get(topic, queue.queue_id, offset, tags=tags)
                offset = result.next_offset
                rows += [
                    (one.queue_id, one.queue_offset, one.physical_offset, hashlib.sha256(one.plain_body()).hexdigest())
                    for one in result.messages
                ]
        return sorted(rows)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("served"))


@pytest.fixture
def served(store: Store) -> Iterator[Served]:
    """One for each test: no process outlives the test that it was started in."""
    before = tree_state(store.path)
    with serving(store.path) as process:
        yield process
        assert process.end() == 0
        assert "Traceback" not in process.errors
    assert tree_state(store.path) == before


def _tools(version: str) -> Toolchain:
    try:
        return clients(version)
    except Unavailable as reason:
        pytest.skip(str(reason))


def _java(version: str, folder: Path, main: str, *arguments: str) -> dict[str, list[list[str]]]:
    """What a class of tests/interop/java/clients printed: by what it did, lines as their columns."""
    tools = _tools(version)
    options = [*SHORT_LIVED_JVM, f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}"]
    done = run([tools.java, *options, "-cp", tools.classpath, f"rmqctl.clients.{main}", *arguments], SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    parts: dict[str, list[list[str]]] = {}
    lines: list[list[str]] = []
    for line in done.stdout.splitlines():
        if line.startswith("== "):
            lines = parts.setdefault(line.removeprefix("== "), [])
        else:
            lines.append(line.split("\t"))
    return parts


def _rows(lines: list[list[str]]) -> list[Row]:
    """The messages among `lines`, in order."""
    found = [line for line in lines if line[0] == "message"]
    return sorted((int(line[1]), int(line[2]), int(line[3]), line[4]) for line in found)


@pytest.mark.parametrize("version", ["5.3.3", "4.9.8"])
def test_consumers_get_every_message_once_and_producers_are_refused(
    version: str, store: Store, served: Served, tmp_path: Path
) -> None:
    line = version.replace(".", "-")
    events, paid = store.messages("Events"), store.messages("Orders", "pay")
    assert (len(events), len(paid)) == (237, 30)
    got = _java(
        version, tmp_path, "Consume", served.namesrv,
        *("lite", "Events", f"lite-{line}", "*", str(len(events))),
        *("pull", "Events", f"pull-{line}", "*", "0"),
        *("push", "Orders", f"push-{line}", "pay", str(len(paid))),
        *("ordered", "Orders", f"ordered-{line}", "pay", str(len(paid))),
        *("send", "Orders", "producer", "-", "0"),
    )  # fmt: skip
    assert _rows(got["lite"]) == events
    assert _rows(got["pull"]) == events
    ends = {int(one[1]): (int(one[2]), int(one[3])) for one in got["pull"] if one[0] == "queue"}
    assert ends == {queue.queue_id: (queue.max_offset, 0) for queue in store.reader.queues("Events")}
    assert _rows(got["push"]) == paid
    assert _rows(got["ordered"]) == paid
    by_queue = [[int(one[2]) for one in got["ordered"] if one[1] == str(queue)] for queue in range(4)]
    assert by_queue == [sorted(offsets) for offsets in by_queue]
    assert got["send"] == [["refused", "14"]]


def test_a_group_goes_on_where_it_committed(store: Store, served: Served, tmp_path: Path) -> None:
    group = "commits"
    _java("5.3.3", tmp_path, "Consume", served.namesrv, "lite", "Orders", group, "*", "60")
    progress = f"consumerProgress -g {group} -n {served.namesrv}"
    lines = _java("5.3.3", tmp_path, "Admin", progress)[progress]
    assert ["Consume Diff Total: 0"] in lines
    queues = [line[0].split()[2:6] for line in lines if line[0].startswith("Orders")]
    assert sorted(queues) == [[str(queue), "15", "15", "0"] for queue in range(4)]


def test_mqadmin_asks_a_consumer_what_it_does_and_gives_it_a_message(
    store: Store, served: Served, tmp_path: Path
) -> None:
    """The broker asks the client, whose answer it hands on (307, 309)."""
    message = store.reader.get("Events", 3, 0, 1).messages[0]
    tools = _tools("5.3.3")
    consumer: list[str] = [
        str(tools.java), *SHORT_LIVED_JVM, f"-Duser.home={tmp_path}",
        "-cp", tools.classpath, "rmqctl.clients.Consume", served.namesrv, "push", "Events", "running", "*", "1000000",
    ]  # fmt: skip
    client = Client(served.namesrv)
    end = time.monotonic() + SECONDS
    with start(consumer, seconds=SECONDS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        ids: list[str] = []
        while not ids and time.monotonic() < end:
            time.sleep(0.2)
            with contextlib.suppress(BrokerError):
                asked = {"consumerGroup": "running"}
                body = client.ask(
                    served.broker,
                    *with_header(RequestCode.GET_CONSUMER_LIST_BY_GROUP, asked),
                ).body
                ids = parse_body(body)["consumerIdList"]
        status = f"consumerStatus -g running -i {ids[0]}"
        directly = f"queryMsgById -t Events -i {message.message_id} -g running -d {ids[0]}"
        shown, consumed = mqadmin("5.3.3", tmp_path, served.namesrv, status, directly)
        process.kill()
    client.close()
    assert served.end() == 0
    # another process of this machine may have the port that the ids name
    is_asked = "offset ids of the store's messages cannot be asked for" not in served.errors
    assert not is_asked or "consumeResult=CR_SUCCESS" in " ".join(consumed), consumed
    text = "\n".join(shown)
    assert "#Consumer Properties#" in text
    assert "Events" in text


def test_mqadmin_sees_the_store(store: Store, served: Served, tmp_path: Path) -> None:
    message = store.reader.get("Orders", 0, 0, 1).messages[0]
    unique_key, key = message.properties()["UNIQ_KEY"], message.properties()["KEYS"]
    commands = [
        "topicList",
        "clusterList",
        "topicStatus -t Events",
        f"queryMsgByKey -t Orders -k {key}",
        f"queryMsgById -t Orders -i {message.message_id}",
        f"queryMsgByUniqueKey -t Orders -i {unique_key}",
        "consumerProgress -g g-events",
        "consumerProgress",
        f"brokerStatus -b {served.broker}",
        f"brokerConsumeStats -b {served.broker}",
        f"queryCq -t Orders -q 0 -i 0 -c 1 -b {served.broker}",
        f"haStatus -b {served.broker}",
    ]
    texts = {
        line: os.linesep.join("\t".join(columns) for columns in lines)
        for line, lines in _java(
            "5.3.3", tmp_path, "Admin", *[f"{command} -n {served.namesrv}" for command in commands]
        ).items()
    }
    told = [texts[f"{command} -n {served.namesrv}"] for command in commands]
    topics, cluster, status, by_key, by_id, by_unique_key, progress, all_progress, state, behind, units, ha = told
    assert {"Orders", "Events", "%RETRY%g-events"} <= set(topics.split())
    assert "%RETRY%g-idle" not in topics.split()  # no member of that group has ever come to this broker
    assert ["DefaultCluster", "broker-a", "0", served.broker, "V5_3_3"] in [
        row.split()[:5] for row in cluster.splitlines()
    ]
    rows = [row.split()[1:4] for row in status.splitlines() if row.startswith("broker-a")]
    assert rows == [[str(queue.queue_id), "0", str(queue.max_offset)] for queue in store.reader.queues("Events")]
    assert unique_key in by_key
    found = f"CommitLog Offset:    {message.physical_offset}"
    assert found in by_unique_key
    assert served.end() == 0
    # another process of this machine may have the port that the ids name
    assert found in by_id or "offset ids of the store's messages cannot be asked for" in served.errors
    assert "Consume Diff Total: 39" in progress
    assert ["g-retry", "46"] in [[row.split()[0], row.split()[-1]] for row in all_progress.splitlines() if row.strip()]
    assert "commitLogMaxOffset" in state
    assert "Diff Total:" in behind
    assert f"physicOffset={message.physical_offset}, physicSize={message.total_size}" in units
    assert "#SlaveNum\t0" in ha


@pytest.mark.parametrize("version", CLIENTS)
def test_java_takes_every_message_of_a_dead_store(version: str, tmp_path: Path) -> None:
    """The broker was killed and its queues are gone; its own recovery would leave some messages without a slot."""
    store = golden("cq-lost-abort", tmp_path)
    before = tree_state(store)
    rows = [row for row in truth("cq-lost-abort").messages if row["topic"] == "OrderTopic"]
    with serving(store) as served:
        lines = java(version, tmp_path, "Consume", served.namesrv, "pull", "OrderTopic", "looks", "*", "0")
        assert served.end() == 0
    got = sorted(tuple(map(int, line.split("\t")[1:4])) for line in lines if line.startswith("message\t"))
    assert got == sorted((row["queueId"], row["queueOffset"], row["phyOffset"]) for row in rows)
    assert len(got) > 100
    assert tree_state(store) == before
