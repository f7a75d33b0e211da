"""Options of the data source: defaults, spellings, and a sentence for each wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.spark.options import CLOCK_TOLERANCE, OPTIONS, SourceOptions, parse_options
from rmqctl.pipeline.splits import SPLIT_SIZE
from rmqctl.pipeline.views import TABLES


def test_only_the_path_is_needed() -> None:
    assert parse_options({"path": "/data/store"}) == SourceOptions("/data/store")
    assert parse_options({"store": "/data/store"}).path == "/data/store"
    assert SourceOptions("/data/store")[1:6] == (None, "messages", None, SPLIT_SIZE, CLOCK_TOLERANCE)
    assert parse_options({"path": "here"}).path == str(Path.cwd() / "here")


def test_every_option_is_understood_in_any_case() -> None:
    given = {
        "Path": "/s",
        "CONFIG": "/broker.conf",
        "view": "Messages",
        "columns": " Topic, queue_id ,",
        "splitSize": "64m",
        "clockTolerance": "90s",
        "startingOffset": "1000",
        "max_bytes": "1 GiB",
        "fail_on_data_loss": "False",
        "onChangedLog": "Fork",
        "endingOffset": "5000",
        "subscribe": "a, b,",
        "minPartitions": "7",
        "storeColumns": "true",
        "pushFilters": "True",
        "maxOffsetsPerTrigger": "1000",
        "keys": " a b",
        "keyIndex": "Trusted",
        "storageOptions": '{"s3": {"anon": true}}',
        "newStores": "Latest",
        "failOnDamage": "True",
    }
    wanted = SourceOptions(
        "/s", "/broker.conf", "messages", ("topic", "queue_id"), 64 << 20, 90_000, 1000, 1 << 30, False, "fork", 5000,
        frozenset("ab"), None, 7, None, True, (), ("/broker.conf",), None, True, None, 1000, (),
        frozenset("ab"), "trusted", '{"s3": {"anon": true}}', "latest", True,
    )  # fmt: skip
    assert parse_options(given) == wanted
    others = {"subscribepattern", "startingtimestamp", "endingtimestamp"}
    names = {name.lower().replace("_", "").replace("offsetspertrigger", "messages") for name in given} | others
    assert names == {name.replace("_", "") for name in OPTIONS}


def test_the_names_of_the_source_kafka_are_understood() -> None:
    given = {
        "startingOffsets": "latest",
        "endingOffsets": "900",
        "failOnDataLoss": "false",
        "minPartitions": "3",
        "subscribePattern": "Order.*",
    }
    options = parse_options({"path": "/s", **given})
    assert (options.starting_offset, options.ending_offset, options.fail_on_data_loss) == ("latest", 900, False)
    assert (options.min_partitions, options.topic_pattern, options.topics) == (3, "Order.*", None)
    assert parse_options({"path": "/s", "startingTimestamp": "1795217376500"}).starting_timestamp == 1_795_217_376_500
    assert parse_options({"path": "/s", "endingTimestamp": "7"}).ending_timestamp == 7
    assert parse_options({"path": "/s", "maxOffsetsPerTrigger": "1000"}).max_messages == 1000
    with pytest.raises(UsageError) as raised:
        parse_options({"path": "/s", "assign": '{"a": [0]}'})
    assert "subscribe" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("split_size", "0", 0),
        ("split_size", "1000", 1000),
        ("split_size", "2kb", 2048),
        ("clock_tolerance", "none", None),
        ("clock_tolerance", "250ms", 250),
        ("clock_tolerance", "2d", 172_800_000),
        ("starting_offset", "LATEST", "latest"),
        ("max_bytes", "0", None),
    ],
)
def test_values(option: str, text: str, value: object) -> None:
    assert getattr(parse_options({"path": "/s", option: text}), option) == value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no store is named"),
        ({"path": "/s", "colums": "topic"}, "no option 'colums'"),
        ({"path": "/s", "view": "queues"}, "no view 'queues'"),
        ({"path": "/s", "columns": "topic,queue"}, "messages has no column 'queue'"),
        ({"path": "/s", "view": "topics", "columns": "body"}, "topics has no column 'body'"),
        ({"path": "/s", "columns": "topic,Topic"}, "twice"),
        ({"path": "/s", "columns": ","}, "no column"),
        ({"path": "/s", "split_size": "-1"}, "is no size"),
        ({"path": "/s", "split_size": "1_000"}, "is no size"),
        ({"path": "/s", "clock_tolerance": "1"}, "is no time"),
        ({"path": "/s", "starting_offset": "first"}, "starting_offset"),
        ({"path": "/s", "fail_on_data_loss": "no"}, "neither true nor false"),
        ({"path": "/s", "on_changed_log": "go on"}, "on_changed_log='go on' is invalid"),
        ({"path": "/s", "ending_offset": "-1"}, "ending_offset"),
        ({"path": "/s", "subscribe": " ,"}, "names no topic"),
        ({"path": "/s", "subscribePattern": "("}, "no regular expression"),
        ({"path": "/s", "subscribe": "a", "subscribePattern": "b"}, "both"),
        ({"path": "/s", "startingOffsets": "7", "startingTimestamp": "8"}, "both"),
        ({"path": "/s", "endingOffsets": "7", "endingTimestamp": "8"}, "both"),
        ({"path": "/s", "min_partitions": "0"}, "1 or more"),
        ({"path": "/s", "store": "/t"}, "option path is given twice"),
        ({"path": "/s", "paths": '["/s", "/t"]'}, "option path is given twice"),
        ({"path": "/s", "startingOffset": "7", "startingOffsets": "8"}, "option starting_offset is given twice"),
        ({"path": "/s", "view": "topics", "columns": "stores"}, "topics has no column 'stores'"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_options(given)


def test_offsets_queue_by_queue() -> None:
    given = {
        "startingOffsets": '{"Pay": {"0": 23, "1": -1}, "Log": {"7": -2}}',
        "endingOffsets": '{"Pay": {"0": 30, "3": -1}}',
    }
    options = parse_options({"path": "/s", **given})
    most = (1 << 63) - 1
    assert options.queue_bounds == (
        ("Log", 7, 0, most), ("Pay", 0, 23, 30), ("Pay", 1, most, most), ("Pay", 3, 0, most),
    )  # fmt: skip
    assert options.topics == frozenset(("Pay", "Log"))
    assert (options.starting_offset, options.ending_offset) == ("earliest", None)
    assert parse_options({"path": "/s", "subscribe": "Pay", **given}).topics == frozenset(("Pay",))


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("startingOffsets", '{"a": {"0": 1}', "starting_offset is no JSON"),
        ("startingOffsets", "{}", "names no queue"),
        ("startingOffsets", '{"a": 7}', "says 7 of 'a'"),
        ("startingOffsets", '{"a": {"x": 7}}', "says 7 of queue 'x' of a"),
        ("startingOffsets", '{"a": {"0": -3}}', "says -3 of queue '0' of a"),
        ("startingOffsets", '{"a": {"0": true}}', "says True of queue '0' of a"),
        ("endingOffsets", '{"a": {"0": -2}}', "the earliest: no message is before it"),
    ],
)
def test_what_is_no_offset_of_a_queue(option: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_options({"path": "/s", option: text})


def test_every_view_and_column_says_what_it_is() -> None:
    assert list(TABLES) == [
        "messages", "copied_messages", "consumequeue", "index_entries", "consumer_offsets", "topics", "findings",
    ]  # fmt: skip
    for table in TABLES.values():
        assert table.about
        assert all(column.about and column.kind for column in table.columns.values())


def test_the_documents_name_every_view_and_option() -> None:
    for document, names in (("sql.md", TABLES), ("spark.md", OPTIONS)):
        text = (Path(__file__).parents[3] / "docs" / document).read_text(encoding="utf-8")
        assert [name for name in names if f"| `{name}` |" not in text] == []
