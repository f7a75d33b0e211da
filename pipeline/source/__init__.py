"""The Python data source `rocketmq` of Spark: a store as tables for SQL, and its commitlog as a stream."""
