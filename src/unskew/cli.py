"""The command line: list the schemes, simulate them, measure their speed.

Exit codes: 0 done, 1 something failed on the way (a full disk, say), 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import unskew
from unskew.spec import number

app = typer.Typer(
    name="unskew",
    help="Keep keyed stream processing balanced, however skewed the keys are.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure speed.", no_args_is_help=True)
app.add_typer(bench, name="bench")

BAD_PATHS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)

SCHEMES = "key,pkg,d-choices,w-choices,shuffle"
SPARK_SCHEMES = (
    "w-choices:planned,d-choices:planned,fish:planned,shuffle:planned,w-choices:online,pkg:online"
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def main() -> None:
    """Run the command line; never end in a traceback over bad input."""
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except (ValueError, TypeError, ArithmeticError, *BAD_PATHS) as error:
        status = _complain(error, 2)
    except (OSError, MemoryError) as error:
        status = _complain(error, 1)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        status = _say(error.format_message())
    if status == 130:
        print("unskew: interrupted", file=sys.stderr)
    sys.exit(status or 0)


def _say(message: str) -> int:
    """Print what the parser of the arguments says: a complaint, or the help for no arguments."""
    if message.startswith("Usage:"):
        print(message)
        return 0
    return _complain(message, 2)


def _complain(error: object, status: int) -> int:
    print(f"unskew: {' '.join(str(error).split())}", file=sys.stderr)
    return status


def _version(wanted: bool) -> None:
    if wanted:
        print(f"unskew {unskew.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
def schemes(as_json: Json = False) -> None:
    """List the schemes and the planners with their parameters.

    Try: unskew schemes
    """
    from unskew.report.tables import planner_rows, scheme_rows, show_schemes

    if as_json:
        print(json.dumps({"schemes": scheme_rows(), "planners": planner_rows()}, indent=2))
    else:
        show_schemes()


@app.command()
def streams(as_json: Json = False) -> None:
    """List the streams that can be generated, with their parameters.

    Try: unskew streams
    """
    from unskew.report.tables import show_streams, stream_rows

    if as_json:
        print(json.dumps({"streams": stream_rows()}, indent=2))
    else:
        show_streams()


@app.command()
def demo(
    scheme: Annotated[str, typer.Option(help="A router or a planner.")] = "w-choices",
    z: Annotated[float, typer.Option(help="Exponent of the Zipf stream.")] = 1.7,
    workers: Annotated[int, typer.Option(help="Workers: tasks that sleep.")] = 16,
    records: Annotated[str, typer.Option(help="Records in a batch.")] = "3e4",
    plot: Annotated[Path | None, typer.Option(help="A picture: PNG, PDF or SVG.")] = None,
    as_json: Json = False,
) -> None:
    """Run a skewed stream on an embedded Spark, plain and balanced, and show the difference.

    Try: unskew demo --scheme dstream --z 2
    """
    from unskew.report.plots import check_picture, plot_demo
    from unskew.report.tables import show_demo

    if plot is not None:
        check_picture(plot)
    from unskew.spark.bench import Work, gains
    from unskew.spark.session import embedded_session

    work = Work(z, records=int(number("records", records, whole=True)), batches=2)
    with _Progress(2, quiet=as_json) as progress, embedded_session(workers) as session:
        results = gains(session, [(scheme, "planned")], [work], workers, progress)
    if as_json:
        print(json.dumps({"results": results}))
    else:
        show_demo(results)
    if plot is not None:
        plot_demo(results, plot)
        if not as_json:
            print(f"Picture: {plot}")


@app.command()
def simulate(
    stream: Annotated[
        str, typer.Option(help="A spec, as in zipf:z=1.4,keys=1e4,records=1e6,seed=1, or a file.")
    ],
    scheme: Annotated[
        str | None,
        typer.Option(
            help="Schemes, as in key,pkg:load=global (see 'unskew schemes'); "
            f"{SCHEMES}; beside planners those to compare with."
        ),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            help="Planners, as in mixed:resolution=8,readj; they replan after each interval."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 50,
    sources: Annotated[int, typer.Option(help="How many sources.")] = 5,
    feed: Annotated[
        str, typer.Option(help="How records come to the sources: round-robin or key.")
    ] = "round-robin",
    rate: Annotated[
        float | None,
        typer.Option(help="Records a second, for the queueing model; inf: all at once."),
    ] = None,
    service_us: Annotated[
        float | None, typer.Option(help="Microseconds a record, for the queueing model.")
    ] = None,
    capacities: Annotated[
        str | None, typer.Option(help="How fast the workers are, as in 1,1,2,2; repeated to fit.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(help="A worker comes (500000:+) or goes (500000:-3) before that record."),
    ] = None,
    interval: Annotated[
        int | None,
        typer.Option(
            help="Records over which the spread of the loads is taken (10000), or after which "
            "planners plan (as long as the stream's own, or records / intervals)."
        ),
    ] = None,
    intervals: Annotated[int | None, typer.Option(help="How many intervals to plan for.")] = None,
    window: Annotated[
        int | None, typer.Option(help="Intervals for which planned keys keep state (5).")
    ] = None,
    fallback: Annotated[
        str | None,
        typer.Option(help="Hash of keys that a plan leaves alone: consistent (default) or key."),
    ] = None,
    agreement: Annotated[
        bool, typer.Option("--agreement", help="Compare the decisions of every two schemes.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw a picture into this file.")] = None,
    as_json: Json = False,
) -> None:
    """Send a stream through schemes and measure balance, replication, throughput and latency.

    For example:

    \b
      unskew simulate --stream zipf:z=1.4,keys=1e4,records=1e6,seed=1 --plot a.png
      unskew simulate --scheme key,fish --stream clicks.parquet:key=user_id
      unskew simulate --scheme key,pkg --stream wp:records=1e6 --rate 1e5 --service-us 400
      unskew simulate --planner mixed,readj --workers 15 --stream fluctuating-zipf:keys=1e5
    """  # noqa: D301
    from unskew.sim import Queue, WorkerChange

    queue = None
    if any(option is not None for option in (rate, service_us, capacities)):
        queue = Queue(
            rate=float("inf") if rate is None else rate,
            service_s=1e-4 if service_us is None else service_us / 1e6,
            capacities=None if capacities is None else _repeat(capacities, workers),
        )
    opened = unskew.open_stream(stream)
    changes = [WorkerChange.read(text) for text in change or ()]
    common: dict[str, Any] = {"sources": sources, "queue": queue, "changes": changes}
    if plot is not None:
        from unskew.report.plots import check_picture

        check_picture(plot)
    with _Progress(opened.n_records, quiet=as_json) as progress:
        if planner is None:
            _only_with_planners(intervals=intervals, window=window, fallback=fallback)
            out = unskew.simulate(
                opened,
                scheme or SCHEMES,
                workers,
                feed=feed,
                interval=10_000 if interval is None else interval,
                agreement=agreement,
                progress=progress,
                **common,
            )
        else:
            _only_without_planners(agreement=agreement, feed=feed != "round-robin")
            fallback = fallback or "consistent"
            out = unskew.simulate_plans(
                opened,
                planner,
                workers,
                schemes=scheme or f"{fallback},pkg,shuffle",
                interval=interval,
                intervals=intervals,
                window=5 if window is None else window,
                fallback=fallback,
                progress=progress,
                **common,
            )
    _show_simulation(out, plot, as_json, planned=planner is not None)


def _only_with_planners(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"--{name} needs --planner")


def _only_without_planners(**options: Any) -> None:
    for name, value in options.items():
        if value:
            raise ValueError(f"--{name} cannot be used with --planner")


def _show_simulation(out: dict[str, Any], plot: Path | None, as_json: bool, planned: bool) -> None:
    if as_json:
        print(json.dumps(out))
    else:
        from unskew.report.tables import show_intervals, show_simulation

        (show_intervals if planned else show_simulation)(out)
    if plot is not None:
        from unskew.report.plots import plot_intervals, plot_simulation

        (plot_intervals if planned else plot_simulation)(out, plot)
        if not as_json:
            print(f"Picture: {plot}")


@bench.command()
def routing(
    scheme: Annotated[str, typer.Option(help="Schemes, or all.")] = "all",
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "100",
    z: Annotated[str, typer.Option(help="Exponents of the Zipf streams.")] = "1.0,1.4,2.0",
    keys: Annotated[str, typer.Option(help="Keys of the streams.")] = "1e4",
    records: Annotated[str, typer.Option(help="Records to route.")] = "4e6",
    as_json: Json = False,
) -> None:
    """Measure how many records a second each scheme routes, on one thread.

    Try: unskew bench routing --scheme pkg,fish --workers 10,100,1000
    """
    from unskew.report.tables import show_speeds
    from unskew.sim.speed import routing_speed

    counts = [int(n) for n in _numbers("workers", workers, whole=True)]
    exponents = _numbers("z", z)
    with _Progress(None, quiet=as_json) as progress:
        results = routing_speed(
            scheme,
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
    planner: Annotated[str, typer.Option(help="Planners.")] = "mixed,min-table,readj",
    keys: Annotated[str, typer.Option(help="Numbers of keys.")] = "1e6",
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "15,40",
    resolution: Annotated[
        str, typer.Option(help="Resolutions of the compact form; 0: the original key space.")
    ] = "0,8",
    f: Annotated[str, typer.Option(help="Fluctuation rates of the workload.")] = "1",
    intervals: Annotated[int, typer.Option(help="Intervals to plan after.")] = 6,
    as_json: Json = False,
) -> None:
    """Measure how fast planners plan, and how much state their plans move, on one thread.

    For example:

    \b
      unskew bench planning --keys 1e5 --planner mixed,mixed-bf:resolution=8,readj --f 0.25,0.5,1,2
    """  # noqa: D301
    from unskew.report.tables import show_planning
    from unskew.sim.planning import planning_speed

    with _Progress(None, quiet=as_json) as progress:
        results = planning_speed(
            planner,
            [int(n) for n in _numbers("keys", keys, whole=True)],
            [int(n) for n in _numbers("workers", workers, whole=True)],
            resolutions=[int(n) for n in _numbers("resolution", resolution, whole=True)],
            fluctuations=_numbers("f", f),
            intervals=intervals,
            progress=progress,
        )
    if as_json:
        print(json.dumps({"results": results}))
    else:
        show_planning(results)


@bench.command()
def spark(
    scheme: Annotated[
        str, typer.Option(help="Schemes with their modes, as in fish:planned,pkg:online.")
    ] = SPARK_SCHEMES,
    z: Annotated[str, typer.Option(help="Exponents of the Zipf streams.")] = "1.4,2.0",
    workers: Annotated[int, typer.Option(help="Workers: tasks that sleep.")] = 16,
    records: Annotated[str, typer.Option(help="Records in a batch.")] = "6e4",
    delay_us: Annotated[float, typer.Option(help="Microseconds of sleep for a record.")] = 500,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer schemes and records: a few minutes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure what balancing gains on an embedded Spark, and what it costs without skew.

    A stateful Python operator sleeps for each record, as in the papers: sleeping tasks need no
    core. The overhead is that of a native aggregate over uniform keys.

    Try: unskew bench spark --quick
    """
    from unskew.report.tables import show_spark
    from unskew.spark.bench import COSTLY, Work, gains, overheads
    from unskew.spark.session import embedded_session

    chosen = [_scheme_and_mode(part) for part in scheme.split(",")][: 2 if quick else None]
    size = int(number("records", records, whole=True)) // (2 if quick else 1)
    works = [Work(exponent, records=size, delay_s=delay_us / 1e6) for exponent in _numbers("z", z)]
    turns = 1 if quick else 3
    total = (len(chosen) + 1) * len(works) + (len(COSTLY) + 1) * turns
    with _Progress(total, quiet=as_json) as progress:
        with embedded_session(workers) as session:
            results = gains(session, chosen, works, workers, progress)
        extra = overheads(workers, 500_000 if quick else 1_000_000, turns, progress)
    if as_json:
        print(json.dumps({"results": results, "overhead": extra}))
    else:
        show_spark(results, extra)


@bench.command()
def rivals(
    scheme: Annotated[str, typer.Option(help="The scheme to compare with.")] = "w-choices",
    z: Annotated[float, typer.Option(help="Exponent of the Zipf stream.")] = 1.4,
    workers: Annotated[int, typer.Option(help="Workers: tasks that sleep.")] = 16,
    records: Annotated[str, typer.Option(help="Records in a batch.")] = "6e4",
    as_json: Json = False,
) -> None:
    """Compare with what is done against skew today: partial aggregation, salting, AQE.

    Try: unskew bench rivals --records 2e4
    """
    from unskew.report.tables import show_rivals
    from unskew.spark.rivals import compare
    from unskew.spark.session import embedded_session

    size = int(number("records", records, whole=True))
    with _Progress(15, quiet=as_json) as progress, embedded_session(workers) as session:
        rows = compare(session, z, size, scheme, progress)
    if as_json:
        print(json.dumps({"results": rows}))
    else:
        show_rivals(rows)


def _scheme_and_mode(text: str) -> tuple[str, str]:
    name, _, mode = text.strip().rpartition(":")
    if not name or mode not in ("planned", "online"):
        raise ValueError(f"a scheme with its mode must look like fish:planned, got {text!r}")
    return name, mode


def _numbers(name: str, text: str, *, whole: bool = False) -> list[float]:
    return [number(name, part, whole) for part in text.split(",")]


def _repeat(text: str, length: int) -> list[float]:
    """Return numbers, repeated from the start until there are enough."""
    given = _numbers("capacities", text)
    return [given[i % len(given)] for i in range(length)]


class _Progress:
    """A bar on the error stream, where a person looks at it; a call adds to what is done."""

    def __init__(self, total: int | None, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("records", total=total)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()

    def __call__(self, done: int) -> None:
        self._bar.update(self._task, advance=done)
