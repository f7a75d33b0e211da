"""The commitlog as Arrow record batches."""
