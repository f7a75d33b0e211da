"""One message like others before it, without looking anything up again."""
