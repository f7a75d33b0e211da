"""What follows the end of the log and is cut with it: the timer, epochs, offsets."""
