"""Key index files."""
