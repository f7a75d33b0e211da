"""`rmqctl diff`: two stores side by side: where they part, and which messages only one of them has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import limit_option, output_options
from rmqctl.flags.spark_options import SparkChoice, job_engine, spark_options
from rmqctl.formats.errors import counted
from rmqctl.opening import StoreLocation, open_store
from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import said
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.pipeline.jobs.diff import Diff
    from rmqctl.store.store_files import StoreFiles

_SETTINGS = ("kind", "name", "a", "b")
_MOST_SETTINGS = 20
_DIFFERENCES = (
    "state", "only", "topic", "queue_id", "queue_offset", "physical_offset_a", "physical_offset_b", "fields"
)  # fmt: skip
_TOPICS = ("topic", "messages_a", "messages_b", "same", "changed", "replaced", "moved", "only_a", "only_b")
_REPLICAS = ("store", "epoch", "is_best", "common_end", "messages_removed", "bytes_removed", "note")
_STORE = click.Path(path_type=Path)
_CONFIG = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  rmqctl diff /data/master /data/slave
  rmqctl diff /data/master /data/slave --json | jq .agree_until
  rmqctl diff old new --content                 a copy made by export and append
  rmqctl diff a b --master spark://m:7077       on many machines

\b
changed   same place in the queue and same unique key, but not the same bytes
replaced  another message at the same place in the queue
moved     the same unique key at another place of the same topic
cleaned   before the other store's first message: removed there, or never copied
behind    after the other store's last message: not there yet, or lost at its end
damaged   the other store is damaged where it would be
absent    it should be there and is not

For copies of one log (a master and its slave), digests cover the common range. Of replicas under a controller or in a
DLedger group it says which is best, and what the other one loses when it follows that one.
Exit code 0: the stores hold the same messages and, as far as compared, the same configuration. 1: they differ, or one
of them is damaged."""
)
@click.argument("a", type=_STORE)
@click.argument("b", type=_STORE)
@click.option("--config-a", type=_CONFIG, metavar="FILE", help="The broker.conf of A.")
@click.option("--config-b", type=_CONFIG, metavar="FILE", help="The broker.conf of B.")
@click.option("--content", is_flag=True, help="Compare what producers sent, not store time, store host and the like.")
@limit_option.but(default=20, help="List N differences; all are counted.")
@spark_options
@output_options
def diff(
    a: Path,
    b: Path,
    config_a: Path | None,
    config_b: Path | None,
    content: bool,
    limit: int,
    spark: SparkChoice,
    output: Output,
) -> int:
    """Compare two stores.

    For example, A is the master and B its slave. The commitlogs are compared byte for byte, their messages by topic,
    queue and queue offset and then by unique key. Every message is checked; damage is reported, and messages that it
    may hide are not called absent. Topics, groups, consumer offsets and delay offsets of config/ are compared too.
    """
    place_a, place_b = StoreLocation(a, config_a), StoreLocation(b, config_b)
    with open_store(place_a) as store_a, open_store(place_b) as store_b:
        from rmqctl.pipeline.jobs.diff import diff_config, diff_summary

        files_a, files_b = store_a.files, store_b.files
        found = _compared(files_a, files_b, content, limit, spark)
        row = diff_summary(found, files_a, files_b)
        settings = diff_config(files_a, files_b)
        row["same_configuration"] = settings.is_same and settings.is_certain and not settings.notes
        row["configuration"] = settings.rows
        row["configuration_notes"] = settings.notes
        row["replicas"] = _replicas(files_a, files_b) if row["copies_of_one_log"] else []
        hints = [files.missing_log() for files in (files_a, files_b)]
    if output.format == "csv":
        output.rows(_DIFFERENCES, row["differences"])
    elif output.is_json:
        output.record(row)
    else:
        _print(row, output)
    for hint in hints:
        if hint is not None:
            output.talk(hint)
    if row["parted"]:
        output.talk(
            f"to let one of them follow the other again, cut it: rmqctl truncate -s DIR --at {row['agree_until']}"
        )
    is_whole = not found.a.damage and not found.b.damage
    is_same = found.is_same and settings.is_same and settings.is_certain
    return exit_codes.OK if is_same and is_whole else exit_codes.DAMAGE_OR_NOTHING


def _compared(a: StoreFiles, b: StoreFiles, content: bool, limit: int, spark: SparkChoice) -> Diff:
    from rmqctl.output.terminal import progress
    from rmqctl.pipeline.jobs.diff import diff as compare
    from rmqctl.pipeline.jobs.diff import work_of

    with job_engine(spark) as engine, progress("comparing", work_of(a, b), "bytes") as bar:
        return compare(engine, a, b, content=content, limit=limit, events=Events(progress=bar.advance))


def _replicas(a: StoreFiles, b: StoreFiles) -> list[dict[str, Any]]:
    """Return what each store loses when it follows the other under a controller or in a DLedger group: a row of each
    where both have epochs or terms, else none."""
    from rmqctl.store.config.epoch_file import broker_epochs

    if any(files.dledger is None and not broker_epochs(files.layout) for files in (a, b)):
        return []
    from rmqctl.store.compare.replicas import removals, replica_of

    return [one.row() for one in removals([replica_of(files) for files in (a, b)])]


def _print(row: dict[str, Any], output: Output) -> None:
    for line in _verdict(row):
        output.text(said(line))
    if row["replicas"]:
        output.text("")
        output.text(said("as replicas of one group:"))
        output.rows(_REPLICAS, [{**one, "store": side} for side, one in zip("ab", row["replicas"], strict=True)])
    output.text("")
    stores = [{"store": side, **row[side]} for side in ("a", "b")]
    output.rows(("store", "path", "min_offset", "end_offset", "messages", "bytes", "damaged_spans"), stores)
    for side in ("a", "b"):
        for span in row[side]["damage"]:
            place = f"{span['physical_offset']}..{span['end_offset']} of {span['file']}"
            output.text(said(f"{side} is damaged: {span['reason']} at {place}: {span['detail']}"))
    if row["first_divergence"] is not None:
        _print_divergence(row["first_divergence"], output)
    topics = [one for one in row["topics"] if not one["same"] == one["messages_a"] == one["messages_b"]]
    if topics:
        output.text("")
        output.text(said("topics that differ:"))
        output.rows(_TOPICS, topics, droppable=("moved", "same"))
    if row["configuration"]:
        output.text("")
        output.text(said(f"configuration that differs ({len(row['configuration'])}):"))
        output.rows(_SETTINGS, row["configuration"][:_MOST_SETTINGS])
        if len(row["configuration"]) > _MOST_SETTINGS:
            output.text(said(f"and {len(row['configuration']) - _MOST_SETTINGS} more: --json names all"))
    for note in row["configuration_notes"]:
        output.talk(f"note: {note}")
    if row["differences"]:
        output.text("")
        output.text(said(f"differences ({len(row['differences'])} of {_differing(row['messages'])}):"))
        output.rows(_DIFFERENCES, row["differences"], droppable=("fields", "physical_offset_b", "physical_offset_a"))


def _differing(counts: dict[str, Any]) -> int:
    return sum(counts[name] for name in ("changed", "replaced", "moved", "only_a", "only_b"))


def _verdict(row: dict[str, Any]) -> list[str]:
    """What people want to know first, in sentences."""
    counts = row["messages"]
    kinds = Counter(one["kind"] for one in row["configuration"])
    listed = ", ".join(counted(count, kind) for kind, count in kinds.items())
    same = _messages(counts["same"])
    if not row["same"]:
        lines = [f"the stores differ; the same in both: {same}"]
        lines += [f"their configuration differs: {listed}"] if listed else []
    elif listed:
        lines = [f"the stores differ in their configuration ({listed}); the same in both: {same}"]
    elif row["same_configuration"]:
        lines = [f"the stores hold the same: {same}"]
    else:
        lines = [f"the stores hold the same messages ({counts['same']}); not all of the configuration was compared"]
    if not row["copies_of_one_log"] and (row["a"]["messages"] or row["b"]["messages"]):
        sizes = row["a"]["file_size"], row["b"]["file_size"]
        why = "no message has the same physical offset in both"
        if sizes[0] != sizes[1]:
            why = f"their files have different sizes, {sizes[0]} and {sizes[1]}"
        lines.append(f"they are not copies of one log: {why}")
    divergence = row["first_divergence"]
    if row["parted"]:
        lines.append(f"copies of one log up to physical offset {row['agree_until']}, where each went its own way")
    elif divergence is not None:
        again = _messages(divergence["same_again_behind"])
        place = divergence["physical_offset"]
        lines.append(f"the first byte that differs is at {place}; the same again behind it: {again}")
    for side, other in (("a", "b"), ("b", "a")):
        reasons = counts[f"only_{side}_because"]
        behind = (row[side]["end_offset"] or 0) - (row[other]["end_offset"] or 0)
        far = f" by {counted(behind, 'byte')}" if row["copies_of_one_log"] and behind > 0 else ""
        lines += [
            f"{text}: {_messages(reasons[reason])} in {side} only"
            for reason, text in (
                ("cleaned", f"{other} begins later"),
                ("behind", f"{other} is behind{far}"),
                ("damaged", f"{other} is damaged"),
                ("absent", f"{other} lacks some"),
            )
            if reasons[reason]
        ]
    lines += [
        f"{text}: {_messages(counts[name])}"
        for name, text in (
            ("changed", "not the same bytes in both"),
            ("replaced", "another message at the same place of the queue"),
            ("moved", "at another place in the other store"),
        )
        if counts[name]
    ]
    return lines


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def _print_divergence(divergence: dict[str, Any], output: Output) -> None:
    output.text("")
    output.text(said(f"first byte that differs: physical offset {divergence['physical_offset']}"))
    shown = {
        side: {name: value for name, value in divergence[side].items() if value is not None} for side in ("a", "b")
    }
    output.record(shown)
    if divergence["fields"]:
        output.text(said(f"fields that differ: {', '.join(divergence['fields'])}"))
