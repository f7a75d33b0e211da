"""Printed reports of findings, changes and results."""
