"""Commitlogs as a stream of Spark's: positions that know their history, of one store or several in one checkpoint."""
