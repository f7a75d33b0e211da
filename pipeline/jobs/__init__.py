"""Jobs over splits, with the same result on the local engine and on Spark."""
