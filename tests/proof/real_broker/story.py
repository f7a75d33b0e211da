"""What happens to one store: ours and brokers put into it in turns, then it is damaged."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

from rmqctl.store.config.config import config_from_properties
from rmqctl.store.message_store import MessageStore
from rmqctl.store.predict import Prediction
from tests.interop.harness import KINDS, VERSIONS, Job
from tests.interop.starts import simulated
from tests.proof.real_broker import seen, workload
from tests.proof.real_broker.asked import Asked, Store, Story
from tests.proof.real_broker.broken import broken
from tests.proof.real_broker.seen import Key, Seen, Slot
from tests.proof.real_broker.table import unexplained

_OURS_FIRST = 0.7
_KILLS = 0.4
_MOST_KINDS = 3
_MESSAGES = (1, 12)
_KEYS_ASKED = 5
_NOBODYS = ("Orders", "nobody's")
_EMPTY = Seen(0, 0, {}, {}, {}, {}, set())


def story(chance: random.Random, folder: Path) -> Story[None]:
    """Both versions have their turn, in any order; whoever begins, ours is the last. AssertionError for what is not as
    it should be."""
    folder.mkdir(parents=True)
    settings = workload.chosen_settings(chance)
    config = config_from_properties({name.removeprefix("store."): value for name, value in settings.items()})
    store = Store(folder / "store", settings, config)
    slots: set[Slot] = set()
    for turn, version in enumerate(chance.sample(VERSIONS, len(VERSIONS))):
        if turn or chance.random() < _OURS_FIRST:
            slots |= _put(store, chance)
        slots |= yield from _brokers_turn(store, chance, version, slots)
    slots |= _put(store, chance)
    _configure(store.root)
    yield from broken(store, chance, keys_of(seen.by_us(store.root, store.config, ()), chance))


def _put(store: Store, chance: random.Random) -> set[Slot]:
    """Ours goes on with the store, recovered if it was killed; the slots of what it acknowledged."""
    if (store.root / "abort").exists():
        with MessageStore.open(store.root, config=store.config) as opened:
            opened.recover()
    return workload.put_some(store.root, store.config, chance, kill=chance.random() < _KILLS)


def _brokers_turn(store: Store, chance: random.Random, version: str, slots: set[Slot]) -> Story[set[Slot]]:
    """A broker starts on the store and puts some; the slots of what it put."""
    before, asked = _EMPTY, [_NOBODYS]
    wrong: list[str] = []
    entries_lost = 0
    if store.root.exists():
        asked = keys_of(seen.by_us(store.root, store.config, ()), chance)
        before = seen.by_us(store.root, store.config, asked)
        _, found = simulated(store.root, store.config, version)
        wrong += _told_otherwise(found, before)
        entries_lost = found.index_entries_lost
    store.root.mkdir(exist_ok=True)
    kinds = chance.sample(KINDS, chance.randint(1, _MOST_KINDS))
    halts = chance.random() < _KILLS
    job = Job(store.root, store.settings, tuple(asked), kinds, chance.randint(*_MESSAGES), halts)
    (view,) = yield [Asked(version, job)]
    real = seen.by_broker(view)
    known = ", with index entries that were predicted to go" if entries_lost else ""
    wrong += [f"what {version} was to see: {text}{known}" for text in seen.lacks(before, real)]
    wrong += [f"{slot} was acknowledged and is lost" for slot in sorted(slots - real.messages.keys())]
    ours = seen.by_us(store.root, store.config, asked)
    if ours.end != real.end:
        wrong.append(f"after {version} the log ends at {ours.end}, for it at {real.end}")
    wrong += [f"after {version}: {text}" for text in seen.differences(ours, real)]
    if view.exception or not view.drained or not view.load_ok or view.abort_after != halts:
        wrong.append(f"{version}: {view.load_ok} {view.exception} {view.drained}, abort {view.abort_after}")
    assert not (left := unexplained(wrong)), "\n".join(left)
    return real.messages.keys() - before.messages.keys()


def _told_otherwise(found: Prediction, before: Seen) -> list[str]:
    """Nothing is to be lost, but what a kill costs of the index."""
    # a blank frame may be the last one
    ends = {before.end, -(-before.end // workload.LOG_FILE) * workload.LOG_FILE}
    if found.loads and found.end_offset in ends and not replace(found, index_entries_lost=0).is_harmful:
        return []
    return [f"of a whole store that ends at {before.end} it is said: {found}"]


def keys_of(store: Seen, chance: random.Random) -> list[Key]:
    """Some that lead somewhere, and one that does not."""
    known = sorted({(slot.topic, key) for slot, facts in store.messages.items() for key in facts.index_keys() if key})
    return [*chance.sample(known, min(len(known), _KEYS_ASKED)), _NOBODYS]


def _configure(root: Path) -> None:
    """Files of a broker's configuration, to be damaged as well."""
    folder = root / "config"
    folder.mkdir(exist_ok=True)
    topics = {name: {"topicName": name, "readQueueNums": 3, "writeQueueNums": 3, "perm": 6} for name in workload.TOPICS}
    (folder / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (folder / "delayOffset.json").write_text('{"offsetTable":{1:0,3:0}}')
    (folder / "consumerOffset.json").write_text('{"offsetTable":{"Orders@readers":{0:1,1:0}}}')
