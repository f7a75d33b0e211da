"""Spark: session, Java runtime, data source, streams, sink."""
