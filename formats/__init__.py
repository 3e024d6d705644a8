"""Model files: containers, tensor types and codecs; the standard library and NumPy only, nothing of the runtime."""
