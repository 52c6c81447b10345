"""A user-defined aggregate in the shape of Beam's CombineFn: the longest page name."""

from __future__ import annotations

from collections.abc import Iterable

from events import clicks, session
from pyspark.sql import functions as F

from unskew.spark import Balancer, combine


class Longest:
    """Keeps the longest text; ties go to the last one in the alphabet."""

    def create_accumulator(self) -> str:
        """Return the accumulator of no texts."""
        return ""

    def add_input(self, accumulator: str, element: str) -> str:
        """Return the longer text."""
        return max(accumulator, element, key=lambda text: (len(text), text))

    def merge_accumulators(self, accumulators: Iterable[str]) -> str:
        """Return the longest text of all workers."""
        return max(accumulators, key=lambda text: (len(text), text))

    def extract_output(self, accumulator: str) -> str:
        """Return the result."""
        return accumulator


spark = session()
events = clicks(spark)

plain = events.groupBy("user").agg(F.max_by("url", F.struct(F.length("url"), "url")).alias("page"))

balance = Balancer()
longest = combine(Longest(), "url", returns="string").alias("page")
balanced = balance.groupBy(events, "user").agg(longest)

same = sorted(plain.collect()) == sorted(balanced.collect())
print("the same result" if same else "another result")
