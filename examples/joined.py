"""A join with a hot key: clicks with a table of their users."""

from __future__ import annotations

from events import clicks, session
from pyspark.sql import functions as F

from unskew.spark import Balancer

spark = session()
events = clicks(spark)
users = events.select("user").distinct().withColumn("since", F.lit(2020))

plain = events.join(users, "user", "left")

balance = Balancer()
balanced = balance.join(events, users, "user", "left")

balance.explain()
same = sorted(plain.collect()) == sorted(balanced.collect())
print("the same result" if same else "another result")
