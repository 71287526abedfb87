"""What a state store holds, decoded in Python: keys and values of a version, and what changed between two."""
