"""A real query with a checkpoint over two real brokers' stores, of which one rolls, is cleaned, is cut and grows again,
and over a third one that comes later; its driver is killed."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.pipeline.source.test_stream_changed import Query, Writing
from tests.pipeline.stream_soak import killed_in_mid_batch, stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _notices(folder: Path) -> dict[str, str]:
    """Of the last offset in the checkpoint, by the name of the store."""
    last = max((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    content = json.loads(last.read_text().splitlines()[-1])
    return {Path(path).name: one["notice"] for path, one in content["stores"].items() if "notice" in one}


def test_each_message_once_whatever_happens_to_one_of_the_stores(spark: SparkSession, tmp_path: Path) -> None:
    changed, other = Writing(tmp_path / "broker-a"), Writing(tmp_path / "broker-b")
    with changed, other:
        # a driver of its own, which has a JVM to be killed with it
        assert killed_in_mid_batch(tmp_path, random.Random(1)) > 1
    other.put(30)
    changed.put(100)
    query = Query(spark, tmp_path, stores(tmp_path))
    query.take()
    assert changed.clean() > 0
    changed.put(80)  # more than will be cut away
    query.take()
    assert query.read() == Counter([*changed.keys.values(), *other.keys.values()])

    gone = changed.cut(50)
    new = changed.put(120)
    other.put(30)
    with pytest.raises(StreamingQueryException, match=r"broker-a: .*was cut back since: .*on_changed_log"):
        query.take()
    third = Writing(tmp_path / "broker-c")
    third.put(40)
    query.take(on_changed_log="fork")
    for writing in (changed, other, third):
        writing.store.close()
    found = query.read()
    assert {found[key] for writing in (other, third) for key in writing.keys.values()} == {1}
    assert {found[key] for key in (*new, *gone)} == {1}
    kept = [key for key in changed.keys.values() if key not in new]
    again = [key for key in kept if found[key] > 1]
    assert again == kept[len(kept) - len(again) :]
    assert len(again) < len(gone)
    assert found.keys() == {*kept, *new, *gone, *other.keys.values(), *third.keys.values()}
