"""The HTTP server: OpenAI's, Anthropic's, Ollama's and llama.cpp's requests, answered with the library's public API alone."""
