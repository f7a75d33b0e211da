"""The twin of a store answers as the store does, and holds no text of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RefusedError, UnsupportedError
from rmqctl.store import Message, MessageStore
from rmqctl.store.answers.config_offsets import is_own_group
from rmqctl.store.config.config import config_from_properties, read_broker_conf
from rmqctl.store.config.config_files import is_brokers_own
from rmqctl.store.config.releases import VERSIONS
from rmqctl.store.options import Events
from rmqctl.store.read.compacted import positions
from rmqctl.store.twin.twin import make_twin
from tests import expectations
from tests.expectations import copy_of, expected
from tests.goldens import GoldenStore, broker_conf, golden, tree_state
from tests.quick import goldens_of

_SHORTEST = 8
_NUMBERS = re.compile(r"\b(?:physical_offset|queue_id|messages|bytes)=-?\d+")
_RUN = re.compile(rb"[A-Za-z][A-Za-z0-9]{7,}|[0-9A-F]{20,}")
# what a broker writes into every store: fields of its files, properties, topics and groups of its own
_OWN = re.compile(
    rb"[a-z]+(?:[A-Z][a-z]*)+|[A-Z_]+|\+?[a-z]+\.(?:type|policy)|topics|counter|timestamp|attributes|rmqctl.*|checkpoint|commitlog|(?:batch)?consumequeue|timer[a-z]+|compaction|position"
)
_REFUSED = {name for name in expectations.NAMES if "rocksdb" in name or name.startswith("pop-kv")}
_REFUSED = (_REFUSED | {"multipath"}) - {"rocksdb-double"}
_WITH_NAMES = ("topics", "groups", "sha256", "bytes_digest")


def _numbers(value: Any) -> Any:
    """Return the numbers in an answer, without texts, which may hold names, and the order that these give."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in value.items() if key not in _WITH_NAMES}
    if isinstance(value, list):
        return sorted((_numbers(each) for each in value), key=repr)
    return _NUMBERS.findall(value) if isinstance(value, str) else value


def _answers(store: Path) -> dict[str, Any]:
    looked = {version: expectations._predict(store, version) for version in VERSIONS}
    found = {"check": expectations._check(store), "predict": looked}
    return found | {"recover": expectations._changed(store, "recover", expectations._recover_report)}


def _blob(store: Path) -> bytes:
    # the ids that a RocksDB without entries gives itself say nothing of the messages
    files = [path for path in sorted(store.rglob("*")) if path.is_file() and "rocksdbstore" not in path.parts]
    data = [path.read_bytes().replace(bytes(64), b"") for path in files]
    return b"\n".join([*(path.relative_to(store).as_posix().encode() for path in files), *data])


def _texts(store: Path) -> set[bytes]:
    """Return topics, keys, properties and bodies of a store."""
    found: set[bytes] = set()
    with MessageStore.open(store) as opened:
        for message in opened.messages(events=Events(damage=lambda _: None)):
            properties = message.properties()
            values = [value for name, value in properties.items() if name not in ("TAGS",) or len(value) > 4]
            found |= {value.encode() for value in (message.topic, *values)} | {message.body}
    for path in (store / "config").glob("*.json"):
        found |= {name.encode() for name in re.findall(r'"([^"]+)"', path.read_text("utf-8", "replace"))}
    return found


def _is_own(text: bytes) -> bool:
    parts = [part.removeprefix("%RETRY%") for part in text.decode("utf-8", "replace").split("@")]
    is_names = all(is_brokers_own(part) or is_own_group(part) for part in parts)
    return is_names or bool(_OWN.fullmatch(text)) or not re.search(rb"[A-Za-z]", text)


@pytest.mark.parametrize("name", goldens_of(name for name in expectations.NAMES if name not in _REFUSED))
def test_a_twin_answers_the_same_and_holds_no_text(name: str, tmp_path: Path) -> None:
    store = copy_of(name, tmp_path / "of")
    before, twin = tree_state(store), tmp_path / "twin"
    with MessageStore.open(store) as opened:
        make_twin(opened.files, twin)
    assert tree_state(store) == before
    sizes = [sorted((size, time) for size, time, _ in state.values()) for state in (before, tree_state(twin))]
    assert sizes[0] == sizes[1] or (store / "rocksdbstore").exists()
    blob = _blob(twin)
    kept = [text for text in _texts(store) if len(text) >= _SHORTEST and not _is_own(text) and text in blob]
    assert kept == []
    runs = {run for run in _RUN.findall(_blob(store)) if not _is_own(run)} & set(_RUN.findall(blob))
    assert runs == set()
    known = {part: expected(name)[part] for part in ("check", "predict", "recover")}
    assert _numbers(_answers(twin)) == _numbers(known)


@pytest.mark.parametrize("name", sorted(_REFUSED))
def test_what_cannot_be_rewritten_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    """A multipath store without its broker.conf has folders that are not known."""
    with MessageStore.open(copy_of(name, tmp_path / "of")) as opened, pytest.raises(UnsupportedError) as refused:
        make_twin(opened.files, tmp_path / "twin")
    assert "RocksDB" in refused.value.message or name == "multipath"
    assert [path.name for path in tmp_path.iterdir()] == ["of"]


@pytest.mark.parametrize("way", ["relative", "over a link"])
def test_the_way_to_the_store_does_not_matter(
    way: str, golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("clean")
    monkeypatch.chdir(store.parent)
    (tmp_path / "link").symlink_to(store)
    with MessageStore.open(Path(store.name) if way == "relative" else tmp_path / "link") as opened:
        make_twin(opened.files, tmp_path / "twin")
    assert _answers(tmp_path / "twin")["check"] == _answers(store)["check"]


def test_a_log_of_several_folders_keeps_them(tmp_path: Path) -> None:
    store = golden("multipath", tmp_path)
    config = read_broker_conf(broker_conf("multipath", tmp_path))
    with MessageStore.open(store, config=config) as opened:
        make_twin(opened.files, tmp_path / "twin")
        log = [path.relative_to(store).as_posix() for path in opened.files.layout.commitlog]
        sizes = {path.start_offset: path.size for path in opened.files.log.files}
    found = {int(path.name): path.stat().st_size for part in log for path in (tmp_path / "twin" / part).iterdir()}
    assert found == sizes


def test_a_twin_replaces_nothing(golden_store: GoldenStore, tmp_path: Path) -> None:
    with MessageStore.open(golden_store("clean")) as opened:
        (tmp_path / "there").mkdir()
        with pytest.raises(RefusedError, match="exists"):
            make_twin(opened.files, tmp_path / "there")


_SMALL = config_from_properties(
    {
        "mappedFileSizeCommitLog": "65536",
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "500",
        "maxIndexNum": "2000",
    },
    "test",
)
_DIGITS = ("203.0.113.77", "4915112345678", "20240518", "13800138000", "198.51.100.9", "77001122", "8613912345678")
_PROPERTIES = {
    "KEYS": "8613912345678",
    "__BORNHOST": "203.0.113.77",
    "CORRELATION_ID": "4915112345678",
    "CLUSTER": "20240518",
    "DLQ_ORIGIN_TOPIC": "13800138000",
    "ORIGIN_MESSAGE_ID": "198.51.100.9",
    "TIMER_DEL_UNIQKEY": "8613912345678",
    "mine": "77001122",
}
# a topic may be called like a number, a field of a config file or a folder of a store
_TOPICS = ("13800138000", "7", "count", "topicName", "TOPIC", "config", "next")


def _store_of_odd_names(store: Path) -> Path:
    with MessageStore.open(store, "rw", _SMALL, create=True) as opened:
        for topic in _TOPICS:
            opened.put_many([Message(topic, b"body", queue_id=queue, properties=_PROPERTIES) for queue in (0, 1)])
    config = store / "config"
    config.mkdir(exist_ok=True)
    topics = {topic: {"topicName": topic, "perm": 6, "readQueueNums": 4, "writeQueueNums": 4} for topic in _TOPICS}
    offsets = {f"{topic}@table": {"0": 1, "1": 1} for topic in _TOPICS}
    groups = {"table": {"groupName": "table", "retryQueueNums": 1, "consumeEnable": True}}
    write_json(config / "topics.json", {"topicConfigTable": topics})
    write_json(config / "subscriptionGroup.json", {"subscriptionGroupTable": groups})
    write_json(config / "consumerOffset.json", {"offsetTable": offsets})
    write_json(config / "delayOffset.json", {"offsetTable": {"1": 0}})
    return store


def write_json(path: Path, content: Any) -> None:
    """Write a file of config/."""
    path.write_text(json.dumps(content), encoding="utf-8")


def test_names_in_digits_and_names_like_fields_are_replaced_everywhere(tmp_path: Path) -> None:
    store = _store_of_odd_names(tmp_path / "of")
    with MessageStore.open(store) as opened:
        make_twin(opened.files, tmp_path / "twin")
    blob = _blob(tmp_path / "twin")
    assert [text for text in _DIGITS if text.encode() in blob] == []
    assert _numbers(_answers(tmp_path / "twin")) == _numbers(_answers(store))
    with MessageStore.open(tmp_path / "twin") as twin:
        found = list(twin.messages())
        groups = list(twin.groups())
    assert {message.topic for message in found}.isdisjoint(_TOPICS)
    with MessageStore.open(store) as opened:
        assert len(groups) == len(list(opened.groups())) == 2 * len(_TOPICS)
    assert [(one.state, one.queue_id) for one in groups] == [("caught-up", 0), ("caught-up", 1)] * len(_TOPICS)
    assert {message.properties()["TIMER_DEL_UNIQKEY"] for message in found} == {
        message.properties()["KEYS"] for message in found
    }


def test_files_that_brokers_do_not_write_into_config_keep_nothing(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    config = store / "config"
    config.mkdir(exist_ok=True)
    (config / "customer-acme.json").write_text('{"pin": 99887766}', encoding="utf-8")
    (config / "topics.json.prod-shanghai").write_text('{"topicConfigTable": {}}', encoding="utf-8")
    (config / "plain_acl.yml").write_text("secretKey: 12345678\nwhiteRemoteAddress: 10.177.15.*\n", encoding="utf-8")
    (store / "brokerIdentity").write_text("2024077-acme#203.0.113.77#3", encoding="utf-8")
    (store / "rocksdbstore").mkdir(exist_ok=True)
    (store / "rocksdbstore" / "LOG").write_text("Host name (Env): mq-acme-7\n", encoding="utf-8")
    with MessageStore.open(store) as opened:
        make_twin(opened.files, tmp_path / "twin")
    files = [path for path in (tmp_path / "twin").rglob("*") if path.is_file() and "commitlog" not in path.parts]
    blob = b"\n".join([*(str(path).encode() for path in files), *(path.read_bytes() for path in files)])
    secrets = (b"acme", b"shanghai", b"99887766", b"12345678", b"10.177.15", b"2024077", b"203.0.113.77")
    assert [secret for secret in secrets if secret in blob] == []
    assert (tmp_path / "twin" / "brokerIdentity").read_text(encoding="utf-8").endswith("#3")


def test_a_snapshot_of_the_wheel_stays_one(tmp_path: Path) -> None:
    store = copy_of("timer-crash", tmp_path / "of")
    (store / "timerwheel.7268").write_bytes((store / "timerwheel").read_bytes())
    with MessageStore.open(store) as opened:
        make_twin(opened.files, tmp_path / "twin")
    for path in store.glob("timerwheel.*"):
        assert (tmp_path / "twin" / path.name).read_bytes() == path.read_bytes()


def test_positions_of_compacted_queues_are_those_of_the_twin(tmp_path: Path) -> None:
    store = copy_of("compaction", tmp_path / "of")
    with MessageStore.open(store) as opened:
        make_twin(opened.files, tmp_path / "twin")
        before = positions(opened.files.layout)
    with MessageStore.open(tmp_path / "twin") as twin:
        after = positions(twin.files.layout)
    assert before
    assert [(queue, at) for (_, queue), at in after.items()] == [(queue, at) for (_, queue), at in before.items()]


@pytest.mark.parametrize("body", ["text " * 50, bytes(range(256)) * 2])
def test_a_torn_frame_breaks_off_where_it_did(body: Any, tmp_path: Path) -> None:
    """Of a message whose last blocks were never written `recover` cuts as much in the twin."""
    content = body.encode() if isinstance(body, str) else body
    with MessageStore.open(tmp_path / "of", "rw", _SMALL, create=True) as opened:
        results = [opened.put(Message("Orders", content, properties={"KEYS": "some-key"})) for _ in range(3)]
    log = tmp_path / "of" / "commitlog" / "00000000000000000000"
    with log.open("r+b") as file:
        torn = (results[-1].physical_offset or 0) + 88 + 150
        file.seek(torn)
        file.write(bytes(600))
    (tmp_path / "of" / "abort").touch()
    for number in range(5):  # the key of each twin is another one
        twin = tmp_path / f"twin-{number}"
        with MessageStore.open(tmp_path / "of") as opened:
            make_twin(opened.files, twin)
        data = (twin / "commitlog" / log.name).read_bytes()
        assert len(data.rstrip(b"\0")) == len(log.read_bytes().rstrip(b"\0")) == torn


def test_a_rocksdb_without_entries_stays_one(golden_store: GoldenStore, tmp_path: Path) -> None:
    """As a killed broker leaves one that has no log of its own."""
    store = golden_store("clean")
    for place in ("consumequeue_rocksdb", "config/topics", "rocksdbstore"):
        folder = store / place
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in (("CURRENT", b"MANIFEST-000005\n"), ("MANIFEST-000005", b"\1\2\3"), ("IDENTITY", b"id")):
            (folder / name).write_bytes(data)
    twin = tmp_path / "twin"
    with MessageStore.open(store) as opened:
        make_twin(opened.files, twin)
    for place in ("consumequeue_rocksdb", "config/topics", "rocksdbstore"):
        assert (twin / place / "MANIFEST-000005").read_bytes() == b"\1\2\3"
        assert (twin / place / "CURRENT").read_bytes() == b"MANIFEST-000005\n"
