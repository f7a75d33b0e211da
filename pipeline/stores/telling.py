"""Errors of the data source as Spark shows them: a sentence first, then where in the code it was raised.

Spark shows what its processes in Python raise by the whole traceback, whose last line says what is wrong. A traceback
begins with the cause of an error; so the sentence is made its cause, with what to do next.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from rmqctl.formats.errors import RmqctlError

_Method = TypeVar("_Method", bound=Callable[..., Any])


def sentence_first(method: _Method) -> _Method:
    """A function, or a generator, whose errors of the family begin with their sentence wherever Spark shows them."""

    @functools.wraps(method)
    def called(*args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except RmqctlError as error:
            raise error from _sentence(error)

    @functools.wraps(method)
    def iterated(*args: Any, **options: Any) -> Iterator[Any]:
        try:
            yield from method(*args, **options)
        except RmqctlError as error:
            raise error from _sentence(error)

    return cast("_Method", iterated if inspect.isgeneratorfunction(method) else called)


def _sentence(error: RmqctlError) -> RmqctlError:
    return RmqctlError(f"{error}; {error.hint}" if error.hint else str(error))
