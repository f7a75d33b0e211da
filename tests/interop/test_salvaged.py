"""Both real brokers open salvaged stores, serve every message of them and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.salvage.salvage import salvage
from tests import goldens
from tests.goldens import properties
from tests.interop import harness
from tests.interop.harness import VERSIONS, Job
from tests.store.write.writing import stored_messages

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

NAMES = ("clean", "crc-flip-last", "crc-flip-old", "gap", "first-gone", "short-middle", "features", "propcrc", "lmq")
ONLY_5 = ("innerbatch", "longtopic")
# a queue with a gap in it: a consumer that asks for what is lost is told so, and sent on behind it
LOST = "not found by a consumer"


@pytest.mark.parametrize("offsets", ["keep", "renumber"])
@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_serve_salvaged_stores(version: str, offsets: Any, tmp_path: Path) -> None:
    names = [*NAMES, *(ONLY_5 if version != "4.9.8" else ())]
    jobs = []
    for name in names:
        target = tmp_path / name / "new"
        target.parent.mkdir()
        salvage([goldens.golden(name, tmp_path / "sources")], target, offsets=offsets)
        jobs.append(Job(target, properties(name)))
    wrong: list[str] = []
    for job, name, view in zip(jobs, names, harness.open_many(version, jobs), strict=True):
        messages = [message for message in stored_messages(job.store) if has_queue_slot(message.sys_flag)]
        wanted = {(message.physical_offset, message.topic, message.queue_offset) for message in messages}
        seen = {(message.physical_offset, message.topic, message.queue_offset) for message in view.messages}
        complaints = [text for text in view.complaints() if offsets == "renumber" or LOST not in text]
        if seen != wanted or complaints:
            wrong.append(f"{name}: {len(seen)} messages of {len(wanted)}, {complaints[:3]}")
        # whatever a consumer is not given, the next offset it is told leads on
        stuck = [anomaly for anomaly in view.anomalies if anomaly[4] <= anomaly[2]]
        if stuck:
            wrong.append(f"{name}: {stuck[:3]}")
    assert wrong == []
