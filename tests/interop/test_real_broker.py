"""`rmqctl produce` and `rmqctl consume` work with the real broker as RocketMQ's own clients do."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import RealBroker, java, mqadmin, real_broker, rmqctl
from tests.interop.toolchain import BROKERS

pytestmark = pytest.mark.interop

LIMIT = 60
# without the timer wheel's 37 MB
SETTINGS = {"timerWheelEnable": "false"}


class Clients:
    """Our clients and those of the broker's line on one real broker."""

    def __init__(self, version: str, real: RealBroker, folder: Path) -> None:
        self.version, self.real, self.folder = version, real, folder

    def create(self, *topics: str) -> None:
        """Have topics of 4 queues, and wait until the name server knows them."""
        at = f"-b {self.real.broker} -r 4 -w 4 -p 6"
        self.admin(*(f"updateTopic {at} -t {topic}" for topic in topics))
        end = time.monotonic() + LIMIT
        while not {*topics} <= {*self.admin("topicList")[0]} and time.monotonic() < end:
            time.sleep(0.2)

    def admin(self, *commands: str) -> list[list[str]]:
        return mqadmin(self.version, self.folder, self.real.namesrv, *commands)

    def java(self, main: str, *arguments: str) -> list[list[str]]:
        lines = java(self.version, self.folder, main, self.real.namesrv, *arguments)
        return [line.split("\t") for line in lines]

    def produce(self, *options: str, given: str | None = None) -> Any:
        return rmqctl("produce", "-n", self.real.namesrv, *options, given=given)[0]

    def consume(self, topic: str, *options: str, code: int = 0) -> list[Any]:
        return rmqctl("consume", "-n", self.real.namesrv, "-t", topic, *options, code=code)

    def consume_all(self, topic: str, count: int) -> list[Any]:
        """The messages of a topic, as soon as there are so many."""
        end = time.monotonic() + LIMIT
        while len(found := self.consume(topic)) < count and time.monotonic() < end:
            time.sleep(0.2)
        return found


@pytest.mark.parametrize("version", BROKERS)
def test_what_produce_writes_is_read_by_java(version: str, tmp_path: Path) -> None:
    with real_broker(version, tmp_path / "real", tmp_path / "store", SETTINGS) as real:
        clients = Clients(version, real, tmp_path)
        clients.create("Ours")
        sent = _produced(clients, "Ours", tmp_path)
        lines = clients.java("Consume", "lite", "Ours", "reads", "*", str(len(sent)))
        got = {line[4]: line for line in lines if line[0] == "message"}
        assert got.keys() == {_digest(body) for body in sent}
        for body, (tags, keys, flag, number) in sent.items():
            assert got[_digest(body)][5:9] == [tags, keys, flag, number], body[:40]
        # and by us, what is compressed and delayed as well; a transaction that was rolled back is seen by nobody
        ours = clients.consume_all("Ours", len(sent))
        assert {_digest(one["body"]) for one in ours} == got.keys()
        (large,) = [one for one in ours if len(one["body"]) == 20_000]
        assert (large["compression"], large["size"] < 5_000) == ("zlib", True)
        placed = clients.produce("-t", "Ours", "-q", "3", "--body", "placed")
        assert (placed["status"], placed["queue_id"], placed["broker"]) == ("SEND_OK", 3, "broker-a")
        found = clients.consume("Ours", "--from", "last", code=1)
        assert found == []
        if version.startswith("4"):
            # it would deliver at once
            options = ("-n", real.namesrv, "-t", "Ours", "--body", "late", "--deliver-after", "1h")
            assert rmqctl("produce", *options, code=3) == []
        # a topic that the broker makes because somebody sends to it
        assert clients.produce("-t", "Made", "--body", "new")["status"] == "SEND_OK"
        assert [one["body"] for one in clients.consume_all("Made", 1)] == ["new"]


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _produced(clients: Clients, topic: str, folder: Path) -> dict[str, tuple[str, str, str, str]]:
    """Send to `topic` in every way that produce knows; tags, keys, flag and a property of each message by its body."""
    none = ("null", "null", "0", "null")
    one = clients.produce(
        *("-t", topic, "--body", "hällo", "--tags", "paid", "-k", "k1", "-k", "k2", "--flag", "7"),
        *("--property", "number=1"),
    )
    assert one["status"] == "SEND_OK"
    large = "l" * 20_000
    for body, options in {
        large: (),
        "delayed": ("--delay", "1"),
        "committed": ("--transaction", "commit"),
        "rolled back": ("--transaction", "rollback"),
    }.items():
        assert clients.produce("-t", topic, "--body", body, *options)["status"] == "SEND_OK"
    rows = [
        {"topic": topic, "body": f"line {number}", "tags": "Line", "keys": [f"l{number}"], "flag": number}
        for number in range(5)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert clients.produce("--from", "-", given=lines) == {"sent": 5, "bad_lines": 0}
    # the same messages with other bodies by way of a store and Parquet
    store, table = str(folder / "own"), str(folder / "own.parquet")
    rmqctl("append", "-s", store, "--create", "--from", "-", given=lines.replace("line ", "row "))
    rmqctl("export", "-s", store, table)
    assert clients.produce("--from", table) == {"sent": 5, "bad_lines": 0}
    sent = {"hällo": ("paid", "k1 k2", "7", "1"), large: none, "delayed": none, "committed": none}
    for kind in ("line", "row"):
        sent |= {f"{kind} {number}": ("Line", f"l{number}", str(number), "null") for number in range(5)}
    return sent


@pytest.mark.parametrize("version", BROKERS)
def test_what_java_writes_is_read_by_consume(version: str, tmp_path: Path) -> None:
    with real_broker(version, tmp_path / "real", tmp_path / "store", SETTINGS) as real:
        clients = Clients(version, real, tmp_path)
        clients.create("Theirs")
        sent = [line for line in clients.java("Send", "Theirs", "8") if line[0] == "sent"]
        assert {line[2] for line in sent} == {"SEND_OK"}
        expected = [*(f"häl-lo {number}" for number in range(8)), "j" * 20_000, "delayed", "COMMIT_MESSAGE"]
        expected += [f"batch {number}" for number in range(3)]
        found = clients.consume_all("Theirs", len(expected))
        assert sorted(one["body"] for one in found) == sorted(expected)
        _require_what_java_set(found, sent)
        # tags; brokers compare hashes only, so whatever comes has to be compared again
        tagged = clients.consume("Theirs", "--tag", "Tag1 || Batch")
        assert sorted(one["body"] for one in tagged) == sorted(
            [*(f"häl-lo {number}" for number in (1, 3, 5, 7)), *(f"batch {number}" for number in range(3))]
        )
        _require_begins(clients, found)
        _require_groups(clients, len(expected))


def _require_what_java_set(found: list[Any], sent: list[list[str]]) -> None:
    places = {line[1]: (line[3], int(line[4]), int(line[5])) for line in sent}
    ids = {line[1]: line[6] for line in sent}
    by_body = {one["body"]: one for one in found}
    for number in range(8):
        one = by_body[f"häl-lo {number}"]
        assert ("broker-a", one["queue_id"], one["queue_offset"]) == places[f"plain {number}"]
        assert (one["tags"], one["keys"], one["flag"]) == (f"Tag{number % 2}", [f"key{number}", "all"], number)
        assert (one["properties"]["number"], one["unique_key"]) == (str(number), ids[f"plain {number}"])
        assert one["crc_ok"] is True
    assert by_body["COMMIT_MESSAGE"]["transaction"] == "commit"


def _require_begins(clients: Clients, found: list[Any]) -> None:
    """A time as the beginning gives what was stored then and later, whatever the queue."""
    times = sorted(int(one["store_timestamp"]) for one in found)
    middle = times[len(times) // 2]
    later = clients.consume("Theirs", "--from", str(middle))
    assert len(later) == sum(one >= middle for one in times)
    assert clients.consume("Theirs", "--from", str(times[-1] + 60_000), code=1) == []
    assert clients.consume("Theirs", "--from", "last", code=1) == []
    assert len(clients.consume("Theirs", "--limit", "3")) == 3


def _require_groups(clients: Clients, count: int) -> None:
    """A group goes on where it committed, and mqadmin sees where that is; who does not commit leaves no trace."""
    assert len(clients.consume("Theirs", "-g", "looks", "--no-commit")) == count
    first = clients.consume("Theirs", "-g", "takes", "--limit", "5")
    (progress,) = clients.admin("consumerProgress -g takes")
    assert _diff(progress) == count - 5
    # a message is sent while it waits for more
    clients.produce("-t", "Theirs", "--body", "while waiting")
    rest = clients.consume("Theirs", "-g", "takes", "--follow", "--limit", str(count + 1 - 5))
    bodies = [one["body"] for one in (*first, *rest)]
    assert (len(set(bodies)), "while waiting" in bodies) == (count + 1, True)
    progress, looks = clients.admin("consumerProgress -g takes", "consumerProgress -g looks")
    assert _diff(progress) == 0
    rows = [line.split() for line in progress if line.startswith("Theirs ")]
    assert [(row[2], row[3] == row[4]) for row in sorted(rows)] == [(str(queue), True) for queue in range(4)]
    assert not any(line.startswith("Theirs ") for line in looks)
    assert clients.consume("Theirs", "-g", "takes", code=1) == []


def _diff(progress: list[str]) -> int:
    (total,) = [line for line in progress if "Diff Total" in line and "Inflight" not in line]
    return int(total.split(":")[1])


@pytest.mark.parametrize("version", BROKERS)
def test_topics_groups_and_cluster_agree_with_mqadmin(version: str, tmp_path: Path) -> None:
    with real_broker(version, tmp_path / "real", tmp_path / "store", SETTINGS) as real:
        clients = Clients(version, real, tmp_path)
        clients.create("Seen", "Idle")
        for number in range(6):
            clients.produce("-t", "Seen", "--body", f"{number}")
        clients.consume("Seen", "-g", "half", "--limit", "3")
        clients.consume("Seen", "-g", "all")
        clients.consume("Seen", "-g", "looks", "--no-commit")
        listed, half, every, brokers = clients.admin(
            "topicList", "consumerProgress -g half", "consumerProgress", "clusterList"
        )

        def ask(verb: str, *options: str) -> list[Any]:
            return rmqctl(verb, "-n", real.namesrv, *options)

        rows = ask("topics")
        assert sorted({row["topic"] for row in rows}) == sorted(name.strip() for name in listed)
        (seen,) = ask("topics", "-t", "Seen")
        assert seen == {
            "topic": "Seen", "cluster": "DefaultCluster", "broker": "broker-a", "read_queues": 4, "write_queues": 4,
            "perm": "RW-",
        }  # fmt: skip
        groups = ask("groups")
        assert {row["group"] for row in groups} >= {"half", "all", "looks"}
        theirs = [line.split() for line in half if line.startswith("Seen ")]
        assert sorted((row[1], row[2], row[3], row[4], row[5]) for row in theirs) == sorted(
            (row["broker"], *(str(row[name]) for name in ("queue_id", "max_offset", "offset", "lag")))
            for row in groups
            if (row["group"], row["topic"]) == ("half", "Seen")
        )
        totals = {line.split()[0]: int(line.split()[-1]) for line in every if not line.startswith("#")}
        for group, lag in {"half": 3, "all": 0}.items():
            mine = [row for row in groups if row["group"] == group]
            assert (totals[group], sum(row["lag"] for row in mine)) == (lag, lag)
            assert {row["clients"] for row in mine} == {0}
        (idle,) = [row for row in groups if row["group"] == "looks"]
        assert (idle["state"], idle["lag"]) == ("unknown", None)
        (broker,) = ask("cluster")
        (line,) = [line.split() for line in brokers if line.startswith("DefaultCluster")]
        assert [broker["cluster"], broker["broker"], str(broker["broker_id"]), broker["address"]] == line[:4]
        assert broker["version"] == line[4] == "V" + version.replace(".", "_")
        assert 0 < broker["log_disk"] < 1
