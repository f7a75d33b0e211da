"""Stores written by us open in both real brokers, which see every message and change nothing of what we wrote."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from rmqctl.formats.compression import compress
from rmqctl.formats.message import Host, Message, StoredMessage
from rmqctl.formats.properties import (
    COMPRESSION_ZLIB_LEGACY,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rmqctl.store.config.config import config_from_properties, read_broker_conf
from rmqctl.store.log.walk import walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.prepare import copy_of
from tests import goldens
from tests.goldens import broker_conf, properties
from tests.interop import harness
from tests.interop.harness import VERSIONS, BrokerView, Job

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

SMALL_FILES = {
    "store.mappedFileSizeCommitLog": "65536",
    "store.mappedFileSizeConsumeQueue": "2000",
    "store.maxHashSlotNum": "100",
    "store.maxIndexNum": "400",
    "store.enableCompaction": "false",
    "store.timerWheelEnable": "false",
}
IPV6 = Host(bytes(15) + b"\x01", 10911)
# stores whose copies a 4.9.8 broker cannot read: V2 frames, batch queues
ONLY_5 = {"longtopic", "innerbatch"}
COPIED = ("clean", "v4-clean", "features", "v4-features", "longtopic", "propcrc", "lmq", "innerbatch")


def config_of(settings: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("store."): value for name, value in settings.items() if name.startswith("store.")}


def mixture(version: str) -> list[Message]:
    """A bit of everything a broker's store can be given, enough for several files of each kind."""
    found = [
        Message(
            f"Topic{number % 3}",
            bytes([number % 251]) * (number % 700),
            queue_id=number % 4,
            flag=number - 300,
            properties={"KEYS": f"key-{number} shared", "TAGS": f"Tag{number % 5}", "UNIQ_KEY": f"{number:032X}"},
        )
        for number in range(600)
    ]
    found += [
        Message("Zipped", compress(b"z" * 5000, COMPRESSION_ZLIB_LEGACY), sys_flag=0x1),
        Message("Later", b"soon", properties={"DELAY": "3", "KEYS": "later"}),
        Message("Pay", b"half", sys_flag=TRANSACTION_PREPARED, properties={"KEYS": "half"}),
        Message("Pay", b"done", sys_flag=TRANSACTION_COMMIT, properties={"KEYS": "done"}),
        Message("Pay", b"back", sys_flag=TRANSACTION_ROLLBACK, properties={"KEYS": "back"}),
        Message("Six", b"v6", born_host=IPV6, store_host=IPV6),
        Message("Ünïcödé|消息", "κείμενο 🚀".encode(), properties={"KEYS": "键 🚀", "TAGS": "标签"}),
        Message("Wide", b"w", properties={"wide": "x" * 32000}),
        Message("Empty", b""),
    ]
    if version != "4.9.8":
        found.append(Message("%RETRY%" + "L" * 180, b"long topic"))
    return found


def assert_serves(view: BrokerView, expected: dict[int, str], end: int) -> None:
    assert view.complaints() == []
    assert view.max_offset == end
    seen = {message.physical_offset: message.body_sha256 for message in view.messages}
    assert seen == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_of_ours_opens(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    expected: dict[int, str] = {}
    with MessageStore.open(store, "rw", config_from_properties(config_of(SMALL_FILES)), create=True) as opened:
        for message in mixture(version):
            result = opened.put(message)
            assert result.status.is_stored, result
            assert result.physical_offset is not None
            if message.sys_flag & 0xC not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
                body = b"z" * 5000 if message.topic == "Zipped" else message.body
                expected[result.physical_offset] = hashlib.sha256(body).hexdigest()
        batch = [Message("Batch", f"part {number}".encode(), queue_id=1) for number in range(20)]
        for message, result in zip(batch, opened.put_many(batch, batch=True), strict=True):
            assert result.physical_offset is not None
            expected[result.physical_offset] = hashlib.sha256(message.body).hexdigest()
    with StoreFiles(store) as files:
        end = files.log.max_offset - files.log.file_size
        assert len(files.log.files) > 3
        assert len(files.index.files) > 3
    asked = [("Topic0", "key-0"), ("Topic1", "shared"), ("Pay", "half"), ("Pay", "back"), ("Ünïcödé|消息", "键")]
    view = harness.open_store(version, store, SMALL_FILES, asked)
    assert end < view.max_offset
    assert_serves(view, expected, view.max_offset)
    answers = {(query.topic, query.key): query.physical_offsets for query in view.queries}
    assert len(answers["Topic0", "key-0"]) == 1
    assert len(answers["Topic1", "shared"]) >= 32
    assert len(answers["Pay", "half"]) == 1
    assert answers["Pay", "back"] == []
    assert len(answers["Ünïcödé|消息", "键"]) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_copies_of_goldens_open(version: str, tmp_path: Path) -> None:
    names = [name for name in COPIED if version != "4.9.8" or name not in ONLY_5]
    jobs, expected, ends = [], [], []
    for name in names:
        source = goldens.golden(name, tmp_path / "from")
        config = read_broker_conf(broker_conf(name, tmp_path / "from"))
        target = tmp_path / "to" / name
        with MessageStore.open(source, "r", config) as old:
            messages = [record for record in walk(old.files.log) if isinstance(record, StoredMessage)]
        with MessageStore.open(target, "rw", config, create=True) as new:
            for result in new.put_many([copy_of(message) for message in messages], as_stored=True):
                assert result.status.is_stored
            ends.append(messages[-1].end)
        jobs.append(Job(target, properties(name)))
        expected.append(
            {
                message.physical_offset: hashlib.sha256(message.plain_body()).hexdigest()
                for message in messages
                if message.sys_flag & 0xC in (0, TRANSACTION_COMMIT)
            }
        )
    for view, bodies, end in zip(harness.open_many(version, jobs), expected, ends, strict=True):
        assert_serves(view, bodies, end)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_goes_on_where_we_stopped_and_we_go_on_after_it(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    config = config_from_properties(config_of(SMALL_FILES))
    written = {message.physical_offset for message in harness.write_store(version, store, SMALL_FILES)}
    with MessageStore.open(store, "rw", config) as opened:
        ours = [opened.put(Message("InteropPlain", f"ours {number}".encode())) for number in range(50)]
    assert all(result.status.is_stored for result in ours)
    view = harness.open_store(version, store, SMALL_FILES)
    assert view.complaints() == []
    seen = {message.physical_offset for message in view.messages}
    assert {result.physical_offset for result in ours} <= seen
    later = {message.physical_offset for message in harness.write_store(version, store, SMALL_FILES, kinds=("plain",))}
    assert later.isdisjoint(written | seen)
    with MessageStore.open(store, "rw", config) as opened:
        result = opened.put(Message("InteropPlain", b"last"))
        opened.flush()
        assert result.queue_offset is not None
        [last] = opened.get("InteropPlain", 0, result.queue_offset, 1).messages
        assert last.body == b"last"
    assert harness.open_store(version, store, SMALL_FILES).complaints() == []


CRC = {**SMALL_FILES, "store.enabledAppendPropCRC": "true", "store.forceVerifyPropCRC": "true"}
LIGHT = {**SMALL_FILES, "store.enableLmq": "true", "store.enableMultiDispatch": "true"}


@pytest.mark.parametrize("version", VERSIONS[:2])
def test_crcs_of_frames_and_light_queues_are_those_of_brokers(version: str, tmp_path: Path) -> None:
    """A crashed start checks the CRC of every frame of ours and cuts one whose properties changed; it makes the light
    queues of our messages as we made them."""
    stores = {name: tmp_path / name for name in ("crc", "flipped", "light", "rebuilt")}
    ends: dict[str, int] = {}
    for name, store in stores.items():
        settings = LIGHT if name in ("light", "rebuilt") else CRC
        with MessageStore.open(store, "rw", config_from_properties(config_of(settings)), create=True) as opened:
            for number in range(30):
                light = f"%LMQ%a,%LMQ%{'b' if number % 2 else 'c'}"
                properties = {"KEYS": f"k{number}", **({"INNER_MULTI_DISPATCH": light} if settings is LIGHT else {})}
                assert opened.put(Message("Events", b"x" * number, properties=properties)).status.is_stored
            opened.wait_for_dispatch()
            last = opened.get("Events", 0, 29, 1).messages[0]
            ends[name] = last.end
            ends[f"last of {name}"] = last.physical_offset
    with (stores["flipped"] / "commitlog" / f"{0:020d}").open("r+b") as file:
        # a digit of the key, which no body CRC covers
        content = file.read()
        file.seek(content.rindex(b"k29"))
        file.write(b"k28")
    shutil.rmtree(stores["rebuilt"] / "consumequeue")
    for name in ("crc", "flipped", "rebuilt"):
        (stores[name] / "abort").write_bytes(b"1")
    with MessageStore.open(stores["flipped"]) as opened:
        assert "RMQ-LOG-011" in {finding.code for finding in opened.check()}
    jobs = [Job(store, LIGHT if name in ("light", "rebuilt") else CRC) for name, store in stores.items()]
    views = dict(zip(stores, harness.open_many(version, jobs), strict=True))
    assert [views[name].max_offset for name in ("crc", "flipped")] == [ends["crc"], ends["last of flipped"]]
    assert len(views["crc"].messages) == 30
    light_queues = {
        name: {(one.topic, one.queue_id): one.units for one in views[name].queues} for name in ("light", "rebuilt")
    }
    assert light_queues["light"] == light_queues["rebuilt"]
    assert [len(light_queues["light"][f"%LMQ%{letter}", 0]) for letter in "abc"] == [30, 15, 15]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_light_queue_that_a_message_lists_twice_is_the_same_for_a_broker(version: str, tmp_path: Path) -> None:
    settings = SMALL_FILES | {"store.enableLmq": "true", "store.enableMultiDispatch": "true"}
    config = config_from_properties(config_of(settings))
    queue = tmp_path / "ours" / "consumequeue" / "%LMQ%a" / "0" / f"{0:020d}"
    with MessageStore.open(tmp_path / "ours", "rw", config, create=True) as opened:
        for listed in ("%LMQ%a,%LMQ%a", "%LMQ%a", "%LMQ%a,%LMQ%a", "%LMQ%a"):
            opened.put(Message("TopicA", b"light", properties={"INNER_MULTI_DISPATCH": listed}))
    before = queue.read_bytes()
    assert before[80:100] == bytes(20)
    # built anew by the broker, it is as we wrote it
    shutil.rmtree(tmp_path / "ours" / "consumequeue")
    view = harness.open_store(version, tmp_path / "ours", settings)
    assert queue.read_bytes()[:100] == before[:100]
    assert len(view.messages) == 8


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_s_light_queue_whose_offsets_run_ahead_is_sound_and_stays_as_it_is(
    version: str, tmp_path: Path
) -> None:
    settings = SMALL_FILES | {"store.enableLmq": "true", "store.enableMultiDispatch": "true"}
    config = config_from_properties(config_of(settings))
    store = tmp_path / "store"
    for _ in range(2):  # the offsets begin again where the queue ends
        harness.write_store(version, store, settings, kinds=(harness.LIGHT,), messages=7)
    queue = store / "consumequeue" / "%LMQ%a" / "0" / f"{0:020d}"
    whole = queue.read_bytes()
    assert whole[280:300] == bytes(20) != whole[260:280]
    for left in (14, 9, 3, 0):
        queue.write_bytes(whole[: 20 * left].ljust(len(whole), b"\0"))
        with MessageStore.open(store, "r", config) as opened:
            codes = {one.code for one in opened.check() if one.severity.is_alarm}
            assert codes == (set() if left == 14 else {"RMQ-CQ-001", "RMQ-CQ-019"} & codes)
            assert (left < 14) == ("RMQ-CQ-001" in codes)
            opened.recover()
        assert queue.read_bytes() == whole
    shutil.rmtree(queue.parents[1])
    (store / "abort").touch()
    with MessageStore.open(store, "r", config) as opened:
        assert [row["units_misplaced"] for row in opened.predict(version).queues_changed] == [0]
    (store / "abort").unlink()
    shutil.rmtree(store / "consumequeue")
    with MessageStore.open(store, "r", config) as opened:
        opened.rebuild()
        assert opened.predict().messages_unqueued == 0
        assert len(opened.get("%LMQ%a", 0, 0).messages) == 14
    assert queue.read_bytes() == whole
    with MessageStore.open(store, "rw", config) as opened:
        opened.put(Message("InteropLight", b"ours", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
    with MessageStore.open(store, "r", config) as opened:
        assert [one.code for one in opened.check() if one.severity.is_alarm] == []
