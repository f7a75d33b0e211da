"""The key index that RocketMQ 5.5.0 had not uploaded yet when it was killed: its slots and chains lead to every message
that the uploaded files do not name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.layouts import LOCAL_TIERED_INDEX_ITEM, TIERED_INDEX_HEADER
from rmqctl.store.check.check import check
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.options import UNHEARD
from rmqctl.store.read.tiered import tiered_storage
from rmqctl.store.read.tiered_index import LOCAL, LocalIndex, local_index, local_indexes, messages_with_key
from rmqctl.store.store_files import StoreFiles
from tests.goldens import LogGolden, log_golden, tree_state
from tests.rmqctl.looking import run

_ITEM = LOCAL_TIERED_INDEX_ITEM.size


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> LogGolden:
    return log_golden("v55-tiered-crash", tmp_path_factory.mktemp("tiered-crash"))


@pytest.fixture
def store(golden: LogGolden, tmp_path: Path) -> Path:
    return golden.copied_to(tmp_path / "store")


def _file(store: Path) -> Path:
    (path,) = (one for one in (store / LOCAL).iterdir() if one.is_file())
    return path


def _places(golden: LogGolden) -> dict[tuple[str, str], set[tuple[int, int]]]:
    """Queue id and queue offset of the messages with each key of each topic."""
    found: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for row in golden.rows("msg"):
        properties = row["properties"]
        keys = {properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")} - {None, ""}
        for key in keys if row["topic"] != "TBW102" else ():
            found.setdefault((row["topic"], key), set()).add((row["queueId"], row["queueOffset"]))
    return found


def _answers(store: Path, keys: list[tuple[str, str]]) -> list[set[tuple[int, int]]]:
    with StoreFiles(store) as files:
        storage = tiered_storage(files, UNHEARD)
        found = [messages_with_key(storage, topic, key, UNHEARD) for topic, key in keys]
    return [{(one.queue_id, one.queue_offset) for one in messages} for messages in found]


def test_every_key_leads_to_its_messages(golden: LogGolden) -> None:
    before, places = tree_state(golden.store), _places(golden)
    assert _answers(golden.store, list(places)) == list(places.values())
    assert tree_state(golden.store) == before


def test_without_the_files_in_the_store_messages_are_missing(golden: LogGolden, store: Path) -> None:
    _file(store).unlink()
    places = _places(golden)
    assert _answers(store, list(places)) != list(places.values())


def test_the_file_is_dumped_listed_and_counted(store: Path) -> None:
    path = _file(store)
    items = run("dump", path, "--json").objects
    kinds = [one["kind"].removeprefix("local tiered index ") for one in items]
    assert (kinds.count("header"), kinds.count("slot"), kinds.count("item")) == (1, 31, 52)
    assert [one["position"] for one in items if one["kind"].endswith("item")] == list(range(1, 53))
    assert {one["damage"] for one in items} == {None}
    from_the_40th = run("dump", path, "--at", items[-13]["offset"], "--json").objects
    assert [one["position"] for one in from_the_40th] == list(range(40, 53))
    (row,) = (row for row in run("ls", "-s", store, "--files", "--json").objects if row["path"].startswith(LOCAL))
    assert (row["kind"], row["readable"]) == ("localtieredindex", True)
    (info,) = run("info", "-s", store, "--json").objects
    assert info["tiered_index"] == {"files": 1, "items": 52, "problems": []}
    path.write_bytes(b"\xbc\xc5")
    done = run("info", "-s", store, "--json")
    assert (done.code, len(done.objects[0]["tiered_index"]["problems"])) == (1, 1)


@pytest.mark.parametrize("space", [(1, 8), (37, 5), (50, 1000), (5000, 300)])
def test_the_number_of_slots_follows_from_the_file(tmp_path: Path, space: tuple[int, int]) -> None:
    """No field says it; the last byte of the data belongs to the last item, or to one that was about to be counted."""
    slots, most = space
    for items in range(1, min(most, 7)):
        for torn in (0, 1):
            path = tmp_path / f"{items}{torn}"
            path.write_bytes(_made(slots, most, items, torn))
            found = local_index(path, path.stat().st_size, Descriptors())
            assert (found.slots, found.items, found.begin, found.used) == (slots, items, 7, min(slots, items))


def _made(slots: int, most: int, items: int, torn: int) -> bytes:
    newest = [0] * slots
    rows = bytes(_ITEM)
    for number in range(1, items + torn + 1):
        hashed = number * 7919
        rows += LOCAL_TIERED_INDEX_ITEM.struct.pack(hashed, 0, 0, number - 1, 100, 0, newest[hashed % slots])
        newest[hashed % slots] = number if number <= items else newest[hashed % slots]
    used = sum(map(bool, newest))
    head = TIERED_INDEX_HEADER.struct.pack(0xBCC50289, 7, 0, used, items)
    return head + b"".join(one.to_bytes(4, "big") + bytes(4) for one in newest) + rows.ljust((most + 2) * _ITEM, b"\0")


def _codes(store: Path) -> set[str]:
    with StoreFiles(store) as files:
        return {finding.code for finding in check(files) if "-TIER-" in finding.code}


def test_what_was_left_is_sound(golden: LogGolden) -> None:
    assert _codes(golden.store) == set()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 6))])
def test_each_flipped_byte_is_found_or_changes_no_answer(golden: LogGolden, store: Path, seed: int) -> None:
    lot, path = random.Random(seed), _file(store)
    keys = lot.sample(sorted(_places(golden)), 40)
    old, whole = path.read_bytes(), _answers(store, keys)
    with StoreFiles(store) as files:
        (index,) = local_indexes(files, UNHEARD)
    for at in [*range(0, 28, 5), *lot.sample(range(28, index.item_at(index.items + 1)), 24)]:
        path.write_bytes(old[:at] + bytes([old[at] ^ 1 << lot.randrange(8)]) + old[at + 1 :])
        codes = _codes(store)
        assert codes <= {"RMQ-TIER-007"}
        assert codes or _answers(store, keys) == whole, at


def test_a_chain_that_leads_in_a_circle_ends(golden: LogGolden, store: Path) -> None:
    path = _file(store)
    with StoreFiles(store) as files:
        (index,) = local_indexes(files, UNHEARD)
    data = bytearray(path.read_bytes())
    for number in range(1, index.items + 1):
        data[index.item_at(number) + 28 : index.item_at(number + 1)] = number.to_bytes(4, "big")
    path.write_bytes(data)
    _answers(store, list(_places(golden))[:20])
    assert _codes(store) == {"RMQ-TIER-007"}
    damaged = [one for one in run("dump", path, "--json").objects if one["damage"]]
    assert len(damaged) == index.items


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: data[:20], "less than the head"),
        (lambda data: b"\0\0\0\1" + data[4:], "magic code"),
        (lambda data: data[:24] + b"\x7f\xff\xff\xff" + data[28:], "fits no index"),
        (lambda data: data[:20] + b"\0\0\0\1" + data[24:], "in use"),
        (lambda data: data[:4] + bytes(8) + data[12:], "begun at 0"),
        (lambda data: data[:300], "fits no index"),
    ],
)
def test_a_head_that_cannot_be_is_named(store: Path, change: Any, text: str) -> None:
    path = _file(store)
    path.write_bytes(change(path.read_bytes()))
    found = [row for row in run("check", "-s", store, "--json").objects if row.get("code") == "RMQ-TIER-007"]
    assert [text in row["message"] for row in found][:1] == [True]
    assert Path(found[0]["file"]) == path.relative_to(store)


def test_a_wrong_time_of_an_item_is_named(store: Path) -> None:
    """Its message is found by the key, and not by key and time."""
    path = _file(store)
    with Descriptors() as descriptors:
        at = local_index(path, path.stat().st_size, descriptors).item_at(1) + LOCAL_TIERED_INDEX_ITEM.offset(
            "time_difference"
        )
    data = bytearray(path.read_bytes())
    data[at + 2] ^= 1
    path.write_bytes(data)
    (found,) = [row for row in run("check", "-s", store, "--json").objects if row.get("code") == "RMQ-TIER-007"]
    assert "1 item of " in found["message"]
    assert "s after the file was begun, not" in found["message"]


def test_an_empty_file_is_sound(store: Path) -> None:
    path = _file(store)
    path.write_bytes(TIERED_INDEX_HEADER.struct.pack(0xBCC50289, int(path.name), 0, 0, 0) + bytes(6800))
    assert _codes(store) == set()
    with StoreFiles(store) as files:
        assert list(local_indexes(files, UNHEARD)) == [LocalIndex(path, 6828, int(path.name), 0, 0, 0)]
