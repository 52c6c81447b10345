"""Files, folders and tasks: what Spark and the file system give."""
