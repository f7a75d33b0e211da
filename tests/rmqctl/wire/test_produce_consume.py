"""`rmqctl produce` and `rmqctl consume` against a broker behind sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.store.config.config import StoreConfig
from tests.network.serving import serving_here
from tests.rmqctl.looking import run

LIMIT = 60


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20)
    with serving_here(tmp_path_factory.mktemp("served") / "store", config, {}) as ready:
        yield ready.namesrv


def _bodies(namesrv: str, topic: str, count: int, *options: str) -> list[str]:
    """Bodies that `consume` prints, as soon as there are so many."""
    end = time.monotonic() + LIMIT
    while True:
        found = run("consume", "-n", namesrv, "-t", topic, *options, "--json")
        if len(found.objects) >= count or time.monotonic() > end:
            return sorted(str(one["body"]) for one in found.objects)
        time.sleep(0.05)


def test_one_message_with_all_that_it_can_have(namesrv: str) -> None:
    more = ("--tags", "paid", "-k", "k1", "-k", "k2", "--property", "a=b", "--flag", "7", "-q", "2")
    sent = run("produce", "-n", namesrv, "-t", "One", "--body", "héllo", *more, "--json").objects[0]
    assert (sent["status"], sent["queue_id"], sent["queue_offset"], sent["broker"]) == ("SEND_OK", 2, 0, "broker-a")
    assert _bodies(namesrv, "One", 1) == ["héllo"]
    (got,) = run("consume", "-n", namesrv, "-t", "One", "--json").objects
    assert (got["msg_id"], got["unique_key"], got["flag"]) == (sent["msg_id"], sent["unique_key"], 7)
    assert (got["tags"], got["keys"], got["properties"]["a"]) == ("paid", ["k1", "k2"], "b")
    code, out, _ = run("consume", "-n", namesrv, "-t", "One")
    assert (code, "héllo" in out) == (0, True)
    assert run("consume", "-n", namesrv, "-t", "One", "--tag", "other")[0] == 1


def test_many_messages_and_groups(namesrv: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps({"topic": "Many", "body": f"{number}"}) + "\n" for number in range(6)))
    code, out, _ = run("produce", "-n", namesrv, "--from", lines, "--json")
    assert (code, json.loads(out)) == (0, {"sent": 6, "bad_lines": 0})
    everything = [str(number) for number in range(6)]
    # looking takes nothing away from anybody
    for _ in range(2):
        assert _bodies(namesrv, "Many", 6) == everything
    assert _bodies(namesrv, "Many", 6, "-g", "looks", "--no-commit") == everything
    # a group goes on behind what was printed, not behind what was pulled
    first = run("consume", "-n", namesrv, "-t", "Many", "-g", "takes", "--limit", "1", "--json").objects
    rest = run("consume", "-n", namesrv, "-t", "Many", "-g", "takes", "--json").objects
    assert sorted(one["body"] for one in [*first, *rest]) == everything
    assert (len(first), run("consume", "-n", namesrv, "-t", "Many", "-g", "takes")[0]) == (1, 1)
    assert run("consume", "-n", namesrv, "-t", "Many", "--from", "last")[0] == 1
    since = str(int(first[0]["store_timestamp"]))
    assert len(run("consume", "-n", namesrv, "-t", "Many", "--from", since, "--json").objects) >= 1
    lines.write_text('{"topic":"Many","body":"good"}\nnonsense\n')
    code, _, err = run("produce", "-n", namesrv, "--from", lines)
    assert (code, "line 2" in err, "nothing was sent" in err) == (2, True, True)
    assert _bodies(namesrv, "Many", 6) == everything
    code, out, _ = run("produce", "-n", namesrv, "--from", lines, "--keep-going", "--json")
    assert (code, json.loads(out)) == (2, {"sent": 1, "bad_lines": 1})


def test_queues_that_brokers_assign(tmp_path: Path) -> None:
    """A broker that balances no load assigns every queue to every member: else two share them."""
    config = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)
    with serving_here(tmp_path / "store", config, {"serverLoadBalancerEnable": "false"}) as served:
        with Producer(served.namesrv) as producer:
            for number, queue in enumerate(producer.queues("Shares")):
                producer.send(Message("Shares", b"%d" % number), queue)
        with Consumer(served.namesrv, "shares", "Shares", begin="first", commit=False) as other:
            assert other.poll(LIMIT)
            command = ("consume", "-n", served.namesrv, "-t", "Shares", "-g", "shares", "--no-commit", "--json")
            assert len(run(*command).objects) == 2
            for more in ((), ("--strategy", "circle"), ("--exec", "cat")):
                assert len(run(*command, "--no-client-rebalance", *more).objects) == 4
    for wrong in (("--ordered",), ("--broadcast",), ("--send-back",), ("--strategy", "consistent-hash")):
        assert run(*command, "--no-client-rebalance", *wrong).code == 2
    assert run("consume", "-n", served.namesrv, "-t", "Shares", "--no-client-rebalance").code == 2


def test_delays_and_transactions(namesrv: str) -> None:
    for options in (("--delay", "1"), ("--transaction", "commit"), ("--transaction", "rollback")):
        assert run("produce", "-n", namesrv, "-t", "Later", "--body", options[1], *options)[0] == 0
    assert _bodies(namesrv, "Later", 2) == ["1", "commit"]


def test_what_was_sent_before_a_broker_refuses_is_told(namesrv: str, tmp_path: Path) -> None:
    """Whoever sends the rest must not send all of it twice."""
    lines = tmp_path / "lines"
    topics = ("Stops", "Stops", "SCHEDULE_TOPIC_XXXX", "Stops")
    lines.write_text("".join(json.dumps({"topic": topic, "body": "x"}) + "\n" for topic in topics))
    code, out, err = run("produce", "-n", namesrv, "--from", lines, "--json")
    assert (code, out) == (2, "")
    assert "2 messages were sent before line 3" in err
    assert "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden." in err
    assert len(_bodies(namesrv, "Stops", 2)) == 2
    code, out, err = run("produce", "-n", namesrv, "--from", lines, "--keep-going", "--json")
    assert (code, json.loads(out)) == (2, {"sent": 3, "bad_lines": 1})
    assert "line 3: " in err
    assert len(_bodies(namesrv, "Stops", 5)) == 5


def test_keys_batches_and_settings(namesrv: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    given = [{"topic": "Keyed", "body": f"{n}", "keys": [f"k{n // 4}"]} for n in range(8)]
    lines.write_text("".join(json.dumps(one) + "\n" for one in given))
    options = ("--order-key", "@KEYS", "--batch", "3", "--timeout", "10s", "--setting", "retryTimesWhenSendFailed=0")
    code, out, _ = run("produce", "-n", namesrv, "--from", lines, *options, "--json")
    assert (code, json.loads(out)) == (0, {"sent": 8, "bad_lines": 0})
    assert _bodies(namesrv, "Keyed", 8) == [f"{n}" for n in range(8)]
    got = run("consume", "-n", namesrv, "-t", "Keyed", "--json").objects
    assert len({(one["keys"][0], one["queue_id"]) for one in got}) == 2
    sent = run("produce", "-n", namesrv, "-t", "Keyed", "--order-key", "k1", "--body", "x", "--json").objects[0]
    assert sent["queue_id"] in {one["queue_id"] for one in got if one["keys"] == ["k1"]}
    spaced = ("--namespace", "N", "--latency-fault")
    assert run("produce", "-n", namesrv, "-t", "Named", "--body", "x", *spaced)[0] == 0
    assert _bodies(namesrv, "N%Named", 1) == ["x"]
    for more in ((), ("--exec", "cat")):
        options = ("-t", "Named", "--namespace", "N", "-g", f"n{len(more)}", *more)
        (got_named,) = run("consume", "-n", namesrv, *options, "--json").objects
        assert got_named["topic"] == "Named"
    for wrong in (("--setting", "no=1"), ("--setting", "compressLevel=99"), ("--setting", "x"), ("--batch", "2")):
        assert run("produce", "-n", namesrv, "-t", "T", "--body", "x", *wrong)[0] == 2


@pytest.mark.parametrize("wait", [("--delay", "2"), ("--deliver-after", "2s"), ("--deliver-at", "2030-01-01")])
def test_what_a_transaction_would_forget_is_refused(namesrv: str, wait: tuple[str, str]) -> None:
    code, _, err = run("produce", "-n", namesrv, "-t", "Both", "--body", "x", "--transaction", "commit", *wait)
    assert (code, "--transaction goes without --delay" in err) == (2, True)


def test_delivery_times(namesrv: str) -> None:
    for option, value in (("--deliver-after", "1s"), ("--deliver-at", str(time.time_ns() // 1_000_000 + 500))):
        assert run("produce", "-n", namesrv, "-t", "Timed", "--body", option, option, value)[0] == 0
    assert _bodies(namesrv, "Timed", 2) == ["--deliver-after", "--deliver-at"]
    one = ("produce", "-n", namesrv, "-t", "Timed", "--body", "x")
    code, _, err = run(*one, "--deliver-after", "soon")
    assert (code, "is not a length of time" in err) == (2, True)
    assert run(*one, "--deliver-after", "1s", "--delay", "1").code == 2
    code, _, err = run(*one, "--deliver-after", "4d")
    assert (code, "timerMaxDelaySec" in err) == (3, True)
    assert run("produce", "-n", namesrv, "--from", "/dev/null", "--deliver-after", "1s").code == 2


def test_what_goes_wrong(namesrv: str) -> None:
    code, _, err = run("produce", "-n", "127.0.0.1:1", "-t", "T", "--body", "x")
    assert (code, "cannot be reached" in err) == (3, True)
    code, _, err = run("consume", "-n", namesrv, "-t", "Nowhere")
    assert (code, "Nowhere" in err) == (3, True)
    code, _, err = run("produce", "-n", namesrv, "-t", "a b", "--body", "x")
    assert (code, "The specified topic[a b] contains illegal characters" in err) == (2, True)
    for wrong in (
        ("produce", "-t", "T"), ("produce", "-t", "T", "--body", "x", "-q", "99"), ("produce", "--body", "x"),
        ("produce", "-t", "T", "--body", "x", "--keep-going"), ("consume", "-t", "T", "--commit"),
        ("consume", "-t", "T", "--from", "tomorrow-ish"), ("produce", "-t", "T", "--from", "/dev/null"),
    ):  # fmt: skip
        assert run(wrong[0], "-n", namesrv, *wrong[1:])[0] == 2, wrong


def test_the_name_server_is_found_as_mqadmin_finds_it(namesrv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    assert run("produce", "-t", "Found", "--body", "here", "--json").code == 0
    assert _bodies(namesrv, "Found", 1) == ["here"]


def test_live_members_are_named_before_a_group_is_joined(namesrv: str) -> None:
    for topic in ("Live", "Apart"):
        assert run("produce", "-n", namesrv, "-t", topic, "--body", "x").code == 0
    with Consumer(namesrv, "live", "Live", begin="first", commit=False) as member:
        member.poll(0)
        code, out, err = run("consume", "-n", namesrv, "-t", "Apart", "-g", "live", "--json")
        assert (code, out, "Apart '*'" in err, "--force" in err) == (5, "", True, True)
        code, _, err = run("consume", "-n", namesrv, "-t", "Live", "-g", "live", "--json")
        assert (code in (0, 1), "a share of their queues, those of retries included" in err) == (True, True)
        code, _, err = run("consume", "-n", namesrv, "-t", "Live", "--json")
        assert (code, err) == (0, "")
        code, out, err = run("consume", "-n", namesrv, "-t", "Apart", "-g", "live", "--force", "--json")
        assert (code in (0, 1), "messages of theirs may wait" in err) == (True, True)
    assert run("consume", "-n", namesrv, "-t", "Live", "--force").code == 2


def test_a_member_prints_what_is_retried(namesrv: str) -> None:
    assert run("produce", "-n", namesrv, "-t", "Tried", "--body", "x").code == 0
    with Consumer(namesrv, "tries", "Tried", begin="first") as member:
        (message,) = member.poll(60)
        member.send_back(message, 1)
    end = time.monotonic() + 60
    while not (got := run("consume", "-n", namesrv, "-t", "Tried", "-g", "tries", "--json")).out:
        assert time.monotonic() < end
    (retried,) = got.objects
    assert (retried["topic"], retried["body"], retried["reconsume_times"]) == ("%RETRY%tries", "x", 1)


def _send(namesrv: str, topic: str, *bodies: str) -> None:
    for body in bodies:
        assert run("produce", "-n", namesrv, "-t", topic, "--body", body, "-k", body, "-q", "0").code == 0


def _until_found(*command: object) -> list[dict[str, object]]:
    """Rows of a command, as soon as it has some: what was sent is dispatched a little later."""
    end = time.monotonic() + LIMIT
    while True:
        found = run(*command)
        if found.objects or time.monotonic() > end:
            return list(found.objects)


def test_the_exit_status_of_a_command_decides(namesrv: str, tmp_path: Path) -> None:
    hostile = f"$(touch${{IFS}}{tmp_path}/run);`touch${{IFS}}{tmp_path}/run`"
    _send(namesrv, "Exec", "good", "bad", hostile)
    seen = tmp_path / "seen"
    script = tmp_path / "script"
    script.write_text(
        f'#!/bin/sh\ncat >> {seen}; echo "/$RMQCTL_TOPIC/$RMQCTL_KEYS/$RMQCTL_QUEUE_OFFSET" >> {seen}\n'
        'test "$RMQCTL_KEYS" != bad\n'
    )
    script.chmod(0o755)
    rows: dict[object, dict[str, object]] = {}
    end = time.monotonic() + LIMIT
    while len(rows) < 3 and time.monotonic() < end:
        found = run("consume", "-n", namesrv, "-t", "Exec", "-g", "exec", "--exec", script, "--json").objects
        rows |= {row["queue_offset"]: dict(row) for row in found}
    assert [(rows[n]["exit_status"], rows[n]["result"]) for n in range(3)] == [
        (0, "success"),
        (1, "later"),
        (0, "success"),
    ]
    assert f"good/Exec/good/0\nbad/Exec/bad/1\n{hostile}/Exec/" in seen.read_text()
    assert not (tmp_path / "run").exists()
    # the group is at the end: the failed one waits for its retry
    assert run("consume", "-n", namesrv, "-t", "Exec", "-g", "exec", "--exec", "true").code == 1


def test_a_command_that_hangs_is_killed(namesrv: str) -> None:
    _send(namesrv, "Hung", "x")
    hung = ("consume", "-n", namesrv, "-t", "Hung", "-g", "hung", "--exec", "sleep 600", "--timeout", "0.2", "--json")
    (row,) = _until_found(*hung)
    assert (row["exit_status"], row["result"]) == (124, "later")


def test_ordered_and_broadcast_messages_are_printed(
    namesrv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    _send(namesrv, "Kinds", "a", "b", "c")
    assert _bodies(namesrv, "Kinds", 3) == ["a", "b", "c"]
    ordered = run("consume", "-n", namesrv, "-t", "Kinds", "-g", "kinds", "--ordered", "--limit", "2", "--json")
    assert [one["body"] for one in ordered.objects] == ["a", "b"]
    rest = run("consume", "-n", namesrv, "-t", "Kinds", "-g", "kinds", "--ordered", "--json")
    assert [one["body"] for one in rest.objects] == ["c"]
    for name in ("one", "two"):
        cast = ("consume", "-n", namesrv, "-t", "Kinds", "-g", "cast", "--broadcast", "--instance", name, "--json")
        assert sorted(str(one["body"]) for one in run(*cast).objects) == ["a", "b", "c"]
        assert run(*cast).code == 1
    assert len(list(tmp_path.glob(".rocketmq_offsets/*/cast/offsets.json"))) == 2


def test_messages_are_sent_back_and_queues_chosen(namesrv: str) -> None:
    _send(namesrv, "Backs", "x")
    back = ("consume", "-n", namesrv, "-t", "Backs", "-g", "backs", "--json")
    (one,) = _until_found(*back, "--send-back")
    assert one["body"] == "x"
    with Consumer(namesrv, "other", "SCHEDULE_TOPIC_XXXX", joins=False, begin="first") as consumer:
        waiting: list[str] = []
        end = time.monotonic() + LIMIT
        while "Backs" not in waiting and time.monotonic() < end:
            waiting += [message.properties().get("RETRY_TOPIC", "") for message in consumer.poll(1)]
    assert "Backs" in waiting
    chosen = ("consume", "-n", namesrv, "-t", "Backs", "-g", "chosen", "--json", "--strategy", "config", "--assign")
    assert run(*chosen, "broker-a:1").code == 1
    assert [row["body"] for row in run(*chosen, "broker-a:0").objects] == ["x"]


def test_a_member_gets_the_queues_of_its_machine_room(namesrv: str) -> None:
    """Those of a room without members are shared by all, so that this one gets them from any room."""
    _send(namesrv, "Rooms", "x")
    assert _bodies(namesrv, "Rooms", 1) == ["x"]
    near = ("consume", "-n", namesrv, "-t", "Rooms", "--json", "--strategy", "machine-room-nearby", "--room")
    for group, room in (("here", "broker-*=east"), ("away", "broker-a=west")):
        assert [row["body"] for row in run(*near, "*@*=east", "--room", room, "-g", group).objects] == ["x"]
    code, _, err = run(*near, "*@*=east", "-g", "none")
    assert (code, "'broker-a' has no zone" in err) == (2, True)


def test_messages_are_traced(namesrv: str) -> None:
    key = run("produce", "-n", namesrv, "-t", "Seen", "--body", "x", "--trace", "--json").objects[0]["unique_key"]
    own = ("--trace", "--trace-topic", "OwnTraces")
    assert run("produce", "-n", namesrv, "-t", "Seen", "--body", "y", *own).code == 0
    assert len(_bodies(namesrv, "Seen", 2)) == 2
    assert len(run("consume", "-n", namesrv, "-t", "Seen", "-g", "plain", "--trace", "--json").objects) == 2
    assert len(run("consume", "-n", namesrv, "-t", "Seen", "-g", "runs", "--exec", "cat", *own, "--json").objects) == 2
    got = "".join(_bodies(namesrv, "RMQ_SYS_TRACE_TOPIC", 2))
    kinds = [line.split("\x01")[0] for line in got.split("\x02") if key in line]
    assert sorted(kinds) == ["Pub", "SubAfter", "SubBefore"]
    got = "".join(_bodies(namesrv, "OwnTraces", 2))
    assert sorted(line.split("\x01")[0] for line in got.split("\x02")) == [
        "",
        "Pub",
        *["SubAfter"] * 2,
        *["SubBefore"] * 2,
    ]
    assert run("produce", "-n", namesrv, "-t", "Seen", "--body", "y", "--trace-topic", "x").code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--exec", "cat"), "need a group"),
        (("-g", "g", "--exec", "no-such-program"), "there is no program 'no-such-program'"),
        (("-g", "g", "--exec", "'unclosed"), "No closing quotation"),
        (("-g", "g", "--exec", "cat", "--send-back"), "goes without --exec"),
        (("-g", "g", "--ordered", "--instance", "x"), "--instance goes with --broadcast"),
        (("--trace",), "--trace goes with -g GROUP"),
        (("-g", "g", "--trace-topic", "x"), "--trace-topic goes with --trace"),
        (("-g", "g", "--strategy", "config"), "--assign goes with --strategy config"),
        (("-g", "g", "--strategy", "config", "--assign", "3"), "write it as BROKER:QUEUE"),
        (("-g", "g", "--room", "east"), "--room goes with --strategy machine-room, "),
        (("-g", "g", "--strategy", "machine-room-nearby"), "--room goes with --strategy machine-room-nearby"),
        (("-g", "g", "--strategy", "machine-room-nearby", "--room", "east"), "write it as PATTERN=ZONE"),
    ],
)
def test_options_that_do_not_go_together(namesrv: str, options: tuple[str, ...], said: str) -> None:
    code, _, err = run("consume", "-n", namesrv, "-t", "One", *options)
    assert (code, said in err) == (2, True)
