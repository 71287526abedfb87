"""What a state store holds, decoded in Python: the keys and values of a version, and the changes between two."""
