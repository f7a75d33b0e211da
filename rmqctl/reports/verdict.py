"""The first sentence for people: how it stands with a store, and the command to run next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.wording import counted
from rmqctl.output.paragraph import print_paragraph
from rmqctl.output.style import BAD, DOUBTFUL, GOOD

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.check.summary import CheckSummary
    from rmqctl.store.predict import Prediction


class Opening(NamedTuple):
    """A sentence, the command to run next where there is one, and the style that it is printed in."""

    sentence: str
    command: str | None = None
    style: str = GOOD


def print_verdict(output: Output, verdict: Opening) -> None:
    """Print it where a table or listing is printed; JSON and CSV say it by their fields."""
    if output.format != "table":
        return
    print_paragraph(output, verdict.sentence, style=verdict.style)
    if verdict.command is not None:
        output.text(f"next: {verdict.command}")  # in one line, so that it can be copied


def command_on(store: Path | str, verb: str, *flags: str, config: Path | None = None) -> str:
    """A command line with the store it is for, as it can be run."""
    named = ["-s", shlex.quote(str(store))]
    settings = [] if config is None else ["-c", shlex.quote(str(config))]
    return " ".join(["rmqctl", verb, *flags, *named, *settings])


def of_info(row: dict[str, Any], config: Path | None) -> Opening:
    """Return the verdict on a store by what `info` found."""
    from rmqctl.store.files.lock import holder_name

    log, path = row["commitlog"], row["path"]
    problems = len([*log["problems"], *row["consumequeue"]["problems"], *row["index"]["problems"]])
    files = counted(log["files"], "commitlog file")
    held = files if log["messages"] is None else f"{counted(log['messages'], 'message')} in {files}"
    check = command_on(path, "check", config=config)
    if row["unfinished_change"] is not None and not row["locked"]:
        return Opening("A change was interrupted, and waits to be ended.", command_on(path, "log", config=config), BAD)
    if log["damaged_spans"]:
        spans = counted(log["damaged_spans"], "damaged span")
        return Opening(f"Damaged: {spans} in the commitlog; {held}.", check, BAD)
    if row["locked"]:
        return Opening(f"In use by {holder_name(row['lock_holder'])}: {held}.", None, GOOD)
    if problems:
        return Opening(f"{counted(problems, 'problem')} that a broker would stop at or trip over; {held}.", check, BAD)
    if not row["clean_shutdown"]:
        command = command_on(path, "predict", config=config)
        return Opening(f"Not closed cleanly, and nobody has it open: {held}.", command, DOUBTFUL)
    if not log["files"] and row["not_read"]:
        return Opening(f"Closed cleanly, but {row['not_read'][0]}.", check)
    if not log["files"]:
        return Opening("Empty: there is no commitlog file.")
    return Opening(f"Closed cleanly: {held}.", check)


def of_check(summary: CheckSummary, fix: str | None, check: str, full: str) -> Opening:
    """Return the verdict of a check; `fix` is the command for its worst finding, `check` that of a whole check, `full`
    that of a full one."""
    counts = ", ".join(
        counted(count, word)
        for count, word in ((summary.errors, "error"), (summary.warnings, "warning"), (summary.notices, "notice"))
        if count
    )
    if summary.errors or summary.warnings:
        known = f"{_and(summary.perhaps)} may be lost" if summary.perhaps else "nothing is lost"
        lost = f"{_and(summary.lost)} are lost" if summary.lost else known
        return Opening(f"Something is wrong: {counts}; {lost}.", fix, BAD if summary.errors else DOUBTFUL)
    noticed = f"; {counts}" if counts else ""
    if summary.level == "quick":
        sentence = (
            f"The quick check found no damage{noticed}. It does not read every message, queue unit or index entry."
        )
        return Opening(sentence, check)
    covered = "" if summary.complete and summary.subset is None else " in the part that was checked"
    if summary.bodies_not_unpacked:
        packed = counted(summary.bodies_not_unpacked, "compressed body was", "compressed bodies were")
        return Opening(f"No damage was found{covered}{noticed}. {packed} not unpacked, so that can hide some.", full)
    return Opening(f"Nothing is wrong{covered}{noticed}.", None)


def of_prediction(found: Prediction, store: Path, config: Path | None) -> Opening:
    """What a start would do."""
    broker = f"A broker {found.broker}"
    if not found.loads:
        return Opening(f"{broker} does not start.", command_on(store, "check", config=config), BAD)
    harm = [
        f"{what} {counted(count, one, several)}{where}"
        for count, what, one, several, where in (
            (found.messages_lost, "loses", "message", "messages", ""),
            (found.messages_unqueued, "leaves", "message", "messages", " out of every queue"),
            (found.index_entries_lost, "loses", "index entry", "index entries", ""),
            (found.messages_stuck, "never delivers", "delayed message", "delayed messages", ""),
        )
        if count
    ]
    lost = [row["file"] for row in found.config if row["is_harmful"]]
    if lost:
        harm.append(f"does not load {_and(lost)} as written")
    if found.timer_reset:
        again = f"delivers {counted(found.messages_repeated, 'message')} of the timer again"
        harm.append(again if found.messages_repeated else "does not know how far its timer was")
    of_config = bool(lost) + bool(found.messages_stuck) + found.timer_reset
    if harm and len(harm) == of_config:
        return Opening(f"{broker} starts, and {_and(harm)}.", command_on(store, "check", config=config), BAD)
    if found.harmful_setting is not None:
        way_out = f"Remove {found.harmful_setting} from the broker's configuration before it starts."
        return Opening(f"{broker} starts, and {_and(harm)}. {way_out}", None, BAD)
    if found.is_harmful:
        what = _and(harm or ["loses or misplaces queue units"])
        return Opening(f"{broker} starts, and {what}.", command_on(store, "recover", "--dry-run", config=config), BAD)
    if found.messages_repeated:
        again = f"{counted(found.messages_repeated, 'message')} of the timer"
        return Opening(f"{broker} starts, loses nothing and delivers {again} again.")
    return Opening(f"{broker} starts and loses nothing.")


def _and(parts: list[str]) -> str:
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"
