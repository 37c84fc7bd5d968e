"""A short run of the consistency checker; `make torture` runs it for as long as wished."""

import os
import time
from pathlib import Path

from tests.journeys.torture.run import Options, torture


def test_nothing_acknowledged_is_lost_and_every_answer_fits_while_everything_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("TURNLOG_TEST_SEED") or time.time_ns() % 1_000_000)

    report = torture(Options(seed=seed, seconds=6, clients=6, kept=2), tmp_path)

    assert report.faults == [], f"TURNLOG_TEST_SEED={seed}\n{report}"
    assert report.calls["append"]["ok"] > 0
    assert report.calls["view"]["ok"] > 0
    assert len(report.done) >= 3, report.done
