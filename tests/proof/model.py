"""A store driven at random, against a list in memory that says what has to be in it.

hypothesis chooses the steps. A case is a few of its examples under a seed of their own, so that the name of a case is
all that is needed to see it again. What fails is shown as it was found: to make it smaller takes minutes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pyarrow
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from rmqctl.formats.errors import NotFoundError, RefusedError
from rmqctl.formats.message import Message, parse_host
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write.put import PutResult
from tests.proof.model_reader import SecondProcess, Seen, rows_of
from tests.proof.proving import Case

_UNITS_OF_A_FILE = 20
CONFIG = StoreConfig(
    mapped_file_size_commit_log=8192,
    mapped_file_size_consume_queue=20 * _UNITS_OF_A_FILE,
    max_hash_slot_num=50,
    max_index_num=200,
    timer_wheel_enable=False,
)
TOPICS = ("A", "B")
_NOW = 1_700_000_000_000
_EXAMPLES = 20
_LONG_FROM = 5000
_NO_HOST = parse_host("0.0.0.0:0")
Queue = tuple[str, int]


class Stored(NamedTuple):
    """What is known of a message that was acknowledged."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes


class Was(NamedTuple):
    """What was so before a change, for its undo: messages, next offsets, units, whether it was a crashed store.
    `may_refuse`: the store was opened for writing since, though nothing was stored."""

    messages: list[Stored]
    next_offset: dict[Queue, int]
    first_unit: dict[Queue, int]
    is_crashed: bool
    may_refuse: bool = False


def cases(seed_: int, count: int) -> Iterator[Case]:
    """About `count` examples of 30 steps, of 50 where many are wanted."""
    steps = 50 if count >= _LONG_FROM else 30
    for number in range(-(-count // _EXAMPLES)):
        examples = min(_EXAMPLES, count - number * _EXAMPLES)
        yield f"examples-{number}", functools.partial(_try, f"{seed_}-{number}", examples, steps)


def _try(named: str, examples: int, steps: int, folder: Path) -> None:
    class Machine(StoreMachine):
        place = folder

    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.normal,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    machine = seed(random.Random(named).getrandbits(64))(Machine)
    try:
        # it draws from the numbers in the modules that happen to be loaded too: not the same ones everywhere
        with mock.patch.object(HypothesisProvider, "_local_constants", Constants()):
            run_state_machine_as_test(machine, settings=chosen)
    except BaseException as error:
        # the steps are in its notes, which nobody prints
        told = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
        raise AssertionError(told) from error
    finally:
        Machine.reader.end()


class StoreMachine(RuleBasedStateMachine):
    """The store, open or not, crashed or not, and the list."""

    place: Path
    reader = SecondProcess()

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.place))
        self.copies = itertools.count()
        self.root = self.folder / "0" / "store"
        self.root.parent.mkdir()
        self.clock = itertools.count(_NOW, 50).__next__
        self.numbers = itertools.count()
        self.messages: list[Stored] = []
        self.next_offset: dict[Queue, int] = {}
        # before this slot there are placeholders alone, or nothing any more
        self.first_unit: dict[Queue, int] = {}
        self.durable: tuple[Path, list[Stored], dict[Queue, int]] | None = None
        self.undoable: list[Was] = []
        self.is_crashed = False
        self.store: MessageStore | None = None
        self.open()
        # a store without any file is refused by some, and would be most of what hypothesis tries
        self.put(TOPICS[0], 0, 1)

    def open(self) -> None:
        """For writing."""
        self.store = MessageStore.open(
            self.root, "rw", CONFIG, create=not self.messages, clock=self.clock, allocate_ahead=False
        )
        self.undoable = [was._replace(may_refuse=True) for was in self.undoable]
        self.durable = None

    @property
    def writing(self) -> MessageStore:
        """The open store."""
        assert self.store is not None
        return self.store

    def _message(self, topic: str, queue_id: int, size: int) -> Message:
        number = next(self.numbers)
        body = (b"%d-" % number).ljust(size, b"x")
        return Message(topic=topic, body=body, queue_id=queue_id, properties={"KEYS": f"k{number}", "TAGS": "t"})

    def _acknowledged(self, message: Message, result: PutResult) -> None:
        assert result.status.is_stored, result
        assert result.queue_offset is not None
        assert result.physical_offset is not None
        self.undoable = []
        queue = message.topic, message.queue_id
        assert result.queue_offset == self.next_offset.get(queue, 0), queue
        self.next_offset[queue] = result.queue_offset + 1
        assert not self.messages or result.physical_offset > self.messages[-1].physical_offset
        self.messages.append(Stored(result.physical_offset, *queue, result.queue_offset, message.body))

    is_open = precondition(lambda self: self.store is not None)
    is_closed = precondition(lambda self: self.store is None and not self.is_crashed)
    has_crashed = precondition(lambda self: self.store is None and self.is_crashed)

    @is_open
    @rule(topic=st.sampled_from(TOPICS), queue_id=st.integers(0, 2), size=st.integers(0, 900))
    def put(self, topic: str, queue_id: int, size: int) -> None:
        message = self._message(topic, queue_id, size)
        self._acknowledged(message, self.writing.put(message))

    @is_open
    @rule(queue_id=st.integers(0, 2), count=st.integers(1, 12), batch=st.booleans())
    def put_many(self, queue_id: int, count: int, batch: bool) -> None:
        messages = [self._message("A", queue_id, 100) for _ in range(count)]
        for message, result in zip(messages, self.writing.put_many(messages, batch=batch), strict=True):
            self._acknowledged(message, result)

    @is_open
    @rule(count=st.integers(1, 30), size=st.integers(1, 300))
    def put_columns(self, count: int, size: int) -> None:
        messages = [self._message(TOPICS[number % 2], number % 3, size) for number in range(count)]
        columns = {name: [getattr(one, name) for one in messages] for name in ("topic", "body", "queue_id")}
        results = self.writing.put_columns(pyarrow.RecordBatch.from_pydict(columns)).results(_NO_HOST)
        for message, result in zip(messages, results, strict=True):
            self._acknowledged(message, result)

    @is_open
    @rule()
    def roll(self) -> None:
        """A message for which hardly any file has room left."""
        message = self._message("B", 0, 7000)
        self._acknowledged(message, self.writing.put(message))

    @is_open
    @rule()
    def flush(self) -> None:
        """From here on a power cut must leave what is there now."""
        self.writing.flush()
        kept = self.folder / f"durable-{next(self.copies)}" / "store"
        shutil.copytree(self.root, kept)
        self.durable = kept, list(self.messages), dict(self.next_offset)

    @is_open
    @rule()
    def close(self) -> None:
        self.writing.close()
        self.store = None
        self.look()

    @is_open
    @rule()
    def killed(self) -> None:
        """All that was acknowledged is in the page cache, whoever is killed."""
        copied = self.folder / f"{next(self.copies)}-killed" / "store"
        shutil.copytree(self.root, copied)
        self._end_as(copied)

    @precondition(lambda self: self.store is not None and self.durable is not None)
    @rule(keeps_log=st.booleans())
    def power_cut(self, keeps_log: bool) -> None:
        """Nothing that was written since the last flush is on disk; or all of the log is, and nothing that follows."""
        assert self.durable is not None
        kept, messages, next_offset = self.durable
        if keeps_log:
            shutil.rmtree(kept / "commitlog")
            shutil.copytree(self.root / "commitlog", kept / "commitlog")
        self._end_as(kept)
        if not keeps_log:
            self.messages, self.next_offset = messages, next_offset

    def _end_as(self, root: Path) -> None:
        self.writing.close()
        self.store, self.root, self.is_crashed, self.durable = None, root, True, None
        self.undoable = []

    @has_crashed
    @rule()
    def recover(self) -> None:
        with contextlib.suppress(RefusedError):
            MessageStore.open(self.root, "rw", CONFIG).close()
            raise AssertionError("a crashed store is opened for writing")
        self._change(lambda store: store.recover())
        self.is_crashed = False
        self.look()

    def _change(self, change: object) -> None:
        was = Was(list(self.messages), dict(self.next_offset), dict(self.first_unit), self.is_crashed)
        with MessageStore.open(self.root, config=CONFIG) as store:
            before = len(store.changes())
            change(store)  # type: ignore[operator]
            is_new = len(store.changes()) > before
        if is_new:
            self.undoable.append(was)

    @is_closed
    @rule()
    def rebuild(self) -> None:
        """Units of messages that are not in the log any more become placeholders."""
        self._change(lambda store: store.rebuild())
        self.first_unit |= {(one.topic, one.queue_id): one.queue_offset for one in reversed(self.messages)}
        self.look()

    @is_closed
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        if not self.messages:
            return
        first = int(share * (len(self.messages) - 1))
        at = self.messages[first].physical_offset
        self._change(lambda store: store.truncate(at))
        for gone in reversed(self.messages[first:]):
            queue = gone.topic, gone.queue_id
            self.next_offset[queue] = gone.queue_offset
            if gone.queue_offset == self.first_unit.get(queue):
                # no queue may end with placeholders, or with a file of zeros: it begins anew
                self.next_offset[queue] = self.first_unit[queue] = 0
        del self.messages[first:]
        self.look()

    @is_closed
    @rule()
    def clean(self) -> None:
        with MessageStore.open(self.root, config=CONFIG) as store:
            store.clean(CleanOptions(at_once=True, pause=0))
        with MessageStore.open(self.root, config=CONFIG) as store:
            begin = store.files.log.min_offset
        left = [one for one in self.messages if one.physical_offset >= begin]
        if len(left) < len(self.messages):  # else nothing was changed
            self.undoable = []
        self.messages = left
        firsts = {(one.topic, one.queue_id): one.queue_offset for one in reversed(left)}
        self.first_unit |= {queue: first for queue, first in firsts.items() if first % _UNITS_OF_A_FILE == 0}
        self.look()

    @precondition(lambda self: self.store is None)
    @rule()
    def undo(self) -> None:
        """It leads back to what was. Where the store was opened for writing since it may refuse, and where a message
        was stored it must; then nothing is changed."""
        with MessageStore.open(self.root, config=CONFIG) as store:
            try:
                store.undo()
            except (RefusedError, NotFoundError):
                assert not self.undoable or self.undoable[-1].may_refuse, "an undo is refused"
                return
        assert self.undoable, "a change is taken back though messages were stored or removed since"
        self.messages, self.next_offset, self.first_unit, self.is_crashed, _ = self.undoable.pop()
        if not self.is_crashed:
            self.look()

    @is_closed
    @rule()
    def reopen(self) -> None:
        self.open()

    @is_open
    @rule()
    def second_process(self) -> None:
        """It sees what was acknowledged, while this one writes."""
        self.writing.wait_for_dispatch()
        self._compare(self.reader.ask(self.root))

    def look(self) -> None:
        """Everything is there, in its slot, and nothing else; a full check finds nothing."""
        with MessageStore.open(self.root, config=CONFIG) as store:
            self._compare(rows_of(store))
            run = store.check("full")
            alarms = [finding for finding in run if finding.severity.is_alarm]
        assert not alarms, alarms

    def _compare(self, seen: list[Seen]) -> None:
        expected = [Seen.made(*one) for one in self.messages]
        assert seen == expected, f"{len(seen)} for {len(expected)}: {sorted(set(seen) ^ set(expected))[:4]}"

    def teardown(self) -> None:
        """At the end of an example whatever is there has to be whole; where it has failed that is told."""
        if sys.exc_info()[0] is not None:
            if self.store is not None:
                self.writing.close()
        elif self.store is not None:
            self.close()
        elif self.is_crashed:
            self.recover()
        shutil.rmtree(self.folder)
