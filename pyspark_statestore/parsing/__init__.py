"""A checkpoint may come from somebody else: what is in it is parsed within bounds, or it is a ValueError."""
