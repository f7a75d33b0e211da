"""An offset is not judged, and not set, by the end of a queue that has findings of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.check.check import check
from rmqctl.store.check.cross import Level
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles
from tests.goldens import tree_state
from tests.store.made import QUEUE_SIZE, MadeStore

CONFIG = StoreConfig(mapped_file_size_consume_queue=QUEUE_SIZE)
OFFSETS = {
    "consumerOffset.json": '{"offsetTable":{"Orders@g":{0:4},"Other@g":{0:2}}}',
    "delayOffset.json": '{"offsetTable":{1:3}}',
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = MadeStore(tmp_path / "store")
    for number in range(5):
        made.put("Orders", f"order-{number}")
        made.put("Other", f"other-{number}")
        made.put("SCHEDULE_TOPIC_XXXX", f"later-{number}")
    return made.write(config=OFFSETS)


def _of_offsets(store: Path, level: Level = Level.DEFAULT) -> set[str]:
    with StoreFiles(store, CONFIG) as files:
        return {finding.code for finding in check(files, level) if finding.kind.family == "OFF"}


@pytest.mark.parametrize("level", [Level.DEFAULT, Level.QUICK])
@pytest.mark.parametrize(("topic", "code"), [("Orders", "RMQ-OFF-001"), ("SCHEDULE_TOPIC_XXXX", "RMQ-OFF-003")])
def test_a_lost_queue_judges_no_offset(store: Path, topic: str, code: str, level: Level) -> None:
    (store / "consumequeue" / topic / "0" / f"{0:020d}").write_bytes(b"")
    assert _of_offsets(store, level) == {"RMQ-OFF-030"}
    before = tree_state(store / "config")
    with StoreFiles(store, CONFIG) as files, pytest.raises(RefusedError, match="not whole"):
        repair(files, only=[code])
    assert tree_state(store / "config") == before
    with StoreFiles(store, CONFIG) as files:
        assert repair(files).left == []
    assert _of_offsets(store) == set()


def test_what_is_past_the_end_after_all_is_left(store: Path) -> None:
    (store / "consumequeue" / "Orders" / "0" / f"{0:020d}").write_bytes(b"")
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Orders@g":{0:40}}}')
    with StoreFiles(store, CONFIG) as files:
        assert [row["code"] for row in repair(files).left] == ["RMQ-OFF-001"]
    with StoreFiles(store, CONFIG) as files:
        repair(files, only=["RMQ-OFF-001"])
    assert _of_offsets(store) == set()
