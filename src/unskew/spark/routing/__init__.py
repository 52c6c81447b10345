"""Routing of rows: slots by a plan that is joined in, or by routers in the tasks."""
