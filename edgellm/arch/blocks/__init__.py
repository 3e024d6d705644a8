"""Parts that several architectures share, as emitters of nodes, with the keys that they read."""
