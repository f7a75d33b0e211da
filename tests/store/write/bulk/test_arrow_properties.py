"""Properties of a record batch, whatever Arrow type its maker gave them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write.bulk import arrow as arrow_properties
from rmqctl.store.write.bulk.arrow import lacking, properties_of_batch, rows_of_batch
from tests.store.native.forms import take_plain_form
from tests.store.write.writing import SMALL, stored_messages

pa = pytest.importorskip("pyarrow")
MAP = pa.map_(pa.string(), pa.string())
TEXTS = pa.list_(pa.string())


@pytest.fixture(params=["compiled", "plain"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms of what joins them."""
    if request.param == "plain":
        take_plain_form(monkeypatch, "properties", arrow_properties)


def usual_of(rows: list[Any]) -> list[bool]:
    """Which rows have properties that go to the log as they are."""
    found: list[bool] = properties_of_batch(pa.record_batch({"properties": pa.array(rows, MAP)})).usual.tolist()
    return found


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(
    ("rows", "usual"),
    [
        ([[("a", "1")]], [True]),
        ([[("a", None)], [("a", "b")]], [False, True]),
        ([[("a", "b\x02c")], [("a", "d")]], [False, True]),
        ([[("", "\x02")]], [False]),
        # others in number, in order, and twice
        ([[("a", "1")], [("b", "2"), ("b", "3")]], [True, False]),
        ([[("a", "1"), ("b", "2")], [("b", "3"), ("a", "4")]], [True, True]),
        ([[("b", "2"), ("b", "3")], [("a", "1"), ("b", "2")]], [False, True]),
        ([[("a", "1"), ("b", "2")], [("b", "3"), ("b", "4")], [("a", "5"), ("b", "6")]], [True, False, True]),
        ([[("a", "1"), ("DELAY", "2")], [("a", "3"), ("b", "4")]], [False, True]),
        ([[], [("a", "1")], []], [True, True, True]),
        ([[], []], [True, True]),
        ([], []),
    ],
    ids=str,
)
def test_only_rows_that_are_written_down_as_they_are_count_as_usual(rows: list[Any], usual: list[bool]) -> None:
    assert usual_of(rows) == usual
    # and of a part of them
    assert usual_of([[("z", "0"), ("z", "1")], *rows])[1:] == usual


@pytest.mark.parametrize(("largest", "usual"), [(4, [True, True]), (3, [False, False])])
def test_too_many_names_are_not_looked_through(
    largest: int, usual: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them take the way of single messages then, which finds names that come twice."""
    monkeypatch.setattr(arrow_properties, "_LARGEST_TABLE", largest)
    assert usual_of([[("a", "1"), ("b", "2")], [("b", "3"), ("a", "4")]]) == usual


def wild(kind: Any, edges: list[int]) -> Any:
    """Lists or maps of two entries, whose rows end where it says."""
    texts = pa.array(["a", "b"])
    child = texts if kind is TEXTS else pa.StructArray.from_arrays([texts] * 2, fields=[MAP.key_field, MAP.item_field])
    return pa.Array.from_buffers(
        kind, len(edges) - 1, [None, pa.py_buffer(np.array(edges, np.int32))], children=[child]
    )


@pytest.mark.parametrize(("name", "kind"), [("properties", MAP), ("keys", TEXTS)])
@pytest.mark.parametrize(
    ("edges", "row"),
    [([0, 9, 2], None), ([0, 2, 1, 2], None), ([0, 9, 2], 0), ([0, -5, 2], 1), ([0, 9, 2], 1)],
    ids=str,
)
def test_offsets_that_lead_elsewhere_are_refused(name: str, kind: Any, edges: list[int], row: int | None) -> None:
    """Of a whole batch and of a part; Arrow itself looks at the first and the last one."""
    count = len(edges) - 1
    batch = pa.record_batch({"topic": ["T"] * count, "body": ["b"] * count, name: wild(kind, edges)})
    part = batch if row is None else batch.slice(row, 1)
    looks: list[Callable[[Any], object]] = [rows_of_batch, properties_of_batch]
    if name == "properties":
        looks.append(lambda found: lacking(found, "any"))
    for look in looks:
        with pytest.raises((UsageError, pa.ArrowInvalid), match=r"out of order|list offset|[Oo]ffsets"):
            look(part)


def test_rows_without_entries_need_no_order() -> None:
    """The last of them may end where the entries begin."""
    batch = pa.record_batch({"topic": ["T"] * 2, "body": ["b"] * 2, "keys": wild(TEXTS, [0, 0, 0])})
    assert [rows_of_batch(batch).message(row).properties for row in range(2)] == [{}, {}]
    batch = pa.record_batch({"topic": ["T"] * 2, "body": ["b"] * 2, "keys": wild(TEXTS, [1, 1, 2])})
    assert [rows_of_batch(batch).message(row).properties for row in range(2)] == [{}, {"KEYS": "b"}]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.field("element", pa.string(), nullable=False)), pa.list_(pa.large_string())], ids=str
)
def test_keys_may_be_lists_of_any_texts(tmp_path: Path, kind: Any) -> None:
    """Spark says of many texts that they are never null."""
    keys = pa.array([["a", "b"], None, []], kind)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put_columns(pa.record_batch({"topic": ["T"] * 3, "body": ["b"] * 3, "keys": keys}))
    assert [one.properties().get("KEYS") for one in stored_messages(tmp_path / "s")] == ["a b", None, None]
