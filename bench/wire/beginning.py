"""What `rmqctl serve STORE` takes from exec until it has answered a request: by the clock and of the processor."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.measure import Measurement
from rmqctl.formats.message import Message
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.serving import serving
from tests.processes import processor_seconds

_MOST = 1.0
_RUNS = 5
_FILES, _FILE_SIZE = 100, 10 << 20
_TOPICS, _QUEUES = 1250, 8
_BODY = bytes(1000)


class _Spent(NamedTuple):
    seconds: float
    processor: float


def all_of_it(folder: Path, scale: float) -> Iterator[Measurement]:
    """A store of a hundred files and a GB, and one of 10,000 queues."""
    files, topics = max(2, int(_FILES * scale)), max(1, int(_TOPICS * scale))
    for name, path in (
        (f"{files}-files", _many_files(folder / "files", files)),
        (f"{topics * _QUEUES}-queues", _many_queues(folder / "queues", topics)),
    ):
        # the best: what others took of the machine is no work of ours
        runs = [_first_answer(path) for _ in range(_RUNS)]
        shutil.rmtree(path)
        for part, best in (
            ("", min(run.seconds for run in runs)),
            ("-processor", min(run.processor for run in runs)),
        ):
            against = "from exec to the first answer, read-only; stay under"
            yield Measurement(f"network-begin-{name}{part}", best, None, None, "s", _RUNS, against, _MOST)


def _first_answer(store: Path) -> _Spent:
    began = time.monotonic()
    with serving(store) as served:
        client = Client(served.namesrv)
        client.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        spent = _Spent(time.monotonic() - began, processor_seconds(served.process.pid))
        client.close()
        served.end()
    return spent


def _many_files(path: Path, files: int) -> Path:
    config = StoreConfig(mapped_file_size_commit_log=_FILE_SIZE)
    with MessageStore.open(path, "rw", config, create=True) as store:
        number = 0
        while len(store.files.log.files) < files:
            store.put_many([Message("Many", _BODY, number % _QUEUES) for _ in range(1000)])
            number += 1
    return path


def _many_queues(path: Path, topics: int) -> Path:
    config = StoreConfig(mapped_file_size_commit_log=_FILE_SIZE, mapped_file_size_consume_queue=2000)
    with MessageStore.open(path, "rw", config, create=True) as store:
        for topic in range(topics):
            store.put_many([Message(f"Topic{topic}", _BODY[:100], queue_id) for queue_id in range(_QUEUES)])
    return path
