"""The flags of verbs that run on Spark, and what they open: an engine for jobs, or a session for SQL."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.flags.options import Command, Flag
from rmqctl.flags.types import SPAN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqctl.pipeline.engine import Engine

DEFAULT_MASTER = "local[*]"
IN_PROCESS = "in-process"
"""As a master: no Spark and no Java, processes of this machine."""

master_option = Flag("--master", metavar="URL", help="Run on Spark: local[*], local[4], spark://host:7077.")
conf_option = Flag("--conf", "conf", metavar="NAME=VALUE", multiple=True, help="Spark setting. Repeatable.")


class SparkChoice(NamedTuple):
    """What the command line said about Spark. `master` is None if the command line has none and the verb needs none."""

    master: str | None
    conf: dict[str, str]

    @property
    def is_spark(self) -> bool:
        """Whether Spark is to do it."""
        return self.master not in (None, IN_PROCESS)


def spark_options(command: Command) -> Command:
    """Add --master and --conf for a verb that runs in process without them; the command gets `spark: SparkChoice`."""

    @functools.wraps(command)
    def chosen(*args: Any, master: str | None, conf: tuple[str, ...], **options: Any) -> Any:
        settings: dict[str, str] = {}
        if conf:
            from rmqctl.pipeline.spark.session import parse_conf
            from rmqctl.pipeline.spark_engine import conf_storage_options
            from rmqctl.store.files.remote_file_system import use_storage_options

            if master in (None, IN_PROCESS):
                raise click.UsageError("--conf is a setting of Spark: say --master, too")
            settings = parse_conf(conf)
            # the store is listed before Spark starts
            use_storage_options(conf_storage_options(settings))
        return command(*args, spark=SparkChoice(master, settings), **options)

    return master_option(conf_option(chosen))  # type: ignore[return-value]


@contextlib.contextmanager
def told_spark_session(spark: SparkChoice, *, only_jobs: bool = False) -> Iterator[SparkSession]:
    """A session, with a word to the user while it starts (some seconds). `only_jobs`: see `spark_session`."""
    from rmqctl.output.terminal import waiting
    from rmqctl.pipeline.spark.session import spark_session as open_session

    with contextlib.ExitStack() as opened:
        with waiting(f"starting Spark at {spark.master or DEFAULT_MASTER}"):
            session = opened.enter_context(open_session(spark.master, spark.conf, only_jobs=only_jobs))
        yield session


@contextlib.contextmanager
def job_engine(spark: SparkChoice, processes: int | None = None) -> Iterator[Engine]:
    """The engine for jobs: Spark's where --master was given and is not IN_PROCESS, else processes of this machine.

    Spark starts with the first job, so that errors of the store or the command appear at once.
    """
    from rmqctl.formats.errors import UnsupportedError
    from rmqctl.pipeline.engine import LocalEngine, SparkEngine

    if not spark.is_spark:
        with contextlib.closing(LocalEngine(processes)) as engine:
            yield engine
        return
    with contextlib.ExitStack() as opened:

        def started() -> SparkSession:
            try:
                return opened.enter_context(told_spark_session(spark, only_jobs=True))
            except UnsupportedError as error:
                hint = f"{error.hint}; without --master it is done in this process"
                raise UnsupportedError(error.message, file=error.file, hint=hint) from error

        yield SparkEngine(started)


# Flags that set how a producer sends; the command gets them as `settings`.

namespace_option = Flag("--namespace", metavar="NAME", help="Namespace of topic and group.")
trace_option = Flag("--trace", is_flag=True, help="Send message traces, as `mqadmin queryMsgTraceById` reads them.")
trace_topic_option = Flag("--trace-topic", metavar="TOPIC", help="Topic of --trace; RMQ_SYS_TRACE_TOPIC.")


def producer_options(command: Command) -> Command:
    """Add the flags of producers; the command gets `settings` (ProducerSettings)."""

    @functools.wraps(command)
    def setting(
        *args: Any,
        timeout: int | None,
        latency_fault: bool,
        namespace: str | None,
        trace: bool,
        trace_topic: str | None,
        named: tuple[str, ...],
        **options: Any,
    ) -> Any:
        from rmqctl.network.clients.producing.settings import settings_from

        texts: dict[str, str] = {}
        for one in named:
            name, found, text = one.partition("=")
            if not found:
                raise click.UsageError(f"--setting {one!r} is not NAME=VALUE")
            texts[name] = text
        if timeout is not None:
            texts["sendMsgTimeout"] = str(timeout)
        if latency_fault:
            texts["sendLatencyEnable"] = "true"
        if trace_topic is not None and not trace:
            raise click.UsageError("--trace-topic goes with --trace")
        if trace:
            texts["enableTrace"] = "true"
        if trace_topic is not None:
            texts["traceTopic"] = trace_topic
        if namespace is not None:
            texts["namespace"] = namespace
        return command(*args, settings=settings_from(texts), **options)

    flags = (
        Flag("--timeout", type=SPAN, metavar="SPAN", help="Time for a message with all its attempts (default 3s)."),
        Flag("--latency-fault", is_flag=True, help="Avoid brokers that are slow or failed (sendLatencyEnable)."),
        namespace_option,
        trace_option,
        trace_topic_option,
        Flag("--setting", "named", multiple=True, metavar="NAME=VALUE", help="A producer setting, by RocketMQ's name."),
    )
    return functools.reduce(lambda made, flag: flag(made), reversed(flags), setting)  # type: ignore[return-value]
