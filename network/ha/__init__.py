"""High availability: a master that slaves follow, and a mirror that follows a master as its slave does."""
