"""Tools that make and judge model files: quantize, convert, perplexity, verify."""
