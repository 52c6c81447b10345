"""State that moves between workers: the protocol, its files, and the operators."""
