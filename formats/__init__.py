"""What the bytes of a RocketMQ store mean: schemas and what is derived from them. No files, no clock."""
