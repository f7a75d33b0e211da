"""Tools of the restructuring; they go when it is done."""
