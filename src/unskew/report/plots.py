"""Pictures of results: imbalance through time, loads, speed, and the cost of balance in state."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
ENDINGS = (".png", ".pdf", ".svg")


def check_picture(path: Path) -> None:
    """Refuse a picture that cannot be drawn, before any work is done."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("a picture needs matplotlib: pip install 'unskew[report]'")
    if path.suffix not in ENDINGS:
        raise ValueError(f"a picture must end in one of {', '.join(ENDINGS)}, got {path}")
    if not path.absolute().parent.is_dir():
        raise ValueError(
            f"no such folder for the picture: {path.absolute().parent}; create it first"
        )


def plot_simulation(simulation: dict[str, Any], path: str | Path) -> None:
    """Draw the results of `unskew.simulate` into a PNG, PDF or SVG file."""
    check_picture(Path(path))
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    results = [result for result in simulation["results"] if result["records"]]
    rows = -(-len(results) // 7)
    figure, (time, loads, cost) = plt.subplots(
        1, 3, figsize=(15, 4.8 + 0.3 * rows), layout="constrained"
    )
    for i, result in enumerate(results):
        style = {
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": DASHES[i // len(COLOURS) % len(DASHES)],
            "marker": MARKERS[i % len(MARKERS)],
        }
        _draw_time(time, result, style)
        _draw_loads(loads, result, style)
        _draw_cost(cost, result, style)
    _finish(time, loads, cost)
    figure.legend(*cost.get_legend_handles_labels(), loc="outside lower center", ncols=7)
    first = simulation["results"][0]
    figure.suptitle(
        f"{simulation['stream']['spec']}    {first['sources']} sources, {first['workers']} workers",
        fontsize=11,
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_demo(results: list[dict[str, Any]], path: str | Path) -> None:
    """Draw the loads of workers and the throughput, plain and balanced."""
    check_picture(Path(path))
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, (loads, speed) = plt.subplots(
        1, 2, figsize=(11, 4.2), width_ratios=(3, 1), layout="constrained"
    )
    names = ["plain groupBy", *(f"unskew, {result['scheme']}" for result in results[1:])]
    colours, width = (COLOURS[1], COLOURS[0]), 0.4
    for i, (result, name, colour) in enumerate(zip(results, names, colours, strict=True)):
        mean = sum(result["loads"]) / len(result["loads"])
        x = [worker + width * (i - 0.5) for worker in range(len(result["loads"]))]
        loads.bar(x, [load / mean for load in result["loads"]], width, label=name, color=colour)
    loads.axhline(1, color="#666666", linewidth=0.8)
    loads.set(xlabel="Worker", ylabel="Records / mean (1 is ideal)", xticks=range(0, len(x), 1))
    loads.legend(frameon=False)
    bars = speed.bar(names, [result["records_per_s"] for result in results], 0.5, color=colours)
    speed.bar_label(bars, fmt="{:,.0f}")
    speed.set(ylabel="Records a second")
    speed.margins(y=0.12)
    for axes in (loads, speed):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"Zipf z = {results[0]['z']:g} on Spark, {results[0]['workers']} workers: "
        f"{results[-1]['over_key']:.1f} times the throughput",
        fontsize=11,
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_comparison(reports: list[dict[str, Any]], path: str | Path) -> None:
    """Draw the speed, latency, balance and state of schemes in one application."""
    check_picture(Path(path))
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    names = [f"{r['scheme']}\n{r['routing']}" for r in reports]
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(reports))]
    figure, ((speed, latency), (balance, state)) = plt.subplots(
        2, 2, figsize=(max(9, 2 + 1.5 * len(reports)), 7), layout="constrained"
    )
    bars = speed.bar(names, [r["records_per_s"] for r in reports], 0.6, color=colours)
    speed.bar_label(bars, fmt="{:,.0f}", fontsize=8)
    speed.set_title("Records a second", fontsize=10)
    for i, report in enumerate(reports):
        seconds = [row["seconds"] for row in report["batches"]]
        numbers = [row["batch"] for row in report["batches"]]
        marker = MARKERS[i % len(MARKERS)]
        latency.plot(numbers, seconds, color=colours[i], marker=marker, label=report["scheme"])
    latency.set_title("Seconds of each batch; the first ones warm up", fontsize=10)
    latency.set_xlabel("batch")
    latency.set_ylim(bottom=0)
    latency.xaxis.get_major_locator().set_params(integer=True)
    latency.legend(frameon=False, fontsize=8, ncols=2)
    bars = balance.bar(names, [100 * (r["imbalance"] or 0) for r in reports], 0.6, color=colours)
    balance.bar_label(bars, fmt="{:.1f}", fontsize=8)
    balance.set_title("Imbalance: busiest worker less the mean, % of all records", fontsize=10)
    bars = state.bar(names, [r["state_rows"] for r in reports], 0.6, color=colours)
    state.bar_label(bars, fmt="{:,.0f}", fontsize=8)
    state.set_title("State rows", fontsize=10)
    for axes in (speed, latency, balance, state):
        axes.margins(y=0.12)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    first = reports[0]
    figure.suptitle(
        f"{first['app']} on {first['stream']}, {first['workers']} workers"
        + (f", {first['delay_us']:g} µs a record" if first["delay_us"] else ""),
        fontsize=11,
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_intervals(simulation: dict[str, Any], path: str | Path) -> None:
    """Draw the results of `unskew.simulate_plans` into a PNG, PDF or SVG file."""
    check_picture(Path(path))
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    panels = (
        ("max_over_mean", "Busiest worker / mean load (1 is ideal)", 1),
        ("moved_fraction", "State moved after the interval, %", 100),
        ("entries", "Entries of the routing table", 1),
        ("plan_s", "Planning time, ms", 1000),
    )
    figure, grid = plt.subplots(2, 2, figsize=(12, 7.5), layout="constrained")
    for axes, (name, title, factor) in zip(grid.flat, panels, strict=True):
        for i, result in enumerate(simulation["results"]):
            rows = [row for row in result["intervals"] if name in row]
            axes.plot(
                [row["interval"] for row in rows],
                [factor * row[name] for row in rows],
                color=COLOURS[i % len(COLOURS)],
                linestyle=DASHES[i // len(COLOURS) % len(DASHES)],
                marker=MARKERS[i % len(MARKERS)],
                label=result["scheme"] + " (ideal)" * (result["scheme"] == "shuffle"),
            )
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("interval")
        axes.set_ylim(bottom=None if name == "max_over_mean" else 0)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(True, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    handles = grid.flat[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=6)
    figure.suptitle(
        f"{simulation['stream']['spec']}    {simulation['workers']} workers", fontsize=11
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_time(axes: Axes, result: dict[str, Any], style: dict[str, Any]) -> None:
    series = result["through_time"]
    # Imbalances below a tenth of a record are not visible, and zero has no logarithm.
    imbalance = [
        max(value, 0.1 / t)
        for t, value in zip(series["records"], series["imbalance_fraction"], strict=True)
    ]
    axes.plot(series["records"], imbalance, linewidth=1.4, **{**style, "marker": None})


def _draw_loads(axes: Axes, result: dict[str, Any], style: dict[str, Any]) -> None:
    mean = result["records"] / len(result["loads"])
    loads = sorted((load / mean for load in result["loads"]), reverse=True)
    axes.plot(range(1, len(loads) + 1), loads, linewidth=1.4, markevery=[0, -1], **style)


def _draw_cost(axes: Axes, result: dict[str, Any], style: dict[str, Any]) -> None:
    point = result["replication"], 1 + result["relative_imbalance"]
    axes.plot(*[[value] for value in point], label=result["scheme"], markersize=9, **style)


def _finish(time: Axes, loads: Axes, cost: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    time.set(xscale="log", yscale="log", xlabel="records", ylabel="imbalance / records")
    time.set_title("Imbalance through time (lower is better)", fontsize=10)
    loads.set(yscale="log", xlabel="worker, most loaded first", ylabel="load / mean load")
    loads.set_title("Load of each worker (1 is ideal)", fontsize=10)
    cost.set(xscale="log", yscale="log")
    cost.set(xlabel="workers a key is on (replication)", ylabel="busiest worker / mean load")
    cost.set_title("The cost of balance in state (lower left is better)", fontsize=10)
    cost.margins(0.15)
    for axis in (cost.xaxis, cost.yaxis, loads.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())
    for axes in (time, loads, cost):
        axes.grid(True, which="major", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
