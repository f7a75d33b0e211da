"""Field-by-field view of any store file."""
