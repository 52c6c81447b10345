"""A differential tester: random queries, plain and balanced, must give the same answer."""
