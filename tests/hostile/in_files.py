"""Hostile stores: what can be wrong with queues, index, config and the files themselves."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import zstandard

from rmqctl.formats.layouts import (
    BATCH_CONSUMEQUEUE_UNIT,
    CHECKPOINT,
    CONSUMEQUEUE_UNIT,
    LOCAL_TIERED_INDEX_ITEM,
    TIERED_INDEX_HEADER,
    TIERED_INDEX_ITEM,
    TIERED_INDEX_MAGIC,
    TIERED_INDEX_OPEN,
    TIERED_INDEX_SLOT,
)
from rmqctl.store.files.layout import file_name
from tests.hostile.making import (
    EVIL,
    LOG,
    NASTY,
    QUEUE,
    block,
    database,
    database_of_tables,
    hostile,
    index_file,
    lz4_block,
    queue_file,
    some_messages,
    sorted_table,
    varint,
)
from tests.store.logs import frame


@hostile
def units_of_queues(root: Path) -> None:
    size = len(some_messages(root)) // 5
    largest = (1 << 63) - 1
    wild = [
        (largest, 100, 0),
        (-1, 100, 0),
        (0, -1, 0),
        (0, 0x7FFFFFFF, 0),
        (largest - 5, 0x7FFFFFFF, -largest),
        (1, 1, 1),
    ]
    queue_file(root, "Wild", "0", wild)
    queue_file(root, "Wild", "1", [(0, size, 0)] * 100)
    queue_file(root, "Wild", "2", [(-1, -1, -1)] * 100)
    queue_file(root, "Wild", "2147483648", [(0, size, 0)])
    queue_file(root, "Wild", "9" * 30, [(0, size, 0)])
    queue_file(root, "Wild", "-1", [(0, size, 0)])
    for name in ("9" * 20, f"{largest:020d}", file_name(1), file_name(10**15), "0" * 19 + "x"):
        queue_file(root, "Names", "0", [(0, size, 0)], name)
    data = BATCH_CONSUMEQUEUE_UNIT.struct.pack(largest, -1, -1, -1, largest, 0x7FFF, -1, -1)
    data += BATCH_CONSUMEQUEUE_UNIT.struct.pack(0, 100, 0, 0, largest, 0x7FFF, -1, -1)
    path = root / "batchconsumequeue" / "Batch" / "0" / file_name(0)
    path.parent.mkdir(parents=True)
    path.write_bytes((data * 5).ljust(460, b"\0"))


@hostile
def cycles_in_the_index(root: Path) -> None:
    some_messages(root)
    entries = [(1, 0, 0, 2), (1, 100, 0, 1), (1, 200, 0, 3)] * 100
    index_file(root, (1, 2, 0, 200, 100, 300), [3, 1, 2] * 33, entries)


@hostile
def headers_of_the_index(root: Path) -> None:
    some_messages(root)
    largest = (1 << 63) - 1
    for number, header in enumerate(
        [
            (largest, -1, largest, -1, -1, 0x7FFFFFFF),
            (-1, largest, -1, largest, 0x7FFFFFFF, -0x80000000),
            (0, 0, 0, 0, 0, 0),
        ]
    ):
        path = index_file(root, header, [-1, 0x7FFFFFFF, -0x80000000], [(-1, -1, -1, -1)] * 399)
        path.rename(path.with_name(f"2026010100000000{number}"))
    (root / "index" / "20260101000000009").write_bytes(b"")
    (root / "index" / "99999999999999999").write_bytes(b"\xff" * 39)


@hostile
def checkpoint_and_marks(root: Path) -> None:
    some_messages(root)
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(*[(1 << 63) - 1] * len(CHECKPOINT.fields)))
    (root / "abort").mkdir()
    (root / "lock").symlink_to("/etc/passwd")
    (root / "abort.bak").symlink_to("abort.bak")


@hostile
def fifos_for_files(root: Path) -> None:
    """Opening a FIFO waits for a writer, for ever."""
    for path in ("commitlog", "consumequeue/T/0", "index", "config"):
        (root / path).mkdir(parents=True, exist_ok=True)
    for path in ("commitlog/" + file_name(0), "consumequeue/T/0/" + file_name(0), "index/20260101000000000",
                 "checkpoint", "lock", "config/topics.json", "config/delayOffset.json", "timerwheel"):  # fmt: skip
        os.mkfifo(root / path)


@hostile
def fifos_among_files(root: Path) -> None:
    some_messages(root)
    os.mkfifo(root / "commitlog" / file_name(LOG))
    os.mkfifo(root / "consumequeue" / "T" / "0" / file_name(QUEUE))
    os.mkfifo(root / "consumequeue" / "T" / "fifo")
    os.mkfifo(root / "fifo")
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root)  # a socket's path must be short
    try:
        server.bind("socket")
    finally:
        os.chdir(here)
        server.close()


@hostile
def devices_behind_links(root: Path) -> None:
    """A file without an end, and one without a content."""
    for path in ("commitlog", "consumequeue/T/0", "index", "config"):
        (root / path).mkdir(parents=True, exist_ok=True)
    (root / "commitlog" / file_name(0)).symlink_to("/dev/zero")
    (root / "consumequeue" / "T" / "0" / file_name(0)).symlink_to("/dev/zero")
    (root / "index" / "20260101000000000").symlink_to("/dev/zero")
    (root / "checkpoint").symlink_to("/dev/zero")
    (root / "config" / "topics.json").symlink_to("/dev/zero")
    (root / "config" / "consumerOffset.json").symlink_to("/dev/full")


@hostile
def links_in_circles(root: Path) -> None:
    some_messages(root)
    (root / "consumequeue" / "loop").symlink_to("loop")
    (root / "consumequeue" / "up").symlink_to("..")
    (root / "consumequeue" / "T" / "1").symlink_to("../../consumequeue")
    (root / "consumequeue" / "T" / "2").symlink_to("/")
    (root / "commitlog" / file_name(LOG)).symlink_to(file_name(LOG))
    (root / "commitlog" / "all").symlink_to("/")
    (root / "index").symlink_to("index")
    (root / "config").symlink_to("/nowhere")


@hostile
def links_out_of_the_store(root: Path) -> None:
    """A writer that follows them would change files elsewhere."""
    outside = root.parent / "outside"
    outside.mkdir(exist_ok=True)
    for name in ("victim", "queue", "index"):
        (outside / name).write_bytes(b"precious" * 8192)
    some_messages(root)
    (root / "commitlog" / file_name(LOG)).symlink_to(outside / "victim")
    (root / "consumequeue" / "T" / "0" / file_name(QUEUE)).symlink_to(outside / "queue")
    (root / "consumequeue" / "Out").symlink_to(outside)
    (root / "index").mkdir()
    (root / "index" / "20260101000000000").symlink_to(outside / "index")
    (root / "abort").symlink_to(outside / "victim")


@hostile
def files_for_folders(root: Path) -> None:
    for name in ("commitlog", "consumequeue", "index", "config"):
        (root / name).write_bytes(b"x")
    (root / "checkpoint").mkdir()
    (root / "lock").mkdir()


@hostile
def names_beyond_numbers(root: Path) -> None:
    """20 digits are more than 63 bits."""
    largest = (1 << 63) - 1
    for name in ("9" * 20, f"{largest:020d}", f"{largest - LOG + 1:020d}", f"{1 << 63:020d}", "٠" * 20):
        (root / "commitlog").mkdir(exist_ok=True)
        (root / "commitlog" / name).write_bytes(frame(largest - LOG + 1).ljust(LOG, b"\0"))


def _holes(root: Path, size: int) -> None:
    some_messages(root)
    for path in (root / "commitlog" / file_name(0), root / "consumequeue" / "T" / "0" / file_name(0)):
        os.truncate(path, size)
    (root / "index").mkdir()
    (root / "index" / "20260101000000000").touch()
    os.truncate(root / "index" / "20260101000000000", size)
    (root / "config").mkdir()
    (root / "config" / "topics.json").touch()
    os.truncate(root / "config" / "topics.json", size)
    (root / "checkpoint").touch()
    os.truncate(root / "checkpoint", size)


@hostile
def holes_of_a_gigabyte(root: Path) -> None:
    _holes(root, 1 << 30)


@hostile
def holes_of_terabytes(root: Path) -> None:
    _holes(root, 1 << 40)


@hostile
def config_bombs(root: Path) -> None:
    some_messages(root)
    (root / "config").mkdir()
    texts = {
        "topics.json": '{"topicConfigTable":' + '{"a":' * 400 + "1" + "}" * 401,
        "topics.json.bak": "[" * 200_000,
        "consumerOffset.json": '{"offsetTable":{"T@G":{0:' + "9" * 10_000 + "}}}",
        "delayOffset.json": '{"offsetTable":{1:1e999,2:NaN,3:-Infinity,' + "9" * 5000 + ":1}}",
        "subscriptionGroup.json": '{"a":1,"a":2,"subscriptionGroupTable":{"\\ud800":"\\udfff\\u202e\\u001b"}}',
        "consumerFilter.json": "[" * 900 + "]" * 900,
        "deep.json": '{"a":[' * 450 + "]}" * 450,
        "consumerOrderInfo.json": '"' + "\\" * 99_999,
        "topicQueueMapping.json": "{" + '"a":1,' * 100_000 + '"a":1}',
        "timercheck": "x",
        "wrong.json": '{"topicConfigTable":[1,{"T":null}],"offsetTable":"x","groupTopicMap":7}',
        "binary.json": "\x00\x01\ufeff{",
    }
    for name, text in texts.items():
        (root / "config" / name).write_bytes(text.encode("utf-8", "surrogatepass"))


@hostile
def names_in_the_config(root: Path) -> None:
    """Topics and groups that lead elsewhere or hold escapes, with offsets that ask to be mended."""
    some_messages(root)
    (root / "config").mkdir()
    names = (*EVIL, NASTY)
    offsets = {f"{topic}@{group}": {"0": 99, "-1": -5, "9" * 30: 7} for topic in names for group in (NASTY, "../g")}
    tables = {
        "topics.json": {"topicConfigTable": {topic: {"topicName": topic, "order": NASTY} for topic in names}},
        "consumerOffset.json": {"offsetTable": offsets},
        "delayOffset.json": {"offsetTable": {NASTY: 1, "../1": 2, "1": 1 << 70}},
        "subscriptionGroup.json": {"subscriptionGroupTable": {name: {"groupName": name} for name in names}},
    }
    for name, table in tables.items():
        (root / "config" / name).write_text(json.dumps(table), encoding="utf-8")
        (root / "config" / f"{name}.bak").write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")


@hostile
def config_of_wrong_types(root: Path) -> None:
    some_messages(root)
    (root / "config").mkdir()
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"):
        (root / "config" / name).write_text(
            '{"topicConfigTable":{"T":{"attributes":[1]},"U":5},"offsetTable":{"x":[]}}'
        )


@hostile
def compaction_and_timer(root: Path) -> None:
    some_messages(root)
    (root / "compaction" / "compactionLog" / "T" / "0").mkdir(parents=True)
    (root / "compaction" / "compactionLog" / "T" / "0" / file_name(0)).write_bytes(b"\xff" * 1000)
    (root / "compaction" / "position-checkpoint").write_text("{" * 100)
    (root / "timerlog").mkdir()
    (root / "timerlog" / file_name(0)).write_bytes(struct.pack(">iqi", 52, -1, -1) * 1000)
    (root / "timerwheel").write_bytes(b"\xff" * 3200)
    (root / "epochFileCheckpoint").write_text("99999999999999999999\n-1\n1-2-3\n")


@hostile
def databases_with_wild_rows(root: Path) -> None:
    """Sound by every checksum: queues without end, names and numbers of all kinds, a table that promises much."""
    some_messages(root)
    largest = (1 << 63) - 1
    topics = (b"T", *(name.encode()[:60] for name in EVIL), b"")
    ends = [
        len(topic).to_bytes(4, "big") + b"\1" + topic + b"\1max\1" + queue.to_bytes(4, "big")
        for topic in topics
        for queue in (0, 1 << 31)
    ]
    wild_ends = itertools.cycle((1 << 60, largest, -1, 0x7FFFFFFF))
    rows = [(1, key, struct.pack(">qq", largest, last)) for key, last in zip(ends, wild_ends, strict=False)]
    unit = len(b"T").to_bytes(4, "big") + b"\1T\1" + bytes(4) + b"\1"
    rows += [(0, unit + slot.to_bytes(8, "big"), struct.pack(">qiqq", 0, 100, 0, 0)) for slot in (0, 1 << 59)]
    shutil.rmtree(root / "consumequeue")
    database(root / "consumequeue", (b"default", b"offset"), rows)
    moments = (0, 1, largest >> 8)
    named = [moment.to_bytes(8, "big") + b"@T@K@k@u@" + moment.to_bytes(8, "big") for moment in moments]
    wild = [(0, key, bytes(8)) for key in (*named, bytes(8), bytes(30))]
    wild += [(1, moment.to_bytes(8, "big") + b"u", struct.pack(">iq", -1, largest)) for moment in moments]
    wild += [(2, moment.to_bytes(8, "big") + b"@T@u", struct.pack(">ii", -1, -1)) for moment in moments]
    wild += [(0, b"lastOffsetPy", struct.pack(">q", largest)), (2, b"lastOffsetPy", struct.pack(">q", -1))]
    wild += [(1, name, struct.pack(">q", -1)) for name in (b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint")]
    database(root / "rocksdbstore", (b"default", b"timer", b"trans"), wild)
    database(root / "config" / "rdb", (b"default",), [(0, b"\1" + bytes(2) + b"\2" * 9, b"\1{"), (0, b"\1", b"")])


_KEY = bytes(16)
_KEYS = (0, bytes(1 << 20), b"")
_OF_ONE_SIZE = (len(_KEYS[1]), b"", b"")
_FEW, _MANY = 3, 1 << 18
TABLES: dict[str, Callable[[], list[bytes]]] = {
    "keys that share a MiB": lambda: (
        [sorted_table([lz4_block(block(_KEYS)[:-8] + block(_OF_ONE_SIZE, times=1 << 16))])] * _FEW
    ),
    "entries of no bytes": lambda: [
        sorted_table([lz4_block(block((0, _KEY, b""))[:-8] + block((16, b"", b""), times=_MANY))])
    ],
    "zeros in LZ4": lambda: [sorted_table([lz4_block(bytes(48 << 20))])] * _FEW,
    "zeros in ZSTD": lambda: [sorted_table([(varint(100) + zstandard.ZstdCompressor().compress(bytes(1 << 30)), 7)])],
    "sizes beyond all in LZ4": lambda: [sorted_table([lz4_block(block((0, _KEY, b"")), 1 << 50)])],
    "an index with the same block again and again": lambda: [
        sorted_table([lz4_block(block((0, _KEY, b"x" * 1000), times=1000))], again=_MANY)
    ],
    "handles beyond the file": lambda: [sorted_table([lz4_block(block((0, _KEY, b"")))], beyond=1 << 62)],
    "a footer alone": lambda: [sorted_table([])[-53:]],
    "deleted ranges without end": lambda: (
        [sorted_table([lz4_block(block((0, _KEY, b"")))], lz4_block(block((0, b"k" * 100, b"l" * 100), times=1 << 15)))]
        * _FEW
    ),
}
"""Tables that are sound by every checksum, and small."""


@hostile
def databases_of_bombs(root: Path) -> None:
    """All of those tables in one database of queues, beside names that are no numbers and a name that leads out."""
    some_messages(root)
    shutil.rmtree(root / "consumequeue")
    tables = [one for shape in TABLES.values() for one in shape()]
    for name, made in (("consumequeue", tables), ("rocksdbstore", tables[:_FEW])):
        database_of_tables(root / name, made)
        (root / name / "\u00b2.log").write_bytes(b"x")
        (root / name / "000009.log").symlink_to(root.parent / "outside" / "a")
    database_of_tables(root / "config" / "rdb", tables[-1:], said=1 << 60)
    (root / "config" / "rdb" / "CURRENT").write_bytes(b"MANIFEST-000001/../../../outside\n")


@hostile
def copies_of_compacted_topics(root: Path) -> None:
    """Units that lead outside, backwards and into one another; positions that are none."""
    some_messages(root)
    largest = (1 << 63) - 1
    pack = BATCH_CONSUMEQUEUE_UNIT.struct.pack
    wild = [
        pack(0, 100, 0, 0, 0, 1, -1, 0),
        pack(largest, 0x7FFFFFFF, -1, -1, 1, 1, -1, 0),
        pack(largest - 4, 100, -1, largest, largest, 0x7FFF, -1, -1),
        pack(3, 1, 0, 0, 2, 1, -1, 0),
        pack(-1, 0, 0, 0, 0, 0, -1, 0),
    ]
    for queue_id in ("0", "2147483648", "-1", "7"):
        for name in (file_name(0), file_name(4096), "9" * 20, f"{file_name(0)}.delete"):
            for kind, data in (("compactionLog", b"\0" * 4096), ("compactionCq", b"".join(wild).ljust(460, b"\0"))):
                path = root / "compaction" / kind / "T" / queue_id / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data if queue_id != "7" else frame(0, b"x") * 3)
    table = {"T_0": 1 << 80, "T_": -1, "T_7": "x", "_0": [], "T_-1": 3}
    (root / "compaction" / "position-checkpoint").write_text(json.dumps({"queueOffsetMap": table}))


@hostile
def copies_in_tiered_storage(root: Path) -> None:
    """Segments, their table and a key index that lead outside, backwards and into one another, or claim everything."""
    some_messages(root)
    largest = (1 << 63) - 1
    broker = root / "tiered" / "deadbeef_c" / "b"
    units = [(0, 100, 0), (largest, 0x7FFFFFFF, 1), (-1, -1, -1), (largest - 4, 100, 0), (0, 0, 0)]
    for queue_id in ("0", "7", "2147483648", "-1"):
        for base in (0, 100, 4096, 10**20 - 1):
            for kind, data in (
                ("COMMIT_LOG", frame(0, b"x") * 3),
                ("CONSUME_QUEUE", b"".join(CONSUMEQUEUE_UNIT.struct.pack(*unit) for unit in units)),
            ):
                path = broker / "T" / queue_id / kind / f"{'0' * 8}{base:020d}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    wild = [(0, 0, 0, 0, 100, 0), (-1, -1, -1, -1, -1, -1), (1, 1 << 30, 1 << 30, largest, 0x7FFFFFFF, 0)]
    index = broker / "rmq_sys_INDEX" / "0" / "INDEX"
    index.mkdir(parents=True)
    for number, slot in enumerate(((28, 1 << 30), (-1, -1), (0x7FFFFFFF, 0x7FFFFFFF), (0, 28))):
        head = TIERED_INDEX_HEADER.struct.pack(TIERED_INDEX_MAGIC, largest, -1, -1, 3)
        items = b"".join(TIERED_INDEX_ITEM.struct.pack(*item) for item in wild)
        (index / f"{'0' * 8}{number:020d}").write_bytes(head + TIERED_INDEX_SLOT.struct.pack(*slot) + items)
    _local_indexes(root / "tiered_index_file", wild)
    entry = {"path": "b/T/0", "type": 9, "baseOffset": -1, "status": "x", "size": largest}
    table = {
        "commitLogFileSegmentTable": {"b/T/0": {"0": entry, str(1 << 70): entry}, "b/../../T/0": {"0": entry}, "T": 3},
        "consumeQueueFileSegmentTable": {"b/T/0": {"0": entry, "9" * 40: entry}, "b/T/9": {str(1 << 62): entry}},
        "queueMetadataTable": {"T": {"0": {"minOffset": 1 << 80, "maxOffset": -(1 << 80)}, "x": [], "7": None}, "U": 1},
        "topicMetadataTable": {
            "T": {"topicId": 0, "topic": "T"},
            "../x": {"topicId": 1 << 30, "topic": "../x"},
            "V": 2,
        },
        "topicSerialNumber": "9",
    }
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "tieredStoreMetadata.json").write_text(json.dumps(table))


def _local_indexes(folder: Path, wild: Sequence[tuple[int, ...]]) -> None:
    """Files of the index in the store: chains in circles, counts and slots beyond the file, files of holes."""
    (folder / "compacting").mkdir(parents=True)
    heads = [(31, 3), (-1, 0x7FFFFFFF), (0x7FFFFFFF, -1), (3, 3), (0, 60_000_000)]
    for number, (used, count) in enumerate(heads):
        path = folder / str(1_700_000_000_000 + number)
        rows = [LOCAL_TIERED_INDEX_ITEM.struct.pack(*item, previous) for item in wild for previous in (1, -1, 1 << 30)]
        head = TIERED_INDEX_HEADER.struct.pack(TIERED_INDEX_OPEN, 0, 0, used, count)
        path.write_bytes(head + struct.pack(">8i", 3, 0, -1, 0, 1 << 30, 0, 0, 0) + b"".join(rows))
        os.truncate(path, (1 << 31) - 1 if number == len(heads) - 1 else 1000 + path.stat().st_size)
    holes = folder / "1699999999999"
    holes.write_bytes(TIERED_INDEX_HEADER.struct.pack(TIERED_INDEX_OPEN, 1, 1, 1, 1))
    with holes.open("r+b") as file:
        file.seek((1 << 31) - 40)
        file.write(b"\x01")
    for name, size in (("9" * 200, (1 << 31) + 9), ("0", 0), ("1", 27)):
        (folder / name).touch()
        os.truncate(folder / name, size)
    (folder / "2").symlink_to("/dev/zero")
    (folder / "3").mkdir()
