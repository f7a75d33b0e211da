"""Members of one group at a real broker, Java's push consumers and ours: retries, dead letters, order, broadcasts."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.producing.routing import by_hash
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus, OrderlyStatus, PushSettings
from tests.interop.brokers import RealBroker, mqadmin, real_broker, rmqctl
from tests.interop.members import SECONDS, Got, Members, java_members, wait_for
from tests.processes import start

pytestmark = pytest.mark.interop

VERSION = "5.3.3"
WORK_SECONDS = 0.02
# a delay level is told by the queue of SCHEDULE_TOPIC_XXXX, and none is long
SETTINGS = {"timerWheelEnable": "false", "messageDelayLevel": " ".join(["1s"] * 18)}


class Cluster:
    """A real broker, Java's members and a producer of ours, shared by the tests of this file."""

    def __init__(self, real: RealBroker, members: Members, producer: Producer, folder: Path) -> None:
        self.real, self.members, self.producer, self.folder = real, members, producer, folder

    def send(self, topic: str, bodies: Sequence[str]) -> None:
        for body in bodies:
            assert self.producer.send(Message(topic, body.encode())).status == "SEND_OK"

    def levels(self) -> dict[str, list[int]]:
        """Return the delay levels that each body had, in order: what waits is in queue level - 1."""
        rows = rmqctl("cat", "-s", str(self.folder / "store"), "-t", "SCHEDULE_TOPIC_XXXX")
        found: dict[str, list[int]] = {}
        for row in sorted(rows, key=lambda row: row["physical_offset"]):
            found.setdefault(row["body"], []).append(row["queue_id"] + 1)
        return found

    def admin(self, command: str) -> list[str]:
        (lines,) = mqadmin(VERSION, self.folder, self.real.namesrv, command)
        return lines


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("groups")
    with (
        real_broker(VERSION, folder / "real", folder / "store", SETTINGS, seconds=3 * SECONDS) as real,
        java_members(VERSION, folder, real.namesrv) as members,
        Producer(real.namesrv, "sends") as producer,
    ):
        yield Cluster(real, members, producer, folder)


class Ours:
    """A member of ours that does with a message what Members.java does."""

    def __init__(self, cluster: Cluster, name: str, group: str, topic: str, *, ordered: bool = False, **more: Any):
        self.name = name
        self.had: list[Got] = []
        self.warned: list[str] = []
        options = MemberOptions(begin="first", warn=self.warned.append, **more.pop("options", {}))
        callback = None if ordered else self._together
        in_order = self._in_order if ordered else None
        self.consumer = PushConsumer(
            cluster.real.namesrv, group, {topic: "*"}, callback, on_ordered=in_order,
            settings=PushSettings(**more), options=options,
        )  # fmt: skip

    def _works(self, messages: Sequence[StoredMessage], broker: str) -> bool:
        begin = time.time_ns() // 1_000_000
        time.sleep(WORK_SECONDS)
        is_done = True
        for message in messages:
            body = message.plain_body().decode()
            words = body.split()
            is_done &= words[0] != "fail" or message.reconsume_times >= int(words[1])
            end = time.time_ns() // 1_000_000
            self.had.append(
                Got(self.name, body, message.reconsume_times, broker, message.queue_id, message.topic, begin, end)
            )
        return is_done

    def _together(self, messages: Sequence[StoredMessage], context: Any) -> ConsumeStatus:
        done = self._works(messages, context.queue.broker_name)
        return ConsumeStatus.CONSUME_SUCCESS if done else ConsumeStatus.RECONSUME_LATER

    def _in_order(self, messages: Sequence[StoredMessage], context: Any) -> OrderlyStatus:
        done = self._works(messages, context.queue.broker_name)
        return OrderlyStatus.SUCCESS if done else OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


def tries(had: Sequence[Got]) -> Counter[tuple[str, int]]:
    """Return how often each attempt at each message was seen."""
    return Counter((one.body, one.times) for one in had)


def _fails(cluster: Cluster, who: str) -> None:
    """Have a member, Java's or ours, fail a message twice and another one until it is a dead letter."""
    topic, group = f"Retry-{who}", f"retry-{who}"
    cluster.send(topic, [f"ok {who}", f"fail 2 {who}", f"fail 99 {who}"])
    wanted = {(f"ok {who}", 0), *((f"fail 2 {who}", times) for times in range(3))}
    wanted |= {(f"fail 99 {who}", times) for times in range(4)}
    if who == "java":
        cluster.members.do(f"join {who} {group} {topic} together 3")
        wait_for(lambda: set(tries(cluster.members.got("java"))) >= wanted)
        cluster.members.do(f"leave {who}")
        seen = cluster.members.got("java")
    else:
        ours = Ours(cluster, who, group, topic, max_reconsume_times=3)
        with ours.consumer:
            wait_for(lambda: set(tries(ours.had)) >= wanted)
            connections = cluster.admin(f"consumerConnection -g {group}")
            assert ours.consumer.client_id in "\n".join(connections)
            assert "ConsumeType: CONSUME_PASSIVELY" in connections
        assert {one.topic for one in ours.had} == {topic}
        assert ours.warned == []
        seen = ours.had
    assert set(tries(seen)) == wanted
    store = str(cluster.folder / "store")
    wait_for(lambda: rmqctl("dlq", "list", "-s", store, "-g", group, code=None) != [])
    progress = cluster.admin(f"consumerProgress -g {group}")
    assert [line.split()[5] for line in progress if line.startswith(topic)] == ["0"] * 4, progress


def test_a_failed_message_takes_the_way_that_it_takes_from_java(cluster: Cluster) -> None:
    """It has the same delay levels, and is a dead letter after the same number of retries."""
    _fails(cluster, "java")
    _fails(cluster, "ours")
    levels = cluster.levels()
    assert levels["fail 2 ours"] == levels["fail 2 java"] == [3, 4]
    assert levels["fail 99 ours"] == levels["fail 99 java"] == [3, 4, 5]


def test_java_and_ours_share_a_group_and_lose_nothing(cluster: Cluster) -> None:
    topic = group = "Shared"
    bodies = [f"{'ok' if number % 2 else 'fail 1'} {number}" for number in range(60)]
    wanted = {(body, times) for body in bodies for times in range(1 + body.startswith("fail"))}
    cluster.send(topic, bodies[:20])
    cluster.members.do(f"join shares {group} {topic} together 5")
    ours = Ours(cluster, "ours", group, topic, max_reconsume_times=5, rebalance_seconds=2.0 * SECONDS)
    with ours.consumer:
        # at once, as the broker says that a member came
        wait_for(lambda: len([one for one in ours.consumer.queues if one.topic == topic]) == 2)
        cluster.send(topic, bodies[20:40])
        wait_for(
            lambda: (
                set(tries([*ours.had, *cluster.members.got("shares")]))
                >= {one for one in wanted if one[0] in bodies[:40]}
            )
        )
        assert {one.member for one in [*ours.had, *cluster.members.got("shares")]} == {"ours", "shares"}
        cluster.members.do("leave shares")
        wait_for(lambda: len([one for one in ours.consumer.queues if one.topic == topic]) == 4)
        cluster.send(topic, bodies[40:])
        wait_for(lambda: set(tries([*ours.had, *cluster.members.got("shares")])) >= wanted)
    everything = tries([*ours.had, *cluster.members.got("shares")])
    assert set(everything) == wanted
    assert [line for line in ours.warned if "1 live member" not in line] == []


def test_what_takes_too_long_comes_again_once(cluster: Cluster) -> None:
    """The message goes back at level 3 while its callback runs, and the verdict that comes later counts no more."""
    topic = group = "Slow"
    had: list[tuple[str, int]] = []

    def works(messages: Sequence[StoredMessage], context: Any) -> ConsumeStatus:
        had.extend((one.plain_body().decode(), one.reconsume_times) for one in messages)
        if (had[-1][0], had[-1][1]) == ("slow", 0):
            time.sleep(3)
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    cluster.send(topic, ["slow", "quick"])
    consumer = PushConsumer(
        cluster.real.namesrv, group, {topic: "*"}, works,
        settings=PushSettings(consume_timeout=1), options=MemberOptions(begin="first"),
    )  # fmt: skip
    with consumer:
        wait_for(lambda: ("slow", 1) in had)
        time.sleep(4)
    assert sorted(had) == [("quick", 0), ("slow", 0), ("slow", 1)]
    assert cluster.levels()["slow"] == [3]


def test_commands_share_a_group_with_java(cluster: Cluster, tmp_path: Path) -> None:
    """`consume --exec` beside a Java member: a failed command's message comes to either of them again."""
    topic = group = "Commands"
    bodies = [f"fail 1 {number}" for number in range(24)]
    cluster.send(topic, bodies)
    script, log = tmp_path / "work", tmp_path / "log"
    log.touch()
    script.write_text(
        f'#!/bin/sh\necho "$RMQCTL_RECONSUME_TIMES $(cat)" >> {log}\n[ "$RMQCTL_RECONSUME_TIMES" -ge 1 ]\n',
        encoding="ascii",
    )
    script.chmod(0o755)
    command = [sys.executable, "-m", "rmqctl", "consume", "-n", cluster.real.namesrv, "-t", topic, "-g", group]
    command += ["--exec", str(script), "--follow", "--json", "--threads", "4"]
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}

    def done() -> set[str]:
        ours = {line[2:] for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("1 ")}
        return ours | {one.body for one in cluster.members.got("commands") if one.times == 1}

    with start(command, **pipes) as process, contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        cluster.members.do(f"join commands {group} {topic} together")
        wait_for(lambda: done() >= set(bodies))
        cluster.members.do("leave commands")
        # the group is whole without Java: the command takes over
        cluster.send(topic, ["fail 1 last"])
        wait_for(lambda: "fail 1 last" in done())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SECONDS)
    assert "Traceback" not in said
    progress = cluster.admin(f"consumerProgress -g {group}")
    assert [line.split()[5] for line in progress if line.startswith(topic)] == ["0"] * 4, progress


def test_a_queue_in_order_has_one_member_at_a_time(cluster: Cluster) -> None:
    """Java's members and ours come and go; each queue is consumed in order, by one of them at a time."""
    topic = group = "Ordered"
    cluster.send(topic, ["0 seed"])
    wait_for(lambda: len(cluster.producer.queues(topic)) == 4)
    sent: list[str] = []
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(WORK_SECONDS):
            number = len(sent)
            cluster.producer.send(Message(topic, f"{number} sent".encode()), by_hash(number % 8))
            sent.append(f"{number} sent")

    sending = threading.Thread(target=send)
    first, second = (Ours(cluster, name, group, topic, ordered=True) for name in ("first", "second"))

    def everything() -> list[Got]:
        return [*first.had, *second.had, *cluster.members.got("o1"), *cluster.members.got("o2")]

    with contextlib.ExitStack() as stack:
        stack.callback(ended.set)
        sending.start()
        stack.enter_context(first.consumer)
        wait_for(lambda: first.had)
        cluster.members.do(f"join o1 {group} {topic} ordered")
        wait_for(lambda: cluster.members.got("o1"))
        with second.consumer:
            wait_for(lambda: second.had)
            cluster.members.do("leave o1")
            time.sleep(1)
        cluster.members.do(f"join o2 {group} {topic} ordered")
        wait_for(lambda: cluster.members.got("o2"))
        ended.set()
        sending.join()
        wait_for(lambda: {one.body for one in everything()} >= set(sent))
        cluster.members.do("leave o2")
    had = everything()
    for queue in range(4):
        mine = sorted((one for one in had if one.queue_id == queue), key=lambda one: (one.begin, one.end))
        for before, after in pairwise(mine):
            assert before.end <= after.begin, (before, after)
        order = [int(one.body.split()[0]) for one in mine if "seed" not in one.body]
        # a member that left in the middle may have messages consumed once more, in order
        assert sorted(set(order)) == list(dict.fromkeys(order))


def test_a_broadcast_goes_on_where_the_other_was(cluster: Cluster) -> None:
    """One member of a host, Java's and ours by turns: each goes on at the offsets that the other has kept."""
    topic = group = "Watched"
    bodies = [f"ok {number}" for number in range(30)]
    cluster.send(topic, bodies[:10])
    options = {"broadcast": True, "offsets_directory": cluster.folder / ".rocketmq_offsets"}
    ours = Ours(cluster, "ours", group, topic, options=options)
    with ours.consumer:
        wait_for(lambda: len(ours.had) == 10)
    cluster.send(topic, bodies[10:20])
    cluster.members.do(f"join watches {group} {topic} broadcast")
    wait_for(lambda: len(cluster.members.got("watches")) == 10)
    cluster.members.do("leave watches")
    cluster.send(topic, bodies[20:])
    again = Ours(cluster, "again", group, topic, options=options)
    with again.consumer:
        wait_for(lambda: len(again.had) == 10)
    parts = [sorted(one.body for one in part) for part in (ours.had, cluster.members.got("watches"), again.had)]
    assert parts == [sorted(bodies[begin : begin + 10]) for begin in (0, 10, 20)]


def test_brokers_know_a_producer_while_it_runs(cluster: Cluster) -> None:
    cluster.send("Known", ["ok"])
    ask = "producerConnection -g knows -t Known"
    with Producer(cluster.real.namesrv, "knows") as producer:
        producer.send(Message("Known", b"ok"))
        (line,) = [one for one in cluster.admin(ask) if one.startswith("0001")]
        assert line.split()[1] == producer._client.client_id
    assert [one for one in cluster.admin(ask) if one.startswith("0001")] == []
    keys = ["order-7", "Aa", "polygenelubricants", "customer/42", "x"]
    theirs = [line[2:] for line in cluster.members.do(f"keys Known {' '.join(keys)}") if line[0] == "key"]
    placed = [cluster.producer.send(Message("Known", b"k"), by_hash(key)).queue for key in keys]
    assert theirs == [[queue.broker_name, str(queue.queue_id)] for queue in placed]


def test_topics_and_groups_are_created_and_changed_as_by_mqadmin(cluster: Cluster) -> None:
    """What `topics` and `groups` do is in the files of the broker as mqadmin would have put it there."""
    at = ("-n", cluster.real.namesrv)
    config = cluster.folder / "store" / "config"

    def entry(name: str, table: str, key: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = json.loads((config / name).read_text("utf-8"))[table].get(key)
        return found

    rmqctl("topics", "create", "-t", "Made", "--queues", "3", "--order", "--attributes", "+message.type=FIFO", *at)
    (mqadmin_made,) = mqadmin(
        VERSION, cluster.folder, cluster.real.namesrv,
        "updateTopic -c DefaultCluster -t Theirs -r 3 -w 3 -o true -a +message.type=FIFO",
    )  # fmt: skip
    assert any("success" in line for line in mqadmin_made), mqadmin_made
    ours, theirs = (entry("topics.json", "topicConfigTable", name) for name in ("Made", "Theirs"))
    assert ours is not None
    assert theirs is not None
    assert {**ours, "topicName": "Theirs"} == theirs
    order = [
        [line for line in cluster.admin(f"topicRoute -t {name}") if "orderTopicConf" in line or ":3" in line]
        for name in ("Made", "Theirs")
    ]
    assert order[0] == order[1]
    assert order[0]
    (changed,) = rmqctl(
        "topics", "change", "-t", "Made", "--perm", "R", "--no-order", "--attributes", "+message.type=NORMAL", *at
    )
    assert (changed["before"]["order"], changed["after"]["order"], changed["state"]) == (True, False, "done")
    after = entry("topics.json", "topicConfigTable", "Made")
    assert after is not None
    assert (after["perm"], after["writeQueueNums"], after["order"]) == (4, 3, False)
    assert after["attributes"] == {"message.type": "NORMAL"}
    rmqctl("groups", "create", "-g", "made", "--retry-max", "3", *at)
    rmqctl("groups", "change", "-g", "made", "--no-consume", *at)
    group = entry("subscriptionGroup.json", "subscriptionGroupTable", "made")
    assert group is not None
    assert (group["retryMaxTimes"], group["consumeEnable"]) == (3, False)
    rmqctl("groups", "delete", "-g", "made", "--yes", *at)
    assert entry("subscriptionGroup.json", "subscriptionGroupTable", "made") is None
