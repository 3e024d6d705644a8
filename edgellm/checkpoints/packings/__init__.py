"""Quantised checkpoints whose matrices answer as floats, or as blocks of the GGUF type that holds them exactly."""
