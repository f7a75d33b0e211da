"""A broker in this process for the tests of push consumers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqctl.network.serving import LocalBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.push.pushing import Pushing


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)
    path = tmp_path_factory.mktemp("pushing") / "store"
    with MessageStore.open(path, "rw", config, create=True) as store, LocalBroker(store) as broker:
        yield broker


@pytest.fixture
def pushing(served: LocalBroker) -> Pushing:
    return Pushing(served)
