"""Messages that wait for their delay to be over, and are delivered then."""
