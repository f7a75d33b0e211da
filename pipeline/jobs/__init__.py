"""Jobs over the splits of a store: each the same on the local engine and on Spark."""
