"""Looking at stores with arbitrary damage: an answer and an exit code each time, never a bug, never without end."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from tests.goldens import GoldenStore
from tests.quick import every
from tests.rmqctl.all_verbs.test_look_changes_nothing import commands
from tests.rmqctl.looking import run

BASES = ("clean", "features", "innerbatch", "cqext", "broker-real", "lmq")
LARGEST = 1 << 20


def spoil(store: Path, seed: int) -> None:
    """Change forty files: single bytes near the start, a cut, a burst of noise, or bytes too many."""
    chance = random.Random(seed)
    files = [path for path in sorted(store.rglob("*")) if path.is_file() and 0 < path.stat().st_size < LARGEST]
    for _ in range(40):
        path = chance.choice(files)
        data = bytearray(path.read_bytes())
        if not data:
            continue
        way = chance.randrange(6)
        if way < 3:
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(min(len(data), 4000))] = chance.randrange(256)
        elif way == 3:
            del data[chance.randrange(len(data)) :]
        elif way == 4:
            start = chance.randrange(len(data))
            data[start : start + 200] = chance.randbytes(len(data[start : start + 200]))
        else:
            data += b"x" * chance.randrange(50)
        path.write_bytes(bytes(data))


@pytest.mark.parametrize("seed", every(3, range(6)))
def test_every_verb_answers(seed: int, golden_store: GoldenStore) -> None:
    name = BASES[seed % len(BASES)]
    store = golden_store(name)
    spoil(store, seed)
    for command in commands(store, name):
        done = run(*command)
        assert done.code in (0, 1, exit_codes.REFUSED, exit_codes.DAMAGE_IN_THE_WAY), (command, done.err)


def test_a_wild_base_offset_in_a_batch_queue(golden_store: GoldenStore) -> None:
    """The offsets between it and its neighbours are not walked one by one."""
    store = golden_store("innerbatch")
    path = store / "batchconsumequeue/InnerBatchTopic/0/00000000000000000460"
    data = bytearray(path.read_bytes())
    data[28:36] = (1 << 60).to_bytes(8, "big")
    path.write_bytes(bytes(data))
    done = run("ls", "-s", store, "--queues", "-t", "InnerBatchTopic", "--json")
    assert done.code == exit_codes.OK
    assert done.objects[0]["last_store_timestamp"] is not None


@pytest.mark.parametrize("folder", ["consumequeue", "index", "commitlog"])
def test_a_file_where_a_folder_belongs_is_named_with_what_to_do(folder: str, golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    shutil.rmtree(store / folder)
    (store / folder).write_bytes(b"x")
    outcome = run("info", "-s", store)
    assert (outcome.code, folder in outcome.err, "move it elsewhere" in outcome.err) == (3, True, True)
    if folder != "commitlog":
        found = run("check", "-s", store, "--json")
        assert [(row["code"], row["file"]) for row in found.objects] == [("RMQ-FILE-006", folder)]
        assert (found.code, "checked 2500 messages" in found.err) == (1, True)


@pytest.mark.parametrize("broker", ["4.9.8", "5.3.3", "5.5.0"])
def test_a_start_without_a_folder_for_queues_is_no_good_start(broker: str, golden_store: GoldenStore) -> None:
    """The real ones log "[BUG]consume queue can not write" for 30 seconds, and take no message any more."""
    store = golden_store("clean")
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").write_bytes(b"x")
    outcome = run("predict", "-s", store, "--broker", broker, "--json")
    assert (outcome.code, outcome.objects[0]["loads"]) == (1, False)
    assert "can not write" in outcome.objects[0]["error"]
