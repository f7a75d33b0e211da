"""RocksDB databases of RocketMQ 5.x, read as files."""
