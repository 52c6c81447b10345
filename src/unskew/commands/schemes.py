"""Schemes as the commands accept them, optionally with a routing, and their checks."""

from __future__ import annotations


def routed_schemes(text: str, routing: str | None = None) -> list[tuple[str, str | None]]:
    """Return schemes with their routing: the one after ``@``, or the one for all schemes.

    Examples
    --------
    >>> routed_schemes("key,fish:alpha=0.5@online", "planned")
    [('key', 'planned'), ('fish:alpha=0.5', 'online')]
    """
    chosen = []
    for part in text.split(","):
        scheme, at, own = part.strip().partition("@")
        chosen.append((scheme, own if at else routing))
    return chosen


def check_balancer(scheme: str, routing: str | None, workers: int) -> None:
    """Refuse bad arguments of a balancer before Spark starts."""
    from unskew.spark import Balancer
    from unskew.state import whole

    whole("workers", workers, 1)
    Balancer(scheme, routing=routing)
