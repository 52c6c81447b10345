"""Streams of keys, in chunks: generators of the papers' workloads, and readers of files.

`open_stream` takes one string for any of them; `STREAMS` names every generator.
"""

from unskew.workloads.base import CHUNK_SIZE, Chunk, Stream
from unskew.workloads.columns import CsvFile, ParquetFile
from unskew.workloads.evolving_zipf import EvolvingZipf
from unskew.workloads.fluctuating_zipf import FluctuatingZipf
from unskew.workloads.generated import Generated
from unskew.workloads.log_normal import LN1, LN2, LogNormal
from unskew.workloads.matched import CT, LJ, TW, WP, Matched
from unskew.workloads.spec import FORMATS, STREAMS, open_stream, summaries
from unskew.workloads.text import EdgeFile, WordFile
from unskew.workloads.uniform import Uniform
from unskew.workloads.zipf import Zipf

__all__ = [
    "CHUNK_SIZE",
    "CT",
    "FORMATS",
    "LJ",
    "LN1",
    "LN2",
    "STREAMS",
    "TW",
    "WP",
    "Chunk",
    "CsvFile",
    "EdgeFile",
    "EvolvingZipf",
    "FluctuatingZipf",
    "Generated",
    "LogNormal",
    "Matched",
    "ParquetFile",
    "Stream",
    "Uniform",
    "WordFile",
    "Zipf",
    "open_stream",
    "summaries",
]
