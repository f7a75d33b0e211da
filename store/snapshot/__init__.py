"""`snapshot`: copies of a store that can be verified."""
