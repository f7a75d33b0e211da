"""Paths of a store, and topic names that must not lead out of it (law 7)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.errors import UsageError
from rmqctl.store.files.layout import (
    StoreLayout,
    file_name,
    is_file_name,
    is_safe_topic,
    looks_like_store,
    topic_directory,
)
from tests.goldens import truth

ROOT = Path("/store")


def test_file_names_are_those_of_rocketmq() -> None:
    names = {Path(row["path"]).name for row in truth("clean").summary["filesBefore"] if "commitlog/" in row["path"]}
    assert names == {file_name(number * 262144) for number in range(9)}
    assert file_name(0) == "00000000000000000000"
    assert file_name((1 << 63) - 1) == "09223372036854775807"


NOUGHTS = "0" * 19


@pytest.mark.parametrize(
    "name", ["", "0", NOUGHTS, NOUGHTS + "00", NOUGHTS + "x", "-" + NOUGHTS, "０" * 20, "٠" * 20, NOUGHTS + "\n"]
)
def test_other_names_are_none(name: str) -> None:
    assert not is_file_name(name)


@pytest.mark.parametrize("topic", sorted({row["topic"] for row in truth("clean").queues}))
def test_real_topics_are_directories(topic: str) -> None:
    assert topic_directory(ROOT / "consumequeue", topic) == ROOT / "consumequeue" / topic


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "/", "/etc", "../x", "a/../../b", "a/b", "\0", "a\0b", "t" * 256, "ü" * 128, "\ud800" * 86],
)
def test_names_that_lead_elsewhere(topic: str) -> None:
    assert not is_safe_topic(topic)
    with pytest.raises(UsageError) as error:
        topic_directory(ROOT, topic)
    assert error.value.hint


@pytest.mark.parametrize(
    "topic", ["a", "...", ".hidden", "..a", "a b", "a\\b", "%RETRY%x", "t" * 255, "\u202eevil", "\n"]
)
def test_odd_names_that_stay_inside(topic: str) -> None:
    assert topic_directory(ROOT, topic).parent == ROOT


@given(st.text())
def test_a_topic_never_leaves_its_folder(topic: str) -> None:
    if is_safe_topic(topic):
        path = topic_directory(ROOT / "queues", topic)
        assert path.parent == ROOT / "queues"
        assert path.resolve().parent == ROOT / "queues"


def test_all_paths_are_inside_the_store_but_what_is_kept() -> None:
    layout = StoreLayout(Path("/data/store"), (Path("/data/store/commitlog"),))
    inside = [layout.consumequeue, layout.consumequeue_ext, layout.batchconsumequeue, layout.index, layout.checkpoint,
              layout.abort, layout.lock, layout.config]  # fmt: skip
    assert {path.parent for path in inside} == {layout.root}
    assert len(set(inside)) == len(inside)
    assert layout.kept == Path("/data/store.rmqctl")


@pytest.mark.parametrize(
    ("names", "is_one"),
    [
        (["commitlog"], True),
        (["consumequeue", "index"], True),
        (["consumequeue", "config"], True),
        (["consumequeue", "checkpoint"], True),
        (["consumequeue"], False),
        (["index", "config", "checkpoint"], False),
        ([], False),
    ],
)
def test_which_folders_look_like_stores(names: list[str], is_one: bool, tmp_path: Path) -> None:
    """Nothing is made of a folder of somebody else: queues or a configuration alone are not enough."""
    for name in names:
        (tmp_path / name).mkdir()
    assert looks_like_store(tmp_path) == is_one
