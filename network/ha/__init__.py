"""High availability: a master that slaves follow, a mirror that follows a master."""
