"""Streaming queries on a year of real flights, each stopped half-way, restarted, and compared with batch."""
