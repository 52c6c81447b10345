"""Tables of results and of schemes, printed by the commands."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rich.console import Console
from rich.table import Table

from unskew.planners import PLANNERS
from unskew.routers import ROUTERS
from unskew.workloads import STREAMS, summaries

NO_DEFAULT = "auto"
ENDS = {
    "end": "the stream ended",
    "time": "the time was up",
    "interrupted": "interrupted",
}


def scheme_rows() -> list[dict[str, Any]]:
    """Return a row for every scheme: its summary, its properties and its parameters."""
    rows = []
    for name, router in ROUTERS.items():
        example = router(1)
        parameters = {f.name: f.default for f in fields(router) if f.init and f.name != "n_workers"}
        rows.append(
            {
                "scheme": name,
                "summary": (router.__doc__ or "").partition("\n")[0],
                "splits_keys": router.splits,
                "elastic": router.elastic,
                "sources_agree": example.shared,
                "parameters": parameters,
            }
        )
    return rows


def planner_rows() -> list[dict[str, Any]]:
    """Return a row for every planner: its summary and its parameters."""
    return [
        {
            "planner": name,
            "summary": (planner.__doc__ or "").partition("\n")[0],
            "parameters": {f.name: f.default for f in fields(planner)},
        }
        for name, planner in PLANNERS.items()
    ]


def stream_rows() -> list[dict[str, Any]]:
    """Return a row for every generated stream: its summary and its parameters."""
    lines = summaries()
    return [
        {
            "stream": name,
            "summary": lines[name],
            "parameters": {f.name: f.default for f in fields(cls)},  # type: ignore[arg-type]
        }
        for name, cls in STREAMS.items()
    ]


def show_schemes() -> None:
    """Print the schemes and the planners."""
    table = Table("scheme", "what it does", "splits keys", "parameters")
    for row in scheme_rows():
        shown = {k: v for k, v in row["parameters"].items() if k not in ("seed", "source")}
        table.add_row(
            row["scheme"], row["summary"], "yes" if row["splits_keys"] else "no", _pairs(shown)
        )
    _print(table)
    table = Table("planner", "what it does", "parameters")
    for row in planner_rows():
        table.add_row(row["planner"], row["summary"], _pairs(row["parameters"]))
    _print(table)


def show_streams() -> None:
    """Print the streams."""
    table = Table("stream", "what it is", "parameters")
    for row in stream_rows():
        table.add_row(row["stream"], row["summary"], _pairs(row["parameters"]))
    _print(table)


def show_simulation(simulation: dict[str, Any]) -> None:
    """Print the results of `unskew.simulate`."""
    results = simulation["results"]
    first = results[0]
    console = _console()
    console.print(
        f"{simulation['stream']['spec']}: {first['records']:,} records, {first['keys']:,} keys; "
        f"{first['sources']} sources, {first['workers']} workers",
        highlight=False,
    )
    table = Table("scheme")
    for heading in ("busiest / mean", "imbalance", "average", "replicas", "per key"):
        table.add_column(heading, justify="right")
    for r in results:
        table.add_row(
            r["scheme"],
            f"{1 + r['relative_imbalance']:.3f}",
            f"{r['imbalance_final_fraction']:.1e}",
            f"{r['imbalance_average_fraction']:.1e}",
            f"{r['replicas']:,}",
            f"{r['replication']:.2f}",
        )
    console.print(table)
    if first["workers_at_end"] != len(first["loads"]):
        console.print("The balance is measured since the last change of workers.")
    if "queueing" in first:
        _show_queueing(console, results)
    for pair in simulation.get("agreement", []):
        a, b = pair["schemes"]
        console.print(
            f"{a} and {b} send {pair['alike_share']:.1%} of the records to the same workers "
            f"(Jaccard {pair['jaccard']:.1%})",
            highlight=False,
        )


def show_intervals(simulation: dict[str, Any]) -> None:
    """Print the results of `unskew.simulate_plans`."""
    results = simulation["results"]
    console = _console()
    console.print(
        f"{simulation['stream']['spec']}: {len(results[0]['intervals'])} intervals of "
        f"{simulation['interval_records']:,} records; {simulation['workers']} workers",
        highlight=False,
    )
    table = Table("scheme")
    for heading in ("busiest / mean", "planned", "state moved", "entries", "planning", "short"):
        table.add_column(heading, justify="right")
    for r in results:
        rows = [row for row in r["intervals"] if "plan_s" in row]
        shown = [""] * 5
        if rows:
            planned = sum(row["planned_max_over_mean"] for row in rows) / len(rows)
            shown = [
                f"{planned:.3f}",
                f"{r['moved_fraction_mean']:.1%}",
                f"{r['entries_mean']:,.0f}",
                _seconds(r["plan_s_mean"]),
                f"{sum(bool(row['falls_short']) for row in rows)} of {len(rows)}",
            ]
        name = "shuffle (ideal)" if r["scheme"] == "shuffle" else r["scheme"]
        table.add_row(name, f"{r.get('max_over_mean_mean', 1.0):.3f}", *shown)
    console.print(table)
    console.print("Means over the intervals; a plan made after one takes effect in the next.")
    if "queueing" in results[0]:
        _show_queueing(console, results)


def show_planning(results: list[dict[str, Any]]) -> None:
    """Print the results of a planning benchmark."""
    table = Table("planner")
    headings = ("keys", "workers", "f", "resolution", "planning", "state moved", "entries")
    for heading in (*headings, "busiest / mean"):
        table.add_column(heading, justify="right")
    for r in results:
        table.add_row(
            r["planner"],
            f"{r['keys']:,}",
            str(r["workers"]),
            f"{r['f']:g}",
            str(r["resolution"] or "-"),
            _seconds(r["plan_s"]),
            f"{r['moved_fraction']:.1%}",
            f"{r['table_entries']:,}",
            f"{r['max_over_mean']:.3f}",
        )
    _print(table)


def show_spark(results: list[dict[str, Any]], overhead: list[dict[str, Any]]) -> None:
    """Print the results of a benchmark on Spark."""
    table = Table("scheme", "routing")
    for heading in ("z", "records/s", "over key", "of ideal", "state rows", "busiest / mean"):
        table.add_column(heading, justify="right")
    for r in results:
        busiest = max(r["loads"]) * r["workers"] / sum(r["loads"])
        table.add_row(
            r["scheme"],
            r["routing"],
            f"{r['z']:g}",
            f"{r['records_per_s']:,.0f}",
            f"{r['over_key']:.2f} x",
            f"{r['over_ideal']:.0%}",
            f"{r['state_rows']:,}",
            f"{busiest:.2f}",
        )
    console = _console()
    console.print(table)
    for row in overhead:
        console.print(
            f"{row['routing']} routing with {row['scheme']} costs {row['fraction']:.0%} without "
            f"skew ({row['state_rows']:,} state rows)"
        )


def show_run(report: dict[str, Any]) -> None:
    """Print the report of an application: its batches, and a summary."""
    table = Table("batch")
    for heading in ("records", "seconds", "imbalance", "state rows", "state MiB"):
        table.add_column(heading, justify="right")
    for row in report["batches"]:
        table.add_row(
            str(row["batch"]),
            f"{row['records']:,}",
            f"{row['seconds']:.2f}",
            _share(row["imbalance"]),
            f"{row['state_rows']:,}",
            f"{row['state_bytes'] / 2**20:.1f}",
        )
    console = _console()
    console.print(table)
    console.print(
        f"{report['app']} with {report['scheme']} ({report['routing']}), "
        f"{report['workers']} workers: {report['records']:,} records, "
        f"{report['records_per_s']:,.0f} a second; "
        f"{ENDS[report['stopped']]}"
    )
    if report["bad_records"]:
        console.print(
            f"[bold]{report['bad_records']:,} records were left out[/]: they are no JSON objects, "
            "or have values of other types. --bad-records FOLDER keeps them.",
            highlight=False,
        )


def show_comparison(reports: list[dict[str, Any]]) -> None:
    """Print the results of several schemes in one application."""
    table = Table("scheme", "routing")
    for heading in (
        "records/s",
        f"over {reports[0]['scheme']}",
        "batch: s",
        "worst: s",
        "imbalance",
        "state rows",
        "state MiB",
    ):
        table.add_column(heading, justify="right")
    for r in reports:
        table.add_row(
            r["scheme"],
            r["routing"],
            f"{r['records_per_s']:,.0f}",
            f"{r['over_first']:.2f} x",
            f"{r['latency_s'] or 0:.2f}",
            f"{r['worst_latency_s'] or 0:.2f}",
            _share(r["imbalance"]),
            f"{r['state_rows']:,}",
            f"{r['state_bytes'] / 2**20:.1f}",
        )
    _print(table)


def show_apps(rows: list[dict[str, Any]]) -> None:
    """Print the applications."""
    table = Table("application", "what it returns", "columns of its stream", "options")
    for row in rows:
        table.add_row(row["app"], row["summary"], row["columns"], ", ".join(row["options"]))
    _print(table)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"


def show_rivals(rows: list[dict[str, Any]]) -> None:
    """Print the results of several ways to handle skew."""
    table = Table("job", "way")
    for heading in ("seconds", "over plain", "state rows"):
        table.add_column(heading, justify="right")
    for row in rows:
        state = f"{row['state_rows']:,}" if "state_rows" in row else ""
        table.add_row(
            row["job"], row["way"], f"{row['seconds']:.2f}", f"{row['over_plain']:.2f} x", state
        )
    _print(table)


def show_demo(results: list[dict[str, Any]]) -> None:
    """Print the loads of workers as bars, plain and balanced, and the gain in throughput."""
    console = _console()
    top = max(max(result["loads"]) for result in results)
    for result in results:
        loads, mean = result["loads"], sum(result["loads"]) / len(result["loads"])
        title = "plain groupBy" if result["routing"] == "plain" else f"unskew, {result['scheme']}"
        console.print(
            f"\n[bold]{title}[/]: {result['records_per_s']:,.0f} records/s, busiest worker "
            f"{max(loads) / mean:.2f} times the mean, {result['state_rows']:,} state rows",
            highlight=False,
        )
        scale = sum(loads) and top / mean / 48  # one scale for both, though batches differ
        for worker, load in enumerate(loads):
            bar = "█" * max(1, round(load / mean / scale)) if load else ""
            colour = "red" if load > 1.5 * mean else "green"
            console.print(f"  worker {worker:2d} [{colour}]{bar}[/] {load:,}", highlight=False)
    console.print(
        f"\n[bold]{results[-1]['over_key']:.1f} times the throughput.[/]",
        highlight=False,
    )
    plain_s, balanced_s = (result["warm_up_s"] for result in (results[0], results[-1]))
    console.print(
        f"Not counted: the first batches of each run, in which Spark compiles its code and the "
        f"first plan is made ({plain_s:.1f} s plain, {balanced_s:.1f} s balanced).",
        highlight=False,
    )


def show_speeds(results: list[dict[str, Any]]) -> None:
    """Print the results of a routing benchmark: a row a scheme, a column a stream."""
    columns = list(dict.fromkeys((r["workers"], r["z"]) for r in results))
    table = Table("M records/s")
    for workers, z in columns:
        table.add_column(f"W={workers} z={z:g}", justify="right")
    for scheme in dict.fromkeys(r["scheme"] for r in results):
        rows = [r for r in results if r["scheme"] == scheme]
        speeds = {(r["workers"], r["z"]): r["records_per_s"] for r in rows}
        table.add_row(scheme, *(f"{speeds[column] / 1e6:.1f}" for column in columns))
    _print(table)


def _show_queueing(console: Console, results: list[dict[str, Any]]) -> None:
    table = Table("scheme")
    for heading in ("throughput/s", "makespan s", "latency mean", "p50", "p95", "p99"):
        table.add_column(heading, justify="right")
    for r in results:
        q = r["queueing"]
        latencies = (q[f"latency_{name}_s"] for name in ("mean", "p50", "p95", "p99"))
        table.add_row(
            r["scheme"],
            f"{q['throughput_per_s']:,.0f}",
            f"{q['makespan_s']:,.2f}",
            *(_seconds(latency) for latency in latencies),
        )
    console.print(table)


def _seconds(value: float) -> str:
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def _pairs(parameters: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}={NO_DEFAULT if value is None else value}" for name, value in parameters.items()
    )


def _console() -> Console:
    console = Console()
    # A table that is piped into a file should not be cut at 80 columns.
    return console if console.is_terminal else Console(width=160)


def _print(table: Table) -> None:
    _console().print(table)
