"""Kills parts of a running query on a real cluster, and sees that its results stay exact."""
