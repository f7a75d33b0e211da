"""Config files written again from what is known of them: what brokers load of an odd text, what a torn one still holds,
topics by their queues, groups by their offsets. It only plans."""

from __future__ import annotations

from typing import Any

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, RefusedError, UnsupportedError
from rmqctl.store.answers.config_offsets import CONSUMER_FILE, OFFSET_TABLE, is_own_group, offset_key
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.config.config_files import read_config
from rmqctl.store.config.config_start import look_at_pair
from rmqctl.store.config.config_tables import TABLES, load_config_text
from rmqctl.store.config.topic_names import is_brokers_own
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.journal.plan import Plan, Staging, install_config
from rmqctl.store.store_files import StoreFiles

_TOPIC_FILE, _GROUP_FILE = "topics.json", "subscriptionGroup.json"


def rewrite_config(files: StoreFiles, finding: Finding, plan: Plan, staging: Staging) -> None:
    """Plan a whole config file in a broker's own form. RefusedError where nothing of it is known."""
    path = finding.file
    assert path is not None
    pair = look_at_pair(path)
    if pair.file.is_good:
        install_config(plan, staging, path, format_config_json(pair.file.value).encode("utf-8"))
        return
    table = TABLES.get(path.name)
    content: dict[str, Any] = {}
    if table is not None:
        entries = max((one.table() for one in pair), key=len)
        content[table.name] = {**_known_from_elsewhere(files, path.name), **entries}
    text = format_config_json(content).encode("utf-8")
    try:
        is_of_use = table is not None and bool(load_config_text(path.name, text).value[table.name])
    except CorruptError:
        is_of_use = False
    if not is_of_use:
        raise RefusedError(
            "nothing of what it held can be read any more",
            file=path,
            hint="restore it from a copy, or set offsets with `rmqctl offsets set`",
        )
    install_config(plan, staging, path, text)


def _known_from_elsewhere(files: StoreFiles, name: str) -> dict[str, Any]:
    if name == _TOPIC_FILE:
        return _topics(files)
    return _groups(files) if name == _GROUP_FILE else {}


def _topics(files: StoreFiles) -> dict[str, Any]:
    """An entry for each topic that has queues, with as many as there are; a broker makes its own topics itself."""
    try:
        queues = files.queues.all()
    except UnsupportedError:
        return {}
    counts: dict[str, int] = {}
    for queue in queues:
        if is_safe_topic(queue.topic) and not is_brokers_own(queue.topic):
            counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    return {topic: _topic(topic, count) for topic, count in sorted(counts.items())}


def _topic(name: str, queues: int) -> dict[str, Any]:
    return {
        "order": False,
        "perm": 6,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def _groups(files: StoreFiles) -> dict[str, Any]:
    """An entry for each group that has offsets; a broker fills in its defaults."""
    content = read_config(files.layout.config / CONSUMER_FILE)
    table = content.get(OFFSET_TABLE) if isinstance(content, dict) else None
    owners = (offset_key(key) for key in (table or {}))
    names = sorted({owner.group for owner in owners if owner is not None and not is_own_group(owner.group)})
    return {name: {"groupName": name} for name in names}
