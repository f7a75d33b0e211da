"""Questions of consumers that can be asked of a store: the part of MessageStore that gives answers, not messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rmqctl.store.methods.messages import ReadableMessages, now_ms, raised, silent

if TYPE_CHECKING:
    from rmqctl.store.answers.config_offsets import Say
    from rmqctl.store.answers.dead_letters import DeadLetter
    from rmqctl.store.answers.delays import DelayLevel
    from rmqctl.store.answers.groups import GroupQueue
    from rmqctl.store.answers.halves import HalfMessage
    from rmqctl.store.answers.undelivered import UndeliveredMessage
    from rmqctl.store.answers.where.steps import Whereabouts
    from rmqctl.store.commitlog.walk import Progress
    from rmqctl.store.read.selection import OnDamage


class AnsweringStore(ReadableMessages):
    """Times are in ms since 1970."""

    def where(
        self,
        *words: str,
        topic: str | None = None,
        groups: Sequence[str] = (),
        tags: str | None = None,
        now: int | None = None,
        limit: int = 10,
        tell: Say | None = None,
        on_damage: OnDamage | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Whereabouts]:
        """Where a message is, who has read it and who has not, with the evidence: what `where` prints.

        `words`: a key, an id or a physical offset, or topic, queue id and queue offset. `topic`: only messages sent to
        it. `groups`: only these consumer groups, whose tag expression is `tags` where the caller knows it. `now` (ms):
        what due times are held against, the clock if None. `tell` takes sentences about the whole answer. A message
        that cannot be found or read is an answer too; damage is told to `on_damage`, and without it the first is
        raised. UsageError for words that name nothing, NotFoundError and UnsupportedError for a queue.
        """
        from rmqctl.store.answers.where.where import WhereQuestion, where

        moment = now_ms() if now is None else now
        question = WhereQuestion(words, moment, topic, tuple(groups), tags, limit=limit)
        return where(self.reader, question, tell or silent, on_damage or raised, progress)

    def groups(
        self,
        group: str | None = None,
        topic: str | None = None,
        *,
        tags: str | None = None,
        tell: Say | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[GroupQueue]:
        """How far consumer groups have come, queue by queue: the rows of `rmqctl groups --json`. `tags`, `tell` and
        `on_damage` as for `where`."""
        from rmqctl.store.answers.groups import group_queues

        return group_queues(self.reader, group, topic, tell or silent, on_damage or raised, tags)

    def delays(
        self, *, now: int | None = None, tell: Say | None = None, on_damage: OnDamage | None = None
    ) -> Iterator[DelayLevel]:
        """Yield what waits for its time, by delay level and in the timer: the rows of `rmqctl delays --json`. `now`
        (ms): what is due before it is overdue."""
        from rmqctl.store.answers.timed import delays

        moment = now_ms() if now is None else now
        return delays(self.reader, moment, tell or silent, on_damage or raised)

    def undelivered(
        self, *, tell: Say | None = None, on_damage: OnDamage | None = None, progress: Progress | None = None
    ) -> Iterator[UndeliveredMessage]:
        """Yield delayed messages that their level or the timer passed without a delivered copy: the rows of
        `rmqctl delays --undelivered --json`. Reads the log from the first passed message on."""
        from rmqctl.store.answers.undelivered import undelivered

        return undelivered(self.reader, tell or silent, on_damage or raised, progress)

    def halves(
        self, *, now: int | None = None, tell: Say | None = None, on_damage: OnDamage | None = None
    ) -> Iterator[HalfMessage]:
        """Transactions without an end: the rows of `rmqctl halves --json`. `now` (ms): what ages are held against."""
        from rmqctl.store.answers.halves import unresolved_halves

        moment = now_ms() if now is None else now
        return unresolved_halves(self.reader, moment, tell or silent, on_damage or raised)

    def dead_letters(
        self, group: str | None = None, topic: str | None = None, *, on_damage: OnDamage | None = None
    ) -> Iterator[DeadLetter]:
        """What groups gave up, or `group` alone, of messages once sent to `topic`: `rmqctl dlq list --json`."""
        from rmqctl.store.answers.dead_letters import dead_letters

        return dead_letters(self.reader, group, topic, on_damage or raised)
