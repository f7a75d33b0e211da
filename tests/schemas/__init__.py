"""JSON Schemas of what commands print: made, and held against it."""
