"""`make torture`: the consistency checker for as long as wished, with one seed or one after the other."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.journeys.torture.run import Options, torture


def main() -> int:
    """Run it once or several times, and return 1 when anything did not fit."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--seed", type=int, help="whose choices to make; one by the clock unless given")
    parser.add_argument("--seconds", type=float, default=120, help="how long to torture, for each seed")
    parser.add_argument("--clients", type=int, default=8, help="how many clients at once")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, each one more than the one before")
    parser.add_argument("--folder", type=Path, help="where history and output are saved when something is wrong")
    given = parser.parse_args()
    first = given.seed if given.seed is not None else time.time_ns() % 1_000_000
    bad = False
    for seed in range(first, first + given.runs):
        options = Options(seed=seed, seconds=given.seconds, clients=given.clients)
        say(f"seed {seed}, {given.seconds:g} seconds")
        folder = Path(tempfile.mkdtemp(prefix=f"torture-{seed}-", dir=given.folder))
        report = torture(options, folder)
        say(str(report))
        bad = bad or bool(report.faults)
    return int(bad)


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
