"""SQL over one store in this process: its views for an embedded engine, DuckDB, which asks for columns and filters."""
