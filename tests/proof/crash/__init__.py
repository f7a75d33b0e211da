"""What a power cut may leave of the files below a folder, and what has to hold of each such state."""
