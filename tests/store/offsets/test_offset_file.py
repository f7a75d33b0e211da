"""What a file of offsets is to hold after a change; and the changes as methods of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import RefusedError, UnsupportedError
from rmqctl.store import Loss, MessageStore
from rmqctl.store.offsets.change import OffsetFile, ResetTo, content_with, read_offset_file
from rmqctl.store.options import ChangeOptions
from tests.goldens import GoldenStore

NOW = 1_800_000_000_000


def _file(path: Path, text: str) -> OffsetFile:
    path.write_text(text, encoding="utf-8")
    return read_offset_file(path)


def test_what_is_not_changed_stays(tmp_path: Path) -> None:
    """Offsets of a broadcasting group, negative ones, queue ids in quotes, fields that nobody knows."""
    text = '{"other":[1],"offsetTable":{"A@g":{"0":1,2:-1},"A@g@b":{3:4},"B@h":{}}}'
    file = _file(tmp_path / "o.json", text)
    content = parse_config_json(content_with(file, {("g", "A"): {2: 7}, ("new", "C"): {0: 1}}, NOW).decode())
    assert content == {
        "other": [1],
        "offsetTable": {"A@g": {0: 1, 2: 7}, "A@g@b": {3: 4}, "B@h": {}, "C@new": {0: 1}},
    }
    assert list(content["offsetTable"]) == ["A@g", "A@g@b", "B@h", "C@new"]


def test_the_version_goes_on_where_there_is_one(tmp_path: Path) -> None:
    text = '{"dataVersion":{"counter":4,"stateVersion":2,"timestamp":1},"groupTopicMap":{"g":["A"]},"offsetTable":{}}'
    file = _file(tmp_path / "o.json", text)
    content = parse_config_json(content_with(file, {("g", "B"): {0: 1}}, NOW).decode())
    assert content["dataVersion"] == {"counter": 5, "stateVersion": 2, "timestamp": NOW}
    assert content["groupTopicMap"] == {"g": ["A", "B"]}


def test_offsets_in_a_rocksdb(tmp_path: Path) -> None:
    (tmp_path / "consumerOffsets").mkdir()
    (tmp_path / "consumerOffsets" / "CURRENT").write_text("MANIFEST-000005")
    with pytest.raises(UnsupportedError, match="RocksDB"):
        read_offset_file(tmp_path / "consumerOffset.json")


def test_whoever_does_not_agree_stops_it(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    losses: list[Loss] = []

    def refuse(loss: Loss) -> None:
        losses.append(loss)
        raise RefusedError("no")

    before = (store / "config/consumerOffset.json").read_bytes()
    with MessageStore.open(store) as opened:
        with pytest.raises(RefusedError):
            opened.reset_offsets("g-retry", "Events", ResetTo("latest"), change=ChangeOptions(confirm=refuse))
        assert losses == [Loss(skipped=46)]
        assert opened.changes() == []
        assert (store / "config/consumerOffset.json").read_bytes() == before
        assert opened.reset_offsets("g-retry", "Events", ResetTo("latest"), 3).skipped == 6
        assert next(opened.offsets("g-retry", "Events", 3)).offset == 30
