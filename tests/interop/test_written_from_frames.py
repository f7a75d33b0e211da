"""Both real brokers open stores that were written from frames, serve every message of them and change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.properties import has_queue_slot
from rmqctl.pipeline.spark.sink import write_staged
from rmqctl.pipeline.spark.sink_record import (
    MicroBatch,
    StagedRows,
    require_columns,
    rows_to_stage,
    staging_folder,
    write_attempt,
)
from rmqctl.pipeline.views import TABLES
from rmqctl.store.options import Events
from rmqctl.store.scan.scan import Scan
from tests.goldens import properties
from tests.interop import harness
from tests.interop.harness import VERSIONS, Job
from tests.opened import reader
from tests.store.write.writing import golden_config, stored_messages

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

_COLUMNS = [(name, column.kind) for name, column in TABLES["messages"].columns.items()]


def _task(target: Path, name: str, partition: int, *, as_stored: bool) -> StagedRows:
    """All messages of a golden store, as a task puts them aside."""
    wanted = require_columns(_COLUMNS, as_stored)
    batches = Scan(reader(name).files.log, views=False).batches(Events(damage=lambda _: None))
    return write_attempt(
        staging_folder(target, "all"), partition, (rows_to_stage(batch, wanted, 0) for batch in batches)
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_serve_what_was_written_from_frames(version: str, tmp_path: Path) -> None:
    jobs = []
    for name, as_stored in (("clean", False), ("features", True), ("features", False)):
        target = tmp_path / f"{name}-{as_stored}" / "store"
        target.parent.mkdir()
        # once as a new store, once into one that is there
        for batch_id in range(2):
            tasks = [_task(target, name, partition, as_stored=as_stored) for partition in range(2)]
            write_staged(target, golden_config(name), tasks, as_stored=as_stored, batch=MicroBatch("query", batch_id))
        jobs.append(Job(target, properties(name)))
    wrong: list[str] = []
    for job, view in zip(jobs, harness.open_many(version, jobs), strict=True):
        messages = [message for message in stored_messages(job.store) if has_queue_slot(message.sys_flag)]
        wanted = {(message.physical_offset, message.topic, message.queue_offset) for message in messages}
        seen = {(message.physical_offset, message.topic, message.queue_offset) for message in view.messages}
        if seen != wanted or view.complaints():
            wrong.append(f"{job.store}: {len(seen)} messages of {len(wanted)}, {view.complaints()[:3]}")
    assert wrong == []
