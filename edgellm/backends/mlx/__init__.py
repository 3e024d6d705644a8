"""The back end that executes a graph with MLX: on the GPU of a Mac with Apple Silicon, elsewhere on MLX's CPU build."""
