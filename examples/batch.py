"""An aggregate that keeps all values: the pages of each user."""

from __future__ import annotations

from events import clicks, session
from pyspark.sql import functions as F

from unskew.spark import Balancer

spark = session()
events = clicks(spark)
pages = F.array_sort(F.collect_set("url")).alias("pages")

plain = events.groupBy("user").agg(pages)

balance = Balancer()
balanced = balance.groupBy(events, "user").agg(pages)

balance.explain()
same = sorted(plain.collect()) == sorted(balanced.collect())
print("the same result" if same else "another result")
