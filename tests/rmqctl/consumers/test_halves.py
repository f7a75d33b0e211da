"""`rmqctl halves`: chains of copies, ends, commits that the broker lost sight of, damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.output import outcome as exit_codes
from rmqctl.store import MessageStore
from rmqctl.store.answers.undispatched import HALF_TOPIC, OP_TOPIC, ended_offsets
from rmqctl.store.config.config_files import read_config
from tests.goldens import GoldenStore, truth
from tests.opened import reader, store_path
from tests.rmqctl.damaging import damage_body
from tests.rmqctl.looking import run


def _halves(name: str) -> dict[int, dict[str, Any]]:
    return {row["queueOffset"]: row for row in truth(name).messages if row["topic"] == HALF_TOPIC}


def test_those_without_an_end_are_the_last_copies() -> None:
    """The broker asked twelve times; each time it copied the half message, and only the last copy counts."""
    done = run("halves", "-s", store_path("broker-real"), "--json")
    assert done.code == exit_codes.OK
    offsets = read_config(store_path("broker-real") / "config" / "consumerOffset.json")["offsetTable"]
    begin = offsets[f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS"][0]
    stored = _halves("broker-real")
    last = {row["properties"]["UNIQ_KEY"]: offset for offset, row in sorted(stored.items())}
    expected = sorted(offset for offset in last.values() if offset >= begin)
    assert 0 < len(expected) < len(stored)
    assert [row["queue_offset"] for row in done.objects] == expected
    for row in done.objects:
        half = stored[row["queue_offset"]]
        assert (row["checks"], row["producer_group"]) == (int(half["properties"]["TRANSACTION_CHECK_TIMES"]), "p-tx")
        assert (row["target_topic"], row["born_timestamp"]) == ("Pay", half["bornTimestamp"])
        assert row["age_ms"] > 0


def test_a_commit_that_the_broker_does_not_know_of_is_told() -> None:
    """A commit of an earlier copy: the message is there, and the broker asks for the later copy all the same."""
    rows = run("halves", "-s", store_path("broker-real"), "--json").objects
    committed = {row["properties"]["UNIQ_KEY"] for row in truth("broker-real").messages if row["topic"] == "Pay"}
    assert {row["unique_key"] for row in rows if row["state"] == "committed"} == committed & {
        row["unique_key"] for row in rows
    }
    # and so with what was rolled back: the one mark names first copies and later ones
    with MessageStore.open(store_path("broker-real"), "r") as opened:
        (op,) = [row for row in truth("broker-real").messages if row["topic"] == OP_TOPIC]
        ended = ended_offsets(opened.message_at(op["phyOffset"]).body)
    keys = {_halves("broker-real")[offset]["properties"]["UNIQ_KEY"] for offset in ended} - committed
    assert {row["unique_key"] for row in rows if row["state"] == "ended"} == keys & {row["unique_key"] for row in rows}
    assert {row["state"] for row in rows} == {"committed", "ended", "expired"}


def test_what_has_an_end_is_not_listed() -> None:
    """Without consumer offsets all is looked at: commits and rollbacks have their marks."""
    ended: set[int] = set()
    with MessageStore.open(store_path("features"), "r") as opened:
        for row in truth("features").messages:
            if row["topic"] == OP_TOPIC:
                ended.update(ended_offsets(opened.message_at(row["phyOffset"]).body))
    rows = run("halves", "-s", store_path("features"), "--json").objects
    assert {row["queue_offset"] for row in rows} == _halves("features").keys() - ended
    assert len(rows) == 6
    assert {row["state"] for row in rows} == {"expired"}


def test_a_broker_gives_up_what_is_older_than_it_keeps_files(tmp_path: Path) -> None:
    """TransactionalMessageServiceImpl#needSkip: with 72 hours the real 5.5.0 moves all six and asks nobody,
    with 1,000,000 it asks about each 15 times."""
    store, conf = store_path("features"), tmp_path / "broker.conf"
    newest = max(row["bornTimestamp"] for row in _halves("features").values())
    with MessageStore.open(store, "r") as opened:
        assert {one.state for one in opened.halves(now=newest + 71 * 3_600_000)} == {"pending"}
        assert {one.state for one in opened.halves(now=newest + 73 * 3_600_000)} == {"expired"}
    conf.write_text("fileReservedTime=1000000\n")
    rows = run("halves", "-s", store, "-c", conf, "--json").objects
    assert [row["state"] for row in rows] == ["pending"] * 6


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_a_broker_gives_up_what_it_asked_for_too_often(most: int, tmp_path: Path) -> None:
    """TransactionalMessageServiceImpl#needDiscard: a copy that says how often producers were asked, transactionCheckMax
    times or more."""
    with MessageStore.open(tmp_path / "s", "rw", create=True) as store:
        for asked in ("2", "3", None):
            known = {} if asked is None else {"TRANSACTION_CHECK_TIMES": asked}
            properties = {"UNIQ_KEY": f"key-{asked}", "REAL_TOPIC": "Paid", "REAL_QID": "0", "PGROUP": "p"} | known
            store.put(Message(HALF_TOPIC, b"", properties=properties))
    (tmp_path / "broker.conf").write_text(f"transactionCheckMax={most}\n")
    rows = run("halves", "-s", tmp_path / "s", "-c", tmp_path / "broker.conf", "--json").objects
    assert [row["state"] for row in rows] == ["expired" if n >= most else "pending" for n in (2, 3)] + ["pending"]
    for row in rows[:2]:
        found = run("where", row["unique_key"], "-s", tmp_path / "s", "-c", tmp_path / "broker.conf").out
        assert ("transactionCheckMax" in found) == (row["state"] == "expired")


def test_who_has_asked_more_often_than_is_usual_has_another_limit(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", create=True) as store:
        for asked in ("14", "15", "16"):
            properties = {"UNIQ_KEY": asked, "REAL_TOPIC": "Paid", "REAL_QID": "0", "PGROUP": "p"}
            store.put(Message(HALF_TOPIC, b"", properties=properties | {"TRANSACTION_CHECK_TIMES": asked}))
    rows = run("halves", "-s", tmp_path / "s", "--json").objects
    assert [(row["checks"], row["state"]) for row in rows] == [(14, "pending"), (15, "expired"), (16, "pending")]


@pytest.mark.parametrize("offsets", [(1000, 1000), (1000, 14), (20, 1000), (20, None), (None, 14)])
def test_offsets_that_cannot_be_hide_nothing(golden_store: GoldenStore, offsets: tuple[int | None, int | None]) -> None:
    """One of them alone says nothing either: what ended the half messages looked at may stand before the other."""
    store = golden_store("features")
    (store / "config").mkdir(exist_ok=True)
    table = {
        f"{topic}@CID_RMQ_SYS_TRANS": {"0": offset}
        for topic, offset in zip((HALF_TOPIC, OP_TOPIC), offsets, strict=True)
        if offset is not None
    }
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}), encoding="utf-8")
    done = run("halves", "-s", store, "--json")
    assert ("past the end" in done.err) == (1000 in offsets)
    assert len(done.objects) == 6


def test_damage_is_neither_an_end_nor_its_absence(golden_store: GoldenStore) -> None:
    store = golden_store("features")
    damage_body(store, _halves("features")[2])
    done = run("halves", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert [row["state"] for row in done.objects] == ["damaged", *["expired"] * 5]
    op = next(row for row in truth("features").messages if row["topic"] == OP_TOPIC)
    whole = (ended_offsets(reader("features").lookup(op["phyOffset"]).body), len(done.objects))
    damage_body(store, op)
    done = run("halves", "-s", store, "--json")
    # what the damaged mark ended is listed again, and of none it is said that it is pending
    assert len(done.objects) == whole[1] + len(whole[0])
    assert {row["state"] for row in done.objects} <= {"unknown", "damaged", "committed"}


def test_an_old_mark_that_is_damaged_leaves_it_unknown(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (op,) = [row for row in truth("broker-real").messages if row["topic"] == OP_TOPIC]
    damage_body(store, op)
    done = run("halves", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert {row["state"] for row in done.objects} == {"committed", "unknown"}


def test_without_an_index_commits_are_not_guessed(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    shutil.rmtree(store / "index")
    done = run("halves", "-s", store, "--json")
    assert "there is no index" in done.err
    assert {row["state"] for row in done.objects} == {"expired"}


def test_none() -> None:
    done = run("halves", "-s", store_path("clean"))
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "no transaction is without its end" in done.err
