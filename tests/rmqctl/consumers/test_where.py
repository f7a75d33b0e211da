"""`rmqctl where`: what it prints, exit codes, and that what other verbs print can be asked for."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import visible
from rmqctl.store.answers.steps import Stage, Verdict
from tests.goldens import GoldenStore, truth
from tests.opened import store_path
from tests.rmqctl.damaging import damage_body
from tests.rmqctl.looking import run

STORE = store_path
KEYS = (("evt-2",), ("pay-0",), ("pay-1",), ("later-0",), ("later-5",), ("timer-5",), ("audit-3",))
_FIELDS = {"stage", "state", "detail", "topic", "queue_id", "queue_offset", "physical_offset", "timestamp", "group"}


def test_for_people() -> None:
    done = run("where", "-s", STORE("broker-real"), "evt-2")
    assert done.code == exit_codes.OK
    first, *rest = done.out.splitlines()
    assert first == (
        "Events 4 0 is stored and in its queue; g-events has read past it; g-retry gave it up (%DLQ%g-retry 0 9)."
    )
    stages = [line.split()[0] for line in rest if not line.startswith("  id:")]
    assert stages[-9:] == ["stored", "queue", "index", "group", "group", "retry", "retry", "dead", "expiry"]


def test_what_is_not_there_comes_with_what_to_do_next() -> None:
    """Such as for the id of a broker whose messages were moved here."""
    done = run("where", "-s", STORE("broker-real"), "0A000001000098650000000000000222")
    assert (done.code, done.out.startswith("There is no message")) == (exit_codes.DAMAGE_OR_NOTHING, True)
    assert "`rmqctl query -o 546` shows that message" in done.err
    damaged = run("where", "-s", STORE("crc-flip-third"), "1695806")
    assert "rmqctl dump" in damaged.err


def test_for_scripts() -> None:
    (row,) = run("where", "-s", STORE("broker-real"), "evt-2", "-g", "g-retry", "-g", "nobody", "--json").objects
    assert (row["state"], row["found_by"], row["topic"], row["queue_id"], row["queue_offset"]) == (
        "dead",
        "key",
        "Events",
        4,
        0,
    )
    assert [(one["group"], one["state"]) for one in row["groups"]] == [("g-retry", "dead"), ("nobody", "unknown")]
    assert all(step.keys() >= _FIELDS for step in row["evidence"])
    assert [step["distance"] for step in row["evidence"] if step["stage"] == "group"] == [-25, None]
    csv = run("where", "-s", STORE("broker-real"), "evt-2", "--format", "csv").out.splitlines()
    assert csv[0].startswith("asked,found_by,state,sentence,topic")
    assert len(csv) == 2


def _shown(*arguments: object) -> dict[str, Any]:
    """The first row that a verb prints."""
    row: dict[str, Any] = run(arguments[0], *arguments[1:], "-s", STORE("broker-real"), "--json").objects[0]
    return row


def test_what_other_verbs_print_can_be_asked_for() -> None:
    cat, letter = _shown("cat", "-t", "Orders"), _shown("dlq", "list")
    behind, half = _shown("groups", "-g", "g-events"), _shown("halves")
    for words in (
        (cat["physical_offset"],),
        (cat["msg_id"],),
        (cat["unique_key"],),
        (cat["topic"], cat["queue_id"], cat["queue_offset"]),
        (letter["origin_id"],),
        (letter["physical_offset"],),
        ("%DLQ%" + letter["group"], letter["queue_id"], letter["queue_offset"]),
        (behind["topic"], behind["queue_id"], behind["offset"]),
        (half["unique_key"],),
        (half["physical_offset"],),
    ):
        done = run("where", "-s", STORE("broker-real"), *words, "--json")
        assert done.code == exit_codes.OK, words
        assert len(done.objects) == 1, words


@pytest.mark.parametrize(
    ("words", "code", "state"),
    [
        (["never-seen"], exit_codes.DAMAGE_OR_NOTHING, "absent"),
        (["5"], exit_codes.DAMAGE_OR_NOTHING, "absent"),
        (["evt-2", "-t", "Orders"], exit_codes.DAMAGE_OR_NOTHING, "absent"),
        (["Events", "4", "99"], exit_codes.DAMAGE_OR_NOTHING, "absent"),
        (["0", "--by", "key"], exit_codes.DAMAGE_OR_NOTHING, "absent"),
        (["0", "--by", "offset"], exit_codes.OK, "read"),
    ],
)
def test_exit_codes(words: list[str], code: int, state: str) -> None:
    done = run("where", "-s", STORE("broker-real"), *words, "--json")
    assert (done.code, done.objects[0]["state"]) == (code, state)


@pytest.mark.parametrize(
    "words", [[], ["a", "b"], ["Events", "x", "0"], ["evt-2", "--tag", "a"], ["evt-2", "--by", "offset"]]
)
def test_what_names_nothing_is_a_usage_error(words: list[str]) -> None:
    assert run("where", "-s", STORE("broker-real"), *words).code == exit_codes.USAGE


def test_damage_is_an_answer_and_an_exit_code(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    row = next(row for row in truth("broker-real").messages if row["topic"] == "Orders")
    damage_body(store, row)
    done = run("where", "-s", store, row["phyOffset"], "--json")
    assert (done.code, done.objects[0]["state"]) == (exit_codes.DAMAGE_IN_THE_WAY, "damaged")
    assert "damage: " in done.err
    assert not done.objects[0]["msg_id"]


def test_lines_fit_a_terminal() -> None:
    from rmqctl.reports import consumers as whereabouts
    from tests.opened import reader
    from tests.store.answers.where.asking import ask

    lines = whereabouts.whereabouts_lines(ask(reader("broker-real"), "evt-2").one, 80)
    assert max(map(len, lines)) <= 80
    assert all(visible(line) == line for line in lines)


def test_help_names_every_state() -> None:
    text = run("where", "--help").out
    stages = dict(re.findall(r"^    ([a-z]+)   +((?:[a-z-]+, )*[a-z-]+)$", text, re.MULTILINE))
    assert stages.keys() == {str(stage) for stage in Stage}
    assert all(re.search(rf"^    .*\b{state}\b", text, re.MULTILINE) for state in Verdict)
    store = STORE("broker-real")
    seen = set()
    for words in (*KEYS, ("5",), ("Events", "2", "25")):
        for row in run("where", "-s", store, *words, "-g", "g-retry", "-g", "x", "--tag", "Tag2", "--json").objects:
            seen |= {(step["stage"], step["state"]) for step in row["evidence"]}
    assert len(seen) > 15
    assert all(state in stages[stage].split(", ") for stage, state in seen)


def test_groups_by_tag() -> None:
    """The unread messages of the tags that a group takes, counted by the messages themselves."""
    rows = run("groups", "-s", STORE("broker-real"), "-g", "g-retry", "-t", "Events", "--tag", "Tag1||Tag2", "--json")
    tags = {
        (row["queueId"], row["queueOffset"]): row["tags"]
        for row in truth("broker-real").messages
        if row["topic"] == "Events"
    }
    for row in rows.objects:
        unread = [tags[row["queue_id"], offset] for offset in range(row["offset"], row["max_offset"])]
        assert row["tagged_lag"] == sum(tag in ("Tag1", "Tag2") for tag in unread)
        assert json.dumps(row["tags"]) == '"Tag1||Tag2"'
    plain = run("groups", "-s", STORE("broker-real"), "-g", "g-retry", "--json").objects
    assert {(row["tags"], row["tagged_lag"]) for row in plain} == {(None, None)}
    assert run("groups", "-s", STORE("broker-real"), "--tag", "a").code == exit_codes.USAGE
