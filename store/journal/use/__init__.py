"""Whether anybody used a store since a change of it was interrupted or applied."""
