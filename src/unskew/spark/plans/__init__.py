"""Plans: which keys are where, by version, and from when on."""
