"""Messages in JSON, CSV, Parquet and Arrow, both ways."""
