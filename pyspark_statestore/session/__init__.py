"""Sets a Spark session up for merged state: the doors into it, and the jar that they need."""
