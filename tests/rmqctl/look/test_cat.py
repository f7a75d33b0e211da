"""`rmqctl cat`."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from tests.goldens import GoldenStore, truth
from tests.opened import store_path
from tests.rmqctl.looking import run


def offsets(*arguments: object) -> list[int]:
    return [row["physical_offset"] for row in run("cat", "-s", store_path("clean"), *arguments, "--json").objects]


def expected(**fields: object) -> list[int]:
    rows = truth("clean").messages
    return [row["phyOffset"] for row in rows if all(row[key] == value for key, value in fields.items())]


def test_the_whole_log_as_json_lines() -> None:
    done = run("cat", "-s", store_path("clean"), "--json")
    assert (done.code, done.err) == (exit_codes.OK, "")
    assert [row["msg_id"] for row in done.objects] == [row["msgId"] for row in truth("clean").messages]


def test_options_become_filters() -> None:
    rows = truth("clean").messages
    assert offsets("-n", 7) == expected()[:7]
    assert offsets("-t", "OrderTopic", "-q", 2) == expected(topic="OrderTopic", queueId=2)
    assert offsets("--tag", "TagB") == expected(tags="TagB")
    unique = rows[9]["properties"]["UNIQ_KEY"]
    assert offsets("-k", unique) == [rows[9]["phyOffset"]]
    assert offsets("-o", rows[3]["phyOffset"], "--to", rows[6]["phyOffset"]) == expected()[3:6]
    begin, end = rows[100]["storeTimestamp"], rows[120]["storeTimestamp"]
    inside = [row["phyOffset"] for row in rows if begin <= row["storeTimestamp"] <= end]
    assert offsets("-b", begin, "-e", end) == inside
    assert (
        offsets("-t", "OrderTopic", "-q", 2, "--order", "queue", "-o", 4, "--to", 6)
        == expected(topic="OrderTopic", queueId=2)[4:6]
    )


def test_csv_has_every_column() -> None:
    done = run("cat", "-s", store_path("clean"), "-n", 5, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [int(row["physical_offset"]) for row in rows] == expected()[:5]
    assert {"msg_id", "properties", "body", "store_time"} <= rows[0].keys()


def test_a_table_shows_the_start_of_bodies() -> None:
    done = run("cat", "-s", store_path("clean"), "-n", 1)
    header, line = done.out.splitlines()
    assert "body" in header
    assert line.endswith("shipped user three")


def test_stored_bodies_only_where_they_differ() -> None:
    done = run("cat", "-s", store_path("features"), "--json", "--stored-bodies")
    with_stored = [row for row in done.objects if "stored_body_base64" in row]
    assert len(with_stored) == 24
    assert {row["compression"] for row in with_stored} == {"lz4", "zstd", "zlib"}


@pytest.mark.parametrize(("name", "count"), [("crc-flip-third", 2499), ("gap", 2196), ("torn-zero", 2499)])
def test_damage_is_told_and_passed(name: str, count: int) -> None:
    done = run("cat", "-s", store_path(name), "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert len(done.objects) == count
    assert done.err.count("damage:") == 1


def test_damage_is_not_told_without_end() -> None:
    done = run("cat", "-s", store_path("gap"), "--order", "queue", "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert done.err.count("damage:") == 21


def test_nothing_matched() -> None:
    done = run("cat", "-s", store_path("clean"), "-t", "OrderTopic", "-k", "no such key")
    assert (done.code, done.out) == (exit_codes.DAMAGE_OR_NOTHING, "")
    assert "no message matched" in done.err
    done = run("cat", "-s", store_path("clean"), "-t", "Nowhere")
    assert "no topic 'Nowhere'" in done.err


def test_a_queue_that_is_not_there_is_named() -> None:
    done = run("cat", "-s", store_path("clean"), "-t", "OrderTopic", "-q", 99)
    assert (done.code, done.out) == (exit_codes.DAMAGE_OR_NOTHING, "")
    assert "topic 'OrderTopic' has no queue 99" in done.err
    assert "its queues are 0, 1" in done.err
    done = run("cat", "-s", store_path("rocksdb"), "-t", truth("rocksdb").messages[0]["topic"], "-q", 99)
    assert (done.code, "has no queue 99" in done.err) == (exit_codes.DAMAGE_OR_NOTHING, True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("ls", "-t", "A", "--topic", "B"), "'-t' / '--topic' is given more than once"),
        (("cat", "-n", "1", "-n", "2"), "'-n' / '--limit' is given more than once"),
        (("query", "-t", "A", "-k", "a", "-k", "b"), "'-k' / '--key' is given more than once"),
        (("query", "-i", "A", "-i", "B"), "'-i' / '--id' is given more than once"),
        (("export", "a.jsonl", "--columns", "topic", "--columns", "body"), "'--columns' is given more than once"),
        (("cat", "--json", "--format", "csv"), "--json and --format csv contradict each other"),
        (("cat", "--format", "table", "--json"), "--json and --format table contradict each other"),
    ],
)
def test_what_contradicts_itself_is_refused(arguments: tuple[str, ...], named: str) -> None:
    done = run(*arguments, "-s", store_path("clean"))
    assert (done.code, done.out) == (exit_codes.USAGE, "")
    assert named in done.err


@pytest.mark.parametrize("verb", ["info", "serve", "recover"])
def test_a_store_without_its_option_is_told_how_it_is_named(verb: str, tmp_path: Path) -> None:
    for store in (tmp_path, "s3://bucket/store"):
        done = run(verb, store)
        assert (done.code, done.out) == (exit_codes.USAGE, "")
        assert f"unexpected argument '{store}': a store is named with -s" in " ".join(done.err.split())


def test_what_is_only_said_twice_is_fine() -> None:
    done = run("cat", "-s", store_path("clean"), "-n", 1, "--json", "--json", "--format", "json")
    assert (done.code, len(done.objects)) == (exit_codes.OK, 1)


def test_order_of_queues_in_a_rocksdb() -> None:
    rows = run("cat", "-s", store_path("rocksdb"), "--order", "queue", "--json").objects
    places = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows]
    assert len(places) == 384
    assert places == sorted(places)


def test_wrong_options() -> None:
    for wrong in (["--tag", "||"], ["-b", "soon"], ["-b", "2", "-e", "1"], ["-n", "0"], ["--order", "x"]):
        assert run("cat", "-s", store_path("clean"), *wrong).code == exit_codes.USAGE, wrong


def test_nothing_raw_reaches_the_terminal(golden_store: GoldenStore) -> None:
    from rmqctl.formats.checksums import body_crc

    store = golden_store("clean")
    path = store / "commitlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    evil = "\x1b[2J\u202eabc\n12345".encode()[:19].ljust(19, b".")
    data[88:107] = evil
    data[8:12] = body_crc(evil).to_bytes(4, "big")
    path.write_bytes(bytes(data))
    for how in ([], ["--json"]):
        done = run("cat", "-s", store, "-n", 1, *how)
        assert "\x1b" not in done.out
        assert "\u202e" not in done.out
    assert run("cat", "-s", store, "-n", 1, "--json").objects[0]["body"].encode() == evil
