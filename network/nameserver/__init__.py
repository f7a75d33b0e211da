"""A name server: which topics there are and which brokers have them."""
