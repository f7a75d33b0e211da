"""A store is damaged: what brokers make of it is as predicted, and what a recovery leaves is seen by all alike."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.sys_flag import has_queue_slot
from rmqctl.store.message_store import MessageStore
from rmqctl.store.predict import predict
from rmqctl.store.recover.report import RecoverReport
from rmqctl.store.store_files import StoreFiles
from tests.goldens import tree_state
from tests.interop.harness import VERSIONS
from tests.interop.starts import differences, simulated, waits_for_ever
from tests.interop.views import BrokerView
from tests.proof.real_broker import seen
from tests.proof.real_broker.asked import Asked, Store, Story
from tests.proof.real_broker.damage import damage
from tests.proof.real_broker.seen import Facts, Key, Slot
from tests.proof.real_broker.table import unexplained
from tests.proof.real_broker.workload import LOG_FILE
from tests.store.write.writing import stored_messages


def broken(store: Store, chance: random.Random, keys: list[Key]) -> Story[None]:
    """Each version starts on a copy as it is, and on one that was recovered."""
    before = stored_messages(store.root, store.config)
    log = _log_of(store.root)
    done = damage(store.root, chance)
    whole = [message for message in before if _is_untouched(store.root, log, message)]
    starts = [_Start(store, version) for version in VERSIONS]
    mended = _Recovered(store.copied("recovered"), chance, log)
    asked = [one.asked for one in starts if one.asked is not None] + mended.asked(keys)
    views = iter((yield asked))
    wrong = [text for one in starts if one.asked is not None for text in one.wrong(next(views), whole)]
    for version, view in zip(VERSIONS, views, strict=False):
        wrong += [f"{mended.way}, then {version}: {text}" for text in mended.wrong(view, whole, keys)]
    wrong += mended.problems
    left = unexplained(wrong)
    assert not left, f"{done}\n  " + "\n  ".join(left)


def _log_of(root: Path) -> dict[int, bytes]:
    return {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir()}


def _is_untouched(root: Path, log: dict[int, bytes], message: StoredMessage) -> bool:
    start = message.physical_offset - message.physical_offset % LOG_FILE
    path = root / "commitlog" / f"{start:020d}"
    place = slice(message.physical_offset - start, message.end - start)
    return path.exists() and path.read_bytes()[place] == log[start][place]


class _Start:
    """A broker's start on a copy of the damaged store."""

    def __init__(self, store: Store, version: str) -> None:
        self.version = version
        copy = store.copied(f"damaged-{version}")
        self.start, self.found = simulated(copy.root, copy.config, version)
        with StoreFiles(copy.root, copy.config) as files:
            assert predict(files, version) == self.found
        self.asked = None if waits_for_ever(self.found) else copy.asked(version, ())

    def wrong(self, view: BrokerView, whole: list[StoredMessage]) -> list[str]:
        """What came otherwise than predicted."""
        wrong = differences(self.start, self.found, view)
        if view.load_ok and self.found.loads:
            lost = sum(message.physical_offset >= view.max_offset for message in whole)
            if lost != self.found.messages_lost:
                wrong.append(f"{self.found.messages_lost} messages lost, really {lost}")
        return [f"predicted of {self.version}: {text}" for text in wrong]


class _Recovered:
    """A copy of the damaged store that was recovered, in the way that chance took."""

    def __init__(self, store: Store, chance: random.Random, log: dict[int, bytes]) -> None:
        self.store = store
        self.problems: list[str] = []
        self.way = chance.choice(("recover", "recover", "bridge"))
        fallback = chance.choice(("cut", "bridge"))
        self.report = self._recovered(self.way)
        if self.report is None:
            self.way = fallback
            self.report = self._recovered(fallback)
        if self.report is None:
            self.way = "bridge" if fallback == "cut" else "cut"
            self.report = self._recovered(self.way)
        if self.report is None:
            self.problems.append(f"recovered in no way: {self.refusal}")
        elif (again := self._recovered(self.way)) is None or again.operations:
            self.problems.append(f"{self.way} again: {self.refusal if again is None else again.operations[:3]}")

    def _recovered(self, way: str) -> RecoverReport | None:
        """None if it was refused; then nothing was changed."""
        before = tree_state(self.store.root)
        with MessageStore.open(self.store.root, config=self.store.config) as opened:
            try:
                return opened.recover(bridge=way == "bridge", cut=way == "cut")
            except RefusedError as refused:
                self.refusal = f"{way}: {refused}"
        assert tree_state(self.store.root) == before
        return None

    def asked(self, keys: list[Key]) -> list[Asked]:
        """Each version on a copy of its own; nothing if it could not be recovered."""
        if self.report is None:
            return []
        return [self.store.copied(f"recovered-{version}").asked(version, keys) for version in VERSIONS]

    def wrong(self, view: BrokerView, whole: list[StoredMessage], keys: list[Key]) -> list[str]:
        """What a broker sees otherwise than ours, and what of the untouched messages is not there."""
        assert self.report is not None
        real = seen.by_broker(view)
        wrong = [text for text in view.complaints() if not (self.report.damaged and "not found by a" in text)]
        if view.max_offset != self.report.end_offset:
            wrong.append(f"ends at {view.max_offset}, not at {self.report.end_offset}")
        wrong += seen.differences(seen.by_us(self.store.root, self.store.config, keys), real)
        expected = {Slot(m.topic, m.queue_id, m.queue_offset): m for m in whole if has_queue_slot(m.sys_flag)}
        for slot, message in expected.items():
            found = real.messages.get(slot)
            if found is None or found.physical_offset != message.physical_offset:
                if self.way != "cut" or message.end <= self.report.end_offset:
                    wrong.append(f"{slot} at {message.physical_offset} was untouched and is lost")
        places = {message.physical_offset for message in expected.values()}
        wrong += [
            f"{slot} at {facts.physical_offset} is new"
            for slot, facts in real.messages.items()
            if facts.physical_offset not in places and not self._is_filler(facts)
        ]
        return wrong

    def _is_filler(self, facts: Facts) -> bool:
        assert self.report is not None
        return any(
            row["physical_offset"] <= facts.physical_offset < row["end_offset"] for row in self.report.bridged
        )
