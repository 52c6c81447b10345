"""The commands that run the applications."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.commands.options import Json, Progress, batch_size
from unskew.commands.schemes import check_balancer, routed_schemes
from unskew.spec import pairs, read_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unskew.apps.run import Job

STREAM = "zipf:z=1.6,keys=1000,records=3e5,seed=1"
SCHEMES = "key,pkg,d-choices,w-choices,dstream,fish,shuffle"

Name = Annotated[
    str,
    typer.Argument(help="An application with options, as in word-count:k=5; see 'unskew apps'."),
]
Stream = Annotated[
    str,
    typer.Option(
        help="A spec as in zipf:z=1.4,keys=1e4, a file, a folder, kafka://host:port/topic, "
        "socket://host:port or rate://1000."
    ),
]
Routing = Annotated[
    str | None, typer.Option(help="planned or online; by default planned if the scheme allows it.")
]
Workers = Annotated[int, typer.Option(help="Number of workers (shuffle partitions).")]
Batch = Annotated[str, typer.Option(help="Records of a micro-batch.")]
Columns = Annotated[
    str,
    typer.Option(
        help="Column names in the stream, as in word=key,ts=time; null for a missing column."
    ),
]
Delay = Annotated[float, typer.Option(help="Microseconds that workers sleep for a record.")]
Master = Annotated[
    str | None, typer.Option(help="A Spark master; by default Spark runs inside this process.")
]
Packages = Annotated[
    str | None,
    typer.Option(help="Maven packages for Spark, such as a Kafka connector or a JDBC driver."),
]


def installed_spark() -> str:
    """Return the version of the installed Spark."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return "4.3.0"


def run(
    app: Name,
    stream: Stream = STREAM,
    scheme: Annotated[str, typer.Option(help="A router or a planner.")] = "waterline",
    routing: Routing = None,
    workers: Workers = 16,
    batch_records: Batch = "6e4",
    columns: Columns = "",
    delay_us: Delay = 0.0,
    sink: Annotated[
        str,
        typer.Option(
            help="console, noop, parquet:folder, kafka://host:port/topic or jdbc:...#table."
        ),
    ] = "noop",
    checkpoint: Annotated[
        Path | None, typer.Option(help="The checkpoint folder, to continue the query later.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when all available records were read.")
    ] = False,
    seconds: Annotated[float | None, typer.Option(help="Stop after this many seconds.")] = None,
    bad_records: Annotated[
        Path | None, typer.Option(help="A folder for the records of a topic that cannot be read.")
    ] = None,
    master: Master = None,
    packages: Packages = None,
    as_json: Json = False,
) -> None:
    """Run an application on a stream, balanced. Ctrl-C stops it and prints the report.

    For example:

    \b
      unskew run word-count --stream zipf:z=1.4,keys=1e4,records=1e6 --sink console
      unskew run vwap --stream trades.parquet --columns symbol=key --scheme dstream
      unskew run hashtags --stream kafka://localhost:9092/tags --sink jdbc:postgresql://db/x#tags \\
        --packages org.apache.spark:spark-sql-kafka-0-10_2.13:SPARK,org.postgresql:postgresql:42.7.4
    """  # noqa: D301
    from unskew.apps.run import run as run_job
    from unskew.apps.sinks import open_sink
    from unskew.report.tables import show_run

    job = _job(app, stream, batch_records, columns, delay_us)
    open_sink(sink, job.app.keys)  # refuses an unknown sink before Spark starts
    check_balancer(scheme, routing, workers)
    with _session(workers, master, packages) as spark, _bar(stream, 1, as_json) as progress:
        report = run_job(
            spark,
            job,
            scheme,
            routing,
            sink=sink,
            checkpoint=checkpoint,
            once=once,
            seconds=seconds,
            bad_records=bad_records,
            progress=progress,
        )
    if as_json:
        print(json.dumps({**report, "delay_us": delay_us}))
    else:
        show_run(report)
    _end(report)


# The connector must be that of the Spark that runs.
run.__doc__ = (run.__doc__ or "").replace("SPARK", installed_spark())


def compare(
    app: Name,
    stream: Stream = STREAM,
    schemes: Annotated[
        str, typer.Option(help="Schemes, optionally with a routing, as in key,pkg,fish@planned.")
    ] = SCHEMES,
    routing: Routing = None,
    workers: Workers = 16,
    batch_records: Batch = "6e4",
    columns: Columns = "",
    delay_us: Delay = 200.0,
    master: Master = None,
    packages: Packages = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a picture into this PNG, PDF or SVG file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run an application with several schemes, one after the other, and compare them.

    For example:

    \b
      unskew compare word-count --stream zipf:z=2,keys=1e4,records=4e5 --plot words.png
      unskew compare trade-join --schemes key,w-choices,dstream,mixed --delay-us 100
    """  # noqa: D301
    from unskew.report.plots import check_picture, plot_comparison
    from unskew.report.tables import show_comparison

    if plot is not None:
        check_picture(plot)
    from unskew.apps.run import compare as compare_schemes
    from unskew.apps.sources import ENDLESS

    if stream.partition("://")[0] in ENDLESS:
        raise ValueError(
            f"compare needs a stream that ends, and {stream.partition('://')[0]}:// does not: use "
            "a file, or a spec like zipf:z=1.4,records=1e6"
        )
    job = _job(app, stream, batch_records, columns, delay_us)
    chosen = routed_schemes(schemes, routing)
    for scheme, scheme_routing in chosen:
        check_balancer(scheme, scheme_routing, workers)
    with (
        _session(workers, master, packages) as spark,
        _bar(stream, len(chosen), as_json) as progress,
    ):
        reports = compare_schemes(spark, job, chosen, progress=progress)
    reports = [{**report, "delay_us": delay_us} for report in reports]
    if as_json:
        print(json.dumps({"results": reports}))
    else:
        show_comparison(reports)
    if plot is not None:
        plot_comparison(reports, plot)
        if not as_json:
            print(f"Picture: {plot}")
    _end(reports[-1])


def apps(as_json: Json = False) -> None:
    """List the applications, with their columns and their options.

    Try: unskew apps
    """
    from unskew.apps import APPS
    from unskew.report.tables import show_apps

    rows = [
        {"app": a.name, "summary": a.summary, "columns": a.schema, "options": [*a.options]}
        for a in APPS.values()
    ]
    if as_json:
        print(json.dumps({"apps": rows}, indent=2))
    else:
        show_apps(rows)


def _job(app: str, stream: str, batch_records: str, columns: str, delay_us: float) -> Job:
    from unskew.apps import APPS
    from unskew.apps.run import Job
    from unskew.apps.sources import check_source
    from unskew.bench.sleeping import sleeping_balancer

    ((name, options),) = read_named("application", app, APPS, lambda entry: entry.options)
    if delay_us < 0:
        raise ValueError(f"delay-us must be at least 0, got {delay_us}")
    size = batch_size(batch_records)
    mapping = pairs(columns.split(","), "word=key,ts=time") if columns else {}
    check_source(stream, mapping)
    return Job(APPS[name], stream, options, size, mapping, partial(sleeping_balancer, delay_us))


@contextmanager
def _session(workers: int, master: str | None, packages: str | None) -> Iterator[SparkSession]:
    from unskew.spark.session import embedded_session

    settings = {"jars_packages": packages} if packages else {}
    with embedded_session(workers, master, **settings) as spark:
        yield spark


def _bar(stream: str, times: int, quiet: bool) -> Progress:
    """Return a progress bar for several runs over a stream; its length may be unknown."""
    from unskew.workloads import STREAMS, open_stream

    records = open_stream(stream).n_records if stream.partition(":")[0] in STREAMS else None
    return Progress(None if records is None else times * records, quiet=quiet)


def _end(report: dict[str, Any]) -> None:
    if report["stopped"] == "interrupted":
        raise typer.Exit(130)
