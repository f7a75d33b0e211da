"""Ours and the real brokers take turns with random stores, which are then damaged, predicted and recovered.

A case is a round of stores, because the JVM that opens them takes seconds, and any number of them. Each store is a
story of its own, by its own chance, that asks for brokers and goes on with what they saw.
"""

from __future__ import annotations

import functools
import random
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interop import harness
from tests.interop.harness import VERSIONS
from tests.interop.views import BrokerView
from tests.proof.proving import Case
from tests.proof.real_broker.asked import Asked, Story
from tests.proof.real_broker.story import story

_STORES = 10
_THREADS = 12


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` stores, in rounds."""
    for first in range(0, count, _STORES):
        numbers = range(first, min(count, first + _STORES))
        yield f"stores-{numbers[0]}-{numbers[-1]}", functools.partial(_try, seed, numbers)


def _try(seed: int, numbers: Iterable[int], folder: Path) -> None:
    stories = {number: story(random.Random(f"{seed}-{number}"), folder / str(number)) for number in numbers}
    asked: dict[int, list[Asked]] = {}
    answers: dict[int, list[BrokerView]] = {}
    wrong: list[str] = []
    while stories:
        for number, one in list(stories.items()):
            try:
                asked[number] = _go_on(one, answers.get(number))
            except StopIteration:
                del stories[number]
                shutil.rmtree(folder / str(number))
            except Exception as error:  # noqa: BLE001 - whatever went wrong is told of its store
                del stories[number]
                wrong.append(f"store {number}: {type(error).__name__}: {error}")
        asked = {number: asked[number] for number in stories}
        answers = _answers(asked)
    assert not wrong, "\n".join(wrong)


def _go_on(one: Story[None], views: list[BrokerView] | None) -> list[Asked]:
    return next(one) if views is None else one.send(views)


def _answers(asked: dict[int, list[Asked]]) -> dict[int, list[BrokerView]]:
    """What the brokers saw, in the order of the questions: one JVM of each version, both at the same time."""
    found: dict[tuple[int, int], BrokerView] = {}

    def ask(version: str) -> None:
        places = [
            (number, place)
            for number, some in asked.items()
            for place, one in enumerate(some)
            if one.version == version
        ]
        if places:
            jobs = [asked[number][place].job for number, place in places]
            found.update(zip(places, harness.open_many(version, jobs, threads=_THREADS), strict=True))

    with ThreadPoolExecutor(len(VERSIONS)) as pool:
        list(pool.map(ask, VERSIONS))
    return {number: [found[number, place] for place in range(len(some))] for number, some in asked.items()}
