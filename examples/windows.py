"""Windows over a stream: the median of the times of each user in each window."""

from __future__ import annotations

from events import new_checkpoint, results, session, stream
from pyspark.sql import functions as F

from unskew.spark import Balancer

spark = session()
events = stream(spark)
window = F.window("time", "10 minutes")
median = F.percentile(F.unix_timestamp("time"), F.lit(0.5)).alias("median")

plain = events.groupBy(window, "user").agg(median)

checkpoint = new_checkpoint()
balance = Balancer(checkpoint=checkpoint)
balanced = balance.groupBy(events, window, "user").agg(median)

expected = results(plain.select(F.struct("window", "user"), "median"), new_checkpoint(), "update")
actual = results(balanced.select(F.struct("window", "user"), "median"), checkpoint, "update")
print("the same result" if actual == expected else "another result")
