"""The guide's corpus: facts, topics, grammars, noise and dialogues, from which `write_corpus.py` writes conversations."""
