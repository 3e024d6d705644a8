"""Loading a model and generating with it."""
