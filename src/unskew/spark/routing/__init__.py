"""How rows get their slots: by a plan, or by routers in the tasks."""
