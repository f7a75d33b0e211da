"""Dumps of whole and broken files: every byte accounted for, every field at the offset that the format says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, UnreadableError, UnsupportedError
from rmqctl.store.dump.dump_file import dump_file
from rmqctl.store.dump.items import DumpItem
from rmqctl.store.dump.recognise import FileKind, recognise
from rmqctl.store.timer.wheel import read_timer_checkpoint
from tests.features import feature_store, feature_truth
from tests.goldens import GOLDENS, GoldenStore, truth
from tests.opened import store_path
from tests.quick import goldens_of


def dumped(path: Path, at: int = 0) -> list[DumpItem]:
    return list(dump_file(path, at=at)[1])


def log_file(name: str, number: int) -> Path:
    return sorted((store_path(name) / "commitlog").glob("0*"))[number]


def values(item: DumpItem) -> dict[str, object]:
    return {one.name: one.value for one in item.fields}


@pytest.mark.parametrize("name", ["clean", "features", "v4-clean", "longtopic", "propcrc"])
def test_every_frame_with_every_field(name: str) -> None:
    items = dumped(log_file(name, 0))
    rows = [row for row in truth(name).messages if row["phyOffset"] < 262144]
    messages = [item for item in items if item.kind == "message"]
    assert [(item.offset, item.size, item.position) for item in messages] == [
        (row["phyOffset"], row["storeSize"], row["phyOffset"]) for row in rows
    ]
    for item, row in zip(messages, rows, strict=True):
        found = values(item)
        assert found["total_size"] == row["storeSize"]
        assert found["magic_code"] == row["magic"] + (1 << 32)
        assert found["body_crc"] == row["bodyCRC"]
        assert found["queue_id"] == row["queueId"]
        assert found["queue_offset"] == row["queueOffset"]
        assert found["sys_flag"] == row["sysFlag"]
        assert found["store_timestamp"] == row["storeTimestamp"]
        assert found["born_timestamp"] == row["bornTimestamp"]
        assert found["topic"] == row["topic"]
        assert len(str(found["body"])) == 2 * row["bodyLength"]
        assert item.damage is None
        # fields lie one behind the other and fill the frame
        ends = [one.offset + one.size for one in item.fields]
        assert [one.offset for one in item.fields] == [item.offset, *ends[:-1]]
        assert ends[-1] == item.offset + item.size


def test_offsets_are_those_of_the_format() -> None:
    """Positions in a frame with IPv4 hosts (MessageDecoder's constants)."""
    places = {one.name: one.offset for one in dumped(log_file("clean", 0))[0].fields}
    assert (places["physical_offset"], places["sys_flag"], places["store_timestamp"]) == (28, 36, 56)
    assert (places["store_host"], places["body_length"], places["body"]) == (64, 84, 88)


_SEEN: set[tuple[str, bytes]] = set()
_WITH_HOLES = (FileKind.INDEX, FileKind.TIMER_WHEEL, FileKind.ROCKSDB, FileKind.UNKNOWN)
_UNIT_OF_JAVA = ("pos", "size", "prev", "magic", "writeTime", "delay", "phyOffset", "msgSize", "topicHash")


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_the_structures_of_every_file_fill_it(name: str) -> None:
    """Files of golden stores are mostly those of the store that they were made of: each is read once."""
    root = store_path(name)
    for path in sorted(root.rglob("*")):
        if not path.is_file() or recognise(path).kind in _WITH_HOLES:
            continue
        content = (path.relative_to(root).as_posix(), hashlib.sha256(path.read_bytes()).digest())
        if content in _SEEN:
            continue
        _SEEN.add(content)
        if not recognise(path).is_readable:
            if path.stat().st_size and any(path.read_bytes()[:65536]):
                with pytest.raises(UnsupportedError):
                    dump_file(path)
            continue
        if path.parent.name == "0" and len(list(path.parent.iterdir())) > 2:
            continue
        position = 0
        for item in dumped(path):
            assert item.offset == position, path
            position += item.size
        assert position >= path.stat().st_size, path


def test_a_torn_message_is_shown_as_far_as_it_goes() -> None:
    item = next(one for one in dumped(log_file("torn-zero", 8)) if one.damage)
    assert (item.kind, item.position, item.size) == ("damage", 2135296, 316)
    found = values(item)
    assert found["total_size"] == 316
    assert found["body_length"] == 9
    assert str(found["topic"]).startswith("T127_xxx")
    assert "227" not in str(found)
    assert "do not add up to size 316" in str(item.damage)


def test_garbage_is_shown_as_garbage() -> None:
    item = next(one for one in dumped(log_file("tail-garbage-clean", 8)) if one.damage)
    assert (item.position, item.size) == (2135612, 777)
    assert values(item)["total_size"] == 189038006
    assert values(item)["magic_code"] == 0xEF28619A
    assert len(item.raw) == 777


def test_beginning_at_a_byte() -> None:
    every = dumped(log_file("clean", 0))
    assert [item.offset for item in dumped(log_file("clean", 0), every[7].offset)] == [
        item.offset for item in every[7:]
    ]
    inside = dumped(log_file("clean", 0), every[7].offset + 1)
    assert inside[0].damage is not None
    assert inside[1].offset == every[8].offset


def test_queue_units() -> None:
    rows = [row for row in truth("clean").messages if (row["topic"], row["queueId"]) == ("%DLQ%GroupA", 0)]
    items = dumped(store_path("clean") / "consumequeue/%DLQ%GroupA/0/00000000000000002000")
    assert [item.position for item in items] == list(range(100, 200))
    for item, row in zip(items, rows[100:200], strict=True):
        assert values(item) == {
            "physical_offset": row["phyOffset"],
            "size": row["storeSize"],
            "tags_code": row["dispatchTagsCode"],
        }


def test_a_hole_among_units_is_damage_and_zeros_behind_are_not(golden_store: GoldenStore) -> None:
    path = golden_store("clean") / "consumequeue/%DLQ%GroupA/0/00000000000000004000"
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes(20) + data[120:])
    items = dumped(path)
    assert [item.offset for item in items if item.damage] == [100]
    assert (items[-1].kind, items[-1].offset, items[-1].size) == ("empty", 600, 1400)


def test_batch_units_and_ext_units() -> None:
    items = dumped(store_path("innerbatch") / "batchconsumequeue/InnerBatchTopic/0/00000000000000000000")
    assert values(items[0])["physical_offset"] == 153537
    assert [item.position for item in items[:4]] == [0, 1, 4, 9]
    items = dumped(store_path("cqext") / "consumequeue_ext/%DLQ%GroupA/0/00000000000000000000")
    rows = [row for row in truth("cqext").messages if (row["topic"], row["queueId"]) == ("%DLQ%GroupA", 0)]
    assert [values(item)["tags_code"] for item in items if item.kind == "ext unit"] == [
        row["dispatchTagsCode"] for row in rows
    ]
    unit = dumped(store_path("cqext") / "consumequeue/%DLQ%GroupA/0/00000000000000000000")[1]
    assert unit.note == "the tags code is byte 20 of the ext queue"


def test_index_files() -> None:
    path = min((store_path("clean") / "index").iterdir())
    items = dumped(path)
    assert values(items[0])["index_count"] == 2000
    entries = [item for item in items if item.kind == "index entry"]
    assert [item.position for item in entries] == list(range(1, 2000))
    slots = [item for item in items if item.kind == "index slot"]
    assert len(slots) == values(items[0])["hash_slot_count"]
    assert not any(item.damage for item in items)
    garbage = dumped(max((store_path("index-garbage") / "index").iterdir()))
    assert sum(item.damage is not None for item in garbage) == 500


def test_checkpoint_and_config_and_texts() -> None:
    before = truth("clean").summary["checkpointBefore"]
    checkpoint = dumped(store_path("clean") / "checkpoint")[0]
    assert [one.value for one in checkpoint.fields][:3] == before[:3]
    delays = dumped(store_path("broker-real") / "config/delayOffset.json")[0]
    assert delays.fields[0].value["offsetTable"] == {1: 71, 14: 0}
    assert dumped(store_path("broker-real") / "lock")[0].fields[0].value == "lock"


def test_damaged_config(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(b'{"a":{1:')
    assert dumped(path)[0].damage is not None
    path.write_bytes(b'{"a":"\xff"}')
    assert dumped(path)[0].damage is not None
    path.write_bytes(b"")
    assert ".bak" in str(dumped(path)[0].note)


def test_files_of_the_timer(tmp_path: Path) -> None:
    store = feature_store("timer-crash", tmp_path)
    rows = feature_truth("timer-crash", "timerUnit")
    units = [
        item
        for path in sorted((store / "timerlog").iterdir())
        for item in dumped(path)
        if item.kind == "timer unit" and item.damage is None
    ]
    assert [(item.position, *[*values(item).values()][:8]) for item in units] == [
        tuple(row[name] for name in _UNIT_OF_JAVA) for row in rows
    ]
    assert [dumped(path)[-1].kind for path in sorted((store / "timerlog").iterdir())] == ["blank", "blank", "empty"]
    # a snapshot has the same form
    (store / "timerwheel").rename(store / "timerwheel.9804")
    slots = [item for item in dumped(store / "timerwheel.9804") if item.kind == "timer slot"]
    assert {(item.position, *values(item).values()) for item in slots} == {
        tuple(row[name] for name in ("index", "time", "first", "last", "num", "magic"))
        for row in feature_truth("timer-crash", "timerSlot")
        if row["state"] == "disk"
    }
    checkpoint = dumped(store / "config" / "timercheck")[0]
    assert list(values(checkpoint).values()) == list(read_timer_checkpoint(store / "config"))


def test_damage_in_files_of_the_timer(tmp_path: Path) -> None:
    store = feature_store("timer-crash", tmp_path)
    log = min((store / "timerlog").iterdir())
    data = bytearray(log.read_bytes())
    data[52:56] = (51).to_bytes(4, "big")
    data[108:116] = (1 << 40).to_bytes(8, "big")
    log.write_bytes(data)
    assert [item.offset for item in dumped(log) if item.damage] == [52, 104]
    wheel = store / "timerwheel"
    slot = next(item for item in dumped(wheel) if item.kind == "timer slot")
    with wheel.open("r+b") as file:
        file.seek(0)
        file.write(slot.raw)
        file.truncate(wheel.stat().st_size - 7)
    assert [item.offset for item in dumped(wheel) if item.damage] == [0, wheel.stat().st_size - 25]
    (store / "config" / "timercheck").write_bytes(b"short")
    assert dumped(store / "config" / "timercheck")[0].damage is not None


def test_log_and_queue_of_a_compacted_topic() -> None:
    """The offsets of the frames and of the units are those of the compaction log."""
    folder = store_path("compaction") / "compaction"
    frames = dumped(folder / "compactionLog" / "CompactTopic" / "0" / f"{0:020d}")
    units = dumped(folder / "compactionCq" / "CompactTopic" / "0" / f"{0:020d}")
    places = [item.offset for item in frames if item.kind == "message"]
    assert places == [one.fields[0].value for one in units if one.kind == "compacted unit"]
    assert len(places) > 0


def test_what_is_not_read_is_named_and_its_bytes_can_be_seen() -> None:
    path = store_path("stray-file") / "commitlog" / "notes.txt"
    with pytest.raises(UnsupportedError, match="no file of a store"):
        dump_file(path)
    _, items = dump_file(path, raw=True)
    shown = b"".join(item.raw for item in items)
    assert path.read_bytes().startswith(shown)
    assert len(shown) > 0


def test_an_index_whose_geometry_cannot_be_told(golden_store: GoldenStore) -> None:
    path = min((golden_store("clean") / "index").iterdir())
    data = path.read_bytes()
    path.write_bytes(data[: 40 + 2000] + bytes(len(data) - 2040))
    with pytest.raises(CorruptError, match="no number of slots"):
        dumped(path)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UnreadableError):
            dump_file(path)


def test_a_loose_copy_of_a_commitlog_file(tmp_path: Path) -> None:
    path = tmp_path / "saved.bin"
    path.write_bytes(log_file("clean", 2).read_bytes())
    items = dumped(path)
    assert items[0].position == 2 * 262144
    assert not any(item.damage for item in items)
