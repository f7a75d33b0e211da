"""Records of POP as they are written, against those that brokers have stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.store import MessageStore
from rmqctl.store.pop.records import Acknowledgement, PopCheckpoint, ordered_pop, revive_record
from tests.features import feature_store


@pytest.mark.parametrize(("name", "has_suspend"), [("pop-fs", True), ("pop-fs-533", False)])
def test_records_are_written_as_brokers_write_them(name: str, has_suspend: bool, tmp_path: Path) -> None:
    tags = set()
    with MessageStore.open(feature_store(name, tmp_path)) as store:
        for message in store.messages():
            properties = message.properties()
            if not properties.get("REAL_TOPIC", "").startswith("rmq_sys_REVIVE_LOG_"):
                continue
            record = revive_record(properties["TAGS"], message.body)
            assert record is not None
            tags.add(properties["TAGS"])
            if isinstance(record, PopCheckpoint):
                assert record.body().replace(b"" if has_suspend else b'"sp":false,', b"") == message.body
                found = (record.unique_key, record.deliver_at)
            else:
                assert isinstance(record, Acknowledgement)
                is_batch = properties["TAGS"] == "bAck"
                assert record.key.ack_body(record.offsets, is_batch=is_batch) == message.body
                found = (record.key.ack_unique_key(record.offsets, is_batch=is_batch), 0)
            assert found[0] == properties["UNIQ_KEY"]
            assert found[1] in (0, int(properties["TIMER_DELIVER_MS"]))
    assert tags == {"ck", "ack", "bAck"}


def test_ordered_pops_are_written_as_brokers_write_them(tmp_path: Path) -> None:
    text = (feature_store("pop-fs", tmp_path) / "config" / "consumerOrderInfo.json").read_text()
    queues = parse_config_json(text)["table"]["Steps@g-fifo"]
    assert len(queues) == 2
    for entry in queues.values():
        written = ordered_pop(entry).entry()
        # what holds nothing may be missing
        assert {"oc": {}} | written == {"oc": {}} | entry
