"""`rmqctl query`."""

from __future__ import annotations

import json

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.files.layout import file_name
from tests.goldens import GoldenStore, truth
from tests.opened import store_path
from tests.rmqctl.damaging import damage_body
from tests.rmqctl.looking import run

ROW = truth("clean").messages[1234]
PLACE = ["-t", ROW["topic"], "-q", ROW["queueId"]]
CLEAN = store_path("clean")


def query(*arguments: object, name: str = "clean") -> list[int]:
    done = run("query", "-s", store_path(name), *arguments, "--json")
    assert done.code == exit_codes.OK, done.err
    return [row["physical_offset"] for row in done.objects]


def test_every_way_leads_to_the_message() -> None:
    unique = ROW["properties"]["UNIQ_KEY"]
    assert query("-o", ROW["phyOffset"]) == [ROW["phyOffset"]]
    assert query(*PLACE, "-o", ROW["queueOffset"]) == [ROW["phyOffset"]]
    assert query("-i", ROW["msgId"]) == [ROW["phyOffset"]]
    assert query("-i", ROW["msgId"].lower()) == [ROW["phyOffset"]]
    assert query("-i", unique) == [ROW["phyOffset"]]
    assert query("-i", unique, "-t", ROW["topic"]) == [ROW["phyOffset"]]
    assert query("-k", unique, "-t", ROW["topic"]) == [ROW["phyOffset"]]
    assert query("-k", unique) == [ROW["phyOffset"]]


def test_a_key_is_narrowed_by_tag_and_content_as_cat_narrows() -> None:
    """The limit counts what is left."""
    rows = [
        row
        for row in reversed(truth("clean").messages)
        if row["topic"] == "OrderTopic" and "hot" in (row["keys"] or "").split(" ")
    ]
    tags = sorted({row["tags"] for row in rows if row["tags"]})[:2]
    for words in (("--tag", tags[0]), ("--tag", " || ".join(tags)), ("--grep", f"TAGS={tags[1]}$")):
        expected = run("cat", "-s", CLEAN, "-t", "OrderTopic", "-k", "hot", *words, "--json").objects
        offsets = [row["physical_offset"] for row in reversed(expected)]
        assert 0 < len(offsets) < len(rows)
        assert query("-t", "OrderTopic", "-k", "hot", "-n", 10_000, *words) == offsets
        assert query("-t", "OrderTopic", "-k", "hot", "-n", 10_000, "--scan", *words) == offsets
        assert query("-t", "OrderTopic", "-k", "hot", "-n", 2, *words) == offsets[:2]


def test_what_narrows_a_key_and_finds_nothing_or_is_wrong() -> None:
    done = run("query", "-s", CLEAN, "-t", "OrderTopic", "-k", "hot", "--grep", "nowhere at all", "--tag", "x")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "has the key 'hot', --tag 'x', --grep 'nowhere at all'" in done.err
    for wrong in (["-k", "hot", "--grep", "("], ["-k", "hot", "--tag", "||"], ["-o", 0, "--grep", "x"]):
        assert run("query", "-s", CLEAN, *wrong).code == exit_codes.USAGE


def test_without_a_key_it_names_the_command_that_searches() -> None:
    for words in (["--tag", "TagA"], ["--grep", "x y"], ["-b", "2h ago"]):
        done = run("query", "-s", CLEAN, "-t", "OrderTopic", *words)
        assert done.code == exit_codes.USAGE
        assert "`rmqctl cat -t TOPIC --tag TAG --grep TEXT -b TIME -e TIME`" in done.err


def test_it_says_which_kind_of_id_it_was() -> None:
    assert "found by offset id" in run("query", "-s", CLEAN, "-i", ROW["msgId"]).err
    assert "found by unique key" in run("query", "-s", CLEAN, "-i", ROW["properties"]["UNIQ_KEY"]).err


def test_one_message_is_a_listing_with_all_of_it() -> None:
    done = run("query", "-s", CLEAN, "-o", ROW["phyOffset"])
    assert f"physical offset              {ROW['phyOffset']}" in done.out
    assert ROW["properties"]["UNIQ_KEY"] in done.out


def test_keys_newest_first_and_limited() -> None:
    rows = [
        row
        for row in reversed(truth("clean").messages)
        if row["topic"] == "OrderTopic" and "hot" in (row["keys"] or "").split(" ")
    ]
    found = query("-t", "OrderTopic", "-k", "hot")
    assert found == [row["phyOffset"] for row in rows][:32]
    assert query("-t", "OrderTopic", "-k", "hot", "-n", 3) == found[:3]
    end = rows[5]["storeTimestamp"]
    assert query("-t", "OrderTopic", "-k", "hot", "-e", end, "-n", 1) == [
        next(row["phyOffset"] for row in rows if row["storeTimestamp"] <= end)
    ]


def test_a_key_of_any_topic() -> None:
    every = [row["phyOffset"] for row in reversed(truth("clean").messages) if "hot" in (row["keys"] or "").split(" ")]
    assert query("-k", "hot", "-n", 10_000) == every


def test_several_messages_of_a_queue() -> None:
    rows = [row for row in truth("clean").messages if (row["topic"], row["queueId"]) == ("OrderTopic", 1)]
    assert query("-t", "OrderTopic", "-q", 1, "-o", 3, "-n", 4) == [row["phyOffset"] for row in rows[3:7]]


def test_queue_offsets_at_a_time() -> None:
    rows = truth("clean").messages
    times = {
        queue: [row["storeTimestamp"] for row in rows if (row["topic"], row["queueId"]) == ("OrderTopic", queue)]
        for queue in range(8)
    }
    moment = times[4][10]
    done = run("query", "-s", CLEAN, "-t", "OrderTopic", "--at", moment, "--json")
    assert [row["offset"] for row in done.objects] == [
        sum(time < moment for time in times[queue]) for queue in range(8)
    ]
    (row,) = run(
        "query", "-s", CLEAN, "-t", "OrderTopic", "-q", 4, "--at", moment, "--boundary", "upper", "--json"
    ).objects
    assert row["offset"] == sum(time <= moment for time in times[4]) - 1
    (row,) = run("query", "-s", CLEAN, "-t", "OrderTopic", "-q", 4, "--at", "now", "--json").objects
    assert (row["offset"], row["store_timestamp"], row["physical_offset"]) == (len(times[4]), None, None)


def test_without_an_index_a_scan_must_be_asked_for_and_is_said() -> None:
    row = truth("noindex").messages[7]
    unique = row["properties"]["UNIQ_KEY"]
    for how in (["-k", unique, "-t", row["topic"]], ["-i", unique]):
        done = run("query", "-s", store_path("noindex"), *how)
        assert done.code == exit_codes.DAMAGE_IN_THE_WAY
        assert "no index" in done.err
        assert "--scan" in done.err
        done = run("query", "-s", store_path("noindex"), *how, "--scan", "--json")
        assert done.code == exit_codes.OK
        assert [one["physical_offset"] for one in done.objects] == [row["phyOffset"]]
        assert "the whole commitlog is searched" in done.err


def test_a_damaged_index_is_damage_with_or_without_an_answer() -> None:
    unique = truth("clean").messages[-1]["properties"]["UNIQ_KEY"]
    topic = truth("clean").messages[-1]["topic"]
    done = run("query", "-s", store_path("index-garbage"), "-k", unique, "-t", topic, "--json")
    assert (done.code, done.out) == (exit_codes.DAMAGE_IN_THE_WAY, "")
    assert "hash slot" in done.err
    done = run("query", "-s", store_path("index-garbage"), "-k", unique, "-t", topic, "--json", "--scan")
    assert (done.code, len(done.objects)) == (exit_codes.OK, 1)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("clean", ["-o", 100], "inside the message of 223 bytes that starts at 0"),
        ("clean", ["-o", 99999999], "past the commitlog"),
        ("first-gone", ["-o", 0], "has expired"),
        ("gap", ["-o", 1048576], "file that held it is missing"),
        ("crc-flip-last", ["-o", 2106230], "body CRC"),
        ("clean", ["-i", "0" * 32], "no message has the id"),
        ("clean", ["-i", "not-an-id"], "no message has the id"),
        ("clean", ["-k", "nope", "-t", "OrderTopic"], "no message of topic 'OrderTopic' has the key 'nope'"),
        ("clean", ["-k", "nope", "-t", "Nowhere"], "no topic 'Nowhere'"),
        ("clean", ["-t", "OrderTopic", "-q", 1, "-o", 43], "OFFSET_OVERFLOW_ONE"),
        ("clean", ["-t", "OrderTopic", "-q", 99, "-o", 0], "no queue 99"),
        ("clean", ["-t", "Nowhere", "--at", "now"], "no topic 'Nowhere'"),
        ("crc-flip-third", ["-t", "topic-with-dash", "-q", 0, "-o", 281], "body CRC"),
    ],
)
def test_nothing_found_is_exit_code_1_and_damage_in_the_way_is_7(
    name: str, arguments: list[object], words: str
) -> None:
    done = run("query", "-s", store_path(name), *arguments)
    is_damaged = name in ("gap", "crc-flip-last", "crc-flip-third")
    assert (done.code, done.out) == (exit_codes.DAMAGE_IN_THE_WAY if is_damaged else exit_codes.DAMAGE_OR_NOTHING, "")
    assert words in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-t", "T"],
        ["-k", "a", "-i", "b"],
        ["-q", 1, "-o", 5],
        ["-t", "T", "-o", 5],
        ["-t", "T", "-q", 1, "-k", "a"],
        ["--at", "now"],
        ["-o", 5, "-b", "now"],
        ["-o", "-1"],
        ["-t", "T", "--at", "soon"],
    ],
)
def test_calls_that_make_no_sense(arguments: list[object]) -> None:
    assert run("query", "-s", CLEAN, *arguments).code == exit_codes.USAGE


def test_slots_of_a_first_file_of_no_bytes_are_not_called_expired(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "commitlog" / file_name(0)).write_bytes(b"")
    row = truth("clean").messages[0]
    topic, queue_id, place = row["topic"], row["queueId"], row["queueOffset"]
    done = run("query", "-s", store, "-t", topic, "-q", queue_id, "-o", place)
    assert (done.code, done.out) == (exit_codes.DAMAGE_IN_THE_WAY, "")
    assert f"commitlog/{file_name(0)} at offset {row['phyOffset']}: the commitlog file there has no bytes" in done.err
    where = run("where", "-s", store, topic, queue_id, place)
    assert (where.code, where.out) == (
        exit_codes.DAMAGE_IN_THE_WAY,
        "No message can be read there: the commitlog file there has no bytes.\n",
    )
    # a place that no slot has ever had
    done = run("query", "-s", store, "-t", topic, "-q", queue_id, "-o", 1 << 40)
    assert "OFFSET_OVERFLOW_BADLY" in done.err
    # what has expired with its file is still told so
    for verb in (["query", "-t", topic, "-q", queue_id, "-o", place], ["where", topic, queue_id, place]):
        done = run(verb[0], "-s", store_path("first-gone"), *verb[1:])
        assert "OFFSET_TOO_SMALL" in done.err or "The message has expired" in done.out


def test_a_damaged_offset_names_the_nearest_valid_messages(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    rows = truth("clean").messages
    before, damaged, after = rows[1233:1236]
    damage_body(store, damaged)
    done = run("query", "-s", store, "-o", damaged["phyOffset"])
    assert done.code != exit_codes.OK
    for side, row in (("before", before), ("after", after)):
        place = f"{row['topic']} queue {row['queueId']} offset {row['queueOffset']}, stored "
        assert f"nearest valid message {side}: {row['phyOffset']} ({place}" in done.err
    error = json.loads(run("query", "-s", store, "-o", damaged["phyOffset"], "--json").err.splitlines()[-1])
    assert error["nearest_before"]["physical_offset"] == before["phyOffset"]
    assert error["nearest_after"] == {
        "physical_offset": after["phyOffset"],
        "size": after["storeSize"],
        "topic": after["topic"],
        "queue_id": after["queueId"],
        "queue_offset": after["queueOffset"],
        "store_timestamp": after["storeTimestamp"],
    }
    unit = run("query", "-s", store, "-t", damaged["topic"], "-q", damaged["queueId"], "-o", damaged["queueOffset"])
    assert f"nearest valid message after: {after['phyOffset']}" in unit.err


def test_an_offset_in_and_behind_the_log_names_the_nearest_too() -> None:
    rows = truth("clean").messages
    last = rows[-1]["phyOffset"]
    inside = run("query", "-s", CLEAN, "-o", ROW["phyOffset"] + 1)
    assert f"nearest valid message before: {ROW['phyOffset']} (" in inside.err
    assert f"nearest valid message after: {rows[1235]['phyOffset']} (" in inside.err
    beyond = run("query", "-s", CLEAN, "-o", 1 << 40)
    assert beyond.code == exit_codes.DAMAGE_OR_NOTHING
    assert f"nearest valid message before: {last} (" in beyond.err
    assert "nearest valid message after: none up to offset" in beyond.err


def test_what_a_time_leaves_out_is_named() -> None:
    done = run("query", "-k", "pay-6", "-b", "2027-01-01", "-s", store_path("broker-real"))
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    count = sum(row["properties"].get("KEYS") == "pay-6" for row in truth("broker-real").messages)
    assert f"{count} messages with it, stored from 2026-11-20T23:48:52.861Z to 2026-11-20T23:49:18.507Z: -b" in done.err


def test_a_bare_word_is_answered_with_the_ways_to_ask_for_it() -> None:
    done = run("query", "pay-6", "-s", store_path("broker-real"))
    assert done.code == exit_codes.USAGE
    assert "did you mean `rmqctl query -k pay-6` or `rmqctl where pay-6`?" in done.err
