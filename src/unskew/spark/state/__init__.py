"""States that move between workers: the protocol, its files, and the operators."""
