"""Every run in a row of its own, so that no average hides one."""

from __future__ import annotations

from cspo.lab.metrics import spread
from cspo.lab.report import paper
from cspo.lab.report.formats import Table, fixed, yes_no
from cspo.lab.report.looks import name_of
from cspo.lab.report.results import Cell, Results
from cspo.lab.report.tables import identity, list_of, notes_of

MEANS = (
    "Return and cost: means over the last fifth of a run, at most 100 epochs. #V and VF: violating "
    "epochs after the first 30 % of training, and their share. Worst: the greatest cost then."
)


def seeds_table(results: Results) -> Table:
    """Return, cost and violations run by run, and their means where there are several seeds."""
    rows, records = [], []
    for cell in results.cells:
        runs = _by_seed(cell)
        for seed, values in runs.items():
            rows.append(_row(cell, str(seed), values))
            records.append(identity(cell) | {"seed": seed} | values)
        if len(runs) > 1:
            means = {name: spread([v[name] for v in runs.values()]).mean for name in values}
            rows.append(_row(cell, "mean", means))
    return list_of("seeds", "Every run", rows, records, [MEANS, *notes_of(results)])


def _by_seed(cell: Cell) -> dict[int, dict[str, float]]:
    """Return the numbers of each run of a cell."""
    lasts = zip(cell.runs, cell.last_returns, cell.last_costs, strict=True)
    return {
        run.seed: {
            "return": spread(returns).mean,
            "cost": spread(costs).mean,
            "violating_epochs": float(run.recovery.violating_epochs),
            "vf": run.recovery.vf,
            "worst": cell.limit + run.recovery.worst,
        }
        for run, returns, costs in lasts
    }


def _row(cell: Cell, seed: str, values: dict[str, float]) -> dict[str, str]:
    return {
        "Task": paper.task_name(cell.task),
        "Algorithm": name_of(cell.label),
        "Seed": seed,
        "Return": fixed(values["return"], 2),
        "Cost": fixed(values["cost"], 1),
        "Limit": f"{cell.limit:g}",
        "Kept": yes_no(values["cost"] <= cell.limit),
        "#V": fixed(values["violating_epochs"], 0 if seed != "mean" else 1),
        "VF": fixed(values["vf"], 3),
        "Worst": fixed(values["worst"], 1),
    }
