"""Settings: those of a broker.conf, what each of its keys does here, and the files of a broker's config folder."""
