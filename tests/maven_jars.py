"""Jars from Maven, resolved once by the Ivy that pyspark carries and kept in a cache folder.

The cache is ``$UNSKEW_CACHE``, or ``~/.cache/unskew``. Ivy asks its default registry, as
Spark's own ``--packages`` does, but not for long; `UnavailableError` says why it got nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyspark

SPARK = Path(pyspark.__file__).parent / "jars"
LIMIT_S = 600
WHYS = ("access error", "not found:")
SETTINGS = """
<ivysettings>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="short" connectionTimeout="5000" readTimeout="15000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="central" m2compatible="true" timeoutConstraint="short"/>
  </resolvers>
</ivysettings>
"""
IVY_FILE = """
<ivy-module version="2.0">
  <info organisation="unskew" module="tests"/>
  <dependencies defaultconf="default->default">
    {}
  </dependencies>
</ivy-module>
"""


class UnavailableError(RuntimeError):
    """Jars are not in the cache, and cannot be resolved."""


def jars(name: str, dependencies: Sequence[str]) -> Path:
    """Return the folder of the cache that has these jars and all that they need.

    Parameters
    ----------
    name
        The folder's; with the versions in it, as a folder that is there is not resolved again.
    dependencies
        Elements of an Ivy file: ``<dependency org=... name=... rev=.../>``.
    """
    cache = Path(os.environ.get("UNSKEW_CACHE") or Path.home() / ".cache/unskew")
    folder = cache / name
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache))
        try:
            _resolve(name, dependencies, work)
            try:
                (work / "jars").rename(folder)
            except OSError:
                # Of two processes that resolve the same, one is first; its folder is as good.
                if not folder.exists():
                    raise
        finally:
            shutil.rmtree(work)
    return folder


def java() -> str:
    """Return the Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin/java")) if home else "java"


def _resolve(name: str, dependencies: Sequence[str], work: Path) -> None:
    settings, ivy_file = work / "settings.xml", work / "ivy.xml"
    settings.write_text(SETTINGS.strip())
    ivy_file.write_text(IVY_FILE.format("\n    ".join(dependencies)).strip())
    (ivy,) = SPARK.glob("ivy-*.jar")
    command = [java(), "-jar", f"{ivy}", "-warn", "-settings", f"{settings}", "-ivy", f"{ivy_file}"]
    command += ["-cache", f"{work}/cache", "-retrieve", f"{work}/jars/[artifact]-[revision].[ext]"]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{name}: not resolved within {LIMIT_S} s") from error
    except subprocess.CalledProcessError as error:
        lines = [line.strip() for line in (error.stdout + error.stderr).splitlines()]
        whys = [line for what in WHYS for line in lines if what in line]
        raise UnavailableError(f"{name}: not resolved: {' '.join(whys[:1] or lines)}") from error
