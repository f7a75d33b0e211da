"""What tests of the check share: opened copies, frames found and patched, and a check as a list of findings."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import StoredMessage
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.check import check
from rmqctl.store.check.cross import CheckSummary, Level
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.log.walk import walk
from rmqctl.store.store_files import StoreFiles
from tests.goldens import broker_conf, properties

HEAD = FRAME_HEADS[0]
_BAD_NUMBER = re.compile(
    r"\(s\)|(?<![\w.,])1 (\w+ )?(messages|units|entries|keys|queues|files|slots|places|times|levels|bytes|hours)\b"
)
"""What no text of a finding may have: every test that checks a store holds it."""
# of goldens that are small enough to be broken in a moment
LOG_FILE_SIZE = 262144


def config_of(name: str, store: Path) -> StoreConfig:
    """No configuration but for stores whose commitlog is elsewhere."""
    if "store.storePathCommitLog" not in properties(name):
        return StoreConfig()
    return read_broker_conf(broker_conf(name, store.parent))


def checked(
    store: Path, level: Level = Level.DEFAULT, config: StoreConfig | None = None
) -> tuple[list[Finding], CheckSummary]:
    """Findings and summary of one check."""
    with StoreFiles(store, config) as files:
        run = check(files, level)
        findings = list(run)
    for finding in findings:
        assert not _BAD_NUMBER.search(finding.message), finding.message
    return findings, run.summary


def codes(findings: Iterable[Finding]) -> set[str]:
    """All codes."""
    return {finding.code for finding in findings}


def alarms(findings: Iterable[Finding]) -> set[str]:
    """Codes of errors and warnings."""
    return {finding.code for finding in findings if finding.severity.is_alarm}


def messages(store: Path) -> list[StoredMessage]:
    """All good messages of the log."""
    with StoreFiles(store) as files:
        return [record for record in walk(files.log) if isinstance(record, StoredMessage)]


def log_file(store: Path, physical_offset: int) -> tuple[Path, int]:
    """The commitlog file that holds an offset, and the position in it."""
    position = physical_offset % LOG_FILE_SIZE
    return store / "commitlog" / f"{physical_offset - position:020d}", position


def put(store: Path, physical_offset: int, data: bytes) -> None:
    """Write bytes into the log; the file's modification time stays as it is."""
    path, position = log_file(store, physical_offset)
    patch(path, position, data)


def patch(path: Path, position: int, data: bytes) -> None:
    """Write bytes into a file and keep its times."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def put_field(store: Path, physical_offset: int, name: str, value: int) -> None:
    """Set one number in the head of a frame; no checksum covers it."""
    size = 8 if "offset" in name or "timestamp" in name else 4
    put(store, physical_offset + HEAD.offset(name), value.to_bytes(size, "big", signed=True))


def get(store: Path, physical_offset: int, length: int) -> bytes:
    """Bytes of the log."""
    path, position = log_file(store, physical_offset)
    with path.open("rb") as file:
        file.seek(position)
        return file.read(length)


def flip(store: Path, message: StoredMessage, position: int) -> int:
    """Change one bit of a message; returns its physical offset."""
    byte = get(store, message.physical_offset + position, 1)[0]
    put(store, message.physical_offset + position, bytes([byte ^ 1]))
    return message.physical_offset


def bare(store: Path) -> Path:
    """Take away what follows the log, so that only the log itself is judged: queues, index, checkpoint."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name, ignore_errors=True)
    (store / "checkpoint").unlink(missing_ok=True)
    return store
