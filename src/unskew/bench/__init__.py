"""What the commands measure with: skewed work, workers that sleep, rivals; not for jobs."""
