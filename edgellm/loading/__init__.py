"""From a file to an executable model."""
