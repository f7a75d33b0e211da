"""Lookups by physical offset and by ids: what is found, and what exactly is said where nothing is."""

from __future__ import annotations

import shutil
import sys

import pytest

from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError
from rmqctl.formats.message import parse_offset_message_id
from rmqctl.store.read.frames import store_time_at
from rmqctl.store.read.query import NotIndexedError, lookup_offset_id, may_be_offset_id
from rmqctl.store.read.reader import BY_OFFSET_ID, BY_UNIQUE_KEY, StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, base_of, truth
from tests.opened import reader, store_path
from tests.processes import run
from tests.quick import goldens_of

UNIQUE = "UNIQ_KEY"


@pytest.mark.parametrize("name", goldens_of(name for name in GOLDENS if base_of(name) is None))
def test_every_message_is_found_by_its_offset_id(name: str) -> None:
    for row in truth(name).messages[::5]:
        message = reader(name).find(row["msgId"])
        assert (message.how, message.topics, message.is_whole) == (BY_OFFSET_ID, 0, False)
        assert message.messages[0].physical_offset == row["phyOffset"]
        assert parse_offset_message_id(row["msgId"])[1] == row["phyOffset"]


@pytest.mark.parametrize("name", ["clean", "v4-clean", "features", "broker-real", "lmq", "longtopic"])
def test_every_message_is_found_by_its_unique_key(name: str) -> None:
    by_key: dict[str, list[int]] = {}
    for row in truth(name).messages:
        if row["sysFlag"] & 0xC != 0xC and UNIQUE in row["properties"]:
            by_key.setdefault(row["properties"][UNIQUE], []).insert(0, row["phyOffset"])
    for key, offsets in list(by_key.items())[::11]:
        result = reader(name).find(key)
        assert result.how == BY_UNIQUE_KEY
        assert [message.physical_offset for message in result.messages] == offsets, key


def test_a_unique_key_that_many_messages_have_finds_them_all() -> None:
    counted: dict[str, int] = {}
    for row in truth("broker-real").messages:
        key = row["properties"].get(UNIQUE)
        if key:
            counted[key] = counted.get(key, 0) + 1
    key = max(counted, key=lambda one: counted[one])
    assert counted[key] > 1
    assert len(reader("broker-real").find(key).messages) == counted[key]


def _error(name: str, offset: int) -> tuple[type[Exception], str]:
    with pytest.raises((NotFoundError, CorruptError)) as caught:
        reader(name).lookup(offset)
    return caught.type, str(caught.value)


def test_inside_another_message() -> None:
    kind, text = _error("clean", 100)
    assert kind is NotFoundError
    assert "inside the message of 223 bytes that starts at 0" in text


def test_in_the_filler_at_a_file_s_end() -> None:
    blank = truth("clean").blanks[0]
    for offset in (blank["phyOffset"], blank["phyOffset"] + 50):
        kind, text = _error("clean", offset)
        assert kind is NotFoundError
        assert f"blank frame at the end of its file, which starts at {blank['phyOffset']}" in text


def test_behind_the_last_message() -> None:
    end = truth("clean").summary["maxPhy"]
    kind, text = _error("clean", end)
    assert kind is NotFoundError
    assert f"messages end at {end}" in text
    for offset in (reader("clean").files.log.max_offset, 1 << 40):
        assert "past the commitlog" in _error("clean", offset)[1]
    assert _error("clean", -1)[0] is NotFoundError


def test_before_the_first_file() -> None:
    kind, text = _error("first-gone", 0)
    assert kind is NotFoundError
    assert "begins at 524288" in text


def test_in_a_gap() -> None:
    kind, text = _error("gap", 1048576)
    assert kind is CorruptError
    assert "missing" in text


def test_in_a_file_that_is_cut_short() -> None:
    kind, text = _error("short-middle", 524288 + 200000)
    assert kind is CorruptError
    assert "cut short" in text
    lost = max(row["phyOffset"] for row in truth("clean").messages if row["phyOffset"] < 524288 + 150000)
    assert _error("short-middle", lost)[0] is CorruptError


@pytest.mark.parametrize(
    ("name", "offset", "words"),
    [
        ("crc-flip-last", 2106230, "body CRC"),
        ("crc-flip-third", 1695806, "body CRC"),
        ("v4-crc-flip-old", 402371, "body CRC"),
        ("torn-zero", 2135296, "add up"),
        ("tail-garbage-clean", 2135612, "magic"),
    ],
)
def test_a_damaged_message(name: str, offset: int, words: str) -> None:
    kind, text = _error(name, offset)
    assert kind is CorruptError
    assert words in text
    # and anywhere inside it
    assert _error(name, offset + 60)[0] is CorruptError


def test_no_log_at_all() -> None:
    assert _error("log-gone", 0)[0] is CorruptError


def test_the_store_time_alone_is_that_of_a_frame_s_head() -> None:
    log, rows = reader("clean").files.log, truth("clean").messages
    assert rows[0]["phyOffset"] == 0
    for row in rows[:3]:
        assert store_time_at(log, row["phyOffset"]) == row["storeTimestamp"]
    assert (store_time_at(log, -1), store_time_at(log, 1)) == (None, None)
    first = next(row for row in rows if row["queueOffset"] == 0)
    place = (first["topic"], first["queueId"])
    assert [reader("clean").store_time(*place, offset) for offset in (0, -1)] == [first["storeTimestamp"], -1]


def test_a_malformed_id() -> None:
    with pytest.raises(UsageError, match="malformed"):
        lookup_offset_id(reader("clean").files, "7F00")


def test_an_id_of_another_broker_is_not_of_this_store() -> None:
    own = truth("clean").messages[0]["msgId"]
    other = "0A000001" + own[8:]
    with pytest.raises(NotFoundError, match=r"of broker 10\.0\.0\.1:10911"):
        reader("clean").find(other)
    # that there is no index either says less
    own = truth("noindex").messages[0]["msgId"]
    with pytest.raises(NotFoundError, match=r"of broker 10\.0\.0\.1:10911"):
        reader("noindex").find("0A000001" + own[8:])


@pytest.mark.parametrize(("port", "may_be"), [(0, False), (1, True), (65535, True), (65536, False)])
def test_an_id_whose_port_there_is_may_be_an_offset_id(port: int, may_be: bool) -> None:
    assert may_be_offset_id(reader("clean").files, f"0A000001{port:08X}{0:016X}") == may_be


def test_an_offset_id_of_a_damaged_message_is_damage() -> None:
    row = next(one for one in truth("clean").messages if one["phyOffset"] == 2106230)
    with pytest.raises(CorruptError):
        reader("crc-flip-last").find(row["msgId"])


def test_a_unique_key_without_an_index_needs_a_scan() -> None:
    row = truth("noindex").messages[7]
    key = row["properties"][UNIQUE]
    with pytest.raises(NotIndexedError):
        reader("noindex").find(key)
    result = reader("noindex").find(key, scan=True)
    assert result.is_whole
    assert [message.physical_offset for message in result.messages] == [row["phyOffset"]]


def test_a_unique_key_in_a_store_with_rocksdb_queues() -> None:
    row = truth("rocksdb").messages[7]
    key = row["properties"][UNIQUE]
    look = reader("rocksdb")
    for result in (look.find(key), look.find(key, row["topic"]), look.find(key, scan=True)):
        assert [message.physical_offset for message in result.messages] == [row["phyOffset"]]


def test_an_id_that_nobody_has() -> None:
    assert reader("clean").find("F" * 32).messages == []


def test_an_unreadable_file_is_neither_absent_nor_damaged(golden_store: GoldenStore) -> None:
    from rmqctl.formats.errors import UnreadableError
    from rmqctl.store.read.reader import StoreReader
    from rmqctl.store.store_files import StoreFiles

    store = golden_store("clean")
    with StoreFiles(store) as files:
        look = StoreReader(files)
        assert look.files.log.files
        path = look.files.log.files[0].path
        path.unlink()
        path.mkdir()  # what is gone would be a cleaner's work
        with pytest.raises(UnreadableError) as caught:
            look.lookup(0)
        assert caught.value.file == str(path)


def test_a_lookup_by_physical_offset_loads_nothing_heavy() -> None:
    offset = truth("clean").messages[3]["phyOffset"]
    program = (
        "import sys; from pathlib import Path; from rmqctl.store.store_files import StoreFiles;"
        "from rmqctl.store.read.reader import StoreReader;"
        f"m = StoreReader(StoreFiles(Path({str(store_path('clean'))!r}))).lookup({offset});"
        "print(m.topic, sorted({'numpy', 'construct', 'rich', 'click', 'crcmod'} & sys.modules.keys()))"
    )
    done = run([sys.executable, "-c", program], check=True)
    assert done.stdout.split() == [truth("clean").messages[3]["topic"], "[]"]


@pytest.mark.parametrize("ip", ["0A000001", "FE80" + "0" * 27 + "1"])
def test_an_offset_that_is_in_the_log_may_be_that_of_an_id(ip: str) -> None:
    files = reader("clean").files
    end = files.log.max_offset
    offsets = {0: True, 1: True, end - 1: True, end: False, end + 1: False, (1 << 64) - 1: False}
    for offset, may_be in offsets.items():
        assert may_be_offset_id(files, f"{ip}{10911:08X}{offset:016X}") == may_be, offset
    # a port below zero is none
    assert not may_be_offset_id(files, f"{ip}FFFFFFFF{0:016X}")
    for other in ("", "7F00", ip, "no id at all", "G" * 32):
        assert not may_be_offset_id(files, other)


def test_an_id_without_a_log_may_be_that_of_its_first_message() -> None:
    """Then what is said is that there is no commitlog, not that no message has such a key."""
    files = reader("log-gone").files
    ids = [f"0A000001{10911:08X}{offset:016X}" for offset in (0, 1)]
    assert [may_be_offset_id(files, one) for one in ids] == [True, False]
    with pytest.raises(CorruptError, match="there is no commitlog file below"):
        reader("log-gone").find(ids[0])


def test_what_is_said_of_an_id_that_leads_elsewhere() -> None:
    row = truth("clean").messages[3]
    own, place = row["msgId"], row["phyOffset"]
    look = reader("clean")
    found = lookup_offset_id(look.files, own)
    assert found.message_id == own
    with pytest.raises(NotFoundError) as caught:
        lookup_offset_id(look.files, "0A000001" + own[8:])
    assert caught.value.message == (
        f"the id is of broker 10.0.0.1:10911, the message at its offset was stored by {found.store_host}"
    )
    assert caught.value.physical_offset == place
    assert caught.value.hint == f"`rmqctl query -o {place}` shows that message"
    # the same place, asked for within a message
    inside = f"{own[:16]}{place + 1:016X}"
    for topic, scan in ((None, False), (None, True), ("OrderTopic", False)):
        with pytest.raises(NotFoundError, match=f"it is inside the message of .* that starts at {place}"):
            look.find(inside, topic, scan=scan)


def test_a_key_is_looked_for_in_the_topic_that_is_named(golden_store: GoldenStore) -> None:
    look = reader("clean")
    row = next(row for row in truth("clean").messages if row["topic"] == "OrderTopic" and UNIQUE in row["properties"])
    key = row["properties"][UNIQUE]
    for scan in (False, True):
        found = look.find(key, "OrderTopic", scan=scan)
        assert [one.physical_offset for one in found.messages] == [row["phyOffset"]]
        assert (found.topics, found.is_whole, found.damaged) == (1, False, [])
        found = look.find(key, "TopicTest", scan=scan)
        assert (found.messages, found.topics, found.is_whole) == ([], 1, False)
    found = look.find(key)
    assert ([one.physical_offset for one in found.messages], found.is_whole) == ([row["phyOffset"]], False)
    assert found.topics == len(look.files.queues.topics())
    # one of the KEYS is no unique key, though it leads to the same message in the index
    word = next(row for row in truth("clean").messages if row["keys"])
    for scan in (False, True):
        assert look.find(word["keys"].split(" ")[0], word["topic"], scan=scan).messages == []


def test_damage_that_a_scan_meets_is_told(golden_store: GoldenStore) -> None:
    store = golden_store("crc-flip-third")
    shutil.rmtree(store / "index")
    with StoreFiles(store) as files:
        found = StoreReader(files).find("F" * 32, scan=True)
    assert (found.messages, found.is_whole) == ([], True)
    assert [error.physical_offset for error in found.damaged] == [1695806]
