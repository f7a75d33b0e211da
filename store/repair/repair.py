"""`repair`: what `check` finds, mended through one plan and one journal."""

from __future__ import annotations

import enum
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, body_crc, frame_crc, parse_property_crc, property_crc_text
from rmqctl.formats.compression import is_plain
from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, UsageError, counted
from rmqctl.formats.layouts import FRAME_HEADS, SYS_FLAG_COMPRESSED
from rmqctl.formats.message import FrameDamage
from rmqctl.formats.notebook import as_html
from rmqctl.formats.properties import CRC32, compression_type
from rmqctl.store.answers.config_offsets import DELAY_FILE
from rmqctl.store.check.catalogue import Finding, catalogue
from rmqctl.store.check.check import check
from rmqctl.store.check.config import ConfigFiles, OffsetCheck
from rmqctl.store.check.cross import Level
from rmqctl.store.clean.plan import misdated_files
from rmqctl.store.config.config_files import OWN_TABLES, backup_of, in_database, load_config, look_at, offsets_home
from rmqctl.store.journal.journal import PlannedChange, changing
from rmqctl.store.journal.plan import MoveAway, Plan, Resize, SetTime, Staging, WriteRange, install_config
from rmqctl.store.log.walk import frame_without_crc
from rmqctl.store.options import ChangeOptions
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.queues.queue_table import has_rocksdb_queues, rocksdb_error
from rmqctl.store.read.frames import message_at
from rmqctl.store.recover.bridge import plan_bridges
from rmqctl.store.recover.recover import Recovery, count_messages
from rmqctl.store.recover.report import ALL_PARTS, Bridges, Goal, Part, RecoverReport
from rmqctl.store.repair.entries import plan_queue_removal
from rmqctl.store.repair.state_files import mend_epochs, mend_timer, rewrite_config
from rmqctl.store.repair.tiered_table import REFUSAL, is_never_written, mend_table
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.wheel import CHECKPOINT_FILE

# Plan mends outside recovery: a body checksum stored as 0, a wrong compression flag, config files, offsets.


def mend_checksum(files: StoreFiles, finding: Finding, plan: Plan) -> None:
    """Plan the mend of one RMQ-LOG-021. RefusedError where the frame is no longer what was found.

    A `__CRC32#` property covers the checksum of the body, so it is written again as well; it has to be right before.
    """
    offset = finding.physical_offset
    assert offset is not None
    file = files.log.find(offset)
    assert file is not None
    try:
        stored, message = frame_without_crc(files.log, offset)
    except FrameDamage as damage:
        raise RefusedError(
            f"no message is there: {damage.detail}",
            file=file.path,
            physical_offset=offset,
            hint="run `rmqctl check` again",
        ) from damage
    frame = bytearray(stored)
    place = FRAME_HEADS[0].offset("body_crc")
    covering = parse_property_crc(bytes(frame[-PROPERTY_CRC_SIZE:]))
    if covering is not None and covering != frame_crc(frame[:-PROPERTY_CRC_SIZE]):
        raise RefusedError(
            "the checksum of the whole frame is wrong as well, so the message is not known to be whole",
            file=file.path,
            physical_offset=offset,
            hint="`rmqctl recover --bridge` puts filler in its place",
        )
    frame[place : place + 4] = body_crc(message.body).to_bytes(4, "big")
    position = offset - file.start_offset
    plan.add(WriteRange(file.path, position + place, bytes(frame[place : place + 4])))
    if covering is not None:
        text = property_crc_text(frame_crc(frame[:-PROPERTY_CRC_SIZE]))
        plan.add(WriteRange(file.path, position + len(frame) - len(text), text))
    # brokers delete commitlog files by age: it must not look younger than it is
    plan.times[file.path] = file.path.stat().st_mtime_ns


def mend_flag(files: StoreFiles, finding: Finding, plan: Plan) -> None:
    """Plan the mend of one RMQ-LOG-032: clear the compression bit. RefusedError where the body is not plain any more,
    its CRC is wrong, or `__CRC32#` covers the flag."""
    offset = finding.physical_offset
    assert offset is not None
    file = files.log.find(offset)
    assert file is not None
    try:
        message = message_at(files.log, offset)
        if compression_type(message.sys_flag) is None or not is_plain(message.body):
            raise CorruptError("the body is not plain, or not flagged as compressed")
    except (CorruptError, NotFoundError) as error:
        raise RefusedError(
            error.message, file=file.path, physical_offset=offset, hint="run `rmqctl check --full` again"
        ) from error
    if CRC32 in message.properties():
        raise RefusedError(
            "its __CRC32# property covers the flag",
            file=file.path,
            physical_offset=offset,
            hint="`rmqctl cat --format-string` gives the body, to be sent again",
        )
    place = offset - file.start_offset + FRAME_HEADS[0].offset("sys_flag")
    flag = message.sys_flag & ~SYS_FLAG_COMPRESSED
    plan.add(WriteRange(file.path, place, flag.to_bytes(4, "big", signed=True)))
    # brokers delete commitlog files by age: it must not look younger than it is
    plan.times[file.path] = file.path.stat().st_mtime_ns


def mend_config(finding: Finding, plan: Plan, staging: Staging) -> None:
    """Plan the mend of one damaged or missing config file."""
    path = finding.file
    assert path is not None
    if finding.code == "RMQ-CFG-003":
        assert isinstance(finding.expected, int)
        plan.add(Resize(path, finding.expected))
    else:
        install_config(plan, staging, path, backup_of(path).read_bytes())


def mend_offsets(files: StoreFiles, findings: Iterable[Finding], plan: Plan, staging: Staging) -> None:
    """Plan new offsets if those of consumer groups (RMQ-OFF-001) or delay levels (RMQ-OFF-003) are past the end of
    their queue, or are invalid (RMQ-OFF-007)."""
    wanted = _Wanted(files, findings)
    home = offsets_home(files.layout.config, files.config)
    for path, judge in ((home.path, _consumer), (files.layout.config / "delayOffset.json", _delay)):
        if in_database(path) is not None:
            continue
        loaded = load_config(path)
        table = loaded.content.get("offsetTable") if loaded is not None and isinstance(loaded.content, dict) else None
        if loaded is not None and isinstance(table, dict) and judge(wanted, table):
            install_config(plan, staging, path, format_config_json(loaded.content).encode("utf-8"))


def _consumer(judged: _Wanted, table: dict[Any, Any]) -> bool:
    changed = False
    for key, offsets in table.items():
        topic = str(key).partition("@")[0]
        for queue_id in list(offsets) if isinstance(offsets, dict) else ():
            if isinstance(queue_id, int):
                wanted = judged.offset(topic, queue_id, offsets[queue_id], "RMQ-OFF-001")
                changed |= wanted != offsets[queue_id]
                offsets[queue_id] = wanted
    return changed


def _delay(judged: _Wanted, table: dict[Any, Any]) -> bool:
    changed = False
    for level in list(table):
        if isinstance(level, int):
            wanted = judged.offset(SCHEDULE_TOPIC, level - 1, table[level], "RMQ-OFF-003")
            changed |= wanted != table[level]
            table[level] = wanted
    return changed


class _Wanted:
    """Offsets as the chosen findings want them."""

    def __init__(self, files: StoreFiles, findings: Iterable[Finding]) -> None:
        self._files = files
        chosen = list(findings)
        self._codes = {one.code for one in chosen}
        # the end of the queue as a rule, its first message where the topic was created again
        self._bounds = {
            (one.topic, one.queue_id): one.expected
            for one in chosen
            if one.code == "RMQ-OFF-001" and isinstance(one.expected, int)
        }

    def offset(self, topic: str, queue_id: int, offset: Any, past_end: str) -> Any:
        """Return the new offset. `past_end`: the code of an offset past the end of this queue."""
        queue = self._files.queues.find(topic, queue_id)
        if not (isinstance(offset, int) and offset >= 0):
            minimum = queue.min_offset(self._files.log.min_offset) if queue is not None else 0
            return minimum if "RMQ-OFF-007" in self._codes else offset
        end = queue.max_offset if queue is not None else 0
        # a consumer's offset in a queue without files is none of these findings: the queue may be at home elsewhere
        if past_end not in self._codes or offset <= end or (queue is None and topic != SCHEDULE_TOPIC):
            return offset
        return min(end, self._bounds.get((topic, queue_id), end))


def set_times(files: StoreFiles, codes: set[str], plan: Plan) -> None:
    """Plan the mtimes of commitlog files for `codes` (RMQ-TIME-001, -002): the time each was closed at.

    RefusedError where that time is in the future: a broker would keep the file, and all after it, until then.
    """
    now = time.time_ns() // 1_000_000
    changed = {operation.path for operation in plan.operations}
    for one in misdated_files(files):
        if one.code not in codes or one.file.path in changed:
            continue
        if one.closed > now:
            raise RefusedError(
                "the message after this file was stored in the future, so its time is not set by that",
                file=one.file.path,
                hint="compare the clocks: `rmqctl check --explain RMQ-TIME-003`",
            )
        plan.add(SetTime(one.file.path, one.closed * 1_000_000))


# Name what a broker lacks once `repair` has moved a state file that it cannot read out of the store.


def consequences(files: StoreFiles, paths: Iterable[Path]) -> Iterator[str]:
    """Yield a sentence for each of `paths` without which a broker forgets what it did."""
    config = files.layout.config
    for path in paths:
        if path == config / CHECKPOINT_FILE:
            yield from _of_timer(files)
        elif path.parent == config and path.name in OWN_TABLES:
            yield _of_table(path)


def _of_timer(files: StoreFiles) -> Iterator[str]:
    queue = files.queues.find(TIMER_TOPIC, 0)
    messages = 0 if queue is None else queue.max_offset - queue.min_offset(files.log.min_offset)
    if messages > 0:
        yield (
            f"without config/{CHECKPOINT_FILE} a broker reads its timer queue again from the start: those of its "
            f"{counted(messages, 'message')} that are due are delivered again, those that wait are delivered twice. "
            f"To prevent that, put a copy of {CHECKPOINT_FILE} from a backup in its place before the broker starts"
        )


def _of_table(path: Path) -> str:
    if look_at(backup_of(path)).is_good:
        return f"a broker takes config/{path.name}.bak instead of config/{path.name}"
    return f"config/{path.name} has no good backup: a broker starts with an empty table in its place"


class Mend(enum.Enum):
    """A way to mend findings. The first kinds are parts of one recovery."""

    LOG = "log"
    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    MOVE_AWAY = "move away"
    CONFIG = "config"
    OFFSETS = "offsets"
    CHECKSUM = "checksum"
    FLAG = "flag"
    TIMER = "timer"
    EPOCHS = "epochs"
    REWRITE = "rewrite"
    TIMES = "times"
    TOPIC = "topic"
    OLD_TAIL = "old tail"
    TIERED = "tiered"


RECOVERY = {Mend.LOG: Part.LOG, Mend.QUEUES: Part.QUEUES, Mend.INDEX: Part.INDEX, Mend.CHECKPOINT: Part.CHECKPOINT}
"""The mends that one recovery makes, and which of its parts each is."""
_BY_CODE = {
    "RMQ-FILE-001": Mend.MOVE_AWAY,
    "RMQ-FILE-007": Mend.MOVE_AWAY,
    "RMQ-FILE-009": Mend.MOVE_AWAY,
    "RMQ-FILE-012": Mend.MOVE_AWAY,
    "RMQ-FILE-013": Mend.QUEUES,
    "RMQ-FILE-014": Mend.QUEUES,
    "RMQ-FILE-015": Mend.QUEUES,
    "RMQ-LOG-013": Mend.OLD_TAIL,
    "RMQ-LOG-015": Mend.OLD_TAIL,
    "RMQ-LOG-021": Mend.CHECKSUM,
    "RMQ-LOG-032": Mend.FLAG,
    "RMQ-CFG-001": Mend.CONFIG,
    "RMQ-CFG-002": Mend.REWRITE,
    "RMQ-CFG-003": Mend.CONFIG,
    "RMQ-CFG-004": Mend.CONFIG,
    "RMQ-CFG-006": Mend.TOPIC,
    "RMQ-CFG-021": Mend.REWRITE,
    "RMQ-CFG-025": Mend.REWRITE,
    "RMQ-CFG-026": Mend.REWRITE,
    "RMQ-CFG-050": Mend.REWRITE,
    "RMQ-OFF-001": Mend.OFFSETS,
    "RMQ-OFF-003": Mend.OFFSETS,
    "RMQ-OFF-007": Mend.OFFSETS,
    "RMQ-TMR-001": Mend.TIMER,
    "RMQ-TMR-002": Mend.TIMER,
    "RMQ-TMR-003": Mend.TIMER,
    "RMQ-TMR-004": Mend.TIMER,
    "RMQ-TMR-005": Mend.TIMER,
    "RMQ-TIME-001": Mend.TIMES,
    "RMQ-TIME-002": Mend.TIMES,
    "RMQ-EPO-001": Mend.EPOCHS,
    "RMQ-EPO-002": Mend.EPOCHS,
    "RMQ-EPO-003": Mend.EPOCHS,
    "RMQ-EPO-004": Mend.OLD_TAIL,
    "RMQ-TIER-006": Mend.TIERED,
    "RMQ-TIER-008": Mend.TIERED,
}
_BY_FAMILY = {"CQ": Mend.QUEUES, "IDX": Mend.INDEX, "CKPT": Mend.CHECKPOINT}
# mends that set an offset to the end of its queue
_SET_BY_THE_END = frozenset({"RMQ-OFF-001", "RMQ-OFF-003"})
_SEEN_BY_A_FULL_CHECK = frozenset({"RMQ-LOG-032"})
_RECOVERING = ("rmqctl recover", "rmqctl rebuild", "rmqctl repair")


def mend_of(finding: Finding) -> Mend | None:
    """The mend for a finding, None where a person has to decide or another command is for it."""
    known = _BY_CODE.get(finding.code)
    if known in (Mend.REWRITE, Mend.TIMER, Mend.FLAG, Mend.OLD_TAIL) and finding.fix is None:
        return None  # nothing of the file is known; a checksum covers the flag; or newer messages follow the old ones
    if known is not None:
        return known
    if finding.fix is None or not finding.fix.startswith(_RECOVERING) or "--cut" in finding.fix:
        return None
    # what lies in the log decides what queues and index have to hold, so it takes them along
    return Mend.LOG if "--bridge" in finding.fix else _BY_FAMILY.get(finding.kind.family, Mend.LOG)


def _changes_an_end(finding: Finding) -> bool:
    """Return whether the fix of a finding may change where the log or a queue ends."""
    is_mended = mend_of(finding) in (Mend.LOG, Mend.QUEUES, Mend.OLD_TAIL) or "--cut" in (finding.fix or "")
    return finding.severity.is_alarm and is_mended


def _follows(finding: Finding) -> bool:
    """Return whether the fix of a finding goes by where the log and the queues end."""
    is_of_delays = mend_of(finding) is Mend.REWRITE and finding.file is not None and finding.file.name == DELAY_FILE
    return is_of_delays or mend_of(finding) in (Mend.TIMER, Mend.EPOCHS)


def may_make_queues(only: Iterable[str]) -> bool:
    """Return whether fixing these codes (none: all) can create queue files."""
    known = [_BY_CODE.get(code) or _BY_FAMILY.get(code.split("-")[1], Mend.LOG) for code in only if code in catalogue()]
    # what lies in the log decides what all else has to hold
    return not known or bool({Mend.QUEUES, Mend.LOG, Mend.OLD_TAIL} & set(known))


_DECISIONS = (None, Mend.OFFSETS, Mend.REWRITE, Mend.TIMES, Mend.TOPIC, Mend.OLD_TAIL, Mend.TIERED)


def is_chosen(finding: Finding, only: Iterable[str]) -> bool:
    """Return whether a finding is to be mended.

    Offsets of consumers, the text of a config file, the table of tiered storage, queues of an unknown topic, whole
    messages after the end of the log, and the mtimes of files, by which a broker deletes them, are a decision: their
    codes have to be named.
    """
    chosen = frozenset(only)
    if chosen:
        return finding.code in chosen
    return mend_of(finding) not in _DECISIONS


@dataclass(slots=True)
class RepairReport:
    """What was mended, or with `dry_run` would be: findings by code; and the findings that are left, alarms only.

    `bridged`: as in RecoverReport. `operations` is the plan, `journal` the folder that keeps what went. `notes`: what a
    broker does without the files that are moved away.
    """

    _repr_html_ = as_html

    mended: dict[str, int] = field(default_factory=dict)
    left: list[dict[str, Any]] = field(default_factory=list)
    bridged: list[dict[str, Any]] = field(default_factory=list)
    truncated_bytes: int = 0
    queues_changed: int = 0
    units_added: int = 0
    units_removed: int = 0
    index_files_rebuilt: int = 0
    journal: str | None = None
    dry_run: bool = False
    operations: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def repair(files: StoreFiles, change: ChangeOptions = ChangeOptions(), *, only: Iterable[str] = ()) -> RepairReport:
    """Check the store opened as `files`, which is stale afterwards, and mend what is found; with `only`
    findings of these codes.

    Damage inside the log is bridged, a torn tail cut. UsageError for an unknown code; RefusedError if a decision is
    needed; StoreInUseError; UnsupportedError for findings about queues in a RocksDB.
    """
    unknown = sorted(set(only) - set(catalogue()))
    if unknown:
        raise UsageError(f"{unknown[0]} is no code of a finding", hint="docs/findings.md lists them")
    chosen = frozenset(only)
    left: list[dict[str, Any]] = []

    def ends(_head: dict[str, Any]) -> bool:
        # with `only` some findings are left, and what is left may be what an interrupted change has done
        return not chosen and not left

    with changing(files, "repair", change, ends) as planned:
        level = Level.FULL if chosen & _SEEN_BY_A_FULL_CHECK else Level.DEFAULT
        findings = list(check(planned.files, level, events=change.events))
        _refuse_doubtful(findings, chosen)
        report = _Repair(planned, chosen).plan(findings)
        left += report.left
        named = sorted({one.code for one in findings if not one.severity.is_alarm and one.fix} - set(report.mended))
        if named and not chosen:
            report.notes.append(f"notices are fixed by their codes: --only {' --only '.join(named)}")
        if any(is_never_written(one["code"]) for one in report.left):
            report.notes.append(REFUSAL)
        report.operations = planned.rows()
    report.journal = planned.kept_in
    if report.queues_changed and not change.dry_run and any(finding.code == "RMQ-OFF-030" for finding in findings):
        with StoreFiles(files.root, files.config) as now:
            configs = ConfigFiles(now.layout.config, is_slave=now.config.is_slave)
            offsets = OffsetCheck(now, configs).findings()
            report.left += [finding.row() for finding in offsets if finding.severity.is_alarm]
    return report


def _refuse_doubtful(findings: list[Finding], only: frozenset[str]) -> None:
    """RefusedError where offsets are to be set by the end of a queue that has findings of its own."""
    doubtful = next((finding for finding in findings if finding.code == "RMQ-OFF-030"), None)
    if doubtful is not None and only & _SET_BY_THE_END:
        raise RefusedError(
            doubtful.message,
            file=doubtful.file,
            hint="recover the queues first (`rmqctl recover`), then `rmqctl check` judges the offsets again",
        )


class _Repair:
    """One repair: findings, then the plan in the order strays, recovery, config files."""

    def __init__(self, change: PlannedChange, only: frozenset[str]) -> None:
        self.files = change.files
        self.change = change
        self.only = only
        self.operations = change.plan

    def plan(self, findings: list[Finding]) -> RepairReport:
        """Decide everything; nothing of the store is touched."""
        report = RepairReport(dry_run=self.change.is_dry)
        chosen: list[Finding] = []
        # a recovery would put filler in the place of messages that only need their checksum: that is for the next run
        is_first = any(mend_of(one) is Mend.CHECKSUM and is_chosen(one, self.only) for one in findings)
        # where the log ends at the old messages, what is wrong before them is for the next run
        is_first |= any(mend_of(one) is Mend.OLD_TAIL and is_chosen(one, self.only) for one in findings)
        # timer, epochs and delay offsets follow the log and the queues: they are for the next run
        waits_for_recovery = any(map(_changes_an_end, findings))
        moved = {one.topic for one in findings if mend_of(one) is Mend.TOPIC and is_chosen(one, self.only)}
        for finding in findings:
            if finding.topic in moved and finding.code.startswith("RMQ-CQ-"):
                continue  # its queue is moved out of the store
            mend = mend_of(finding)
            # without a log nothing says what anything else has to hold
            is_possible = mend is not None and (mend not in RECOVERY or (bool(self.files.log.files) and not is_first))
            is_possible &= not (waits_for_recovery and _follows(finding))
            if is_possible and is_chosen(finding, self.only):
                chosen.append(finding)
            elif finding.severity.is_alarm:
                report.left.append(finding.row())
        mends = {mend_of(finding) for finding in chosen}
        gone = dict.fromkeys(
            finding.file for finding in chosen if mend_of(finding) is Mend.MOVE_AWAY and finding.file is not None
        )
        for path in gone:
            self.operations.add(MoveAway(path))
        report.notes += consequences(self.files, gone)
        old_tails = [finding for finding in chosen if mend_of(finding) is Mend.OLD_TAIL]
        if old_tails:
            self._end_log(old_tails, list(gone), report)
        else:
            self._recover(chosen, mends, list(gone), report)
        for finding in chosen:
            if mend_of(finding) is Mend.CHECKSUM:
                mend_checksum(self.files, finding, self.operations)
                self.operations.messages_made += 1
            elif mend_of(finding) is Mend.FLAG:
                mend_flag(self.files, finding, self.operations)
        staging = self.change.staging
        self._mend_config(chosen)
        if Mend.TIMER in mends:
            mend_timer(self.files, self.operations, staging)
        epochs = [finding for finding in chosen if mend_of(finding) is Mend.EPOCHS]
        if epochs:
            mend_epochs(epochs, self.operations, staging)
        offsets = [finding for finding in chosen if mend_of(finding) is Mend.OFFSETS]
        if offsets:
            mend_offsets(self.files, offsets, self.operations, staging)
        tables = [finding for finding in chosen if mend_of(finding) is Mend.TIERED]
        if tables:
            mend_table(self.files, tables, self.operations, staging)
        times = {finding.code for finding in chosen if mend_of(finding) is Mend.TIMES}
        if times:
            set_times(self.files, times, self.operations)
        report.mended = dict(sorted(Counter(finding.code for finding in chosen).items()))
        return report

    def _mend_config(self, chosen: list[Finding]) -> None:
        """Plan config files, and the queues of topics that they do not name."""
        rewritten: dict[Path, set[str]] = {}
        for finding in chosen:
            mend = mend_of(finding)
            if mend is Mend.CONFIG:
                mend_config(finding, self.operations, self.change.staging)
            elif mend is Mend.REWRITE and finding.file is not None:
                rewritten.setdefault(finding.file, set()).add(finding.code)
            elif mend is Mend.TOPIC and finding.topic is not None:
                plan_queue_removal(self.files.layout, finding.topic, self.operations)
        for path, codes in rewritten.items():
            rewrite_config(self.files, path, codes, self.operations, self.change.staging)

    def _recover(self, chosen: list[Finding], mends: set[Mend | None], gone: list[Path], report: RepairReport) -> None:
        """The part of the plan that one recovery makes, as far as it is wanted."""
        # without a stray file a store may need nothing else; but its recovery must not stumble over it
        parts = frozenset(RECOVERY[mend] for mend in mends if mend in RECOVERY)
        if not parts:
            return
        self._forget(gone)
        bridges: Bridges | None = None
        if any("--bridge" in (finding.fix or "") for finding in chosen):
            bridges = plan_bridges(self.files, self.change.spill, self.change.options.events)
        # what lies in the log decides what all else has to hold
        leave, new_checkpoint = Part.LOG not in parts, Part.CHECKPOINT in parts
        goal = Goal(bridges=bridges, leave=leave, new_checkpoint=new_checkpoint, parts=parts if leave else ALL_PARTS)
        recovery = Recovery(self.change, goal)
        _copy(recovery.plan(self.change.options.events), report)
        self.operations.add_all(recovery.operations)

    def _end_log(self, old_tails: list[Finding], gone: list[Path], report: RepairReport) -> None:
        """Plan that the log ends before the first of the old messages; what follows the log is cut with it."""
        self._forget(gone)
        at = min(_end_before(finding) for finding in old_tails)
        recovery = Recovery(self.change, Goal(at=at, messages_cut=count_messages(self.files.log, at)))
        _copy(recovery.plan(self.change.options.events), report)
        self.operations.add_all(recovery.operations)

    def _forget(self, gone: list[Path]) -> None:
        """What is moved away is nothing to refuse any more. UnsupportedError for queues in a RocksDB."""
        if has_rocksdb_queues(self.files.layout):
            raise rocksdb_error(self.files.layout)
        log = self.files.log
        log.problems = [problem for problem in log.problems if problem.path not in gone]
        for queue in self.files.queues.all():
            queue.files.problems = [problem for problem in queue.files.problems if problem.path not in gone]


def _end_before(finding: Finding) -> int:
    """Return where the log ends without the old messages of a finding: where damage comes before them, before that."""
    end = finding.expected if finding.code == "RMQ-LOG-013" else finding.physical_offset
    assert isinstance(end, int)
    return end


def _copy(done: RecoverReport, report: RepairReport) -> None:
    report.bridged = done.bridged
    report.truncated_bytes = done.truncated_bytes
    report.queues_changed, report.units_added = done.queues_changed, done.units_added
    report.units_removed, report.index_files_rebuilt = done.units_removed, done.index_files_rebuilt
