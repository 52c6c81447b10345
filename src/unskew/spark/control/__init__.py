"""The loop after each micro-batch: what was observed, and the plan that follows."""
