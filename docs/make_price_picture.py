"""Draw docs/cspo-brake.png: how the price leads the cost of one archived run up to its limit.

python docs/make_price_picture.py [RUN]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from cspo.lab.report.figures import render
from cspo.lab.report.panels import STYLE, new_figure
from cspo.runs.files import write_bytes
from cspo.runs.progress import progress_file, read_progress

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "results" / "delta-confirm" / "runs" / "SafetyHalfCheetahVelocity-v1-cspo-seed75"
ORANGE, BLUE, GREEN, PINK, GREY = "#d55e00", "#0072b2", "#009e73", "#aa4499", "#777777"


def main(run: Path = RUN) -> None:
    """Draw three panels: the cost, the price with its parts, sensitivity and gain."""
    import matplotlib as mpl

    table = {name: np.array(values) for name, values in read_progress(progress_file(run)).items()}
    epoch = table["epoch"]
    with mpl.rc_context(STYLE):
        figure, panels = new_figure(3, 1, 7.2, 2.1, sharex=True)
        cost, price, plant = panels[:, 0]
        cost.plot(epoch, table["cost_epoch"], ".", color=GREY, markersize=3, label="of the epoch")
        cost.plot(epoch, table["cost_level"], color=ORANGE, label="level J")
        cost.plot(epoch, table["cost_limit"], "--", color="black", label="limit")
        target = table["cost_limit"] - table["margin"]
        cost.plot(epoch, target, ":", color="black", label="limit less margin")
        cost.set_ylabel("cost of an episode")
        begin = table["cost_level"] > 0.1 * table["cost_limit"]  # before that, prices say nothing
        parts = {"price_rho": BLUE, "price_delta": GREEN, "price_push": PINK}
        lowest = np.maximum(table["price_push"], -table["price_rho"] - table["price_delta"])
        shown = table | {"price_push": lowest}
        natural = table["price_natural"][begin]  # falls a hundredfold as the cost begins to count
        price.plot(epoch[begin], table["multiplier"][begin] / natural, color=ORANGE, label="price")
        for name, colour in parts.items():
            label = name.removeprefix("price_")
            price.plot(epoch[begin], shown[name][begin] / natural, "--", color=colour, label=label)
        price.set_ylabel("price and its parts,\nin natural prices")
        plant.semilogy(epoch[begin], table["sensitivity"][begin], color=BLUE, label="sensitivity S")
        plant.semilogy(epoch[begin], table["gain"][begin], color=PINK, label="gain K")
        plant.set_ylabel("S, K")
        plant.set_xlabel("epoch")
        cost.set_xlim(left=max(0.0, epoch[begin][0] - 15.0))
        for panel in (cost, price, plant):
            panel.legend(fontsize=8, framealpha=0.85, edgecolor="none", ncols=2)
        write_bytes(ROOT / "docs" / "cspo-brake.png", render(figure, "png"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
