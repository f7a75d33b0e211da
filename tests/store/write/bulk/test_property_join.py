"""Properties of record batches as stored: at once and by Arrow's functions, held against `encode_properties`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.properties import encode_properties
from rmqctl.store.write.bulk import arrow
from rmqctl.store.write.bulk.arrow import Properties, properties_of_batch, value_spans

TEXT = st.text(st.sampled_from("abKEYS é€😀\x01\x02 "), max_size=12)
NAMES = st.lists(st.text(st.sampled_from("abKEYSé"), min_size=1, max_size=10), min_size=1, max_size=4)
MAP = pa.map_(pa.string(), pa.string())


@st.composite
def tables(draw: st.DrawFn) -> list[list[tuple[str, str]] | None]:
    """Rows that mostly have the same names in the same order."""
    names = draw(NAMES)
    row = st.tuples(*(TEXT for _ in names)).map(lambda values: list(zip(names, values, strict=True)))
    odd = st.one_of(row, row, row, st.lists(st.tuples(TEXT, TEXT), max_size=4), st.none())
    return draw(st.one_of(st.lists(row, max_size=8), st.lists(odd, max_size=8)))


def _stored(found: Properties) -> list[bytes | None]:
    """What is stored of each usual row, None for the others."""
    held, starts, ends = found.data
    return [
        bytes(held[start:end]) if usual else None for start, end, usual in zip(starts, ends, found.usual, strict=True)
    ]


@settings(deadline=None)
@given(tables(), st.integers(0, 3), st.sampled_from([MAP, pa.map_(pa.large_string(), pa.large_string())]))
def test_at_once_and_by_arrow(rows: list[list[tuple[str, str]] | None], skipped: int, kind: Any) -> None:
    batch = pa.record_batch({"properties": pa.array(rows, kind)}).slice(min(skipped, len(rows)))
    at_once = properties_of_batch(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "_joined_properties", lambda *_: None)
        by_arrow = properties_of_batch(batch)
    assert at_once.usual.tolist() == by_arrow.usual.tolist()
    assert _stored(at_once) == _stored(by_arrow)
    for row, stored in zip(rows[min(skipped, len(rows)) :], _stored(at_once), strict=True):
        if stored is not None:
            assert stored == encode_properties(dict(row or ()))


def test_what_is_joined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    joined = arrow._joined_properties

    def noted(*arguments: Any) -> Any:
        result = joined(*arguments)
        made.append(result is not None)
        return result

    monkeypatch.setattr(arrow, "_joined_properties", noted)
    same = [[("TAGS", "a"), ("KEYS", "b c")]] * 3
    for rows in (same, [*same, [("KEYS", "b"), ("TAGS", "a")]], [*same, [("TAGS", "\x02"), ("KEYS", "")]]):
        properties_of_batch(pa.record_batch({"properties": pa.array(rows, MAP)}))
    assert made == [True, False, False]
    # all rows alike, but in names that need more than to be written down, or come twice: it is not even asked
    for names in (["DELAY"], ["a", "a"], ["TAGS", "DELAY", "DELAY"]):
        alike = pa.array([[(name, "3") for name in names]] * 3, MAP)
        assert not properties_of_batch(pa.record_batch({"properties": alike})).usual.any(), names
    assert len(made) == 3


def test_a_missing_value_and_a_separator_too_many_do_not_make_up_for_each_other() -> None:
    """Of all segments together there are as many separators as there should be."""
    rows = [[("a", None)], [("a", "b\x02c")]]
    for some, usual in ((rows, [False, False]), ([[("a", "b")], *rows], [True, False, False])):
        assert properties_of_batch(pa.record_batch({"properties": pa.array(some, MAP)})).usual.tolist() == usual


def _as_others_write(values: list[str], kind: pa.DataType) -> pa.Array:
    """Texts whose buffer of offsets has bytes behind the last one, of no whole number; and none where there is none."""
    _, offsets, data = pa.array(values, kind).buffers()
    more = pa.py_buffer(offsets.to_pybytes() + b"end" if values else b"")
    return pa.Array.from_buffers(kind, len(values), [None, more, data])


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_offsets_with_more_bytes_than_needed(monkeypatch: pytest.MonkeyPatch, count: int, is_at_once: bool) -> None:
    """Found by fuzzing."""
    if not is_at_once:
        monkeypatch.setattr(arrow, "_joined_properties", lambda *_: None)
    names, items = (_as_others_write([text] * count, pa.string()) for text in ("name", "value"))
    column = pa.MapArray.from_arrays(pa.array(range(count + 1), pa.int32()), names, items)
    column.validate(full=True)
    stored = _stored(properties_of_batch(pa.record_batch({"properties": column})))
    assert stored == [encode_properties({"name": "value"})] * count
    spans = value_spans(_as_others_write(["body"] * count, pa.large_string()))
    found = zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)
    assert [bytes(spans.held[begin:end]) for begin, end in found] == [b"body"] * count
