"""Where Spark looks for the data source: it imports every top-level module `pyspark_*` and takes its `DefaultSource`.

With rmqctl installed, `spark.read.format("rocketmq")`, `df.write.format("rocketmq")` and their streams need no
registration.
"""

from rmqctl.pipeline.sink.datasource import RocketMQStore as DefaultSource

__all__ = ["DefaultSource"]
