"""What the log implies for queues and index, against what their files hold: the one comparison, asked by all."""
