"""Checkpoints: folders of the Hugging Face hub and of the MLX community under the names that GGUF gives everything."""
