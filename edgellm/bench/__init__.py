"""Measurements and estimates of speed and memory."""
