"""Answers to questions of consumers, from the store and its config folder alone: what is not known is said."""
