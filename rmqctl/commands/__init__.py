"""One verb, one module. rmqctl/main.py names them all and imports each only when it is called."""
