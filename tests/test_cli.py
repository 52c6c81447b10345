"""The command line, run as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

MAIN = "from unskew.cli import main; main()"
SMALL = "zipf:z=1.4,keys=100,records=5000,seed=1"
QUEUE = ("--rate", "1e5", "--service-us", "100")


def unskew(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MAIN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def answer(*arguments: str) -> dict[str, Any]:
    done = unskew(*arguments)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_simulate_prints_what_is_promised() -> None:
    out = answer(
        "simulate", "--schemes", "pkg,d-choices", "--workers", "5", "--sources", "2",
        "--stream", SMALL, "--json",
    )  # fmt: skip
    assert out["stream"]["spec"] == SMALL
    assert [result["scheme"] for result in out["results"]] == ["pkg", "d-choices"]
    promised = {
        "scheme", "workers", "sources", "records", "keys", "imbalance_final_fraction",
        "imbalance_average_fraction", "relative_imbalance", "replicas", "replication", "loads",
    }  # fmt: skip
    for result in out["results"]:
        assert promised <= result.keys()
        assert (result["workers"], result["sources"], result["records"]) == (5, 2, 5000)


def test_bench_prints_what_is_promised() -> None:
    out = answer(
        "bench", "routing", "--schemes", "key,pkg", "--z", "1.0", "--workers", "4,8",
        "--records", "1e4", "--keys", "100", "--json",
    )  # fmt: skip
    rows = [(row["scheme"], row["workers"], row["z"]) for row in out["results"]]
    assert rows == [("key", 4, 1.0), ("pkg", 4, 1.0), ("key", 8, 1.0), ("pkg", 8, 1.0)]
    assert all(row["records_per_s"] > 0 for row in out["results"])


def test_schemes_and_streams_are_listed() -> None:
    names = [row["scheme"] for row in answer("schemes", "--json")["schemes"]]
    assert names[:2] == ["key", "shuffle"]
    assert "fish" in unskew("schemes").stdout
    assert "evolving-zipf" in unskew("streams").stdout
    assert answer("streams", "--json")["streams"][0]["parameters"]["keys"] == 10000


def test_simulate_for_people_with_everything(tmp_path: Path) -> None:
    picture = tmp_path / "out.png"
    done = unskew(
        "simulate", "--schemes", "fish,consistent", "--workers", "4", "--stream", SMALL,
        "--rate", "1000", "--service-us", "3000", "--capacities", "1,2", "--change", "2e3:+",
        "--change", "4000:-1", "--agreement", "--plot", str(picture), "--feed", "key",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "busiest / mean" in done.stdout
    assert "throughput" in done.stdout
    assert "Jaccard" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_capacities_are_repeated_to_fit() -> None:
    out = answer(
        "simulate", "--schemes", "shuffle", "--workers", "4", "--sources", "1",
        "--stream", "uniform:keys=10,records=4000", "--capacities", "1,2", "--json",
    )  # fmt: skip
    assert out["results"][0]["queueing"]["utilisation"] == pytest.approx([1.0, 0.5, 1.0, 0.5])


def test_a_file_is_a_stream(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("to be or not to be\n" * 10)
    out = answer("simulate", "--schemes", "key", "--workers", "3", "--stream", str(words), "--json")
    assert (out["results"][0]["records"], out["results"][0]["keys"]) == (60, 4)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["simulate", "--stream", "zpif"], "did you mean 'zipf'?"),
        (["simulate", "--stream", "zipf:zz=1"], "has no option 'zz'"),
        (["simulate", "--stream", "/no/such.parquet"], "no such file"),
        (["simulate", "--stream", SMALL, "--schemes", "pgk"], "did you mean 'pkg'?"),
        (["simulate", "--stream", SMALL, "--workers", "0"], "workers must be at least 1, got 0"),
        (["simulate", "--stream", SMALL, "--sources", "0"], "sources must be at least 1, got 0"),
        (["simulate", "--stream", SMALL, "--workers", "many"], "--workers"),
        (["simulate", "--stream", SMALL, "--feed", "x"], "feed must be one of round-robin, key"),
        (["simulate", "--stream", SMALL, *QUEUE, "--rate", "-1"], "arrival_rate must be positive"),
        (["simulate", "--stream", SMALL, "--rate", "9"], "--rate needs --service-us"),
        (["simulate", "--stream", SMALL, "--workers", "9" * 11], "workers must be between 1 and"),
        (["simulate", "--stream", SMALL, "--change", "5:+9"], "500000:+ or 500000:-3"),
        (
            ["simulate", "--stream", SMALL, "--capacities", "1,x"],
            "capacities must be a number, got 'x'",
        ),
        (["simulate", "--stream", SMALL, "--change", "soon"], "500000:+ or 500000:-3"),
        (["simulate", "--stream", SMALL, "--plot", "x.docx"], "a picture must end in one of"),
        (["simulate", "--stream", "/tmp"], "is a directory"),
        (["simulate", "--stream", "/dev/null:format=words"], "is no regular file"),
        (["simulate", "--stream", SMALL, *QUEUE, "--sources", "0"], "sources must be"),
        (["simulate", "--stream", SMALL, "--change", "1e9:+"], "must come before record 5000"),
        (["simulate", "--stream", SMALL, "--change", "10:-99"], "worker 99 cannot leave"),
        (["simulate", "--stream", SMALL, "--interval", "1" + "0" * 20], "must be below 2^63"),
        (["bench", "routing", "--records", "inf"], "records must be a number, got 'inf'"),
        (["bench", "routing", "--workers", "2.7"], "workers must be a whole number"),
        (["simulate"], "--stream"),
        (["bench", "routing", "--z", "x"], "z must be a number, got 'x'"),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], complaint: str) -> None:
    done = unskew(*arguments)
    assert done.returncode == 2
    assert complaint.lower() in done.stderr.lower()
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_picture_needs_its_folder(tmp_path: Path) -> None:
    picture = tmp_path / "no" / "such" / "folder.png"
    done = unskew("simulate", "--stream", SMALL, "--schemes", "key", "--plot", str(picture))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_ctrl_c_ends_in_one_line_and_exit_code_130() -> None:
    command = [
        sys.executable,
        "-c",
        MAIN,
        "simulate",
        "--schemes",
        "key",
        "--stream",
        "uniform:records=1e12",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == "unskew: interrupted\n"


def test_a_full_disk_is_one_line_and_exit_code_1() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is Linux's")
    command = [sys.executable, "-c", MAIN, "schemes", "--json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["bench"]])
def test_no_arguments_show_the_help(arguments: list[str]) -> None:
    done = unskew(*arguments)
    assert done.returncode == 0
    assert "Commands:\n" in done.stdout


def test_help_and_version_do_not_load_numba() -> None:
    code = (
        "import sys; sys.argv = ['unskew', '--help']\n"
        "from unskew.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'numba' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "simulate" in done.stdout
    assert unskew("--version").stdout.startswith("unskew 0.")


PLANNED = ["simulate", "--stream", SMALL, "--workers", "4", "--planners"]
TINY = ["bench", "planning", "--keys", "200", "--workers", "3"]


def test_planners_are_simulated_beside_schemes() -> None:
    out = answer(
        *PLANNED, "mixed:resolution=8,readj", "--schemes", "shuffle", "--intervals", "5",
        "--window", "2", "--change", "2e3:+", "--json",
    )  # fmt: skip
    assert out["stream"]["spec"] == SMALL
    assert (out["workers"], out["interval_records"]) == (4, 1000)
    names = [result["scheme"] for result in out["results"]]
    assert names == ["mixed:resolution=8", "readj", "shuffle"]
    for result in out["results"]:
        rows = result["intervals"]
        assert [sum(row["loads"]) for row in rows] == [row["records"] for row in rows] == [1000] * 5
        assert [row["workers"] for row in rows] == [4, 4, 5, 5, 5]
        assert {"max_over_mean", "plan_s", "moved_fraction", "entries"} <= rows[0].keys() or (
            result["scheme"] == "shuffle" and "plan_s" not in rows[0]
        )
    assert out["results"][2]["max_over_mean_mean"] < 1.01


def test_planners_for_people_with_everything(tmp_path: Path) -> None:
    picture = tmp_path / "out.png"
    done = unskew(
        *PLANNED, "mixed,simple", "--interval", "700", "--rate", "1000", "--service-us", "3000",
        "--capacities", "1,2", "--change", "2000:-1", "--plot", str(picture),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "8 intervals of 700 records; 4 workers" in done.stdout
    for word in ("busiest / mean", "state moved", "planning", "simple", "(ideal)", "throughput"):
        assert word in done.stdout
    # What planners are compared with when no schemes are given.
    assert "consistent" in done.stdout
    assert "pkg" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_bench_planning_prints_what_is_promised() -> None:
    out = answer(
        *TINY[:-1], "3,4", "--planners", "mixed,min-table:resolution=4,readj", "--resolution",
        "0,8", "--intervals", "2", "--f", "0.5", "--json",
    )  # fmt: skip
    promised = {
        "planner", "keys", "workers", "resolution", "plan_s", "moved_fraction", "table_entries",
        "max_over_mean",
    }  # fmt: skip
    rows = out["results"]
    assert all(promised <= row.keys() for row in rows)
    each = [("mixed", 0), ("mixed", 8), ("min-table:resolution=4", 4), ("readj", 0)]
    expected = [(*planner, 200, workers) for workers in (3, 4) for planner in each]
    names = ("planner", "resolution", "keys", "workers")
    assert [tuple(row[name] for name in names) for row in rows] == expected
    for row in rows:
        assert row["plan_s"] > 0
        assert 0 <= row["moved_fraction"] <= 1
        assert 0 <= row["table_entries"] <= 200
        assert row["max_over_mean"] >= 1


def test_bench_planning_for_people() -> None:
    done = unskew(*TINY, "--planners", "mixed", "--resolution", "0", "--intervals", "2")
    assert done.returncode == 0, done.stderr
    assert "state moved" in done.stdout
    assert "mixed" in done.stdout


def test_planners_are_listed() -> None:
    planners = {
        row["planner"]: row["parameters"] for row in answer("schemes", "--json")["planners"]
    }
    assert planners["mixed"]["max_entries"] == 3000


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([*PLANNED, "mxied", "--intervals", "3"], "did you mean 'mixed'?"),
        ([*PLANNED, "mixed:resolution=3", "--intervals", "3"], "power of two"),
        ([*PLANNED, "mixed"], "the length of an interval is unknown"),
        ([*PLANNED, "mixed", "--interval", "9", "--agreement"], "--agreement cannot be used"),
        ([*PLANNED, "mixed", "--interval", "9", "--service-us", "9"], "a finite arrival rate"),
        (
            [*PLANNED, "mixed", "--interval", "9", "--fallback", "key", "--change", "9:+"],
            "with the fallback 'key' workers cannot change: use 'consistent'",
        ),
        (["simulate", "--stream", SMALL, "--intervals", "3"], "--intervals needs --planners"),
        ([*TINY, "--planners", "redj"], "did you mean 'readj'?"),
        ([*TINY, "--resolution", "3"], "power of two"),
    ],
)
def test_bad_plans_are_one_line_and_exit_code_2(arguments: list[str], complaint: str) -> None:
    test_bad_input_is_one_line_and_exit_code_2(arguments, complaint)


def test_an_interval_of_no_records_is_refused() -> None:
    arguments = ["simulate", "--stream", SMALL, "--schemes", "key", "--interval", "0"]
    test_bad_input_is_one_line_and_exit_code_2(arguments, "interval must be at least 1, got 0")


def test_planners_over_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "no.txt").write_text("")
    arguments = ["--stream", str(tmp_path / "no.txt"), "--planners", "mixed", "--interval", "9"]
    test_bad_input_is_one_line_and_exit_code_2(["simulate", *arguments], "the stream is empty")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.csv").write_text("key,x\n")
    arguments = ["simulate", "--stream", str(tmp_path / "no.csv"), "--schemes", "key"]
    test_bad_input_is_one_line_and_exit_code_2(arguments, "the stream is empty")


def test_no_column_is_guessed(tmp_path: Path) -> None:
    flights = tmp_path / "flights.csv"
    flights.write_text("date,origin\n1,JFK\n2,LHR\n")
    arguments = ["simulate", "--stream", str(flights), "--schemes", "key"]
    complaint = f"date, origin? Name it, as in {flights}:key=date"
    test_bad_input_is_one_line_and_exit_code_2(arguments, complaint)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("demo --workers 0", "workers must be at least 1, got 0"),
        ("demo --scheme nope", "nope"),
        ("demo --batch-records 0", "batch-records must be at least 1"),
        ("bench spark --schemes nope", "nope"),
        ("compare vwap --stream rate://10", "compare needs a stream that ends"),
        ("run vwap --stream /no/such.parquet", "no such file or folder"),
        ("run vwap --columns symbl=key", "a generated stream has the columns of the application"),
        ("run vwap --stream ftp://x", "unknown source ftp://"),
        ("run vwap --stream kafka://localhost/trades", "needs a host and a port"),
        ("run vwap --stream {trades} --columns symbol=sym", "no column 'sym': it has name, price"),
    ],
)
def test_bad_jobs_are_refused_before_spark_starts(
    arguments: str, complaint: str, tmp_path: Path
) -> None:
    trades = tmp_path / "trades.csv"
    trades.write_text("name,price\na,1\n")
    words = arguments.format(trades=trades).split()
    test_bad_input_is_one_line_and_exit_code_2(words, complaint)


def test_a_broker_that_does_not_answer_is_an_error_at_once() -> None:
    done = unskew("run", "hashtags", "--stream", "kafka://127.0.0.1:9/tags")
    assert done.returncode == 1
    assert done.stderr == (
        "unskew: no Kafka broker answers at 127.0.0.1:9: start it, or check the address\n"
    )


def test_the_help_names_the_connector_of_the_installed_spark() -> None:
    assert f"kafka-0-10_2.13:{version('pyspark')}" in unskew("run", "--help").stdout


@pytest.mark.parametrize("command", ["apps", "demo", "run word-count", "compare vwap"])
def test_a_command_names_the_extra_that_it_needs(command: str, tmp_path: Path) -> None:
    # As in an environment without PySpark: the import fails.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nclass Finder:\n"
        "    def find_spec(self, name, *args):\n"
        "        if name.partition('.')[0] in ('pyspark', 'pandas'):\n"
        "            raise ModuleNotFoundError(f'No module named {name}', name=name)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *command.split()],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "pip install 'unskew[spark]'" in done.stderr
    assert done.stderr.count("\n") == 1
