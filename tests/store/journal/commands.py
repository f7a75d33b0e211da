"""Commands on a small store, by the names that hints give them, for tests of what they leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.message import Message, StoredMessage
from rmqctl.store.clean.cleaner import clean
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.log import changes
from rmqctl.store.journal.undo import forget, give_up, resume, undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.bridge import recover_bridging
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles
from tests.store.write.writing import small, stored_messages

FILE_SIZE = 8192
CONFIG = small(
    mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=400, max_hash_slot_num=20, max_index_num=80
)
BODY = 300

Command = Callable[[Path], object]


class Kept(NamedTuple):
    """A message by where it is and what it says."""

    physical_offset: int
    queue_offset: int
    body: bytes


def messages(root: Path) -> set[Kept]:
    """Every good message of the log that was put by a test, whatever else is in it."""
    found = [one for one in stored_messages(root, CONFIG) if one.topic == "T"]
    return {_kept(one) for one in found}


def put(root: Path, name: str, count: int = 3) -> set[Kept]:
    """Append messages that have this name in their bodies, in one run: those that were acknowledged."""
    acknowledged = set()
    with MessageStore.open(root, "rw", CONFIG) as store:
        for number in range(count):
            body = f"{name} {number} ".encode().ljust(BODY, b".")
            result = store.put(Message("T", body, 0, 0, {"KEYS": f"{name}-{number}"}))
            assert result.status.is_stored, result
            assert result.physical_offset is not None
            assert result.queue_offset is not None
            acknowledged.add(Kept(result.physical_offset, result.queue_offset, body))
    return acknowledged


def whole_queue(root: Path) -> set[Kept]:
    """Every message that a consumer of the queue gets."""
    with MessageStore.open(root, "r", CONFIG) as store:
        return {_kept(one) for one in store.messages(order="queue") if one.topic == "T"}


def _kept(message: StoredMessage) -> Kept:
    return Kept(message.physical_offset, message.queue_offset, bytes(message.body))


def layout_of(root: Path) -> StoreLayout:
    """The layout of the store."""
    return CONFIG.layout(root)


def _on_files(work: Callable[[StoreFiles], object]) -> Command:
    def command(root: Path) -> object:
        with StoreFiles(root, CONFIG) as files:
            return work(files)

    return command


def prune(root: Path) -> int:
    """What `log --prune` removes where no change is named."""
    layout = layout_of(root)
    return forget(layout, [change for change in changes(layout) if not change.is_unfinished])


def disk_of(root: Path) -> Path:
    """The directory that `--journal` names."""
    return root.with_name("disk")


def truncated_at(root: Path) -> int:
    """Where the commands named truncate end the log, as whoever made the store has noted beside it."""
    return int(root.with_name("cut").read_text())


COMMANDS: dict[str, Command] = {
    "recover": _on_files(recover),
    "recover --bridge": _on_files(recover_bridging),
    "recover --cut": _on_files(lambda files: recover(files, cut=True, full=True)),
    "recover --cut --no-journal": _on_files(
        lambda files: recover(
            files,
            cut=True,
            full=True,
            change=ChangeOptions(keep_undo=False, command_line=["recover", "--cut", "--no-journal"]),
        )
    ),
    "a broker's recovery": _on_files(lambda files: recover(files, cut=True, change=ChangeOptions(keep_undo=False))),
    "recover --no-journal": _on_files(
        lambda files: recover(files, change=ChangeOptions(keep_undo=False, command_line=["recover", "--no-journal"]))
    ),
    "recover --journal": _on_files(lambda files: recover(files, change=ChangeOptions(journal_in=disk_of(files.root)))),
    "rebuild": _on_files(rebuild),
    "rebuild --queues": _on_files(lambda files: rebuild(files, index=False)),
    "rebuild --no-journal": _on_files(
        lambda files: rebuild(files, change=ChangeOptions(keep_undo=False, command_line=["rebuild", "--no-journal"]))
    ),
    "rebuild --journal": _on_files(lambda files: rebuild(files, change=ChangeOptions(journal_in=disk_of(files.root)))),
    "repair": _on_files(repair),
    "repair --no-journal": _on_files(
        lambda files: repair(files, change=ChangeOptions(keep_undo=False, command_line=["repair", "--no-journal"]))
    ),
    "repair --journal": _on_files(lambda files: repair(files, change=ChangeOptions(journal_in=disk_of(files.root)))),
    "truncate": _on_files(lambda files: truncate(files, truncated_at(files.root))),
    "truncate --no-journal": _on_files(
        lambda files: truncate(
            files,
            truncated_at(files.root),
            change=ChangeOptions(keep_undo=False, command_line=["truncate", "--no-journal"]),
        )
    ),
    "truncate --journal": _on_files(
        lambda files: truncate(files, truncated_at(files.root), change=ChangeOptions(journal_in=disk_of(files.root)))
    ),
    "clean": _on_files(lambda files: clean(files, CleanOptions(pause=0, at_once=True))),
    "undo": lambda root: undo(layout_of(root)),
    "undo --give-up": lambda root: give_up(layout_of(root)),
    "resume": lambda root: resume(layout_of(root)),
    "log --prune": prune,
}
"""A command's name, as it is typed but for the store, and what it does. `--cut` is for `--full --cut`, `--journal` for
`disk_of`."""
