"""Spark's processes as tests want them: quick to start, not quick to run for long."""

from __future__ import annotations

import os

# Read by the JVM of every driver, also of those that tests start as programs of their own. Most
# queries are over before it would pay to optimize their code.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
