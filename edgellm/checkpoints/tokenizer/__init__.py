"""The tokenizer of a checkpoint in the keys that GGUF gives it."""
