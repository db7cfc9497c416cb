"""Write docs/algorithms/README.md, the table of all algorithms, from what their classes say.

python docs/make_algorithm_index.py

The column of times appears if docs/algorithms/times.jsonl exists, with lines for every algorithm,
PPO among them:

cspo bench train SafetyHalfCheetahVelocity-v1 --algo ppo --json >> docs/algorithms/times.jsonl
"""

from __future__ import annotations

import json
from pathlib import Path

from cspo.algorithms import algorithm_names, get_algorithm
from cspo.runs.files import write_text

DOCS = Path(__file__).parent
PAGE, TIMES = DOCS / "algorithms" / "README.md", DOCS / "algorithms" / "times.jsonl"
TEXT = """# The algorithms

Each is one short file that reads like its paper; the name leads to its page, or to the file where
there is none. `cspo train TASK --algo NAME` trains one, `cspo train --algo NAME --help` lists its
settings, and [own-algorithm.md](../own-algorithm.md) tells how to add yours.
`python docs/make_algorithm_index.py` writes this page.

{table}

- **Order**: first-order algorithms take gradient steps on minibatches, in several passes;
  second-order ones take one step per epoch within a trust region, on all samples.
- **Limits**: what holds the cost down. A dual variable (multiplier) moves with the violation from
  epoch to epoch; a penalty or barrier is a term of the loss; a projection corrects the step.
- **Feasible start**: whether it relies on a policy that keeps the limits from the beginning. It
  runs without one too, but is not made to find the way back.
- **K > 1**: whether it takes several limits at once.
{times}"""

NOTE = """- **Epoch**: time of an epoch relative to PPO on HalfCheetah, rollout and logging included
  and without the KL stop, so that every method does all its passes (CUP twice as many as the
  others). The least of five sittings each, in `times.jsonl`, by
  `cspo bench train SafetyHalfCheetahVelocity-v1 --algo NAME --json`. Single sittings differ by up
  to a third on a shared machine.
"""


def main() -> None:
    """Write the page."""
    write_text(PAGE, page())


def page() -> str:
    """Return the text of docs/algorithms/README.md."""
    times = _times()
    head = ["Algorithm", "What it does", "Order", "Limits", "Feasible start", "K > 1"]
    head += ["Epoch"] if times else []
    rows = [_row(name, times) for name in algorithm_names()]
    lines = [f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows]]
    note = NOTE if times else ""
    return TEXT.format(table="\n".join(lines), times=note)


def _row(name: str, times: dict[str, float]) -> list[str]:
    cls = get_algorithm(name)
    order, limits, feasible_start, several_limits = cls.traits
    cells = [f"[`{name}`]({_target(name, cls.__module__)})", cls.summary, order, limits]
    cells += ["needed" if feasible_start else "no", "yes" if several_limits else "no"]
    if times:
        cells.append(f"{times[name] / times['ppo']:.2f}" if name in times else "")
    return cells


def _target(name: str, module: str) -> str:
    """Return the link to the page of an algorithm, or to its file."""
    for target in (f"{name}.md", f"{module.rpartition('.')[2]}.md", f"../{name}.md"):
        if (PAGE.parent / target).exists():
            return target
    return f"../../src/{module.replace('.', '/')}.py"


def _times() -> dict[str, float]:
    """Return the seconds of an epoch by algorithm, the least measured; nothing if none were."""
    if not TIMES.exists():
        return {}
    rows = [
        json.loads(line) for line in TIMES.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    return {
        name: min(row["epoch_s"] for row in rows if row["algo"] == name)
        for name in {row["algo"] for row in rows}
    }


if __name__ == "__main__":
    main()
