"""A store is damaged: what brokers make of it is as predicted, and what a recovery leaves is seen by all alike."""

from __future__ import annotations

import random
from pathlib import Path

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.message_store import MessageStore
from rmqctl.store.predict import predict
from rmqctl.store.recover.report import RecoverReport
from rmqctl.store.store_files import StoreFiles
from tests.goldens import tree_state
from tests.interop.harness import VERSIONS
from tests.interop.starts import differences, simulated, waits_for_ever
from tests.interop.views import BrokerView
from tests.proof.real_broker.asked import Asked, Store, Story
from tests.proof.real_broker.damage import damage
from tests.proof.real_broker.recovered import Mended, complaints
from tests.proof.real_broker.seen import Key
from tests.proof.real_broker.table import unexplained
from tests.proof.real_broker.workload import LOG_FILE
from tests.store.write.writing import stored_messages

_WAYS = (("recover", "cut", "bridge"), ("recover", "bridge", "cut"), ("bridge", "cut"))


def broken(store: Store, chance: random.Random, keys: list[Key]) -> Story[None]:
    """Each version starts on a copy as it is, and on one that was recovered."""
    before = stored_messages(store.root, store.config)
    log = {int(path.name): path.read_bytes() for path in (store.root / "commitlog").iterdir()}
    done = damage(store.root, chance)
    whole = [message for message in before if _is_untouched(store.root, log, message)]
    starts = [_Start(store, version) for version in VERSIONS]
    copy = store.copied("recovered")
    way, report, wrong = _recovered(copy, chance)
    asked = [one.asked for one in starts if one.asked is not None]
    if report is not None:
        asked += [copy.copied(f"recovered-{version}").asked(version, keys) for version in VERSIONS]
    views = iter((yield asked))
    for one in starts:
        if one.asked is not None:
            wrong += one.wrong(next(views), before, whole)
    if report is not None:
        mended = Mended(copy, way, report, before, whole)
        wrong += [text for version in VERSIONS for text in complaints(mended, version, next(views), keys)]
    left = unexplained(wrong)
    assert not left, f"{done}\n  " + "\n  ".join(left)


def _is_untouched(root: Path, log: dict[int, bytes], message: StoredMessage) -> bool:
    start = message.physical_offset - message.physical_offset % LOG_FILE
    path = root / "commitlog" / f"{start:020d}"
    place = slice(message.physical_offset - start, message.end - start)
    return path.exists() and path.read_bytes()[place] == log[start][place]


class _Start:
    """A broker's start on a copy of the damaged store. `asked`: None if it would never come to an end."""

    def __init__(self, store: Store, version: str) -> None:
        self._version = version
        copy = store.copied(f"damaged-{version}")
        self._start, self._found = simulated(copy.root, copy.config, version)
        with StoreFiles(copy.root, copy.config) as files:
            assert predict(files, version) == self._found
        self.asked: Asked | None = None if waits_for_ever(self._found) else copy.asked(version, ())

    def wrong(self, view: BrokerView, before: list[StoredMessage], whole: list[StoredMessage]) -> list[str]:
        """What came otherwise than predicted."""
        wrong = differences(self._start, self._found, view)
        if view.load_ok and self._found.loads:
            # what was touched may still be a message: not every byte is covered
            least, most = (sum(one.physical_offset >= view.max_offset for one in some) for some in (whole, before))
            if not least <= self._found.messages_lost <= most:
                wrong.append(f"{self._found.messages_lost} messages lost, really {least} to {most}")
        return [f"predicted of {self._version}: {text}" for text in wrong]


def _recovered(store: Store, chance: random.Random) -> tuple[str, RecoverReport | None, list[str]]:
    """Recover in the first way of some that is not refused: that way, its report, and what went wrong. To do it again
    has to change nothing."""
    refusals = []
    for way in chance.choice(_WAYS):
        report = _one_way(store, way)
        if isinstance(report, RefusedError):
            refusals.append(f"{way} is refused: {report}")
            continue
        again = _one_way(store, way)
        changed = str(again) if isinstance(again, RefusedError) else again.operations[:3]
        return way, report, [f"{way} again: {changed}"] if changed else []
    return "", None, refusals


def _one_way(store: Store, way: str) -> RecoverReport | RefusedError:
    """The refusal if there was one; then nothing was changed."""
    before = tree_state(store.root)
    with MessageStore.open(store.root, config=store.config) as opened:
        try:
            return opened.recover(bridge=way == "bridge", cut=way == "cut")
        except RefusedError as error:
            refused = error
    assert tree_state(store.root) == before
    return refused
