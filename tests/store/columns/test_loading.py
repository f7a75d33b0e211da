"""Columns are loaded late, by whichever thread needs them first: two at once must not meet half a module."""

from __future__ import annotations

import itertools
import sys

import pytest

from tests.processes import run

ENTRIES = [
    "rmqctl.store.write.bulk.bulk",
    "rmqctl.store.write.dispatch",
    "rmqctl.store.log.column_walk",
    "rmqctl.store.log.parallel",
]


@pytest.mark.parametrize("pair", list(itertools.combinations(ENTRIES, 2)), ids="+".join)
def test_two_threads_load_columns_at_once(pair: tuple[str, str]) -> None:
    script = """
import importlib, sys, threading
sys.setswitchinterval(1e-5)
failed, start = [], threading.Barrier(2)
def load(name):
    start.wait()
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed.append(error)
threads = [threading.Thread(target=load, args=(name,)) for name in sys.argv[1:]]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(failed)
"""
    ended = run([sys.executable, "-c", script, *pair])
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
