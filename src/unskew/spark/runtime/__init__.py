"""Files, folders, checkpoints and tasks: access to the file system and to Spark's runtime."""
