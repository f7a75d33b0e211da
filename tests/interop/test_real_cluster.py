"""One cluster of the real name server, a real broker and `rmqctl serve`; Java clients, ours and mqadmin over both."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import java, mqadmin, real_broker, rmqctl
from tests.interop.harness import NEWEST
from tests.interop.toolchain import BROKERS
from tests.network.serving import serving

pytestmark = pytest.mark.interop

LIMIT = 60


class Cluster:
    """A name server, by its address; `folder` for what is written meanwhile."""

    def __init__(self, version: str, namesrv: str, folder: Path) -> None:
        self.version, self.namesrv, self.folder = version, namesrv, folder

    def admin(self, *commands: str) -> list[list[str]]:
        return mqadmin(self.version, self.folder, self.namesrv, *commands)

    def ask(self, verb: str, *options: str, code: int | None = 0) -> list[Any]:
        return rmqctl(verb, *options, "-n", self.namesrv, code=code)

    def wait_for(self, verb: str, count: int, *options: str) -> list[Any]:
        """The rows of a verb, as soon as there are so many: a name server hears of topics a little later."""
        end = time.monotonic() + LIMIT
        while len(rows := rmqctl(verb, "-n", self.namesrv, *options, code=None)) < count and time.monotonic() < end:
            time.sleep(0.2)
        return rows


@pytest.mark.parametrize("version", BROKERS)
def test_a_real_broker_and_ours_are_one_cluster(version: str, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=broker-b\nmappedFileSizeCommitLog=1048576\n", encoding="ascii")
    options = ("--writable", "--create", "-c", str(conf))
    with real_broker(version, tmp_path / "real", tmp_path / "real-store", {}) as real:
        with serving(tmp_path / "store", *options, "--register", real.namesrv) as served:
            cluster = Cluster(version, real.namesrv, tmp_path)
            rows = cluster.wait_for("cluster", 2)
            assert [(row["broker"], row["address"]) for row in rows] == [
                ("broker-a", real.broker),
                ("broker-b", served.broker),
            ]
            (made,) = cluster.admin("updateTopic -c DefaultCluster -t Both -r 2 -w 2 -p 6")
            assert "success" in " ".join(made), made
            assert len(cluster.wait_for("topics", 2, "-t", "Both")) == 2
            _require_everything(cluster)
            _require_topics_of_both(cluster)
            assert served.end() == 0
            assert "Traceback" not in served.errors
        # it has left the name server, which has the real broker alone
        assert [row["broker"] for row in cluster.ask("topics", "-t", "Both")] == ["broker-a"]
        assert [row["broker"] for row in cluster.ask("cluster")] == ["broker-a"]


def _require_topics_of_both(cluster: Cluster) -> None:
    """A topic and a group that our verbs create, change and delete on both brokers, and on one of them."""
    made = cluster.ask("topics", "create", "-t", "Made", "--queues", "3", "--order")
    assert {(row["broker"], row["state"]) for row in made} == {("broker-a", "done"), ("broker-b", "done")}
    cluster.ask("topics", "create", "-t", "Made", code=5)
    cluster.wait_for("topics", 2, "-t", "Made")
    changed = cluster.ask("topics", "change", "-t", "Made", "--perm", "R", "--no-order")
    assert {(row["before"]["order"], row["after"]["order"]) for row in changed} == {(True, False)}
    again = cluster.ask("topics", "change", "-t", "Made", "--perm", "R", "--no-order")
    assert {row["state"] for row in again} == {"unchanged"}
    (alone,) = cluster.ask("topics", "change", "-t", "Made", "--broker", "broker-a", "--queues", "4")
    assert (alone["broker"], alone["before"]["perm"], alone["after"]["writeQueueNums"]) == ("broker-a", 4, 4)
    assert {row["state"] for row in cluster.ask("topics", "delete", "-t", "Made", "--yes")} == {"done"}
    cluster.ask("topics", "delete", "-t", "Made", "--yes", code=1)
    cluster.ask("groups", "create", "-g", "made", "--retry-max", "3")
    rows = cluster.ask("groups", "change", "-g", "made", "--no-consume")
    assert {(row["before"]["retryMaxTimes"], row["after"]["consumeEnable"]) for row in rows} == {(3, False)}
    assert {row["state"] for row in cluster.ask("groups", "delete", "-g", "made", "--yes")} == {"done"}
    # a broker makes a group that it is asked for (autoCreateSubscriptionGroup): with 5.5.0 it is there again by now
    cluster.ask("groups", "delete", "-g", "made", "--yes", code=None if cluster.version == NEWEST else 1)


def _require_everything(cluster: Cluster) -> None:
    def run(main: str, *arguments: str) -> list[list[str]]:
        lines = java(cluster.version, cluster.folder, main, cluster.namesrv, *arguments)
        return [line.split("\t") for line in lines]

    sent = [line for line in run("Send", "Both", "12") if line[0] == "sent"]
    assert {line[2] for line in sent} == {"SEND_OK"}
    assert {line[3] for line in sent if line[1].startswith("plain")} == {"broker-a", "broker-b"}
    ours = [cluster.ask("produce", "-t", "Both", "--body", f"ours {number}")[0] for number in range(4)]
    assert {one["status"] for one in ours} == {"SEND_OK"}
    bodies = [*(f"häl-lo {number}" for number in range(12)), *(f"batch {number}" for number in range(3))]
    bodies += ["j" * 20_000, "delayed", "COMMIT_MESSAGE", *(f"ours {number}" for number in range(4))]
    rows = cluster.wait_for("consume", len(bodies), "-t", "Both")
    assert Counter(one["body"] for one in rows) == Counter(bodies)
    # what a Java consumer takes as a member of a group, and where that leaves the group at each broker
    taken = [line for line in run("Consume", "push", "Both", "both", "*", str(len(bodies))) if line[0] == "message"]
    assert sorted(line[4] for line in taken) == sorted(hashlib.sha256(one.encode()).hexdigest() for one in bodies)
    end = time.monotonic() + LIMIT
    groups = cluster.wait_for("groups", 4, "-g", "both", "-t", "Both")
    while any(row["lag"] for row in groups) and time.monotonic() < end:
        groups = cluster.wait_for("groups", 4, "-g", "both", "-t", "Both")
    assert {(row["broker"], row["queue_id"], row["lag"]) for row in groups} == {
        (broker, queue, 0) for broker in ("broker-a", "broker-b") for queue in (0, 1)
    }
    assert sum(row["offset"] for row in groups) == len(bodies)
    # the group goes on with us, over both
    for number in range(4):
        cluster.ask("produce", "-t", "Both", "--body", f"later {number}")
    later = cluster.ask("consume", "-t", "Both", "-g", "both")
    assert sorted(one["body"] for one in later) == [f"later {number}" for number in range(4)]
    (progress,) = cluster.admin("consumerProgress -g both")
    mine = [line.split() for line in progress if line.startswith("Both ")]
    assert sorted((line[1], line[2]) for line in mine) == sorted(
        (row["broker"], str(row["queue_id"])) for row in groups
    )
    assert {(line[3] == line[4], line[5]) for line in mine} == {(True, "0")}
