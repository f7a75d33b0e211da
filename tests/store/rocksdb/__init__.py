"""Tests of the databases that RocketMQ keeps in RocksDB, against what RocksDB itself reads in them."""
