"""Export writers: Parquet, Arrow IPC, CSV and JSON Lines, one file or by topic and day.

What is exported is no part of the store, but it is written through the same `store/files/io.py`, and it appears under
its final name only when it is complete (law 6).
"""
