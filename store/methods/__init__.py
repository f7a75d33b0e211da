"""What a MessageStore can do, by what it is about: each class adds its methods to the one before."""
