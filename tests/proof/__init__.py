"""Proofs that nothing is lost: many small cases of one kind, from a seed, each to be run again by its name."""
