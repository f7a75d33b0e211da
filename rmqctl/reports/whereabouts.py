"""How the whereabouts of messages are told: to people a sentence and a line for each piece of evidence."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmqctl import exit_codes
from rmqctl.output.sanitise import visible

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.answers.where.steps import Step, Whereabouts

_COLUMNS = (
    "asked",
    "found_by",
    "state",
    "sentence",
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "msg_id",
    "unique_key",
    "keys",
    "tags",
    "store_timestamp",
)
_NARROWEST = 40
# of the longest stage, and two spaces
_INDENT = 10


def tell_whereabouts(output: Output, found: Sequence[Whereabouts], damaged: int, *, is_uncertain: bool = False) -> int:
    """Print them, and return the exit code. `damaged`: the number of damaged places; `is_uncertain`: a part of the
    store that counts was not read, or lags behind the log."""
    if output.format == "table":
        if found and found[0].msg_id is not None:
            output.talk(f"found by {found[0].found_by}")
        for number, one in enumerate(found):
            if number:
                output.text("")
            for line in _lines(one):
                output.text(line)
    else:
        output.rows(_COLUMNS, map(whereabouts_json, found))
    is_there = any(one.msg_id is not None for one in found)
    if damaged and not is_there:
        return exit_codes.DAMAGE_IN_THE_WAY
    is_certain = not damaged and not is_uncertain
    return exit_codes.OK if is_there and is_certain else exit_codes.DAMAGE_OR_NOTHING


def whereabouts_json(one: Whereabouts) -> dict[str, Any]:
    """A message's whereabouts with its groups and evidence as objects."""
    groups = [group._asdict() for group in one.groups]
    return {**one._asdict(), "groups": groups, "evidence": [step._asdict() for step in one.evidence]}


def _lines(one: Whereabouts) -> list[str]:
    width = max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else sys.maxsize
    head = [one.sentence]
    if one.msg_id is not None:
        known = {"id": one.msg_id, "unique key": one.unique_key, "keys": one.keys, "tags": one.tags}
        head += [f"{name}: {value}" for name, value in known.items() if value]
    return [line for text in head for line in _wrapped(text, width, 2 * (text is not one.sentence))] + [
        line for step in one.evidence if not _is_said(one, step) for line in _step_lines(step, width)
    ]


def _is_said(one: Whereabouts, step: Step) -> bool:
    """Whether the sentence about a message that is not there says the step already."""
    return one.msg_id is None and step.group is None and step.detail in one.sentence


def _step_lines(step: Step, width: int) -> list[str]:
    return _wrapped(f"{step.stage:<{_INDENT - 2}}{step.detail}", width, 2, _INDENT)


def _wrapped(text: str, width: int, indent: int, hanging: int | None = None) -> list[str]:
    begin = " " * indent
    rest = begin if hanging is None else " " * hanging
    shown = visible(text)
    if len(begin + shown) <= width:
        return [begin + shown]
    return textwrap.wrap(
        shown, width, initial_indent=begin, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )
