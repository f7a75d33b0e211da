"""Key index: files, geometry and service."""
