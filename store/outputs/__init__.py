"""What is made beside its final name until it is complete, and never among the files of a store."""
