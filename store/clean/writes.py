"""Why a broker on this store refuses messages, as far as files, disks and broker.conf show it."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.wording import counted
from rmqctl.store.clean.options import DiskUsage, clamped_ratios, measure_disks, options_from_config
from rmqctl.store.files.lock import refuse_server
from rmqctl.store.files.presence import exists
from rmqctl.store.store_files import StoreFiles

_WRITE_PERMISSION = 2
_UNSEEN_FLAGS = (
    "running flags of the broker (an error while it wrote queues or index, a disk that was full, a fenced replica): "
    "they are in its memory only, and stay set until it is restarted or, for a full disk, has deleted files; search "
    "its store.log and storeerror.log for `error`"
)
_UNSEEN_CACHE = "a busy page cache (OS_PAGE_CACHE_BUSY, code 2): `mqadmin brokerStatus` has pageCacheLockTimeMills"


class Cause(NamedTuple):
    """One reason. `response`: what a producer gets, None where it finds no queue; `effect` says what follows."""

    name: str
    response: str | None
    effect: str


class Writes(NamedTuple):
    """Whether a broker started on this store with this configuration refuses messages.

    `accepted`: False where a cause is seen, None where the disks cannot be measured; True says that no visible cause
    exists. `not_seen`: causes that leave no trace in files.
    """

    accepted: bool | None
    sentence: str
    causes: list[Cause]
    disk_percent: list[int | None]
    queue_disk_percent: int | None
    warnings: list[str]
    not_seen: list[str]


def judge_writes(files: StoreFiles, usage: DiskUsage | None = None) -> Writes:
    """Return what `info` says about writes. `usage`: how full the disks are, measured if None."""
    try:
        refuse_server(files.root)
    except RmqctlError:
        sentence = "Writes: unknown, because the disks of a server cannot be measured."
        return Writes(None, sentence, [], [], None, [], [])
    usage = usage or measure_disks(files.layout)
    causes = [*_of_disks(files, usage), *_of_config(files)]
    warnings = [] if any(cause.name == "disk" for cause in causes) else _of_cleaning(files, usage)
    is_known = any(percent is not None for percent in (*usage.commitlog, usage.consumequeue))
    accepted: bool | None
    if causes:
        accepted, sentence = False, f"A broker takes no messages here: {'; '.join(cause.effect for cause in causes)}."
    elif is_known:
        shown = f"(disk {_worst(usage)} % used)"
        accepted, sentence = True, f"Writes: accepted, as far as files, disks and settings show {shown}."
    else:
        accepted, sentence = None, "Writes: unknown, because the disks cannot be measured."
    unseen = [_UNSEEN_FLAGS, _UNSEEN_CACHE] if files.lock_holder() is not None else []
    return Writes(accepted, sentence, causes, list(usage.commitlog), usage.consumequeue, warnings, unseen)


def _worst(usage: DiskUsage) -> int:
    return max(percent for percent in (*usage.commitlog, usage.consumequeue) if percent is not None)


def _of_disks(files: StoreFiles, usage: DiskUsage) -> list[Cause]:
    """Above the warning ratio the cleaner sets DISK_FULL (CleanCommitLogService#isSpaceToDelete)."""
    warning, _, _ = clamped_ratios(options_from_config(files.config))
    found = []
    for name, percent in (("commitlog", usage.emptiest_commitlog), ("consumequeue", usage.consumequeue)):
        if percent is not None and percent > warning:
            effect = (
                f"the disk of {name} is {percent} % full, above diskSpaceWarningLevelRatio {warning} % "
                "(CODE 14, SERVICE_NOT_AVAILABLE); `clean --forecast` shows which files go"
            )
            found.append(Cause("disk", "SERVICE_NOT_AVAILABLE", effect))
            break
    problem = _unwritable(files)
    if problem is not None:
        effect = f"{problem}, so no next commitlog file can be created (CODE 14, SERVICE_NOT_AVAILABLE)"
        found.append(Cause("no file", "SERVICE_NOT_AVAILABLE", effect))
    return found


def _unwritable(files: StoreFiles) -> str | None:
    """Return what keeps any user from creating commitlog files, None for nothing."""
    full = []
    for directory in files.layout.commitlog:
        if not exists(directory):
            continue
        try:
            status = os.statvfs(directory)
        except OSError:
            continue
        if status.f_flag & os.ST_RDONLY:
            full.append(f"{directory} is on a disk that is mounted read-only ({os.strerror(errno.EROFS)})")
        elif status.f_files and not status.f_ffree:
            full.append(f"the disk of {directory} has no free inodes")
        else:
            return None
    return full[0] if full else None


def _of_config(files: StoreFiles) -> list[Cause]:
    config = files.config
    found = []
    if config.is_slave and not config.duplication_enable:
        effect = "brokerRole=SLAVE takes none from producers (CODE 14, SERVICE_NOT_AVAILABLE)"
        found.append(Cause("role", "SERVICE_NOT_AVAILABLE", effect))
    if not config.broker_permission & _WRITE_PERMISSION:
        effect = (
            f"brokerPermission={config.broker_permission} has no write permission, so producers find no queue here "
            "(CODE 16, NO_PERMISSION for ordered topics)"
        )
        found.append(Cause("permission", None, effect))
    return found


def _of_cleaning(files: StoreFiles, usage: DiskUsage) -> list[str]:
    """Levels below the one that stops writes, and settings that do not count as written."""
    config = files.config
    options = options_from_config(config)
    warning, forcibly, maximum = clamped_ratios(options)
    found = []
    worst = max(
        (percent for percent in (usage.emptiest_commitlog, usage.consumequeue) if percent is not None), default=0
    )
    if worst > forcibly and options.may_force:
        found.append(
            f"disk {worst} % full, above diskSpaceCleanForciblyRatio {forcibly} %: a broker deletes the oldest files "
            "of any age, read or not"
        )
    elif worst > maximum:
        found.append(f"disk {worst} % full, above diskMaxUsedSpaceRatio {maximum} %: expired files go at any hour")
    written = (config.disk_space_warning_level_ratio, config.disk_space_clean_forcibly_ratio)
    names = ("diskSpaceWarningLevelRatio", "diskSpaceCleanForciblyRatio")
    for name, value, counts in zip(names, written, (warning, forcibly), strict=True):
        if value != counts:
            found.append(f"{name}={value} counts as {counts}: RocketMQ limits it")
    free = _free_bytes(files)
    if free is not None and free < files.log.file_size:
        file_size = counted(files.log.file_size, "byte")
        found.append(f"{counted(free, 'byte')} are free, less than the next commitlog file of {file_size}")
    return found


def _free_bytes(files: StoreFiles) -> int | None:
    """Return the bytes that the roomiest disk of the commitlog has left, None where that cannot be measured."""
    free = []
    for directory in files.layout.commitlog:
        try:
            status = os.statvfs(directory)
        except OSError:
            continue
        free.append(status.f_bavail * status.f_frsize)
    return max(free, default=None)
