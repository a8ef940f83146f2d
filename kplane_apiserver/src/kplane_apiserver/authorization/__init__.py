"""What a client may do: the question, and those who answer it."""
