"""The command line of rmqctl: the only floor that prints or asks."""
