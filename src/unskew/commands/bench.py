"""The commands that measure speed."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from unskew.commands.options import Json, Progress, batch_size, numbers
from unskew.commands.schemes import check_balancer, routed_schemes
from unskew.spec import number

bench = typer.Typer(help="Measure speed.", no_args_is_help=True)

SPARK_SCHEMES = (
    "w-choices@planned,d-choices@planned,fish@planned,shuffle@planned,w-choices@online,pkg@online"
)


@bench.command()
def routing(
    schemes: Annotated[str, typer.Option(help="Schemes, or all.")] = "all",
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "100",
    z: Annotated[str, typer.Option(help="Exponents of the Zipf streams.")] = "1.0,1.4,2.0",
    keys: Annotated[str, typer.Option(help="Number of keys of the streams.")] = "1e4",
    records: Annotated[str, typer.Option(help="Records to route.")] = "4e6",
    as_json: Json = False,
) -> None:
    """Measure how many records a second each scheme routes on one thread.

    Try: unskew bench routing --schemes pkg,fish --workers 10,100,1000
    """
    from unskew.bench.routing import routing_speed
    from unskew.report.tables import show_speeds

    counts = [int(n) for n in numbers("workers", workers, whole=True)]
    exponents = numbers("z", z)
    with Progress(None, quiet=as_json) as progress:
        results = routing_speed(
            schemes,
            counts,
            exponents,
            keys=int(number("keys", keys, whole=True)),
            records=int(number("records", records, whole=True)),
            progress=progress,
        )
    if as_json:
        print(json.dumps({"results": results}))
    else:
        show_speeds(results)


@bench.command()
def planning(
    planners: Annotated[str, typer.Option(help="Planners.")] = "mixed,min-table,readj",
    keys: Annotated[str, typer.Option(help="Numbers of keys.")] = "1e6",
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "15,40",
    resolution: Annotated[
        str, typer.Option(help="Resolutions of the compact form; 0: the original key space.")
    ] = "0,8",
    f: Annotated[str, typer.Option(help="Fluctuation rates of the workload.")] = "1",
    intervals: Annotated[int, typer.Option(help="Number of intervals, with a plan each.")] = 6,
    as_json: Json = False,
) -> None:
    """Measure how fast planners plan, and how much state their plans move, on one thread.

    For example:

    \b
      unskew bench planning --keys 1e5 --planners mixed,mixed-bf:resolution=8,readj --f 0.25,0.5,1,2
    """  # noqa: D301
    from unskew.bench.planning import planning_speed
    from unskew.report.tables import show_planning

    with Progress(None, quiet=as_json) as progress:
        results = planning_speed(
            planners,
            [int(n) for n in numbers("keys", keys, whole=True)],
            [int(n) for n in numbers("workers", workers, whole=True)],
            resolutions=[int(n) for n in numbers("resolution", resolution, whole=True)],
            fluctuations=numbers("f", f),
            intervals=intervals,
            progress=progress,
        )
    if as_json:
        print(json.dumps({"results": results}))
    else:
        show_planning(results)


@bench.command()
def spark(
    schemes: Annotated[
        str, typer.Option(help="Schemes with their routing, as in fish@planned,pkg@online.")
    ] = SPARK_SCHEMES,
    z: Annotated[str, typer.Option(help="Exponents of the Zipf streams.")] = "1.4,2.0",
    workers: Annotated[int, typer.Option(help="Number of workers, which sleep.")] = 16,
    batch_records: Annotated[str, typer.Option(help="Records of a micro-batch.")] = "6e4",
    delay_us: Annotated[float, typer.Option(help="Microseconds of sleep for a record.")] = 500,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use fewer schemes and records: a few minutes.")
    ] = False,
    overhead: Annotated[
        bool, typer.Option("--overhead", help="Measure only the overhead without skew.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure the gain of balancing on an embedded Spark, and its overhead without skew.

    A stateful Python operator sleeps for each record, as in the papers: sleeping tasks need no
    core. The overhead is measured with a native aggregate over uniform keys.

    Try: unskew bench spark --quick, or unskew bench spark --overhead
    """
    from unskew.bench.gains import COSTLY, Work, gains, overheads
    from unskew.report.tables import show_spark
    from unskew.spark.session import embedded_session

    chosen = routed_schemes(schemes)[: 2 if quick else None]
    size = batch_size(batch_records) // (2 if quick else 1)
    for scheme, routing in chosen:
        check_balancer(scheme, routing, workers)
    works = [Work(exponent, records=size, delay_s=delay_us / 1e6) for exponent in numbers("z", z)]
    works = [] if overhead else works
    turns = 1 if quick else 3
    total = (len(chosen) + 1) * len(works) + (len(COSTLY) + 1) * turns
    results = []
    with Progress(total, quiet=as_json) as progress:
        if works:
            with embedded_session(workers) as session:
                results = gains(session, chosen, works, workers, progress)
        costs = overheads(workers, 500_000 if quick else 1_000_000, turns, progress)
    if as_json:
        print(json.dumps({"results": results, "overhead": costs}))
    else:
        show_spark(results, costs)


@bench.command()
def rivals(
    scheme: Annotated[str, typer.Option(help="The scheme to compare with.")] = "waterline",
    z: Annotated[float, typer.Option(help="Exponent of the Zipf stream.")] = 1.4,
    workers: Annotated[int, typer.Option(help="Number of workers, which sleep.")] = 16,
    batch_records: Annotated[str, typer.Option(help="Records of a micro-batch.")] = "6e4",
    as_json: Json = False,
) -> None:
    """Compare with other ways to handle skew: partial aggregation, salting, AQE.

    Try: unskew bench rivals --batch-records 2e4
    """
    from unskew.bench.rivals import compare
    from unskew.report.tables import show_rivals
    from unskew.spark.session import embedded_session

    size = batch_size(batch_records)
    with Progress(15, quiet=as_json) as progress, embedded_session(workers) as session:
        rows = compare(session, z, size, scheme, progress)
    if as_json:
        print(json.dumps({"results": rows}))
    else:
        show_rivals(rows)
