"""Walking the whole log with every check of law 3, CRC included: one thread, and both cores."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bench import rocketmq
from bench.measure import Measurement, in_turns, rates
from bench.stores import GIGABYTE, BenchStore
from rmqctl.store.log.parallel import check_log
from rmqctl.store.store_files import StoreFiles

_CHUNK = 32 << 20
_THREADS = 2
_ROUNDS = 5


def one_thread(store: BenchStore, jvm: rocketmq.RocketMQ | None) -> Iterator[Measurement]:
    """One thread against RocketMQ's checkMessageAndReturnSize, in GB/s."""

    def theirs(running: rocketmq.RocketMQ) -> float:
        answer = running.walk(store.path)
        _complete("RocketMQ", answer.messages, store)
        return store.bytes / GIGABYTE / answer.seconds

    # once unmeasured: page cache, compilers
    _ours(store, 1)
    if jvm is not None:
        theirs(jvm)
    pair = in_turns(lambda: _ours(store, 1), None if jvm is None else lambda: theirs(jvm), _ROUNDS)
    yield rates(f"walk-crc-1-thread-{store.name}", pair, "GB/s", "checkMessageAndReturnSize, 1 thread", 2, 4)


def both_cores(store: BenchStore) -> Iterator[Measurement]:
    """Two threads against np.sum over the maps in two threads, in GB/s: a share of the bandwidth."""
    pair = in_turns(lambda: _ours(store, _THREADS), lambda: _read_bandwidth(store), _ROUNDS)
    at_least = 0.1 if store.name == "small" else 0.2
    yield rates(f"walk-crc-2-threads-{store.name}", pair, "GB/s", "np.sum over the maps, 2 threads", at_least, 0.25)


def _ours(store: BenchStore, threads: int) -> float:
    with StoreFiles(store.path) as files:
        begin = time.perf_counter()
        found = check_log(files.log, threads=threads)
        seconds = time.perf_counter() - begin
    _complete("the walk", found.messages, store)
    return store.bytes / GIGABYTE / seconds


def _complete(who: str, messages: int, store: BenchStore) -> None:
    if messages != store.messages:
        raise RuntimeError(f"{who} found {messages} of {store.messages} messages")


def _read_bandwidth(store: BenchStore) -> float:
    """GB/s at which both cores together read the bytes of the store, which are in the page cache."""
    maps = []
    for name in store.files:
        with (store.path / "commitlog" / name).open("rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    left = store.bytes
    chunks = []
    for mapped in maps:
        used = min(left, len(mapped)) // 8 * 8
        whole = np.frombuffer(mapped, np.uint64, used // 8)
        chunks += [whole[at : at + _CHUNK // 8] for at in range(0, len(whole), _CHUNK // 8)]
        left -= used
    with ThreadPoolExecutor(_THREADS) as pool:
        begin = time.perf_counter()
        sum(map(int, pool.map(np.sum, chunks)))
        return sum(chunk.nbytes for chunk in chunks) / GIGABYTE / (time.perf_counter() - begin)
