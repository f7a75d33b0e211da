"""What is recorded and cut: each workload with the store that it finds, and what has to hold of every state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rmqctl.store.config.config import StoreConfig
from tests.proof.crash import appending
from tests.proof.crash.state import State
from tests.store.journal.commands import CONFIG

Tell = Callable[[object], None]


class Workload(NamedTuple):
    """`prepare` makes what lies below the folder before the work; the store is `s` in there. `work` gets the store and
    what it tells of its progress. `check` raises AssertionError if a state is not as promised."""

    prepare: Callable[[Path], object]
    work: Callable[[Path, Tell], object]
    check: Callable[[State], None]
    config: StoreConfig = CONFIG


def _nothing(_root: Path) -> None:
    """A store that is not there yet."""


def _append(work: Callable[[Path, Tell, StoreConfig], None], config: StoreConfig) -> Workload:
    return Workload(_nothing, partial(work, config=config), appending.check_appended, config)


WORKLOADS: dict[str, Workload] = {
    "append, sync": _append(appending.append_one_by_one, appending.SYNC),
}
"""By name; the quick run has the first ones."""
