"""Settings: broker.conf keys and the files of a broker's config directory."""
