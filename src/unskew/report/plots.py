"""Pictures of a simulation: imbalance through time, the loads, and what balance costs in state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
DASHES = ("-", "--", ":", "-.")


def plot_simulation(simulation: dict[str, Any], path: str | Path) -> None:
    """Draw the results of `unskew.simulate` into a PNG, PDF or SVG file."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ValueError("a picture needs matplotlib: pip install 'unskew[report]'") from error
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    known = plt.figure().canvas.get_supported_filetypes()
    plt.close("all")
    ending = Path(path).suffix.lstrip(".")
    if ending not in known:
        raise ValueError(f"a picture must end in one of {', '.join(sorted(known))}, got {path}")
    results = simulation["results"]
    figure, (time, loads, cost) = plt.subplots(1, 3, figsize=(15, 4.8), layout="constrained")
    for i, result in enumerate(results):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % 4]}
        _draw_time(time, result, style)
        _draw_loads(loads, result, style)
        _draw_cost(cost, result, style["color"])
    _finish(time, loads, cost, results)
    first = results[0]
    figure.suptitle(
        f"{simulation['stream'].get('spec', 'stream')}    "
        f"{first['sources']} sources, {first['workers']} workers",
        fontsize=11,
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_time(axes: Axes, result: dict[str, Any], style: dict[str, Any]) -> None:
    series = result["through_time"]
    # One record more than the mean is the best that whole records allow.
    floor = [max(value, 0.1 / t) for t, value in zip(*_points(series), strict=True)]
    axes.plot(series["records"], floor, label=result["scheme"], linewidth=1.6, **style)


def _points(series: dict[str, list[float]]) -> tuple[list[float], list[float]]:
    return series["records"], series["imbalance_fraction"]


def _draw_loads(axes: Axes, result: dict[str, Any], style: dict[str, Any]) -> None:
    mean = max(result["records"] / result["workers"], 1e-9)
    loads = sorted((load / mean for load in result["loads"]), reverse=True)
    axes.plot(range(1, len(loads) + 1), loads, label=result["scheme"], linewidth=1.6, **style)


def _draw_cost(axes: Axes, result: dict[str, Any], colour: str) -> None:
    slowdown = 1 + result["relative_imbalance"]
    axes.scatter(result["replication"], slowdown, s=70, color=colour, zorder=3)


def _finish(time: Axes, loads: Axes, cost: Axes, results: list[dict[str, Any]]) -> None:
    time.set(xscale="log", yscale="log", xlabel="records", ylabel="imbalance / records")
    time.set_title("Imbalance through time (lower is better)", fontsize=10)
    loads.set(yscale="log", xlabel="worker, most loaded first", ylabel="load / mean load")
    loads.set_title("Load of each worker (1 is ideal)", fontsize=10)
    cost.set(
        xscale="log",
        yscale="log",
        xlabel="workers a key is on (replication)",
        ylabel="busiest worker / mean load",
    )
    cost.set_title("What balance costs in state (lower left is better)", fontsize=10)
    _label_points(cost, results)
    for axes in (time, loads, cost):
        axes.grid(True, which="major", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    time.legend(frameon=False, fontsize=9)


def _label_points(axes: Axes, results: list[dict[str, Any]]) -> None:
    """Name the points; where several coincide, their names stand above one another."""
    placed: list[tuple[float, float]] = []
    for result in results:
        x, y = result["replication"], 1 + result["relative_imbalance"]
        near = sum(abs(x / a - 1) < 0.25 and abs(y / b - 1) < 0.5 for a, b in placed)
        placed.append((x, y))
        axes.annotate(
            result["scheme"],
            (x, y),
            xytext=(7, 6 + 12 * near),
            textcoords="offset points",
            fontsize=9,
        )
    axes.margins(x=0.25, y=0.25)
