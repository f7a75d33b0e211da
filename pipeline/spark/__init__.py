"""A quiet Spark session: which Java, which classes are kept, how it ends without a trace."""
