"""The flags of verbs that run on Spark, and what they open: an engine for jobs, or a session for SQL."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rmqctl.flags.options import Flag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqctl.pipeline.engine.engine import Engine

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_MASTER = "local[*]"
IN_PROCESS = "in-process"
"""As a master: no Spark and no Java, processes of this machine."""

master_option = Flag(
    "--master",
    metavar="URL",
    help="Run on Spark: local[*], local[4], spark://host:7077; without it in this process.",
)
conf_option = Flag("--conf", "conf", metavar="NAME=VALUE", multiple=True, help="A setting of Spark; may be repeated.")


class SparkChoice(NamedTuple):
    """What the command line said about Spark. `master` is None where it said nothing and the verb needs none."""

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
            from rmqctl.pipeline.engine.hadoop import conf_storage_options
            from rmqctl.pipeline.spark.session import parse_conf
            from rmqctl.store.remote.file_system import use_storage_options

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
    from rmqctl.output.progress import waiting
    from rmqctl.pipeline.spark.session import spark_session as open_session

    with contextlib.ExitStack() as opened:
        with waiting(f"starting Spark at {spark.master or DEFAULT_MASTER}"):
            session = opened.enter_context(open_session(spark.master, spark.conf, only_jobs=only_jobs))
        yield session


@contextlib.contextmanager
def job_engine(spark: SparkChoice, processes: int | None = None) -> Iterator[Engine]:
    """The engine for jobs: Spark's where --master was given and is not IN_PROCESS, else processes of this machine.

    Spark starts with the first job, so that whatever is wrong with the store or the command is said at once.
    """
    from rmqctl.formats.errors import UnsupportedError
    from rmqctl.pipeline.engine.engine import LocalEngine, SparkEngine

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
