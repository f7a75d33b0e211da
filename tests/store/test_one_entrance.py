"""MessageStore is the one entrance: what each mode may, on whole and broken stores, and that verbs go through it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

import pytest

from rmqctl.store import (
    CorruptError,
    Loss,
    Message,
    MessageStore,
    NotFoundError,
    RefusedError,
    StoreConfig,
    StoreInUseError,
    Target,
    UsageError,
    lazy,
)
from rmqctl.store.files.lock import lock_holder
from rmqctl.store.options import ChangeOptions, Events
from tests.goldens import golden
from tests.processes import run

ROOT = Path(__file__).resolve().parents[2]
SMALL = StoreConfig(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=100, max_index_num=400)

AT_REST: dict[str, Callable[[MessageStore], object]] = {
    "recover": lambda store: store.recover(),
    "repair": lambda store: store.repair(),
    "rebuild": lambda store: store.rebuild(),
    "truncate": lambda store: store.truncate(0),
    "undo": lambda store: store.undo(),
    "resume": lambda store: store.resume(),
    "give_up": lambda store: store.give_up(),
    "check": lambda store: store.check(),
    "predict": lambda store: store.predict(),
    "snapshot": lambda store: store.snapshot(store.files.root.parent / "copy"),
    "end_pops": lambda store: store.end_pops("g"),
    "list_files": lambda store: list(store.list_files()),
}

# what the class calls for the verbs of the command line
VERBS = {
    "rmqctl.store.recover.recover.recover",
    "rmqctl.store.recover.bridge.recover_bridging",
    "rmqctl.store.repair.repair.repair",
    "rmqctl.store.recover.rebuild.rebuild",
    "rmqctl.store.recover.recover.truncate",
    "rmqctl.store.journal.undo.undo",
    "rmqctl.store.journal.undo.resume",
    "rmqctl.store.journal.undo.give_up",
    "rmqctl.store.journal.undo.forget",
    "rmqctl.store.journal.log.changes",
    "rmqctl.store.journal.log.find_change",
    "rmqctl.store.journal.log.last_standing",
    "rmqctl.store.clean.cleaner.clean",
    "rmqctl.store.snapshot.snapshot.take_snapshot",
    "rmqctl.store.snapshot.snapshot.verify_snapshot",
    "rmqctl.store.salvage.salvage.salvage",
    "rmqctl.store.predict.predict",
    "rmqctl.store.check.check.check",
    "rmqctl.store.dump.dump_file.dump_file",
    "rmqctl.store.info.info.info",
    "rmqctl.store.info.info.topic_rows",
    "rmqctl.store.info.info.queue_rows",
    "rmqctl.store.info.info.file_rows",
    "rmqctl.store.scan.scan.Scan",
}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with MessageStore.open(root, "rw", SMALL, create=True) as store:
        store.put_many([Message("Topic", b"%d" % number) for number in range(10)])
    return root


@pytest.mark.parametrize("name", AT_REST)
def test_what_is_for_a_store_at_rest_is_refused_while_it_is_written_to(name: str, written: Path) -> None:
    with MessageStore.open(written, "rw") as store:
        with pytest.raises(RefusedError, match="open for writing"):
            AT_REST[name](store)
        assert store.put(Message("Topic", b"more")).queue_offset == 10


def test_no_look_gives_the_lock_away(written: Path) -> None:
    with MessageStore.open(written, "rw") as store:
        with pytest.raises(StoreInUseError, match="holds the lock"):
            MessageStore.dump(written / "lock", raw=True)
        store.info()
        assert [row["topic"] for row in store.topics()] == ["Topic"]
        code = (
            f"import fcntl, os\nlock = os.open({str(written / 'lock')!r}, os.O_RDWR)\n"
            "try:\n    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)\nexcept OSError:\n    print('held')"
        )
        ended = run([sys.executable, "-c", code])
        assert ended.stdout == "held\n"
    assert lock_holder(written / "lock") is None


@pytest.mark.parametrize("name", ["crash", "torn-zero", "gap"])
def test_a_broken_store_is_reached_without_mode_and_mended(name: str, tmp_path: Path) -> None:
    root = golden(name, tmp_path)
    with pytest.raises(RefusedError):
        MessageStore.open(root, "rw").close()
    with MessageStore.open(root) as store:
        assert store.info()["commitlog"]["messages"] > 0
        assert store.predict().broker == "5.3.3"
        before = [finding.code for finding in store.check() if finding.severity.is_alarm]
        report = store.recover(bridge=True)
        assert report.journal is not None
        # the same object goes on with what is there now
        assert store.last_change() == store.changes()[-1]
        assert [finding.code for finding in store.check() if finding.severity.is_alarm] == []
        store.undo()
        assert [finding.code for finding in store.check() if finding.severity.is_alarm] == before


def test_after_an_error_the_store_can_be_looked_at_as_before(written: Path) -> None:
    with MessageStore.open(written) as store:
        asked: list[Loss] = []

        def stop(loss: Loss) -> None:
            asked.append(loss)
            raise KeyError("no")

        last = store.get("Topic", 0, 9).messages[0].physical_offset
        with pytest.raises(KeyError):
            store.truncate(last, change=ChangeOptions(confirm=stop))
        assert asked == [Loss(messages=1)]
        assert store.get("Topic", 0, 9).messages[0].body == b"9"
        with pytest.raises(NotFoundError):
            store.undo()
        with pytest.raises(UsageError, match="cuts none"):
            store.recover(bridge=True, cut=True)
        assert len(list(store.messages())) == 10


def test_a_change_takes_the_lock_by_itself(written: Path) -> None:
    with MessageStore.open(written) as store, MessageStore.open(written, "rw"):
        with pytest.raises(StoreInUseError):
            store.truncate(0)
        assert len(list(store.messages())) == 10
    with MessageStore.open(written) as store:
        assert store.truncate(0).messages_cut == 10
        assert list(store.messages()) == []
        assert lock_holder(written / "lock") is None


def test_damage_is_raised_or_told(written: Path) -> None:
    log = written / "commitlog" / "00000000000000000000"
    data = bytearray(log.read_bytes())
    data[data.index(b"Topic") - 2] ^= 1  # the body, before the length of the topic
    log.write_bytes(data)
    damage: list[CorruptError] = []
    with MessageStore.open(written) as store:
        with pytest.raises(CorruptError):
            list(store.messages())
        assert len(list(store.messages(events=Events(damage=damage.append)))) == 9
        assert [error.physical_offset for error in damage] == [0]


def test_exports_say_what_they_need(written: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from rmqctl.messages.text import MessageLines

    with MessageStore.open(written) as store:
        with pytest.raises(UsageError, match="make lines"):
            store.export(tmp_path / "all.jsonl")
        with pytest.raises(UsageError, match="no parquet"):
            store.export(tmp_path / "all.parquet", lines=MessageLines(["topic"]))
        with pytest.raises(UsageError, match="says no format"):
            store.export(tmp_path / "all")
        with pytest.raises(RefusedError, match="inside the store"):
            store.export(Target(written / "all.parquet", "parquet"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_writer_cleans_by_its_own_clock(written: Path) -> None:
    with MessageStore.open(written, "rw") as store:
        with pytest.raises(UsageError, match="own clock"):
            store.clean(now=0)
        assert store.clean(change=ChangeOptions(dry_run=True)).removed == []


def test_what_cannot_be_asked_or_kept_is_refused(written: Path) -> None:
    never = ChangeOptions(keep_undo=False)
    with MessageStore.open(written) as store:
        with pytest.raises(UsageError, match="asks nothing"):
            store.clean(change=ChangeOptions(confirm=lambda loss: None))
        with pytest.raises(UsageError, match="`purge` always keeps"):
            store.purge(["Orders"], change=never)
        with pytest.raises(UsageError, match="`offsets` always keeps"):
            store.set_offset("payer", "Orders", 0, 0, new_group=True, change=never)


def imported(paths: Iterable[Path]) -> dict[str, str]:
    """Every name that modules import, inside functions too -> one of the modules that do."""
    found: dict[str, str] = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{alias.name}": path.name for alias in node.names}
    return found


def test_verbs_go_through_the_class() -> None:
    modules = [
        *(ROOT / "rmqctl").glob("*.py"),
        *(ROOT / "rmqctl").glob("*/*.py"),
        *(ROOT / "rmqctl").glob("commands/*/*.py"),
    ]
    ours = imported(path for path in modules if path.resolve() == path)
    assert "rmqctl.opening.open_store" in ours
    assert {name: path for name, path in ours.items() if name in VERBS} == {}
    # a name that is no more would guard nothing
    assert sorted(VERBS - imported([ROOT / "store/lazy.py", ROOT / "store/message_store.py"]).keys()) == []


def test_what_types_say_of_the_methods_is_what_is_called() -> None:
    path = Path(lazy.__file__)
    typed = imported([path]).keys() - {"importlib.import_module", "typing.TYPE_CHECKING", "__future__.annotations"}
    assert sorted(f"{home}.{name}" for name, home in lazy._HOMES.items()) == sorted(typed)
    for name, home in lazy._HOMES.items():
        assert getattr(lazy, name) is getattr(import_module(home), name)
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        _ = lazy.chek  # type: ignore[attr-defined]
