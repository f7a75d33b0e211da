"""What reaches a terminal or a pipe: tables, cells, times, progress, sanitised."""
