"""`--as-recovered`: a verb on a store that crashed or lost its queues answers as on a copy that was recovered."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.store.recover.view import looks_unrecovered
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, log_golden, tree_state, truth
from tests.rmqctl.looking import run
from tests.store.recover.test_entries import HEAD, entries_of, put_at
from tests.store.rocksdb.stores import unpacked


def questions(name: str) -> list[list[object]]:
    row = next(row for row in reversed(truth(name).messages) if row["topic"] == "OrderTopic")
    key = row["properties"]["UNIQ_KEY"]
    return [
        ["cat", "--order", "queue"],
        ["query", "-k", key, "-t", row["topic"]],
        ["query", "-t", row["topic"], "-q", row["queueId"], "-o", row["queueOffset"]],
        ["where", key],
        ["groups"],
        ["ls", "--queues"],
        ["stats", "--by", "topic"],
        ["sql", "select topic, queue_id, count(*) n, max(queue_offset) m from consumequeue group by all order by all"],
    ]


@pytest.mark.parametrize("name", ["crash", "cq-lost", "torn-zero", "v55-cq-garbage"])
def test_verbs_answer_as_on_a_recovered_copy(golden_store: GoldenStore, name: str) -> None:
    store, copy = golden_store(name), golden_store(name)
    before = tree_state(store)
    conf = broker_conf(name, store.parent)
    assert run("recover", "-s", copy, "-c", conf).code == 0
    for question in questions("clean"):
        shown = run(*question, "-s", store, "-c", conf, "--as-recovered", "--json")
        wanted = run(*question, "-s", copy, "-c", conf, "--json")
        assert (shown.code, shown.out) == (wanted.code, wanted.out.replace(str(copy), str(store))), question
        assert "the store is unchanged" in shown.err
    assert tree_state(store) == before


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("MANIFEST-000015", "gone"),
        ("CURRENT", "empty"),
        *itertools.product(("000010.sst", "000011.sst", "000018.sst", "000019.sst"), ("gone", "empty", "flipped")),
    ],
)
def test_queues_in_a_damaged_rocksdb_are_those_that_the_log_implies(name: str, kind: str, tmp_path: Path) -> None:
    store = unpacked("rocksdb-55-only", tmp_path)
    whole = run("cat", "-s", store, "--order", "queue", "--json").out
    path = store / "consumequeue" / name
    data = bytearray(path.read_bytes())
    data[100 % len(data)] ^= 1
    path.unlink()
    if kind != "gone":
        path.write_bytes(data if kind == "flipped" else b"")
    before = tree_state(store)
    with StoreFiles(store) as files:
        assert looks_unrecovered(files)
    shown = run("cat", "-s", store, "--order", "queue", "--json", "--as-recovered")
    assert (shown.code, shown.out) == (0, whole), shown.err
    [diagnosis] = run("doctor", "-s", store, "--json").objects
    assert diagnosis["state"] in ("damaged", "refuses")
    assert "RMQ-RDB-001" in {one["code"] for one in diagnosis["findings"]}
    assert tree_state(store) == before


def test_errors_name_the_store_and_not_the_temporary_folder(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    for question in (["groups"], ["groups", "--json"], ["cat", "--order", "queue", "-t", "OrderTopic", "-q", "99"]):
        shown = run(*question, "-s", store, "--as-recovered")
        assert shown.code == 1
        assert "rmqctl-view-" not in shown.out + shown.err, question
    assert f"{store}/config/consumerOffset.json" in run("groups", "-s", store, "--as-recovered").err


def test_what_would_not_see_the_temporary_folder_or_its_end_is_refused(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    assert run("sql", "-s", store, "--as-recovered", "--master", "spark://h:7077", "select 1").code == 2
    assert run("cat", "-s", store, "--as-recovered", "--follow").code == 2


def _torn(store: Path) -> None:
    last = entries_of(store)[-1]
    put_at(store, last.pos + HEAD + 60, bytes(100))


def _queues_gone(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")


def _queues_in_rocksdb(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    shutil.copytree(unpacked("rocksdb-55-only", store.parent) / "consumequeue", store / "consumequeue")
    (store / "consumequeue" / "CURRENT").write_bytes(b"")


@pytest.mark.parametrize("damage", [_torn, _queues_gone])
@pytest.mark.parametrize("name", ["v55-dledger", "v55-dledger-crash"])
def test_a_member_of_dledger_is_shown_as_on_a_recovered_copy(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    golden = log_golden(name, tmp_path / "golden")
    store, copy = golden.store, golden.copied_to(tmp_path / "copy")
    for one in (store, copy):
        damage(one)
    before = tree_state(store)
    sizes = "--queue-file-size", 2000, "--index-size", "500,2000"
    assert run("recover", "-s", copy, "-y", "--below-confirm", *sizes).code == 0
    for question in (["cat", "--order", "queue"], ["query", "-k", "hot"], ["ls", "--queues"], ["stats"]):
        shown = run(*question, "-s", store, "--as-recovered", "--json")
        wanted = run(*question, "-s", copy, "--json")
        assert (shown.code, shown.out) == (wanted.code, wanted.out.replace(str(copy), str(store))), question
        assert shown.out
    assert tree_state(store) == before


@pytest.mark.parametrize("damage", [_queues_gone, _queues_in_rocksdb])
def test_messages_that_dledger_would_cut_are_shown(damage: Callable[[Path], None], tmp_path: Path) -> None:
    store = log_golden("v55-dledger", tmp_path / "golden").store
    whole = run("cat", "-s", store, "--order", "queue", "--json").out
    damage(store)
    put_at(store, entries_of(store)[200].pos + 15, b"\7")
    shown = run("cat", "-s", store, "--order", "queue", "--json", "--as-recovered")
    assert (shown.code, shown.out) == (0, whole), shown.err
