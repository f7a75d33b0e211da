"""What a journal holds, and where: its operations, what they replaced, how far they came; ways into it and out."""
