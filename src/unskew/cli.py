"""The command line: lists the schemes, simulates them, runs them on Spark, measures their speed.

Exit codes: 0 success, 1 failure while running (a full disk, say), 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import unskew
from unskew.commands.apps import apps, compare, run
from unskew.commands.bench import bench
from unskew.commands.options import Json, Progress, batch_size, numbers
from unskew.commands.schemes import check_balancer
from unskew.state import whole, within

app = typer.Typer(
    name="unskew",
    help="Keep keyed stream processing balanced, however skewed the keys are.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")
for command in (run, compare, apps):
    app.command()(command)

EXTRAS = {"matplotlib": "report", "pandas": "spark", "pyspark": "spark"}
"""The extras of the package that install what a command may need."""
BAD_PATHS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)

MAX_WORKERS = 1_000_000
SCHEMES = "key,pkg,d-choices,w-choices,shuffle"


def main() -> None:
    """Run the command line; bad input ends in one line, never in a traceback."""
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except (ValueError, TypeError, ArithmeticError, *BAD_PATHS) as error:
        status = _print_error(error, 2)
    except (OSError, MemoryError, RuntimeError) as error:
        status = _print_error(error, 1)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        what = f"this command needs {error.name}: pip install 'unskew[{extra}]'"
        status = _print_error(what, 2)
    except Exception as error:
        if hasattr(error, "format_message"):
            status = _print_usage_error(error.format_message())
        elif type(error).__module__.startswith("pyspark."):
            status = _print_error(str(error).partition("\n")[0], 1)
        else:
            raise
    if status == 130:
        print("unskew: interrupted", file=sys.stderr)
    sys.exit(status or 0)


def _print_usage_error(message: str) -> int:
    """Print a message of the argument parser: an error, or the help if there are no arguments."""
    if message.startswith("Usage:"):
        print(message)
        return 0
    return _print_error(message, 2)


def _print_error(error: object, status: int) -> int:
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
    scheme: Annotated[str, typer.Option(help="A router or a planner.")] = "waterline",
    z: Annotated[float, typer.Option(help="Exponent of the Zipf stream.")] = 1.7,
    workers: Annotated[int, typer.Option(help="Number of workers, which sleep.")] = 16,
    batch_records: Annotated[str, typer.Option(help="Records of a micro-batch.")] = "3e4",
    plot: Annotated[
        Path | None, typer.Option(help="Draw a picture into this PNG, PDF or SVG file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a skewed stream on an embedded Spark, plain and balanced, and show the difference.

    Try: unskew demo --scheme dstream --z 2
    """
    from unskew.report.plots import check_picture, plot_demo
    from unskew.report.tables import show_demo

    if plot is not None:
        check_picture(plot)
    from unskew.bench.gains import Work, gains
    from unskew.spark.session import embedded_session
    from unskew.workloads.zipf import check_law

    check_balancer(scheme, "planned", workers)
    check_law(z, Work.keys)
    work = Work(z, records=batch_size(batch_records), batches=2)
    with Progress(2, quiet=as_json) as progress, embedded_session(workers) as session:
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
    schemes: Annotated[
        str | None,
        typer.Option(
            help="Schemes, as in key,pkg:load=global (see 'unskew schemes'); by default "
            f"{SCHEMES}, or with --planners the schemes to compare them with."
        ),
    ] = None,
    planners: Annotated[
        str | None,
        typer.Option(
            help="Planners, as in mixed:resolution=8,readj; they replan after each interval."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of workers.")] = 50,
    sources: Annotated[int, typer.Option(help="Number of sources.")] = 5,
    feed: Annotated[
        str, typer.Option(help="How records are assigned to sources: round-robin or key.")
    ] = "round-robin",
    rate: Annotated[
        float | None,
        typer.Option(help="Records a second, for the queueing model; inf for all at once."),
    ] = None,
    service_us: Annotated[
        float | None, typer.Option(help="Microseconds for a record, for the queueing model.")
    ] = None,
    capacities: Annotated[
        str | None, typer.Option(help="How fast the workers are, as in 1,1,2,2; repeated to fit.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(help="A worker joins (500000:+) or leaves (500000:-3) before that record."),
    ] = None,
    interval: Annotated[
        int | None,
        typer.Option(
            help="Records over which the spread of the loads is measured (10000), or after which "
            "planners plan (by default the stream's own interval, or records / intervals)."
        ),
    ] = None,
    intervals: Annotated[int | None, typer.Option(help="Number of intervals to plan for.")] = None,
    window: Annotated[
        int | None, typer.Option(help="Intervals for which planned keys keep state (5).")
    ] = None,
    fallback: Annotated[
        str | None,
        typer.Option(help="Hash for keys without a plan entry: consistent (default) or key."),
    ] = None,
    agreement: Annotated[
        bool, typer.Option("--agreement", help="Compare the decisions of each pair of schemes.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw a picture into this file.")] = None,
    as_json: Json = False,
) -> None:
    """Send a stream through schemes and measure balance, replication, throughput and latency.

    For example:

    \b
      unskew simulate --stream zipf:z=1.4,keys=1e4,records=1e6,seed=1 --plot a.png
      unskew simulate --schemes key,fish --stream clicks.parquet:key=user_id
      unskew simulate --schemes key,pkg --stream wp:records=1e6 --rate 1e5 --service-us 400
      unskew simulate --planners mixed,readj --workers 15 --stream fluctuating-zipf:keys=1e5
    """  # noqa: D301
    from unskew.sim import Queue, WorkerChange

    whole("workers", workers, 1)
    within("workers", workers, 1, MAX_WORKERS)
    if rate is not None and service_us is None:
        raise ValueError("--rate needs --service-us, the time that a record takes: add it")
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
    feeding: dict[str, Any] = {"feed": feed}  # simulate refuses others than its own
    if plot is not None:
        from unskew.report.plots import check_picture

        check_picture(plot)
    with Progress(opened.n_records, quiet=as_json) as progress:
        if planners is None:
            _only_with_planners(intervals=intervals, window=window, fallback=fallback)
            out = unskew.simulate(
                opened,
                schemes or SCHEMES,
                workers,
                interval=10_000 if interval is None else interval,
                agreement=agreement,
                progress=progress,
                **common,
                **feeding,
            )
        else:
            _only_without_planners(agreement=agreement, feed=feed != "round-robin")
            fallback = fallback or "consistent"
            out = unskew.simulate_plans(
                opened,
                planners,
                workers,
                schemes=schemes or f"{fallback},pkg,shuffle",
                interval=interval,
                intervals=intervals,
                window=5 if window is None else window,
                fallback=fallback,
                progress=progress,
                **common,
            )
    _show_simulation(out, plot, as_json, planned=planners is not None)


def _only_with_planners(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"--{name} needs --planners: add them, or omit --{name}")


def _only_without_planners(**options: Any) -> None:
    for name, value in options.items():
        if value:
            raise ValueError(f"--{name} cannot be used with --planners: omit one of them")


def _show_simulation(out: dict[str, Any], plot: Path | None, as_json: bool, planned: bool) -> None:
    if not any(result["intervals" if planned else "records"] for result in out["results"]):
        raise ValueError("the stream is empty, so there is nothing to balance: use another one")
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


def _repeat(text: str, length: int) -> list[float]:
    """Return numbers, repeated from the start until there are enough."""
    capacities = numbers("capacities", text)
    return [capacities[i % len(capacities)] for i in range(length)]
