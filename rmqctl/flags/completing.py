"""What a shell is offered for topics, groups, codes and changes: read from the store that the line names so far.

Whoever presses TAB waits: a look has a moment, and so many names at most. Whatever is wrong, nothing is offered.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rmqctl.store.files.layout import StoreLayout

SECONDS = 1.0
"""A store on a disk that hangs is given so long."""
MOST = 500
# so many names are looked at to find those
_LOOKED_AT = 20_000


def topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Topics with queues or with a configuration that begin so."""
    return _offered(lambda: _topics(_layout(context)), incomplete)


def groups(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Consumer groups with offsets or with a configuration that begin so."""
    return _offered(lambda: _groups(_layout(context).config), incomplete)


def changes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Ids of the changes made to the store that begin so, the last one first."""
    return _offered(lambda: _changes(_layout(context)), incomplete, in_order=True)


def codes(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Codes of findings that begin so."""

    def known() -> Iterable[str]:
        from rmqctl.store.check.catalogue.catalogue import CATALOGUE

        return CATALOGUE

    return _offered(known, incomplete.upper())


def _offered(look: Callable[[], Iterable[str]], incomplete: str, *, in_order: bool = False) -> list[str]:
    """The names that begin so; none if they cannot be had, or not in time."""
    found: list[str] = []

    def search() -> None:
        try:
            names = (name for name in islice(look(), _LOOKED_AT) if name.startswith(incomplete) and _is_word(name))
            found.extend(islice(dict.fromkeys(names), MOST))
        except Exception:  # noqa: BLE001 - a line that is being typed is no place for an error
            found.clear()

    thread = threading.Thread(target=search, daemon=True)
    thread.start()
    thread.join(SECONDS)
    # as far as it has come
    return list(found) if in_order else sorted(found)


def _is_word(name: str) -> bool:
    """Whether a shell can be handed it as one word of a line."""
    return name.isprintable() and not any(map(str.isspace, name))


def _layout(context: click.Context) -> StoreLayout:
    """The store that the line names so far, as the command itself would find it."""
    from rmqctl.opening import locate_store
    from rmqctl.store.files.layout import StoreLayout

    root = locate_store(context.params.get("store_path"), context.params.get("config_path")).path
    return StoreLayout(root, (root / "commitlog",))


def _topics(layout: StoreLayout) -> Iterator[str]:
    from rmqctl.store.read.topic_names import configured_topics

    for folder in (layout.consumequeue, layout.batchconsumequeue):
        yield from _names_in(folder)
    yield from configured_topics(layout.config)


def _groups(config: Path) -> Iterator[str]:
    from rmqctl.store.answers.config_offsets import CONSUMER_FILE, OFFSET_TABLE, offset_key
    from rmqctl.store.config.config_files import read_config

    subscriptions = read_config(config / "subscriptionGroup.json") or {}
    yield from subscriptions.get("subscriptionGroupTable", {})
    for key in (read_config(config / CONSUMER_FILE) or {}).get(OFFSET_TABLE, {}):
        whose = offset_key(key)
        if whose is not None:
            yield whose.group


def _changes(layout: StoreLayout) -> list[str]:
    from rmqctl.store.message_store import MessageStore

    with MessageStore.open(layout.root) as store:
        return [change.id for change in reversed(store.changes())]


def _names_in(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry.name for entry in entries if entry.is_dir())
    except OSError:
        return
