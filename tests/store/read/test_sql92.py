"""SQL92 filters: what RocketMQ 5.5.0 said of random expressions (tests/golden/clients/filters.jsonl), hostile ones, and
the filter among the other criteria."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.store import MessageStore
from rmqctl.store.read import sql92
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.sql92 import SqlFilter
from tests.opened import store_path

KEPT = Path(__file__).parents[2] / "golden" / "clients" / "filters.jsonl"


def judged(expression: str, properties: dict[str, str]) -> str:
    """Return what Filters.java prints for the same."""
    try:
        value = sql92._understood(expression)[0](properties)
    except UsageError:
        return "invalid"
    except sql92._NotComparableError:
        return "error"
    return {None: "null", True: "true", False: "false"}[value]


def test_each_expression_is_judged_as_by_rocketmq() -> None:
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 280
    differing = [row for row in rows if judged(*row[1:]) != row[0]]
    assert differing == []


@pytest.mark.parametrize("verdict", ["true", "false", "null", "error"])
def test_only_what_is_true_passes(verdict: str) -> None:
    expression = {"true": "a = 'x'", "false": "a = 'y'", "null": "b = 'x'", "error": "a > 5"}[verdict]
    found = SqlFilter(expression)
    assert judged(expression, {"a": "x"}) == verdict
    assert found.matches_properties({"a": "x"}) == found.matches_stored(b"a\x01x\x02") == (verdict == "true")


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("a = ", "ends too early"),
        ("a = 1 #", r"unexpected '#' at character 7"),
        ("a > 'x'", "> compares numbers"),
        ("a = NULL", "use IS NULL"),
        ("5", "a condition is needed"),
        ("5 IN ('x')", "needs a property"),
        ("a BETWEEN 5 AND 3", "is empty"),
        ("a = 9223372036854775808", "more than 64 bits"),
        ("a" * 40_000, "too long"),
        ("(" * 101 + "a = 1" + ")" * 101 + " OR " + "NOT " * 200 + "a", "inside each other"),
        ("NOT " * 8_000, "ends too early"),
        (f"a = {'9' * 5_000}", "more than 64 bits"),
        (f"a = {'9' * 5_000}L", "9…? has more than 64 bits"),
        (f"a > {'9' * 5_000}.5", "does not fit into 64 bits"),
    ],
)
def test_an_invalid_filter_is_refused_with_its_reason(expression: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        SqlFilter(expression)


def test_a_long_flat_filter_is_taken() -> None:
    found = SqlFilter(" OR ".join(f"a = {number}" for number in range(2000)))
    assert found.matches_properties({"a": "1999"})
    assert not found.matches_properties({"a": "2000"})


def test_a_text_of_dashes_takes_no_longer_than_another() -> None:
    """Each `--` may begin a comment that has no end."""
    for expression in ("-" * 30_000 + "1 > a", "a = 1 OR a = " + f"{'-' * 99}1 OR a = " * 280, "\n" + "-" * 30_000):
        begin = time.process_time()
        with pytest.raises(UsageError):
            SqlFilter(expression)
        assert time.process_time() - begin < 3


@pytest.mark.parametrize(
    ("expression", "passes"),
    [
        ("a = 1 -- OR a = 2\n", False),
        ("-- a = 1\r\na = 2", True),
        ("a = '--\n' OR a = 2", True),
        ("a = /* -- \n ' */ 2", True),
        ("-- it's\na = 2 -- it's\n", True),
        ("a = 2 -- 1", True),
        ("a = - -2", True),
    ],
)
def test_line_comments_end_with_their_line(expression: str, passes: bool) -> None:
    assert SqlFilter(expression).matches_properties({"a": "2"}) is passes


def test_what_follows_a_filter_is_known() -> None:
    assert SqlFilter("a LIKE 'x%'").ignored == "LIKE 'x%'"
    assert SqlFilter("a = 1 -- y\n garbage").ignored == "garbage"
    assert SqlFilter("a = 1 ").ignored == ""


def test_a_filter_arrives_in_another_process() -> None:
    copy = pickle.loads(pickle.dumps(SqlFilter("a BETWEEN 1 AND 3")))
    assert copy.matches_properties({"a": "2"})
    assert not copy.matches_properties({"a": "4"})


@pytest.mark.parametrize("order", ["log", "queue"])
def test_messages_are_chosen_by_their_properties(order: str) -> None:
    def chosen(criteria: Criteria) -> list[StoredMessage]:
        with MessageStore.open(store_path("broker-real")) as store:
            return list(store.messages(criteria, order="log" if order == "log" else "queue"))

    everything = chosen(Criteria("Orders"))
    expected = [one.physical_offset for one in everything if one.properties().get("TAGS") == "pay"]
    criteria = Criteria("Orders", sql="TAGS = 'pay' AND KEYS IS NOT NULL OR missing > 3")
    assert [one.physical_offset for one in chosen(criteria)] == expected
    assert 0 < len(expected) < len(everything)
    assert criteria.described() == {"topic": "Orders", "filter": "TAGS = 'pay' AND KEYS IS NOT NULL OR missing > 3"}
    assert not criteria.matches_all
