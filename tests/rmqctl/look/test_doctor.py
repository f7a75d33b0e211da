"""`rmqctl doctor`: its verdict is that of `info`, `check` and `predict` together."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store import MessageStore
from tests.goldens import tree_state
from tests.opened import store_path
from tests.rmqctl.looking import run


@pytest.mark.parametrize(
    ("name", "broker", "state", "code"),
    [
        ("clean", "5.5.0", "healthy", 0),
        ("crash", "5.3.3", "damaged", 1),
        ("crc-flip-last", "4.9.8", "damaged", 1),
        ("stray-file", "5.3.3", "refuses", 1),
        ("broker-real", "4.9.8", "loses", 1),
    ],
)
def test_the_verdict_is_that_of_the_three(name: str, broker: str, state: str, code: int) -> None:
    store = store_path(name)
    before = tree_state(store)
    done = run("doctor", store, "--broker", broker, "--json")
    [found] = done.objects
    checked = run("check", "-s", store, "--summary", "--json").objects
    assert (found["state"], done.code) == (state, code)
    assert found["check"]["codes"] == checked[-1]["summary"]["codes"]
    assert sum(one["count"] for one in found["findings"]) == len(checked) - 1
    assert {one["fix"] for one in found["findings"]} == {one["fix"] for one in checked[:-1]}
    assert [found["predict"]] == run("predict", "-s", store, "--broker", broker, "--json").objects
    assert found["info"]["commitlog"]["messages"] == found["check"]["messages"]
    table = run("doctor", "-s", store, "--broker", broker)
    assert table.code == done.code
    assert table.out.startswith(found["sentence"])
    assert tree_state(store) == before


def test_an_open_store_is_not_predicted(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", "rw", create=True):
        done = run("doctor", tmp_path / "store", "--json")
    [found] = done.objects
    assert (done.code, found["state"], found["next"], found["predict"]) == (0, "in-use", None, None)


def test_two_stores_are_one_too_many(tmp_path: Path) -> None:
    done = run("doctor", tmp_path, "-s", tmp_path)
    assert done.code == exit_codes.USAGE
    assert "two stores" in done.err
