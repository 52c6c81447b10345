"""Measurements for the commands: skewed workloads, sleeping workers, rivals; not for real jobs."""
