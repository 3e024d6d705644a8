"""Requests from any thread, scheduled and computed in shared steps."""
