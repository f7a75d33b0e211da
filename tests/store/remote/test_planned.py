"""What another process has listed of a server is not listed again; what it did not name is listed when it is asked for,
once, and never taken for absent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.pipeline import splits
from rmqctl.pipeline.splits import Split, open_split, plan_splits, split_columns
from rmqctl.store.files.reading import exists
from rmqctl.store.files.remote_files import Shadow, look_again
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.store_files import StoreFiles
from tests.opened import store_path
from tests.store.remote.served import FolderFiles, served

ADDRESS = "s3://bucket/store"


def _elsewhere(planned: list[Split]) -> list[Split]:
    """As another process gets them, which has listed nothing."""
    return [split._replace(listing="of-another-process") for split in planned]


def _messages(split: Split) -> int:
    with open_split(split) as files:
        records = split_columns(files, split)
        return sum(len(record.physical_offset) for record in records if isinstance(record, MessageColumns))


def _planned(files: FolderFiles) -> list[Split]:
    with StoreFiles(Path(ADDRESS)) as opened:
        planned = plan_splits(opened, 100_000)
        assert opened.listing == planned[0].listing != ""
    assert files.listings == [ADDRESS]
    files.listings.clear()
    return planned


def test_tasks_list_nothing() -> None:
    with served(store_path("clean")) as (files, _):
        planned = _planned(files)
        assert planned[0].files[0].version
        assert sum(map(_messages, planned)) == 2500
        # a fork of the driver, and a process of its own
        assert sum(map(_messages, _elsewhere(planned))) == 2500
        assert files.listings == []


DOORS: list[Callable[[StoreFiles], Any]] = [
    lambda files: [(queue.topic, queue.queue_id) for queue in files.queues.all()],
    lambda files: getattr(files.queues.find("TopicTest", 0), "topic", None),
    lambda files: [file.path.name for file in files.index.files],
    lambda files: files.checkpoint(),
    lambda files: files.has_abort(),
    lambda files: sorted(os.listdir(files.root)),
    lambda files: sorted(path.name for path in files.root.rglob("*")),
    lambda files: exists(files.root / "abort.bak"),
    lambda files: (files.root / "abort.bak").read_bytes(),
]


@pytest.mark.parametrize("door", DOORS, ids=range(len(DOORS)))
def test_whoever_asks_for_more_gets_it(door: Callable[[StoreFiles], Any]) -> None:
    store = store_path("crash")
    with StoreFiles(store) as files:
        wanted = door(files)
    with served(store) as (server, _):
        task = _elsewhere(_planned(server))[0]
        for _ in range(2):
            with open_split(task) as files:
                assert door(files) == wanted
        assert server.listings == [ADDRESS]


def test_another_listing_forgets_what_was_known(tmp_path: Path) -> None:
    store = shutil.copytree(store_path("clean"), tmp_path / "store")
    with served(store) as (server, shadow):
        first = _elsewhere(_planned(server))
        assert _messages(first[0])
        look_again(ADDRESS)
        planned = _planned(server)
        assert planned[0].listing != shadow.listing
        assert not shadow.top.exists()
        # what was read by the version of another listing is not taken for this one
        path = store / "commitlog" / "00000000000000000000"
        path.write_bytes(bytes(path.stat().st_size))
        os.utime(path, ns=(1, 1))
        look_again(ADDRESS)
        assert _messages(_planned_again()[0]) == 0


def _planned_again() -> list[Split]:
    with StoreFiles(Path(ADDRESS)) as opened:
        return plan_splits(opened, splits.SPLIT_SIZE)


def test_only_the_log_is_listed_for_who_looks_at_it_again_and_again() -> None:
    with served(store_path("clean")) as (server, _):
        server.listings.clear()
        for _ in range(3):
            with StoreFiles.of_log(Path(ADDRESS), StoreFiles(store_path("clean")).config) as files:
                assert len(files.log.files) > 1
        assert server.listings == [f"{ADDRESS}/commitlog"] * 3
        with StoreFiles.of_log(Path(ADDRESS), files.config) as files:
            assert len(files.queues.all()) > 1
        assert server.listings[3:] == [f"{ADDRESS}/commitlog", ADDRESS]


def test_folders_that_stand_for_servers_are_all_removed() -> None:
    with served(store_path("clean")) as (server, shadow):
        _messages(_elsewhere(_planned(server))[0])
        look_again(ADDRESS)
    assert [path for path in shadow.top.parent.glob(f"rmqctl-remote-{os.getpid()}-*") if path != shadow.top] == []
    assert isinstance(shadow, Shadow)
