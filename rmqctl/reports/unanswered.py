"""How servers that did not answer are told: one sentence each on stderr, and the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl import exit_codes

if TYPE_CHECKING:
    from rmqctl.formats.errors import RemoteError
    from rmqctl.output.output import Output


class Unanswered:
    """Takes errors of servers."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._told: set[str] = set()

    def __call__(self, error: RemoteError) -> None:
        """Tell of a server, once."""
        if error.message not in self._told:
            self._told.add(error.message)
            self._output.talk(error.message)

    def exit_code(self) -> int:
        """What the command ends with: UNREADABLE where something is missing."""
        return exit_codes.UNREADABLE if self._told else exit_codes.OK
