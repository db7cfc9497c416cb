"""A sink of your own: the numbers of every epoch in an SQLite database.

python my_sink.py --steps 200000 --database epochs.db

A sink is any object with `write(report)` and `close()`. This one may see an epoch twice, after a
kill: the key (run, epoch) makes the second one take the place of the first, which it equals.
"""

import argparse
import sqlite3

import cspo


class SqliteSink:
    """Writes steps, return, cost and limit of every epoch into the table `epochs`."""

    def __init__(self, path: str, run: str) -> None:
        """Open the database, and make the table if there is none."""
        self.run, self.database = run, sqlite3.connect(path)
        columns = "run, epoch, steps, episode_return, cost, cost_limit, PRIMARY KEY (run, epoch)"
        self.database.execute(f"CREATE TABLE IF NOT EXISTS epochs ({columns})")

    def write(self, report: cspo.EpochReport) -> None:
        """Keep one epoch."""
        worst = max(range(len(report.cost)), key=lambda k: report.cost[k] - report.cost_limit[k])
        numbers = report.episode_return, report.cost[worst], report.cost_limit[worst]
        row = (self.run, report.epoch, report.steps, *numbers)
        self.database.execute("INSERT OR REPLACE INTO epochs VALUES (?, ?, ?, ?, ?, ?)", row)
        self.database.commit()

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def main() -> None:
    """Train with the sink."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="SafetyHopperVelocity-v1")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--database", default="epochs.db")
    parser.add_argument("--run-dir", default=None)
    arguments = parser.parse_args()
    sink = SqliteSink(arguments.database, run=arguments.task)
    summary = cspo.train(
        arguments.task, total_steps=arguments.steps, run_dir=arguments.run_dir, sinks=[sink]
    )
    database = sqlite3.connect(arguments.database)
    (count,) = database.execute("SELECT count(*) FROM epochs").fetchone()
    print(f"{count} epoch(s) are in {arguments.database}, the last of {summary.steps} steps.")


if __name__ == "__main__":
    main()
