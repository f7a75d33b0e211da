"""Command lines of rmqctl, one after the other in one Spark session, for tests of a cluster.

`python -m tests.pipeline.session_commands MASTER [NAME=VALUE]…`: on stdin a list of argument lists as JSON, on stdout
a list of [exit code, stdout, stderr].
"""

from __future__ import annotations

import json
import sys

from rmqctl.pipeline.spark.session import parse_conf, spark_session
from tests.rmqctl.looking import run


def main(master: str, *settings: str) -> None:
    """Run what stdin says."""
    with spark_session(master, parse_conf(settings)):
        done = [run(*arguments) for arguments in json.load(sys.stdin)]
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
