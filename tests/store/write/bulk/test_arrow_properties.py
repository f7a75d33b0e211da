"""Properties of a record batch, whatever Arrow type its maker gave them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.message_store import MessageStore
from tests.store.write.writing import SMALL, stored_messages

pa = pytest.importorskip("pyarrow")


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.field("element", pa.string(), nullable=False)), pa.list_(pa.large_string())], ids=str
)
def test_keys_may_be_lists_of_any_texts(tmp_path: Path, kind: Any) -> None:
    """Spark says of many texts that they are never null."""
    keys = pa.array([["a", "b"], None, []], kind)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put_columns(pa.record_batch({"topic": ["T"] * 3, "body": ["b"] * 3, "keys": keys}))
    assert [one.properties().get("KEYS") for one in stored_messages(tmp_path / "s")] == ["a b", None, None]
