"""The floors of the ingress bench: what its figures have to be, and how they are told."""

from __future__ import annotations

from bench.support import Report

# By KiB: bytes of a body, requests a second, share of the database's own inserts.
SIZES = {2: (2048, 2_500.0, 0.15), 11: (11 * 1024, 1_200.0, 0.12)}
FLOOR_P99, FLOOR_REFUSED, FLOOR_DUPLICATE_P99 = 0.1, 5_000.0, 0.05
# Memory may grow by this while the overload lasts, in MiB.
FLAT_MIB = 64.0


def tell(
    report: Report, figures: dict[str, list[float]], overload: dict[str, float], capacity: float
) -> None:
    """Print figures and ratios, and judge the floors."""
    for kib, (_, floor, share) in SIZES.items():
        limit = report.figure(f"pgbench {kib} KB", figures[f"pgbench {kib} KB"], "inserts/s")
        rate = report.figure(f"accepted {kib} KB", figures[f"accepted {kib} KB"], "requests/s")
        p99 = report.figure(f"p99 {kib} KB", figures[f"p99 {kib} KB"], "s")
        plain = report.figure(f"unbatched {kib} KB", figures[f"unbatched {kib} KB"], "requests/s")
        report.figure(
            f"accepted {kib} KB, dispatching",
            figures[f"accepted {kib} KB, dispatching"],
            "requests/s",
        )
        report.ratio(f"accepted / pgbench, {kib} KB", rate / limit)
        report.ratio(f"accepted / unbatched, {kib} KB", rate / plain)
        report.require(rate >= floor, f"{floor:.0f} requests/s accepted at {kib} KB")
        report.require(rate >= share * limit, f"{share:.2f} of pgbench at {kib} KB")
        report.require(p99 < FLOOR_P99, f"p99 under {FLOOR_P99 * 1000:.0f} ms at {kib} KB")
    refused = report.figure("bad signatures", figures["bad signatures"], "requests/s")
    report.require(refused >= FLOOR_REFUSED, f"{FLOOR_REFUSED:.0f} bad signatures/s")
    report.figure("duplicates", figures["duplicates"], "requests/s")
    p99 = report.figure("p99 duplicates", figures["p99 duplicates"], "s")
    report.require(p99 < FLOOR_DUPLICATE_P99, "duplicates p99 under 50 ms")
    report.figure("overload: answered as safe", [overload["safe"]], "requests")
    report.figure("overload: memory", [overload["memory"]], "MiB")
    report.figure("overload: memory grown", [overload["grown"]], "MiB")
    after = report.figure("after the overload", figures["after the overload"], "requests/s")
    report.require(overload["lost"] == 0, "nothing answered as safe is lost")
    report.require(overload["errors"] == 0, "no 5xx but 503 under overload")
    report.require(overload["grown"] <= FLAT_MIB, "memory flat under overload")
    report.require(after >= 0.8 * capacity, "normal after the overload")
