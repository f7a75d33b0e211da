"""Verbs that talk to brokers, or act as one."""
