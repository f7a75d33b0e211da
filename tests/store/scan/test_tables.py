"""Messages as one table: the rows of `scan`, in the library that was asked for."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnsupportedError
from rmqctl.store import Criteria, MessageStore
from tests.opened import known_messages, store_path

pytest.importorskip("pyarrow")
COLUMNS = ["topic", "queue_id", "queue_offset", "physical_offset"]


def test_arrow(tmp_path: Path) -> None:
    with MessageStore.open(store_path("clean")) as store:
        table = store.to_arrow(COLUMNS)
        one = store.to_arrow(["body"], Criteria("TopicTest"))
    assert sorted(table.column("physical_offset").to_pylist()) == sorted(known_messages("clean"))
    assert table.column_names == COLUMNS
    assert len(one) == table.column("topic").to_pylist().count("TopicTest")
    with MessageStore.open(tmp_path / "empty", "rw", create=True) as empty:
        assert empty.to_arrow(COLUMNS).column_names == COLUMNS


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_other_libraries(library: str) -> None:
    with MessageStore.open(store_path("clean")) as store:
        convert = getattr(store, f"to_{library}")
        if find_spec(library) is None:
            with pytest.raises(UnsupportedError, match=library):
                convert(COLUMNS)
        else:
            assert list(convert(COLUMNS).columns) == COLUMNS
