"""checkCRCOnRecover and forceVerifyPropCRC: which messages a recovery and an opening take for good ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, RefusedError
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.recover import RecoverReport, recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.store.predict.test_predict_unusual import predicted

SIZES = StoreConfig(mapped_file_size_consume_queue=2000)
TRUSTS = SIZES._replace(check_crc_on_recover=False)
FORCES = SIZES._replace(force_verify_prop_crc=True)


def _recovered(
    store: Path, config: StoreConfig, change: ChangeOptions = ChangeOptions(), *, cut: bool = False
) -> RecoverReport:
    with StoreFiles(store, config) as files:
        return recover(files, change, cut=cut)


@pytest.mark.parametrize("name", ["crc-flip-last-abort", "crc-flip-last", "crc-flip-third"])
def test_a_wrong_crc_ends_no_log_where_none_is_checked(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    expected = predicted(store, "5.3.3", TRUSTS)
    assert not expected.messages_lost
    with pytest.raises(RefusedError):
        _recovered(store, SIZES, ChangeOptions())
    report = _recovered(store, TRUSTS, ChangeOptions())
    assert (report.end_offset, report.messages_cut, report.damaged) == (expected.end_offset, 0, [])
    # its unit is there, and what reads it says that it is damaged
    with MessageStore.open(store, "rw", TRUSTS) as opened:
        damaged = [
            opened.get(queue.topic, queue.queue_id, offset, 1).damaged
            for queue in opened.files.queues.all()
            for offset in range(queue.min_offset(0), queue.max_offset)
        ]
    assert len([one for one in damaged if one]) == 1
    with pytest.raises((RefusedError, CorruptError)):
        MessageStore.open(store, "rw", SIZES)


def test_every_frame_has_a_crc_of_its_own_where_that_is_asked(golden_store: GoldenStore) -> None:
    """CommitLog#checkMessageAndReturnSize: a message without __CRC32# ends the log."""
    store = golden_store("propcrc")
    _recovered(store, FORCES, ChangeOptions())
    with MessageStore.open(store, "rw", FORCES):
        pass
    plain = golden_store("crash")
    with pytest.raises(RefusedError, match="has no frame CRC"):
        _recovered(plain, FORCES, ChangeOptions(dry_run=True))
    report = _recovered(plain, FORCES, ChangeOptions(dry_run=True), cut=True)
    assert report.end_offset == report.start_offset
    # without the check of CRCs it asks for nothing
    _recovered(plain, FORCES._replace(check_crc_on_recover=False), ChangeOptions())
