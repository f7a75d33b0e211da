"""Copies of stores with every text in them replaced."""
