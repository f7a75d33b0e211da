"""The literals that a regular expression requires, and the rows that contain them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.native.tables import Columns
from rmqctl.store.read.filter import Criteria, Grep, required_literals
from rmqctl.store.read.row_filter import RowChooser
from tests import opened, quick
from tests.quick import goldens_of


@pytest.mark.parametrize(
    ("expression", "literals"),
    [
        ("order-17", ["order-17"]),
        ("order-17|timeout", ["order-17", "timeout"]),
        ("total=250", ["total"]),
        (r"order\.17", ["order.17"]),
        ("ordering?", ["orderin"]),
        ("orders*", ["order"]),
        ("orders+x", ["orders"]),
        ("orders{0,3}", ["order"]),
        ("orders{}", ["order"]),
        ("^order[0-9]timeout$", ["timeout"]),
        ("(paid|open)-order", ["-order"]),
        ('"id": 17', ['"id": 17']),
        ("größe", ["größe"]),
        (r"\border\b", ["order"]),
        # nothing is certain of these
        ("", []),
        ("ab", []),
        ("order|.", []),
        ("(order)?", []),
        ("(?i)order", []),
        (r"\x41order", []),
        (r"\N{DIGIT ONE}order", []),
        ("[order]", []),
    ],
)
def test_the_literals_that_are_certain(expression: str, literals: list[str]) -> None:
    found = sorted(one.decode() for one in required_literals(expression))
    assert found == sorted(literals)


@settings(max_examples=quick.examples(400))
@given(st.data())
def test_a_match_contains_one_of_the_literals(data: st.DataObject) -> None:
    parts = [
        "abc",
        "def",
        "g",
        r"\.",
        r"\d",
        ".",
        "[xyz]",
        "[]|a]",
        "(abc|def)",
        "(ghi)?",
        "?",
        "*",
        "+",
        "{2}",
        "{0,1}",
        "|",
    ]
    expression = "".join(data.draw(st.lists(st.sampled_from(parts), min_size=1, max_size=8)))
    try:
        re.compile(expression)
    except re.error:
        return
    literals = required_literals(expression)
    text = data.draw(st.from_regex(expression))
    if literals and re.search(expression, text):
        stored = text.encode("utf-8", "surrogatepass")
        assert any(literal in stored for literal in literals), (expression, literals, text)


@pytest.mark.parametrize("name", goldens_of(["clean", "features", "v4-features", "innerbatch"]))
@pytest.mark.parametrize("expression", ["user", "TagA|Orders", "UNIQ_KEY=", "0000000", "nothing of the kind", "body"])
def test_the_columns_choose_what_the_messages_say(name: str, expression: str) -> None:
    log = opened.reader(name).files.log
    chooser = RowChooser(Criteria(grep=expression))
    exact = Grep(expression)
    assert exact.literals
    for batch in walk_columns(log, columns=chooser.needs | Columns.HEAD):
        if isinstance(batch, MessageColumns):
            rows = chooser.rows(batch)
            chosen = list(range(batch.rows)) if rows is None else rows.tolist()
            assert chosen == [row for row in range(batch.rows) if exact.matches(batch.message(row))]
