"""A property added to messages of a batch: each has what it had, and behind that the new one if it lacked it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.store.write.bulk.arrow import lacking, rows_of_batch, with_property

MAP = pa.map_(pa.string(), pa.string())
NAME = "UNIQ_KEY"


def batch_of(**columns: Any) -> pa.RecordBatch:
    """Messages with these columns besides."""
    count = len(next(iter(columns.values())))
    return pa.record_batch({"topic": ["T"] * count, "body": ["b"] * count, **columns})


def texts(count: int) -> pa.Array:
    """So many different ones."""
    return pa.array([f"id {number}" for number in range(count)], pa.string())


def properties_of(batch: pa.RecordBatch) -> list[list[tuple[str, str]]]:
    """Those of each message, in their order."""
    rows = rows_of_batch(batch)
    return [list(rows.message(row).properties.items()) for row in range(batch.num_rows)]


def require_added(batch: pa.RecordBatch, rows: list[bool]) -> None:
    """Adding to these rows gives what the plain way gives, and leaves all other columns."""
    before, ids = properties_of(batch), itertools.count()
    wanted = [
        [*found, (NAME, f"id {next(ids)}")] if chosen else found for found, chosen in zip(before, rows, strict=True)
    ]
    made = with_property(batch, np.array(rows, np.bool_), NAME, texts)
    assert properties_of(made) == wanted
    for name in batch.schema.names:
        if name != "properties":
            assert made.column(name).equals(batch.column(name))


MIXED = batch_of(
    properties=pa.array([[("A", "1")], None, [], [("X", "y"), (NAME, "mine")], None, [("B", "2"), ("C", "3")]], MAP),
    keys=pa.array([["a", "b"], ["c"], None, [], None, ["d"]], pa.list_(pa.string())),
    tags=pa.array(["t", None, "u", "v", None, "w"], pa.string()),
)


def test_those_that_have_it_do_not_lack_it() -> None:
    assert lacking(MIXED, NAME).tolist() == [True, True, True, False, True, True]
    assert lacking(MIXED, "A").tolist() == [False, True, True, True, True, True]
    assert lacking(MIXED.slice(2, 3), NAME).tolist() == [True, False, True]
    assert lacking(batch_of(tags=["a", "b"]), NAME).tolist() == [True, True]


def test_what_is_given_as_stored_is_not_added_to() -> None:
    stored = batch_of(stored_properties=pa.array([b"A\x01b\x02", None, b""], pa.binary()))
    assert lacking(stored, NAME).tolist() == [False, True, False]


@pytest.mark.parametrize("begin", range(3))
def test_whichever_of_them_get_it_all_keep_what_they_had(begin: int) -> None:
    """Of a whole batch, and of a part whose entries begin later than those of the batch."""
    part = MIXED.slice(begin, 4)
    for rows in itertools.product(*([False, True] if lacks else [False] for lacks in lacking(part, NAME).tolist())):
        require_added(part, list(rows))


def test_it_is_all_there_is_where_there_were_none() -> None:
    require_added(batch_of(queue_id=[1, 2, 3]), [True, False, True])
    require_added(batch_of(keys=pa.array([["k"], None], pa.list_(pa.string()))), [True, True])


def test_nothing_is_asked_for_where_none_lacks_it() -> None:
    def unwanted(count: int) -> pa.Array:
        raise AssertionError(f"asked for {count}")

    assert with_property(MIXED, np.zeros(6, np.bool_), NAME, unwanted) is MIXED


def map_with(names: pa.Array, values: pa.Array, edges: list[int], there: int) -> pa.Array:
    """A map whose rows end at these `edges`; the bits of `there` say which are not null, whatever lies in them."""
    children = pa.StructArray.from_arrays([names, values], fields=[MAP.key_field, MAP.item_field])
    buffers = [pa.py_buffer(bytes([there])), pa.py_buffer(np.array(edges, np.int32))]
    return pa.Array.from_buffers(MAP, len(edges) - 1, buffers, children=[children])


def test_what_lies_in_a_row_that_is_null_belongs_to_nobody() -> None:
    names, values = pa.array(["A", NAME, "B", "C", "D"]), pa.array(["1", "2", "3", "4", "5"])
    batch = batch_of(properties=map_with(names, values, [0, 1, 3, 3, 5], 0b1101), tags=["t", "u", "v", "w"])
    assert lacking(batch, NAME).tolist() == [True, True, True, True]
    made = with_property(batch, np.array([True, True, True, False]), NAME, texts)
    assert properties_of(made) == [
        [("A", "1"), (NAME, "id 0")],
        [("TAGS", "u"), (NAME, "id 1")],
        [(NAME, "id 2")],
        [("C", "4"), ("D", "5")],
    ]


def test_columns_that_cannot_be_stored_are_told_and_no_values_asked_for() -> None:
    asked: list[int] = []

    def noted(count: int) -> pa.Array:
        asked.append(count)
        return texts(count)

    latin = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(bytes(4) + b"\1\0\0\0"), pa.py_buffer(b"\xff")])
    for column, said in (
        (map_with(latin, pa.array(["1"]), [0, 1], 1), "the columns cannot be stored: "),
        (map_with(pa.array(["A"]), latin, [0, 1], 1), "the columns cannot be stored: "),
        (pa.array(["A"]), "properties must be a map of texts, not string"),
    ):
        batch = batch_of(properties=column)
        with pytest.raises(UsageError, match=said):
            lacking(batch, NAME)
        with pytest.raises(UsageError, match=said):
            with_property(batch, np.array([True]), NAME, noted)
    assert asked == []
