"""SQL over the views of a store, by DuckDB or Spark."""
