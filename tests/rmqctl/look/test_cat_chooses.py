"""What `cat` chooses and how it prints it: the last ones, topics by pattern, --grep, columns, templates, --follow."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rmqctl.output import outcome as exit_codes
from tests import processes
from tests.goldens import GoldenStore, truth
from tests.opened import store_path
from tests.pipeline.growing import Writer
from tests.rmqctl.looking import Done, run
from tests.terminal import rmqctl_on_a_terminal

CLEAN = store_path("clean")


def cat(*arguments: object, name: str = "clean") -> Done:
    return run("cat", "-s", store_path(name), *arguments)


def offsets(*arguments: object, name: str = "clean") -> list[int]:
    return [row["physical_offset"] for row in cat(*arguments, "--json", name=name).objects]


def every(*topics: str, name: str = "clean") -> list[int]:
    return [row["phyOffset"] for row in truth(name).messages if not topics or row["topic"] in topics]


def test_the_last_ones() -> None:
    assert offsets("-n", "-20") == every()[-20:]
    assert offsets("-n", "-3", "-t", "OrderTopic") == every("OrderTopic")[-3:]
    assert offsets("-n", "-3", "--to", every()[10]) == every()[7:10]
    queue = [row["phyOffset"] for row in truth("clean").messages if (row["topic"], row["queueId"]) == ("OrderTopic", 2)]
    assert offsets("-n", "-3", "--order", "queue", "-t", "OrderTopic", "-q", 2) == queue[-3:]
    assert cat("-n", "-3").out.count("\n") == 4
    done = cat("-n", "0")
    assert (done.code, "--follow" in done.err) == (exit_codes.USAGE, True)


def test_the_last_ones_of_a_damaged_log_tell_only_their_damage() -> None:
    done = cat("-n", "-5", "--json", name="torn-zero")
    assert done.err.count("damage:") == 1  # at the log's end
    done = cat("-n", "-5", "--json", name="crc-flip-third")
    assert (done.code, done.err) == (exit_codes.OK, "")


def _body(row: dict[str, Any]) -> bytes:
    return row["body"].encode() if "body" in row else base64.b64decode(row["body_base64"])


def test_one_command_for_topic_tag_text_and_time() -> None:
    """Number 49 of the troubles: which messages of a topic have this tag and this text, stored between two times."""
    rows = cat("-t", "TopicTest", "--json").objects
    begin, end = (rows[place]["store_timestamp"] for place in (len(rows) // 4, 3 * len(rows) // 4))
    with_text = [row for row in rows if b"alpha ship" in _body(row)]
    in_time = [row for row in with_text if begin <= row["store_timestamp"] <= end]
    wanted = [row["physical_offset"] for row in in_time if row["tags"] == "TagD"]
    assert 0 < len(wanted) < len(in_time) < len(with_text)
    assert offsets("-t", "TopicTest", "--tag", "TagD", "--grep", "alpha ship", "-b", begin, "-e", end) == wanted


def test_a_log_without_queues_does_not_say_that_it_has_no_topic(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    shutil.rmtree(store / "consumequeue")
    done = run("cat", "-s", store, "-t", "OrderTopic", "--grep", "nowhere at all")
    assert (done.code, "no message matched" in done.err) == (exit_codes.DAMAGE_OR_NOTHING, True)


def test_several_topics_and_patterns() -> None:
    assert offsets("-t", "OrderTopic", "-t", "TopicTest") == every("OrderTopic", "TopicTest")
    assert offsets("-t", "Order*") == every("OrderTopic")
    own = [topic for topic in {row["topic"] for row in truth("features").messages} if topic.endswith("Topic")]
    assert offsets("-t", "*Topic", name="features") == every(*own, name="features")
    assert offsets("-t", "Order*", "--order", "queue") == offsets("-t", "OrderTopic", "--order", "queue")
    done = cat("-t", "OrderTopic", "-t", "Nope", "-n", 1)
    assert (done.code, "no topic goes by 'Nope'" in done.err) == (exit_codes.OK, True)
    done = cat("-t", "Nope*")
    assert (done.code, "no topic that goes by 'Nope*'" in done.err) == (exit_codes.DAMAGE_OR_NOTHING, True)


def test_without_the_systems_topics() -> None:
    topics = {row["topic"] for row in truth("features").messages}
    system = topics & {"TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"}
    assert len(system) > 1
    assert offsets("--no-system-topics", name="features") == every(*(topics - system), name="features")
    named = sorted(system)[0]  # who names one means it
    assert offsets("--no-system-topics", "-t", named, name="features") == every(named, name="features")


def test_grep_in_bodies_and_properties() -> None:
    rows = cat("--json").objects
    wanted = [
        row["physical_offset"]
        for row in rows
        if re.search("user t|TAGS=TagB", row.get("body", ""))
        or any(re.search("user t|TAGS=TagB", f"{name}={value}") for name, value in row["properties"].items())
    ]
    found = offsets("--grep", "user t|TAGS=TagB")
    assert set(wanted) <= set(found)
    assert 0 < len(found) < len(rows)
    assert offsets("--grep", "^TAGS=TagB$") == [row["physical_offset"] for row in rows if row["tags"] == "TagB"]
    done = cat("--grep", "(")
    assert (done.code, "not a regular expression" in done.err) == (exit_codes.USAGE, True)


def test_filter_by_properties() -> None:
    rows = cat("--json").objects
    wanted = [row["physical_offset"] for row in rows if row["tags"] == "TagB" and row["keys"]]
    assert 0 < len(wanted) < len(rows)
    assert offsets("--filter", "TAGS = 'TagB' AND KEYS IS NOT NULL") == wanted
    done = cat("--filter", "TAGS = ")
    assert (done.code, "not an SQL92 filter" in done.err) == (exit_codes.USAGE, True)


def test_grep_finds_in_compressed_bodies() -> None:
    rows = [row for row in cat("--json", name="features").objects if row["compression"] and row.get("body")]
    assert {row["compression"] for row in rows} == {"lz4", "zstd", "zlib"}
    for row in rows[:6]:
        assert row["physical_offset"] in offsets("--grep", re.escape(row["body"][5:40]), name="features")


def test_columns() -> None:
    rows = cat("--json", "-n", 4).objects
    names = ["queue_id", "topic", "store_time", "body"]
    assert [list(row) for row in cat("--json", "-n", 4, "--columns", ", ".join(names)).objects] == [
        [name for name in names if name in row] for row in rows
    ]
    done = cat("--format", "csv", "-n", 4, "--columns", "topic,tags")
    assert list(csv.DictReader(io.StringIO(done.out))) == [
        {"topic": row["topic"], "tags": row["tags"] or ""} for row in rows
    ]
    table = cat("-n", 1, "--columns", "msg_id,size", "--bytes").out.split()
    assert table == ["msg", "id", "size", rows[0]["msg_id"], str(rows[0]["size"])]
    for wrong in ("", "nothing", "topic,topic"):
        assert cat("--columns", wrong).code == exit_codes.USAGE


def raw(*arguments: str, name: str = "clean") -> bytes:
    """What a pipe gets."""
    command: list[str | Path] = [sys.executable, "-m", "rmqctl", "cat", "-s", store_path(name), *arguments]
    process = processes.start(command, stdout=subprocess.PIPE)
    data: bytes = process.communicate()[0]
    return data


def test_a_template_gives_bytes_as_they_are() -> None:
    rows = truth("clean").messages[:50]
    made = raw("-n", "50", "--format-string", r"%t|%q|%p|%o|%O|%T\x0a\0%%")
    names = ("topic", "queueId", "queueId", "queueOffset", "phyOffset", "storeTimestamp")
    wanted = ["|".join(str(row[name]) for name in names) + "\n\0%" for row in rows]
    assert made == "".join(wanted).encode()
    objects = cat("--json", "-n", 50).objects
    bodies = raw("-n", "50", "--format-string", "%R%s")
    position = 0
    for row in objects:
        size = int.from_bytes(bodies[position : position + 4], "big")
        body = bodies[position + 4 : position + 4 + size]
        assert (size, body.decode("utf-8", "replace")[:3]) == (row["body_size"], body.decode("utf-8", "replace")[:3])
        if "body" in row:
            assert body == row["body"].encode()
        position += 4 + size
    assert position == len(bodies)
    keyed = raw("-n", "50", "--format-string", r"%k %K %g %u %i\n").decode().splitlines()
    for line, row in zip(keyed, objects, strict=True):
        keys = row["properties"].get("KEYS")
        length = -1 if keys is None else len(keys.encode())
        assert line == f"{keys or ''} {length} {row['tags'] or ''} {row['unique_key'] or ''} {row['msg_id']}"


@pytest.mark.parametrize("wrong", ["%y", "100%", "\\q", "tail\\", "\\xg"])
def test_a_template_that_means_nothing_is_a_usage_error(wrong: str) -> None:
    done = cat("--format-string", wrong)
    assert (done.code, done.out) == (exit_codes.USAGE, "")
    assert "%t topic" in done.err


def test_a_template_goes_alone() -> None:
    for other in (["--json"], ["--format", "csv"], ["--columns", "topic"], ["--stored-bodies"]):
        assert cat("--format-string", "%t", *other).code == exit_codes.USAGE


def test_a_template_shows_nothing_raw_on_a_terminal(golden_store: GoldenStore) -> None:
    from rmqctl.formats.checksums import body_crc

    store = golden_store("clean")
    path = store / "commitlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    evil = b"\x1b[2Jabc\n".ljust(19, b".")
    data[88:107] = evil
    data[8:12] = body_crc(evil).to_bytes(4, "big")
    path.write_bytes(bytes(data))
    shown = rmqctl_on_a_terminal("cat", "-s", store, "-n", "1", "--format-string", r"<%s>\n")
    assert shown.screen[0] == r"<\x1b[2Jabc\n...........>"


def _rest(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and all output that is left: communicate() leaves out what readline() has read ahead."""
    assert process.stdout is not None
    assert process.stderr is not None
    return process.wait(60), process.stdout.read(), process.stderr.read()


def test_follow_prints_each_message_as_it_comes_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.put_many(30)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "rmqctl",
        "cat",
        "-s",
        tmp_path,
        "-n",
        "-2",
        "--follow",
        "--json",
    ]
    process = processes.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    got = [json.loads(process.stdout.readline()) for _ in range(2)]
    threading.Timer(0.0, writer.put_many, [80]).start()  # over two rolls of the log
    got += [json.loads(process.stdout.readline()) for _ in range(80)]
    writer.clean(writer.position - writer.position % 16384)
    writer.put()
    got.append(json.loads(process.stdout.readline()))
    assert [row["physical_offset"] for row in got] == writer.offsets[28:]
    process.send_signal(signal.SIGINT)
    assert _rest(process) == (exit_codes.OK, "", "")


@pytest.mark.parametrize("how", [[], ["--format", "csv"], ["--format-string", r"%O\n"]])
def test_follow_ends_with_its_limit(how: list[Any]) -> None:
    done = cat("-n", 3, "--follow", *how)
    assert (done.code, len(done.out.splitlines())) == (exit_codes.OK, 3 if "--format-string" in how else 4)


def test_follow_says_that_it_waits_for_a_log_that_is_lost(golden_store: GoldenStore) -> None:
    """Queues lead into a log that is gone: it waits, and says for what."""
    store = golden_store("log-gone")
    command: list[str | Path] = [sys.executable, "-m", "rmqctl", "cat", "-s", store, "-n", "0", "--follow"]
    process = processes.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.readline()
    assert said.startswith(f"the commitlog {store / 'commitlog'} ")
    assert "waiting until a broker begins a log there" in said
    process.send_signal(signal.SIGINT)
    assert _rest(process) == (exit_codes.OK, "", "")


def test_what_has_no_end_takes_none() -> None:
    for wrong in (["--to", 5], ["-e", "now"], ["--order", "queue"]):
        assert cat("--follow", *wrong).code == exit_codes.USAGE


def test_query_by_key_in_several_topics() -> None:
    keyed = [row for row in cat("--json").objects if row["keys"]]
    key = keyed[0]["keys"][0]
    same = sorted(row["physical_offset"] for row in keyed if key in row["keys"])
    topics = sorted({row["topic"] for row in keyed if key in row["keys"]})
    named = [word for topic in topics for word in ("-t", topic)]
    done = run("query", "-s", CLEAN, "-k", key, *named, "--json")
    assert sorted(row["physical_offset"] for row in done.objects) == same
    assert run("query", "-s", CLEAN, "-k", key, "-t", "Nope*").code == exit_codes.DAMAGE_OR_NOTHING
    assert run("query", "-s", CLEAN, "-o", 0, "-t", "Order*", "-q", 0).code == exit_codes.USAGE
    assert run("query", "-s", CLEAN, "-i", "x", "-t", "Order*").code == exit_codes.USAGE


def test_export_chooses_alike(tmp_path: Path) -> None:
    target = tmp_path / "o.jsonl"
    chosen = ["-t", "Order*", "-t", "TopicTest", "--grep", "alpha", "--no-system-topics"]
    assert run("export", target, "-s", CLEAN, *chosen).code == exit_codes.OK
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["physical_offset"] for row in rows] == offsets(*chosen)
    target = tmp_path / "o.parquet"
    assert run("export", target, "-s", CLEAN, *chosen).code == exit_codes.OK
    import pyarrow.parquet as pq

    assert pq.read_table(target)["physical_offset"].to_pylist() == offsets(*chosen)


def test_a_light_queue_is_read_by_its_units_unless_the_log_is_asked_for() -> None:
    store = store_path("lmq")
    rows = run("cat", "-s", store, "-t", "%LMQ%dev0", "--json").objects
    assert len(rows) == 14
    assert all("%LMQ%dev0" in row["properties"]["INNER_MULTI_DISPATCH"].split(",") for row in rows)
    assert rows == run("cat", "-s", store, "-t", "%LMQ%dev0", "--order", "queue", "--json").objects
    assert run("cat", "-s", store, "-t", "%LMQ%dev0", "--order", "log").code == exit_codes.DAMAGE_OR_NOTHING
    assert "`rmqctl ls -t` counts them" in run("stats", "-s", store, "-t", "%LMQ%dev0").err


def test_what_rocketmq_ignores_is_said(golden_store: GoldenStore) -> None:
    done = run("cat", "-s", golden_store("clean"), "--filter", "seq LIKE '1%'")
    assert (done.code, "the filter ends before \"LIKE '1%'\"" in done.err) == (1, True), done.err
    assert "the filter ends" not in run("cat", "-s", golden_store("clean"), "--filter", "seq = 1").err
