"""Random settings of a session."""

from __future__ import annotations

from random import Random

PARTITIONS = "spark.sql.shuffle.partitions"
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
ZONES = ("UTC", "America/Los_Angeles", "Asia/Kolkata")


def random_settings(rng: Random, stream: bool = False) -> dict[str, str]:
    """Return settings, mostly without code generation, which takes most of a small query's time."""
    settings = {
        PARTITIONS: str(rng.choice((1, 2, 2, 3, 3, 5) if stream else (1, 2, 3, 4, 5, 7, 8, 16))),
        "spark.sql.ansi.enabled": rng.choice(("true", "false")),
        "spark.sql.session.timeZone": rng.choice(ZONES),
        "spark.sql.adaptive.enabled": rng.choice(("true", "false")),
    }
    if rng.random() < 0.15:
        settings["spark.sql.caseSensitive"] = "true"
    if rng.random() < 0.002 and not stream:
        settings[PARTITIONS] = rng.choice(("200", "1001", "1500"))
    if rng.random() < 0.8:
        settings |= INTERPRETED
    return settings
