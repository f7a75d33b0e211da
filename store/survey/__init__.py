"""Where the valid log ends, what is damaged in it, and what its messages imply for queues and index."""
