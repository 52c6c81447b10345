"""Keys and slots: how a row is sent to a worker by Spark's own hash."""
