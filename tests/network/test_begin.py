"""What a broker looks at before it can answer: not every queue, and yet the end that its queues know."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmqctl.store.files.reading import Descriptors
from tests import goldens
from tests.network.callers import Asking
from tests.processes import run
from tests.quick import goldens_of


def test_queues_are_not_read_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = goldens.golden("clean", tmp_path)
    seen: set[Path] = set()
    read = Descriptors.read

    def noting(self: Descriptors, path: Path, position: int, length: int) -> bytes:
        seen.add(path)
        return read(self, path, position, length)

    monkeypatch.setattr(Descriptors, "read", noting)
    asking = Asking(store)
    queues = {path.parent for path in seen if "consumequeue" in path.parts}
    assert len(queues) == 1
    assert len(asking.broker.files.queues.all()) > 20
    last = goldens.truth("clean").messages[-1]
    assert asking.broker.log_end == last["phyOffset"] + last["storeSize"]


def test_what_the_log_lost_is_not_its_end(tmp_path: Path) -> None:
    """Queues know a message of which the bytes are gone: nobody can be given it."""
    broker = Asking(goldens.golden("torn-zero-clean", tmp_path)).broker
    last = goldens.truth("torn-zero-clean").messages[-1]
    assert broker.log_end == last["phyOffset"] + last["storeSize"]


@pytest.mark.parametrize("name", goldens_of(["clean", "crash", "torn-zero", "gap", "lmq", "multipath", "innerbatch"]))
def test_it_ends_where_the_queues_do(name: str, tmp_path: Path) -> None:
    broker = Asking(goldens.golden(name, tmp_path)).broker
    ends = [queue.unit(queue.max_offset - 1) for queue in broker.files.queues.all() if queue.max_offset]
    assert broker.log_end == max((unit.end for unit in ends if unit is not None and unit.is_written), default=0)


def test_a_log_that_is_not_here_is_told(tmp_path: Path) -> None:
    """Without the broker.conf that names its places, or without the log: no consumer gets a thing."""
    asking = Asking(goldens.golden("log-gone", tmp_path))
    asking.broker.tell_of_unserved()
    (told,) = asking.told
    assert "there is no commitlog file below" in told
    assert "storePathCommitLog" in told


_ASK_ALL = """
import sys
from pathlib import Path
import rmqctl.network.serving
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.services import services_of
from rmqctl.network.broker.settings import BrokerIdentity
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.requests import Processor, Suspended
from rmqctl.store.store_files import StoreFiles

broker = Broker(StoreFiles(Path(sys.argv[1])), BrokerIdentity(), print)
broker.tell_of_unserved()
processor, loaded = Processor(broker, services_of(writable=False), print), set(sys.modules)
queue = {"topic": "Events", "queueId": "3"}
group = {"consumerGroup": "g-events", "group": "g-events"}
pull = {"queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "subVersion": "0", "suspendTimeoutMillis": "0"}
pull |= {"commitOffset": "0", "subscription": "Tag1 || Tag2"}
asked = {
    11: {**queue, **group, **pull}, 12: {"topic": "Orders", "key": "order-3", "maxNum": "32"}, 33: {"offset": "0"},
    29: {**queue, "timestamp": "1795218529000"}, 30: queue, 31: queue, 32: queue, 14: {**queue, **group}, 21: {},
    26: {}, 28: {}, 43: {}, 45: {}, 201: {}, 202: queue, 208: group, 300: queue, 303: {**queue, **group},
    305: {}, 317: {"isOrder": "false"}, 321: {**queue, "index": "0", "count": "9"}, 343: group, 351: queue, 352: group,
}
asked[12] |= {"beginTimestamp": "0", "endTimestamp": str((1 << 63) - 1)}
for code, fields in asked.items():
    answer = processor.reply(RemotingCommand(code, fields), None)
    assert answer.code == 0, (code, answer.remark)
    assert code != 12 or answer.body
print(*sorted(name for name in set(sys.modules) - loaded if name.startswith(("rmqctl", "numpy"))))
"""


def test_all_that_answers_need_is_there_before_the_first_request(tmp_path: Path) -> None:
    """What is imported when somebody asks keeps him waiting: tens of milliseconds, under load hundreds."""
    store = goldens.golden("broker-real", tmp_path)
    done = run([sys.executable, "-c", _ASK_ALL, str(store)])
    assert (done.stdout.split(), done.stderr, done.returncode) == ([], "", 0)
