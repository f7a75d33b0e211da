"""Find where recovery of 5.3.3 ends the log with duplicationEnable=true: at the first message without DUP_INFO.

The check (CommitLog#checkMessageAndReturnSize, `checkDupInfo`) is one of recovery alone. Producers and brokers write no
such property by themselves, so recovery takes no message at all: it cuts the log where it begins to read.
"""

from __future__ import annotations

from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.predict.frames import judge
from rmqctl.store.predict.reading import LogPlace
from rmqctl.store.predict.rules import CONFIRMED_OFFSET, Rules, not_predicted

SETTING = "duplicationEnable"
_DUP_INFO = "DUP_INFO"


def end_without_duplicates(
    log: MappedFileQueue, begin: LogPlace, rules: Rules, *, checks_crc: bool
) -> tuple[LogPlace, str]:
    """Return where the log ends for recovery, and why in the words of the broker.

    Raises: UnsupportedError where recovery takes a message: what it dispatches depends on the confirmed offset then.
    """
    place = begin
    while True:
        file = log.files[place.file]
        verdict = judge(file.read, place.position, file.committed_position, rules, check_crc=checks_crc)
        if verdict.message is not None:
            info = verdict.message.properties().get(_DUP_INFO)
            if not verdict.message.property_bytes or _is_pair(info):
                raise not_predicted(SETTING, CONFIRMED_OFFSET)
            return place, f"DupInfo in properties check failed. dupInfo={'null' if info is None else info}"
        if not verdict.is_blank or place.file + 1 >= len(log.files):
            return place, verdict.why
        place = LogPlace(place.file + 1, 0)


def _is_pair(info: str | None) -> bool:
    """Return whether `info`, split at "_" as Java splits, has two parts."""
    return info is not None and len(info.rstrip("_").split("_")) == 2
