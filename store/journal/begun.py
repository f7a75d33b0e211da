"""What an error means once a change has begun: the store is between two states, and the error says how to end that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqctl.formats.errors import UnreadableError, WriteFailedError
from rmqctl.formats.wording import joined_hints


@contextmanager
def begun(hint: str, root: Path, has_begun: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Any error of reading or writing in the block, which changes the store at `root`, is a WriteFailedError that ends
    with `hint`; where nothing `has_begun` yet an error of reading stays what it is."""
    try:
        yield
    except WriteFailedError as error:
        error.hint = joined_hints(error.hint, hint)
        raise
    except (UnreadableError, OSError) as error:
        if not has_begun():
            raise
        told = error if isinstance(error, UnreadableError) else _named(error, root)
        raise WriteFailedError(told.message, file=told.file, hint=joined_hints(told.hint, hint)) from error


def _named(error: OSError, root: Path) -> UnreadableError:
    return UnreadableError(f"I/O error: {error.strerror or error}", file=error.filename or root)
