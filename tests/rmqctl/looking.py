"""Runs a verb in this process and keeps what it printed."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, NamedTuple

from rmqctl.main import main


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def without_notices(self) -> Done:
        """The same without what is said of compiling, which depends on what ran before."""
        lines = self.err.splitlines(keepends=True)
        return self._replace(err="".join(line for line in lines if not line.startswith("compiling ")))

    @property
    def objects(self) -> list[dict[str, Any]]:
        """stdout as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(*arguments: object) -> Done:
    """`rmqctl ARGUMENTS`, as the console script would do it."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Done(code, out.getvalue(), err.getvalue())
