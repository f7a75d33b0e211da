"""`rmqctl dlq list`: where dead letters came from and when they were given up, as real clients left them; damage."""

from __future__ import annotations

from rmqctl.output import outcome as exit_codes
from tests.goldens import GoldenStore, truth
from tests.opened import reader, store_path
from tests.rmqctl.damaging import damage_body
from tests.rmqctl.looking import run

TOPIC = "%DLQ%g-retry"


def test_each_leads_back_to_the_message_that_it_was() -> None:
    done = run("dlq", "list", "-s", store_path("broker-real"), "--json")
    assert done.code == exit_codes.OK
    stored = {row["queueOffset"]: row for row in truth("broker-real").messages if row["topic"] == TOPIC}
    assert [row["queue_offset"] for row in done.objects] == sorted(stored)
    assert len(stored) == 33
    for row in done.objects:
        dead = stored[row["queue_offset"]]
        assert (row["group"], row["attempts"]) == ("g-retry", dead["reconsumeTimes"])
        assert row["last_attempt_timestamp"] == dead["storeTimestamp"]
        (origin,) = reader("broker-real").find(row["origin_id"]).messages
        assert (origin.topic, origin.properties()["UNIQ_KEY"]) == (row["origin_topic"], row["unique_key"])
        assert origin.body == reader("broker-real").lookup(row["physical_offset"]).body


def test_by_group_and_by_topic() -> None:
    store = store_path("broker-real")
    for arguments, count in ((("-g", "g-retry", "-t", "Events"), 33), (("-g", "g-pay"), 0), (("-t", "Pay"), 0)):
        done = run("dlq", "list", "-s", store, "--json", *arguments)
        assert len(done.objects) == count
        assert done.code == (exit_codes.OK if count else exit_codes.DAMAGE_OR_NOTHING)


def test_a_damaged_one_is_listed_as_damaged(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    row = next(row for row in truth("broker-real").messages if row["topic"] == TOPIC and row["queueOffset"] == 4)
    damage_body(store, row)
    done = run("dlq", "list", "-s", store, "-t", "Events", "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    states = [one["state"] for one in done.objects]
    assert states == [*["dead"] * 4, "damaged", *["dead"] * 28]


def test_only_list_is_known() -> None:
    done = run("dlq", "redrive", "-s", store_path("broker-real"))
    assert done.code == exit_codes.USAGE
