"""The walk in columns on every golden store, on every form: the same records and values as the plain walk."""

from __future__ import annotations

import pytest

from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns, TopicIds
from rmqctl.store.log.walk import walk
from rmqctl.store.native.tables import Columns
from tests.goldens import GOLDENS
from tests.opened import reader
from tests.quick import every, goldens_of
from tests.store.columns.comparing import FORMS, assert_same, use_form
from tests.store.logs import bytes_to_read


def _log(name: str) -> MappedFileQueue:
    return reader(name).files.log


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_golden(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    assert_same(walk_columns(_log(name), columns=Columns.ALL | Columns.TAG_KEYS), walk(_log(name)))


@pytest.mark.parametrize("sizes", every(2, [(1, 50), (100, 7), (1000, 1), (50_000, 20), (1 << 20, 3)]))
@pytest.mark.parametrize(
    "name", goldens_of(["features", "longtopic", "propcrc", "torn-zero", "short-middle"], "torn-zero")
)
def test_windows_and_rows_do_not_matter(name: str, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    window, rows = sizes
    use_form("compiled", monkeypatch)
    for columns in (Columns.ALL | Columns.TAG_KEYS, Columns.DISPATCH):
        assert_same(walk_columns(_log(name), columns=columns, window=window, rows=rows), walk(_log(name)))


@pytest.mark.parametrize("form", ["compiled", "plain"])
@pytest.mark.parametrize("columns", [*Columns, Columns.NONE, Columns.HEAD | Columns.TAGS], ids=str)
def test_groups_of_columns(columns: Columns, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    for name in ("features", "crc-flip-third"):
        assert_same(walk_columns(_log(name), columns=columns), walk(_log(name)))


@pytest.mark.parametrize("form", FORMS)
def test_columns_that_were_not_asked_for(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    batch = next(iter(walk_columns(_log("clean"), columns=Columns.TAGS)))
    assert isinstance(batch, MessageColumns)
    for name in ("queue_id", "topic_id", "body_position", "key_row", "key_hash", "store_timestamp"):
        with pytest.raises(LookupError, match="not asked for"):
            getattr(batch, name)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", every(2, ["crc-flip-third", "clean", "gap", "short-middle"]))
def test_a_part_of_the_log(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    whole = list(walk(_log(name)))
    places = [record.physical_offset for record in whole[::211]] + [whole[-1].end]
    for begin in places[::5]:
        for end in (*places[::4], begin + 1, 0):
            expected = [record for record in whole if begin <= record.physical_offset < end]
            assert_same(walk_columns(_log(name), begin, end), expected)


@pytest.mark.parametrize("form", FORMS)
def test_crc_is_checked_from_a_given_offset_on(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    log = _log("crc-flip-third")
    for crc_from in (0, 1695806, 1695807, 1 << 64):
        assert_same(walk_columns(log, crc_from=crc_from), walk(log, crc_from=crc_from))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["clean", "gap", "short-middle", "multipath"])
def test_progress_adds_up_to_the_bytes_read(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    passed: list[int] = []
    for _ in walk_columns(_log(name), window=50_000, progress=passed.append):
        pass
    assert sum(passed) == bytes_to_read(_log(name))
    assert min(passed) >= 0


def test_topics_of_several_walks_share_a_table() -> None:
    topics = TopicIds()
    for name in ("clean", "features", "clean"):
        assert_same(walk_columns(_log(name), topics=topics), walk(_log(name)))
    assert len(set(topics.names)) == len(topics.names) == len(topics)
