"""Plans: the workers of hot keys, in versions, and the times from which each version holds."""
