"""Kills parts of a running query on a real cluster, and checks that its results stay exact."""
