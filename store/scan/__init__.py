"""The commitlog as Arrow record batches: the columns of a message's JSON, made from runs of messages at once."""
