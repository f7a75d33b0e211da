"""A broker with a gRPC port in a thread of the test's process, and plain calls to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="the extra grpc is not installed")

from rmqctl.network.grpc import activities
from tests.network.grpc.calling import Calling

Make = Callable[..., Calling]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Brokers over one store, one after the other; ended in the end. Their clients may wait for less than 5 s."""
    monkeypatch.setattr(activities, "_SHORTEST_POLL_MS", 100)
    made: list[Calling] = []

    def one(*topics: str, **more: Any) -> Calling:
        if made:
            made[-1].close()
        made.append(Calling(tmp_path / "store", *topics, **more))
        return made[-1]

    yield one
    for calling in made:
        calling.close()
