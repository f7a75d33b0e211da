"""What is kept of RocketMQ's clients in tests/golden/clients is what they say; progress files go both ways."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqctl.network.clients.push.member import LocalOffsets, local_offsets_path
from rmqctl.network.remoting.codec import MessageQueue
from rmqctl.network.unique_ids import own_address
from tests.interop.brokers import java
from tests.interop.toolchain import CLIENTS
from tests.network.test_java_clients import KEPT

pytestmark = pytest.mark.interop

ONLY_IN_5 = "said\tmulti dispatch\t"
# where its texts differ from those of 5.3.3, which are kept
CHANGED = {
    "group long": "is longer than group max length: 120.",
    "consumer group long": "is longer than group max length: 120.",
    "batch with a delay": "Delayed messages are not supported for batching",
}
UTF_8 = {"file_encoding": "UTF-8", "stdout_encoding": "UTF-8"}
GROUP = "watchers"


@pytest.mark.parametrize("version", CLIENTS)
def test_what_is_kept_is_what_java_says(version: str, tmp_path: Path) -> None:
    for name in ("choices", "texts"):
        said = java(version, tmp_path, "Facts", name, **UTF_8)
        kept = (KEPT / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        if version == "4.9.8":
            said, kept = ([line for line in lines if not line.startswith(ONLY_IN_5)] for lines in (said, kept))
        if version == "5.5.0":
            _require_changes_of_5_5(said)
            said, kept = ([line for line in lines if line.split("\t")[1] not in CHANGED] for lines in (said, kept))
        assert said == kept


def _require_changes_of_5_5(said: Sequence[str]) -> None:
    """What 5.5.0 says otherwise: no group has more than 120 characters, and no batch has delivery times."""
    for _, name, text in (line.split("\t", 2) for line in said if line.split("\t")[1] in CHANGED):
        assert text.endswith(CHANGED[name])


@pytest.mark.parametrize("version", CLIENTS)
def test_progress_of_a_broadcast_is_read_by_either(version: str, tmp_path: Path) -> None:
    warned: list[str] = []
    path = local_offsets_path(f"{own_address() or '127.0.0.1'}@DEFAULT", GROUP, tmp_path)
    ours = LocalOffsets(path, warned.append)
    wanted = {MessageQueue(f"broker-{name}", number, "Events"): number * 7 + 1 for name in "ab" for number in range(3)}
    for queue, offset in wanted.items():
        ours.update(queue, offset, increase_only=False)
    ours.persist(wanted)
    lines = java(version, tmp_path, "Facts", "offsets", GROUP, rocketmq_client_localOffsetStoreDir=str(tmp_path))
    columns = [line.split("\t") for line in lines]
    # the same member: a file of another one would be another member's progress
    assert columns[0] == ["client", path.parents[1].name]
    assert [line[1:] for line in columns[1:]] == [
        [queue.broker_name, str(queue.queue_id), str(offset), str(offset)] for queue, offset in wanted.items()
    ]
    # and what it wrote: it went on in broker-a alone
    changed = {queue: (1 << 33) + queue.queue_id for queue in wanted if queue.broker_name == "broker-a"}
    again = LocalOffsets(path, warned.append)
    assert {queue: again.stored(queue) for queue in wanted} == {**wanted, **changed}
    assert warned == []
