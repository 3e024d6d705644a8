"""What makes and judges model files: quantize, convert, perplexity, verify."""
