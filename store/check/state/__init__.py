"""The looks at what lies around: checkpoint, abort, config, geometry, offsets."""
