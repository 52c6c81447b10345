"""A stream: the median of times in the windows of each user."""

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

one = results(plain.select(F.struct("window", "user"), "median"), new_checkpoint(), "update")
two = results(balanced.select(F.struct("window", "user"), "median"), checkpoint, "update")
print("the same result" if one == two else "another result")
