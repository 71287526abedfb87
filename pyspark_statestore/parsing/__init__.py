"""What a checkpoint holds may come from somebody else: it is parsed within bounds, and what is wrong is a ValueError."""
