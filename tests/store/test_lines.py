"""Every verb that writes leaves in a store what its version writes: entries of tags and the sixth long of 5.5.0."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.producer import Producer
from rmqctl.store.log.walk import walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.network.serving import serving
from tests.store.index.test_tag_entries import entries_of, implied
from tests.store.v55 import CONFIG

TAGGED = Message("TopicTest", b"ours", properties={"TAGS": "Ours", "KEYS": "ours"})


def _recover(store: Path) -> None:
    (store / "abort").touch()
    with MessageStore.open(store, config=CONFIG) as opened:
        opened.recover()


def _append(store: Path) -> None:
    with MessageStore.open(store, "rw", CONFIG) as opened:
        assert opened.put(TAGGED).status.is_stored


def _recover_what_is_lost(store: Path) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name)
    (store / "checkpoint").unlink()
    _recover(store)


def _rebuild(store: Path) -> None:
    shutil.rmtree(store / "index")
    with MessageStore.open(store, config=CONFIG) as opened:
        opened.rebuild()


def _repair(store: Path) -> None:
    (store / "checkpoint").unlink()
    with MessageStore.open(store, config=CONFIG) as opened:
        assert opened.repair().left == []


def _serve(store: Path, *options: str) -> None:
    conf = store.parent / "broker.conf"
    conf.write_text("\n".join(f"{key}={value}" for key, value in _SIZES.items()) + "\n")
    with serving(store, "--writable", "-c", str(conf), *options) as served:
        with Producer(served.namesrv) as producer:
            # the first message of a store begins at 0, which says nothing
            assert [producer.send(TAGGED).status for _ in range(2)] == ["SEND_OK"] * 2
        assert served.end() == 0


_SIZES = {
    "mappedFileSizeCommitLog": 262144, "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 500, "maxIndexNum": 2000
}  # fmt: skip
VERBS: dict[str, Callable[[Path], None]] = {
    "append": _append,
    "recover": _recover,
    "recover what is lost": _recover_what_is_lost,
    "rebuild": _rebuild,
    "repair": _repair,
    "serve": _serve,
}


def _is_of_5_5(store: Path) -> tuple[bool, bool]:
    """Whether the index has entries of tags, all of them and no others, and the checkpoint its sixth long."""
    with StoreFiles(store, CONFIG) as files:
        checkpoint = files.checkpoint()
        *_, last = (record for record in walk(files.log) if isinstance(record, StoredMessage))
    assert checkpoint is not None
    assert checkpoint.logics_physical_offset in (0, last.physical_offset)
    found = entries_of(store, CONFIG)
    has_tags = found == implied(store, with_tags=True)
    assert has_tags or found == implied(store, with_tags=False)
    return has_tags, checkpoint.logics_physical_offset != 0


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("name", "newest"), [("v498s-crash", False), ("v533s-crash", False), ("v55-crash", True)])
def test_every_verb_writes_what_the_version_of_the_store_writes(
    name: str, newest: bool, verb: str, golden_store: GoldenStore
) -> None:
    store = golden_store(name)
    _recover(store)
    VERBS[verb](store)
    assert _is_of_5_5(store) == (newest, newest)
    with MessageStore.open(store, config=CONFIG) as opened:
        assert [finding.code for finding in opened.check("full") if finding.severity.is_alarm] == []


@pytest.mark.parametrize(("version", "newest"), [("4.9.8", False), ("5.3.3", False), ("5.5.0", True)])
def test_a_store_that_serve_makes_is_one_of_the_version_that_it_names(
    version: str, newest: bool, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    _serve(store, "--create", "--as", version)
    assert _is_of_5_5(store) == (newest, newest)
    with MessageStore.open(store) as opened:
        assert (opened.probable_version() == "5.5.0") is newest
    # and stays one, whoever writes next
    _append(store)
    assert _is_of_5_5(store) == (newest, newest)
