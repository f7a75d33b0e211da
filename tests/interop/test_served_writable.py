"""Unmodified producers and consumers work with `rmqctl serve --writable`, and brokers open what it leaves."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.formats.message import Message, StoredMessage, parse_offset_message_id
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.store.message_store import MessageStore
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.interop import harness
from tests.interop.harness import VERSIONS
from tests.interop.toolchain import CLIENTS, Unavailable, clients, run
from tests.network.callers import with_header
from tests.network.serving import Served, serving
from tests.processes import SHORT_LIVED_JVM

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

SECONDS = 300
CONF = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
OWN = {"transactionCheckInterval": "1500", "transactionTimeOut": "1000"}
# what each line's consumers are to get: everything once, `again` and `dead` twice, and two transactions of three
_PLAIN = [
    *(
        f"{kind} {number}"
        for kind, count in (("sync", 8), ("async", 8), ("oneway", 4), ("batch", 4))
        for number in range(count)
    ),
    *("delayed 0", "delayed 1", "again 0", "again 0", "dead 0", "dead 0", "20000"),
]
_ORDERED = [f"ordered {key} {number}" for key in range(3) for number in range(4)]
_PAID = ["COMMIT_MESSAGE", "UNKNOW"]


def _java(version: str, folder: Path, main: str, *arguments: str) -> list[list[str]]:
    try:
        tools = clients(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    options = [*SHORT_LIVED_JVM, f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}"]
    command: list[str | Path] = [tools.java, *options, "-cp", tools.classpath, f"rmqctl.clients.{main}", *arguments]
    done = run(command, SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def _create(served: Served, *topics: str, order: str = "false") -> None:
    """Have topics before there are consumers, who look for a topic that is not there every 30 s only."""
    client = Client(served.namesrv)
    for topic in topics:
        queues = {"topic": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": order}
        client.ask(served.broker, *with_header(RequestCode.UPDATE_AND_CREATE_TOPIC, queues))
    client.close()


def _stored(reader: StoreReader, topic: str) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    for queue in reader.queues(topic):
        offset = 0
        while offset < queue.max_offset:
            result = reader.get(topic, queue.queue_id, offset)
            assert result.damaged == []
            offset = result.next_offset
            found += result.messages
    return found


def _require_everything(lines: list[list[str]], suffix: str) -> None:
    got: dict[str, list[list[str]]] = {}
    for line in lines:
        if line[0] == "got":
            got.setdefault(line[1], []).append(line[2:])
    assert [line for line in lines if line[0] == "failed"] == []
    assert {line[2] for line in lines if line[0] == "sent"} == {"SEND_OK"}
    assert Counter(one[0] for one in got[f"plain{suffix}"]) == Counter(_PLAIN)
    assert sorted(one[1] for one in got[f"plain{suffix}"] if one[0] in ("again 0", "dead 0")) == ["0", "0", "1", "1"]
    assert Counter(one[0] for one in got[f"ordered{suffix}"]) == Counter(_ORDERED)
    for key in range(3):
        assert [one[0] for one in got[f"ordered{suffix}"] if one[0].startswith(f"ordered {key}")] == _ORDERED[
            key * 4 : key * 4 + 4
        ]
    assert sorted(one[0] for one in got[f"pay{suffix}"]) == _PAID
    assert ["checked", "UNKNOW"] in lines


def test_producers_and_consumers_of_all_lines(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in (CONF | OWN).items()), encoding="ascii")
    store = tmp_path / "store"
    count = len(_PLAIN) + len(_ORDERED) + len(_PAID)
    sent: dict[str, list[list[str]]] = {}
    with serving(store, "--writable", "--create", "-c", str(conf)) as served:
        for version in CLIENTS:
            suffix = version.replace(".", "-")
            _create(served, *(f"{topic}{suffix}" for topic in ("Plain", "Ordered", "Pay")))
            lines = _java(version, tmp_path, "Produce", served.namesrv, suffix, str(count))
            _require_everything(lines, suffix)
            sent[suffix] = [line for line in lines if line[0] == "sent"]
        assert served.end() == 0
        assert "Traceback" not in served.errors
    with StoreFiles(store) as files:
        reader = StoreReader(files)
        for suffix, results in sent.items():
            for _, kind, _, unique, offset_ids, queue_id, queue_offset in results:
                if kind == "pay":
                    continue  # clients tell no offset id of half messages
                first = reader.lookup(parse_offset_message_id(offset_ids.split(",")[0])[1])
                assert first.queue_offset == int(queue_offset)
                if kind not in ("delayed", "batch"):
                    assert (first.queue_id, first.properties()["UNIQ_KEY"]) == (int(queue_id), unique)
            (dead,) = _stored(reader, f"%DLQ%plain{suffix}")
            assert (dead.body, dead.reconsume_times, dead.properties()["RETRY_TOPIC"]) == (
                b"dead 0",
                2,
                f"Plain{suffix}",
            )
            assert sorted(one.body.decode() for one in _stored(reader, f"Pay{suffix}")) == _PAID
        _require_committed(store, reader, list(sent))
        end = max(unit.end for queue in files.queues.all() if (unit := queue.unit(queue.max_offset - 1)) is not None)
    settings = {f"store.{key}": value for key, value in CONF.items()} | {
        "store.timerWheelEnable": "false",
        "store.enableCompaction": "false",
    }
    for version in VERSIONS:
        copy = tmp_path / f"store-{version}"
        shutil.copytree(store, copy)
        view = harness.open_store(version, copy, settings)
        assert view.complaints() == []
        assert view.max_offset == end
        assert sum(message.topic.startswith("Plain") for message in view.messages) == len(CLIENTS) * (len(_PLAIN) - 2)
    with MessageStore.open(store) as opened:
        assert list(opened.check()) == []


def _require_committed(store: Path, reader: StoreReader, suffixes: list[str]) -> None:
    from rmqctl.store.config.config_files import read_config

    table = read_config(store / "config/consumerOffset.json")["offsetTable"]
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in reader.queues()}
    for suffix in suffixes:
        for topic, group in ((f"Plain{suffix}", f"plain{suffix}"), (f"Ordered{suffix}", f"ordered{suffix}")):
            for queue_id, offset in table[f"{topic}@{group}"].items():
                assert offset == ends.get((topic, queue_id), 0)


def test_mqadmin_changes_topics_groups_and_offsets(tmp_path: Path) -> None:
    with serving(tmp_path / "store", "--writable", "--create") as served:
        at = f"-b {served.broker}"
        _create(served, "InOrder", order="true")
        with Producer(served.namesrv) as producer:
            queue_id = producer.send(Message("InOrder", b"first")).queue.queue_id
        commands = [
            f"updateTopic {at} -t Made -r 3 -w 3",
            f"updateTopic {at} -t Other -r 2 -w 2",
            f"updateSubGroup {at} -g made -r 2",
            "sendMessage -t Made -p hello",
            "topicStatus -t Made",
            "resetOffsetByTime -g made -t Made -s now",
            "consumerProgress -g made",
            "deleteTopic -c DefaultCluster -t Other",
            f"deleteSubGroup {at} -g made",
            "topicList",
            f"updateTopic {at} -t Bad -a +message.type=NONSENSE",
            f"updateSubGroup {at} -g bad --attributes +nosuch=1",
            "getConsumerConfig -g bad",
            f"updateSubGroup {at} -g orders",
            "resetOffsetByTime -g orders -t InOrder -s now",
            f"brokerConsumeStats {at}",
        ]
        lines = [f"{command} -n {served.namesrv}" for command in commands]
        told: dict[str, list[str]] = {}
        shown: list[str] = []
        for columns in _java("5.3.3", tmp_path, "Admin", *lines):
            text = "\t".join(columns)
            if text.startswith("== "):
                shown = told.setdefault(text.removeprefix("== ").partition(" -n ")[0], [])
            else:
                shown.append(text)
        assert served.end() == 0
        assert "Traceback" not in served.errors
    texts = ["\n".join(told[command]) for command in commands]
    created, _, group, sent, status, reset, progress, deleted, _, topics, *attributes, _, _, stats = texts
    # mqadmin prints the broker's words on stderr
    assert [text for text in attributes if text] == []
    # mqadmin asks with isOrder=false
    assert ["InOrder", "orders", "broker-a", str(queue_id), "1", "1", "0"] in [
        line.split()[:7] for line in stats.splitlines()
    ]
    assert "create topic to" in created
    assert "create subscription group to" in group
    assert "SEND_OK" in sent
    assert [row.split()[1:4] for row in status.splitlines() if row.startswith("broker-a")].count(["0", "0", "1"]) <= 1
    assert "reset" in reset.lower()
    # as with a broker: the group has no retry topic, which mqadmin looks for
    assert progress == ""
    assert "delete topic [Other] from cluster" in deleted
    assert "Made" in topics.split()
    assert not {"%RETRY%made", "Other"} & set(topics.split())
    with StoreFiles(tmp_path / "store") as files:
        assert [one.body for one in _stored(StoreReader(files), "Made")] == [b"hello"]
