"""SYNC_FLUSH on a disk that takes its time: what the real broker answers and shows, and what `rmqctl serve` does.

strace delays every flush of the broker's process, so that both meet the same disk.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from tests.interop.brokers import create_topic, real_broker
from tests.interop.toolchain import BROKERS
from tests.network.serving import serving
from tests.processes import start

pytestmark = pytest.mark.interop

CONF = {
    "flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "500", "timerWheelEnable": "false",
    "mappedFileSizeCommitLog": "4194304", "mappedFileSizeConsumeQueue": "60000",
}  # fmt: skip
DELAY_MS = 2500
FLUSHES = "msync,fsync,fdatasync"


class Answer(NamedTuple):
    """`is_late`: it came after syncFlushTimeout, and before the flush had ended."""

    code: int
    remark: str | None
    offset: str | None
    is_late: bool


@contextlib.contextmanager
def slow_flushes(process_id: int) -> Iterator[None]:
    """Delay each flush of a process by DELAY_MS. Skips where no process may be traced."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace")
    inject = f"inject={FLUSHES}:delay_enter={DELAY_MS * 1000}"
    command = [strace, "-f", "-e", f"trace={FLUSHES}", "-e", inject, "-p", str(process_id), "-o", "/dev/null"]
    with start(command, stderr=subprocess.DEVNULL) as tracing:
        end = time.monotonic() + 30
        while f"TracerPid:\t{tracing.pid}" not in Path(f"/proc/{process_id}/status").read_text(encoding="ascii"):
            if tracing.poll() is not None:
                pytest.skip("no process may be traced here")
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(1)  # for the threads
        yield
        tracing.terminate()
        tracing.wait()


def _send(client: Client, address: str, body: bytes, code: RequestCode, fields: dict[str, str]) -> Answer:
    always = {
        "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false",
        "batch": "false",
    }  # fmt: skip
    begun = time.monotonic()
    answer = client.connection(address).request(RemotingCommand(code, {**always, **fields}, body), 30)
    spent = 1000 * (time.monotonic() - begun)
    assert spent < DELAY_MS
    is_late = answer.code == ResponseCode.FLUSH_DISK_TIMEOUT and spent >= 450
    return Answer(answer.code, answer.remark or None, answer.fields.get("queueOffset"), is_late)


def _found(client: Client, address: str, offset: int) -> int:
    fields = {
        "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return client.connection(address).request(RemotingCommand(RequestCode.PULL_MESSAGE, fields), 30).code


def _seen(namesrv: str, broker: str, process_id: int) -> dict[str, Any]:
    """What a broker does with slow flushes, and before and after them."""
    batch = b"".join((22 + len(body)).to_bytes(4, "big") + bytes(12) + len(body).to_bytes(4, "big") + body + bytes(2)
                     for body in (b"one", b"two"))  # fmt: skip
    found: dict[str, Any] = {}
    with contextlib.closing(Client(namesrv)) as client:

        def send(name: str, code: RequestCode = RequestCode.SEND_MESSAGE, body: bytes = b"x", **fields: str) -> None:
            found[name] = _send(client, broker, body, code, fields)

        send("fast")
        with slow_flushes(process_id):
            send("slow")
            found["pull of what is not on disk"] = _found(client, broker, 1)
            send("without WAIT", properties="WAIT\x01false\x02")
            send("batch", body=batch, batch="true")
            send("half", properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02")
            send("delayed", properties="DELAY\x011\x02")
            send("slow again")
        time.sleep(DELAY_MS / 1000)
        send("fast again")
        found["pull of what is on disk"] = _found(client, broker, 1)
    return found


@pytest.mark.parametrize("version", BROKERS)
def test_a_flush_that_takes_longer_than_sync_flush_timeout(version: str, tmp_path: Path) -> None:
    release = "4.9.8" if version == "4.9.7" else version
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in CONF.items()), encoding="ascii")
    with serving(tmp_path / "ours", "--writable", "--create", "-c", str(conf), "--as", release) as served:
        create_topic(served.namesrv, served.broker, "T")
        ours = _seen(served.namesrv, served.broker, served.process.pid)
    with real_broker(version, tmp_path / "real", tmp_path / "store", CONF) as real:
        create_topic(real.namesrv, real.broker, "T")
        theirs = _seen(real.namesrv, real.broker, real.process.pid)
    # 4.x and 5.5 hand out what they may still lose in a crash; ours waits for the disk, as 5.3 does
    # (CommitLog#getConfirmOffset)
    assert ours == theirs | {"pull of what is not on disk": 19}
    timed_out = {name for name, answer in ours.items() if isinstance(answer, Answer) and answer.is_late}
    assert timed_out == {"slow", "batch", "half", "delayed", "slow again"}
    assert ours["pull of what is on disk"] == 0
    assert theirs["pull of what is not on disk"] == (19 if version == "5.3.3" else 0)
