"""What the proof against real brokers would notice, shown without them; tests/interop/test_proof.py runs it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.store.config.config import config_from_properties
from tests.goldens import tree_state
from tests.processes import ROOT
from tests.proof.real_broker import seen
from tests.proof.real_broker.damage import damage
from tests.proof.real_broker.seen import Key, Seen
from tests.proof.real_broker.table import DIFFERENCES, unexplained
from tests.proof.real_broker.workload import SETTINGS, put_some

CONFIG = config_from_properties({name.removeprefix("store."): value for name, value in SETTINGS.items()})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seen]:
    """A store, and what ours sees in it."""
    root = tmp_path_factory.mktemp("real") / "store"
    slots = put_some(root, CONFIG, random.Random(3), kill=False)
    every = seen.by_us(root, CONFIG, ())
    assert slots == every.messages.keys()
    keys: list[Key] = [(slot.topic, key) for slot, facts in every.messages.items() for key in facts.index_keys() if key]
    return root, seen.by_us(root, CONFIG, keys[:5])


def _message(one: Seen) -> Seen:
    slot, facts = next(iter(one.messages.items()))
    return one._replace(messages=one.messages | {slot: facts._replace(body_sha256="")})


def _lost(one: Seen) -> Seen:
    return one.without({next(iter(one.messages))})


def _unit(one: Seen) -> Seen:
    key, queue = next((key, queue) for key, queue in one.queues.items() if queue.units)
    at, size, tags_code = queue.units[-1]
    return one._replace(queues=one.queues | {key: queue._replace(units=[*queue.units[:-1], (at, size, tags_code + 1)])})


def _begin(one: Seen) -> Seen:
    key, queue = next(iter(one.queues.items()))
    return one._replace(queues=one.queues | {key: queue._replace(begin=queue.begin + 1)})


def _answer(one: Seen) -> Seen:
    key, offsets = next((key, offsets) for key, offsets in one.answers.items() if offsets)
    return one._replace(answers=one.answers | {key: offsets - {max(offsets)}})


@pytest.mark.parametrize("changed", [_message, _lost, _unit, _begin, _answer])
def test_a_difference_is_noticed_and_not_explained(made: tuple[Path, Seen], changed: Callable[[Seen], Seen]) -> None:
    _, ours = made
    assert seen.differences(ours, ours) == seen.lacks(ours, ours) == []
    for told in (seen.differences(ours, changed(ours)), seen.lacks(ours, changed(ours))):
        assert told
        assert unexplained(told) == told


def test_all_kinds_of_files_are_damaged(made: tuple[Path, Seen], tmp_path: Path) -> None:
    root, _ = made
    store = tmp_path / "store"
    shutil.copytree(root, store)
    (store / "config").mkdir()
    (store / "config/topics.json").write_text("{}")
    kinds = set()
    for number in range(60):
        before = tree_state(store)
        told = damage(store, random.Random(number))
        changed = {name for name, state in tree_state(store).items() if before.get(name) != state}
        assert bool(told) or not changed
        kinds |= {text.split("/")[0].split(" ")[0] for text in told}
    assert kinds >= {"abort", "checkpoint", "commitlog", "config", "consumequeue", "index"}


def test_every_row_of_the_table_names_a_page() -> None:
    for row in DIFFERENCES:
        assert (ROOT / row.page).exists(), row.name
        assert row.why
