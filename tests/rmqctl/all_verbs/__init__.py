"""What holds for every verb."""
