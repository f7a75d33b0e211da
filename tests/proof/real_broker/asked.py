"""How a story asks for a broker: it yields what is to be opened, all at once, and is sent what the brokers saw."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from rmqctl.store.config.config import StoreConfig
from tests.interop.harness import Job
from tests.interop.views import BrokerView
from tests.proof.real_broker.seen import Key


class Asked(NamedTuple):
    """A store to open with a version."""

    version: str
    job: Job


_Result = TypeVar("_Result")
Story = Generator[list[Asked], list[BrokerView], _Result]
"""What it comes to in the end is its result."""


class Store(NamedTuple):
    """Where a store is, and its settings: for brokers, and for ours."""

    root: Path
    settings: dict[str, str]
    config: StoreConfig

    def asked(self, version: str, keys: Iterable[Key]) -> Asked:
        """To be opened as it is."""
        return Asked(version, Job(self.root, self.settings, tuple(keys)))

    def copied(self, name: str) -> Store:
        """A copy beside it, times included."""
        root = self.root.with_name(name)
        shutil.copytree(self.root, root)
        return self._replace(root=root)
