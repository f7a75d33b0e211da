"""Where Spark looks for the data source: it imports every top-level module `pyspark_*` and takes its `DefaultSource`.

With rmqctl installed, `spark.read.format("rocketmq")`, `df.write.format("rocketmq")` and their streams need no
registration. What Spark has to be told is which Python to start: it takes `python3` of the PATH, which may be one
without rmqctl. A program that imports this module before it makes its session has said so: this one, unless
PYSPARK_PYTHON is set.
"""

import os
import sys

from rmqctl.pipeline.spark.sink import RocketMQStore as DefaultSource
from rmqctl.pipeline.spark_engine import session_options as storage_options
from rmqctl.pipeline.sql.spark import findings, query

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

__all__ = ["DefaultSource", "findings", "query", "storage_options"]
