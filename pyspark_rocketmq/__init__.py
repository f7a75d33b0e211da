"""Where Spark looks for the data source: it imports every top-level module `pyspark_*` and takes its `DefaultSource`.

With rmqctl installed, `spark.read.format("rocketmq")` and `spark.readStream.format("rocketmq")` need no registration.
"""

from rmqctl.pipeline.source.datasource import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
