"""Which topics are meant, and which names and patterns nobody goes by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store.read.filter import TopicFilter, configured_topics, is_pattern, known_topics, unmet_names
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.opened import reader

TOPICS = ["Orders", "Orders2", "orders", "rmq_sys_x", "TBW102", "%RETRY%g"]


@pytest.mark.parametrize(
    ("names", "system_topics", "meant"),
    [
        ((), True, TOPICS),
        ((), False, ["Orders", "Orders2", "orders", "%RETRY%g"]),
        (("Orders",), True, ["Orders"]),
        (("Orders", "orders"), True, ["Orders", "orders"]),
        (("Orders?",), True, ["Orders2"]),
        (("[Oo]rders",), True, ["Orders", "orders"]),
        (("*",), True, TOPICS),
        (("*",), False, ["Orders", "Orders2", "orders", "%RETRY%g"]),
        (("orders", "*2"), True, ["Orders2", "orders", "TBW102"]),
        (("*2", "TBW102"), False, ["Orders2", "TBW102"]),
        (("rmq_sys_x",), False, ["rmq_sys_x"]),
        (("rder",), True, []),
        (("none*",), True, []),
    ],
)
def test_names_and_patterns(names: tuple[str, ...], system_topics: bool, meant: list[str]) -> None:
    topics = TopicFilter(names, system_topics=system_topics)
    # asked twice, as of many messages of few topics
    for _ in range(2):
        assert [topic for topic in TOPICS if topics.matches(topic)] == meant
    assert topics.is_all == (not names and system_topics)


def test_the_one_topic_that_is_meant() -> None:
    assert TopicFilter(["T"]).only == "T"
    assert TopicFilter(["T", "T"]).only == "T"
    for several in ([], ["T", "U"], ["T*"], ["T", "U*"]):
        assert TopicFilter(several).only is None
    assert TopicFilter(["T", "U", "T"]).names == ("T", "U")


def test_a_topic_may_look_like_a_pattern() -> None:
    topics = TopicFilter.of_one("T[a]*")
    assert topics.matches("T[a]*")
    assert not topics.matches("Ta")
    assert topics.only == "T[a]*"
    assert not topics.is_all


def test_what_makes_a_pattern() -> None:
    assert [is_pattern(name) for name in ("T*", "T?", "T[ab]", "T", "T]", "%T|-_")] == [True] * 3 + [False] * 3


def test_names_that_no_topic_goes_by() -> None:
    assert TopicFilter(["Orders", "none", "*2", "x*"]).unmet(iter(TOPICS)) == ["none", "x*"]
    # a pattern does not mean the system's topics, but a name does
    assert TopicFilter(["rmq*", "rmq_sys_x"], system_topics=False).unmet(TOPICS) == ["rmq*"]
    assert TopicFilter(["rmq*"]).unmet(TOPICS) == []
    assert TopicFilter().unmet(TOPICS) == []


def test_topics_are_known_by_their_queues_and_by_the_configuration(golden_store: GoldenStore) -> None:
    store = golden_store("features")
    config = store / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"OnlyConfigured": {}, "Another": {}}}))
    with StoreFiles(store) as files:
        queues = files.queues.topics()
        assert queues
        assert known_topics(files) == sorted([*queues, "Another", "OnlyConfigured"])
        assert unmet_names(files, TopicFilter(["OnlyConfigured", "none", queues[0]])) == ["none"]
        assert unmet_names(files, TopicFilter()) == []


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"topicConfigTable": []}'])
def test_a_configuration_that_says_nothing_names_no_topic(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "topics.json").write_text(content)
    assert configured_topics(tmp_path) == []


def test_topics_of_a_store_with_rocksdb_queues(golden_store: GoldenStore) -> None:
    """The database names them; where it cannot be read the configuration does, and without one nobody can say."""
    store = golden_store("rocksdb")
    with StoreFiles(store) as files:
        assert "TopicTest" in known_topics(files)
        assert StoreReader(files).has_topic("none") is False
    (store / "consumequeue/CURRENT").write_text("MANIFEST-000099\n")
    with StoreFiles(store) as files:
        with pytest.raises(CorruptError):
            known_topics(files)
        assert unmet_names(files, TopicFilter(["none"])) == []
        assert StoreReader(files).has_topic("none") is None
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").write_text('{"topicConfigTable": {"A": {}}}')
    with StoreFiles(store) as files:
        assert known_topics(files) == ["A"]
        assert unmet_names(files, TopicFilter(["none", "A"])) == ["none"]
        assert [StoreReader(files).has_topic(name) for name in ("A", "none")] == [True, False]


def test_whether_a_store_has_a_topic() -> None:
    assert reader("clean").has_topic("OrderTopic") is True
    assert reader("clean").has_topic("OrderTopik") is False
