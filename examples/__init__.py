"""Streaming queries on a year of real flights, most stopped half-way, restarted, and compared with batch."""
