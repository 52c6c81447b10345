"""The control loop after each micro-batch: from observed metrics to a new plan."""
