"""Verbs, one module each. rmqctl/main.py imports a verb only when it is called."""
