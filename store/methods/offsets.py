"""Offsets of consumer groups, looked at and changed, and what they gave up: a part of MessageStore."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rmqctl.store.methods.changes import ChangeableStore
from rmqctl.store.methods.messages import now_ms, raised

if TYPE_CHECKING:
    from rmqctl.formats.errors import CorruptError
    from rmqctl.store.answers.redrive import DeadChoice, Redrive
    from rmqctl.store.journal.plan import Agree
    from rmqctl.store.offsets.change import Decision, OffsetsReport
    from rmqctl.store.offsets.decide import Preference, ResetTo
    from rmqctl.store.offsets.lint import OffsetProblem
    from rmqctl.store.offsets.show import KeptOffset


class OffsetStore(ChangeableStore):
    """What config/consumerOffset.json says of groups. `tell` takes sentences that belong to an answer as a whole;
    damage is told to `on_damage` and passed, without it the first is raised.

    The changes are made as ChangeableStore has it. `agree` is called with the Loss where unread messages are passed
    over (`skipped`). `new_group`: also for a group that nobody knows yet, else NotFoundError. Clients of the group that
    run would commit their own offsets over those that are set here.
    """

    def offsets(
        self,
        group: str | None = None,
        topic: str | None = None,
        queue_id: int | None = None,
        *,
        tell: Callable[[str], None] = lambda sentence: None,
        on_damage: Callable[[CorruptError], None] | None = None,
    ) -> Iterator[KeptOffset]:
        """What the file says and its backup, by group, topic and queue; then the delay levels, unless `group` is
        given."""
        from rmqctl.store.offsets.show import kept_offsets

        return kept_offsets(self.reader, group, topic, queue_id, tell, on_damage or raised)

    def lint_offsets(
        self, *, now: int | None = None, tell: Callable[[str], None] = lambda sentence: None
    ) -> Iterator[OffsetProblem]:
        """What is wrong with the files of offsets, or odd about them; `now` in ms."""
        from rmqctl.store.offsets.lint import lint_offsets

        return lint_offsets(self.files, now_ms() if now is None else now, tell)

    def set_offset(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        new_group: bool = False,
        anywhere: bool = False,
        dry_run: bool = False,
        arguments: list[str] | None = None,
        journal_in: Path | None = None,
        agree: Agree | None = None,
    ) -> OffsetsReport:
        """Set a group in one queue. RefusedError outside of the queue, unless `anywhere`."""
        from rmqctl.store.offsets.decide import set_offset

        decide = set_offset(group, topic, queue_id, offset, new_group=new_group, anywhere=anywhere)
        return self._change_offsets(decide, dry_run, arguments, journal_in, agree)

    def set_delay_offset(
        self,
        level: int,
        offset: int,
        *,
        anywhere: bool = False,
        dry_run: bool = False,
        arguments: list[str] | None = None,
        journal_in: Path | None = None,
        agree: Agree | None = None,
    ) -> OffsetsReport:
        """Set a delay level to the next message that the broker delivers. RefusedError outside of its queue and for a
        level that messageDelayLevel lacks, unless `anywhere`."""
        from rmqctl.store.journal.frame import Terms
        from rmqctl.store.offsets.delay_level import set_delay_offset

        terms = Terms(dry_run, arguments=arguments, journal_in=journal_in, agree=agree)
        with self._changing() as files:
            return set_delay_offset(files, level, offset, terms, anywhere=anywhere)

    def reset_offsets(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        queue_id: int | None = None,
        *,
        new_group: bool = False,
        dry_run: bool = False,
        arguments: list[str] | None = None,
        journal_in: Path | None = None,
        agree: Agree | None = None,
    ) -> OffsetsReport:
        """Set a group in all queues of a topic, or in one, to a time, an offset or either end. RefusedError for an
        offset outside of a queue and for a store that was not closed cleanly."""
        from rmqctl.store.offsets.decide import reset_offsets

        decide = reset_offsets(group, topic, to, queue_id, new_group=new_group)
        return self._change_offsets(decide, dry_run, arguments, journal_in, agree)

    def copy_offsets(
        self,
        source: str,
        target: str,
        topic: str | None = None,
        *,
        new_group: bool = False,
        dry_run: bool = False,
        arguments: list[str] | None = None,
        journal_in: Path | None = None,
        agree: Agree | None = None,
    ) -> OffsetsReport:
        """Give the group `target` the offsets of `source`, in all its topics but its retry topic, or in one."""
        from rmqctl.store.offsets.decide import copy_offsets

        decide = copy_offsets(source, target, topic, new_group=new_group)
        return self._change_offsets(decide, dry_run, arguments, journal_in, agree)

    def merge_offsets(
        self,
        other: str | os.PathLike[str],
        prefer: Preference | None = None,
        group: str | None = None,
        topic: str | None = None,
        *,
        dry_run: bool = False,
        arguments: list[str] | None = None,
        journal_in: Path | None = None,
        agree: Agree | None = None,
    ) -> OffsetsReport:
        """Take what another consumerOffset.json says: what is missing here, and by `prefer` what differs. RefusedError
        where anything differs and `prefer` is not given, but in a dry run."""
        from rmqctl.store.offsets.decide import merge_offsets

        decide = merge_offsets(Path(other), prefer, group, topic, only_shown=dry_run)
        return self._change_offsets(decide, dry_run, arguments, journal_in, agree)

    def delete_offsets(
        self,
        group: str | None = None,
        topic: str | None = None,
        queue_id: int | None = None,
        *,
        dry_run: bool = False,
        arguments: list[str] | None = None,
        journal_in: Path | None = None,
        agree: Agree | None = None,
    ) -> OffsetsReport:
        """Remove the offsets of a group: all, or those of a topic or queue. Without a group those of orphans: groups
        and topics that the configuration does not name. NotFoundError where none of the group is kept; RefusedError
        where orphans cannot be told apart."""
        from rmqctl.store.offsets.decide import delete_offsets, delete_orphans

        decide = delete_orphans() if group is None else delete_offsets(group, topic, queue_id)
        return self._change_offsets(decide, dry_run, arguments, journal_in, agree)

    def redrive(
        self,
        group: str,
        choice: DeadChoice | None = None,
        into: Literal["retry", "origin"] = "retry",
        *,
        again: bool = False,
        on_damage: Callable[[CorruptError], None] | None = None,
    ) -> Iterator[Redrive]:
        """Dead letters of a group as messages that it is to get once more, in its retry topic or where they came from.
        Nothing is stored: `put` the `message` of those that are ready. One that was redriven before is ready only with
        `again`. NotFoundError for a group that gave up nothing."""
        from rmqctl.store.answers.redrive import DeadChoice, Into, redrives

        chosen = DeadChoice() if choice is None else choice
        return redrives(self.reader, group, chosen, Into(into), on_damage or raised, again=again)

    def _change_offsets(
        self,
        decide: Decision,
        dry_run: bool,
        arguments: list[str] | None,
        journal_in: Path | None,
        agree: Agree | None,
    ) -> OffsetsReport:
        from rmqctl.store.journal.frame import Terms
        from rmqctl.store.offsets.change import change_offsets

        terms = Terms(dry_run, arguments=arguments, journal_in=journal_in, agree=agree)
        with self._changing() as files:
            return change_offsets(files, decide, terms)
