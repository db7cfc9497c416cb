"""The model card beside an exported file: README.md as model hubs lay it out, and config.json."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from cspo import __version__
from cspo.config import to_dict
from cspo.runs.plain import read_json_table, without_nan
from cspo.runs.summary import commit
from cspo.use.evaluate import EvaluationRow
from cspo.use.export.compare import Comparison
from cspo.use.export.names import FORMAT
from cspo.use.export.recipe import Port, Recipe
from cspo.use.load import TrainedPolicy

USES = {
    "onnx": """```python
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("policy.onnx")
outputs = session.run(None, {inputs})
action = outputs[0]  # {first}, a batch of one
```""",
    "torchscript": """```python
import torch

policy = torch.jit.load("policy.pt")
outputs = policy({arguments})
action = outputs["{first}"]  # a batch of one
```""",
    "numpy": """```python
from policy import Policy  # needs numpy, and nothing else

policy = Policy(seed=0)
action, _ = policy.predict(observation)  # as the environment gives it, or a batch of them
```""",
}


def card_of_policy(policy: TrainedPolicy, recipe: Recipe) -> dict[str, Any]:
    """Return what is kept inside of the file: all that is needed to evaluate it."""
    config = policy.config
    return {
        "format": FORMAT,
        "cspo_version": __version__,
        "task": config.task,
        "algorithm": config.algo,
        "seed": config.seed,
        "epochs": policy.epoch,
        "steps": policy.epoch * config.steps_per_epoch,
        "deterministic": recipe.deterministic,
        "inputs": [_plain(port) for port in recipe.inputs],
        "outputs": [_plain(port) for port in recipe.outputs],
        "observation_space": recipe.seen.description,
        "action_space": recipe.done.description,
        "actions_cut_off_at_their_bounds": recipe.clips,
        "cost_names": list(policy.cost_names),
        "cost_limit": policy.cost_limit.tolist(),
        "settings": to_dict(config),
    }


def _plain(port: Port) -> dict[str, Any]:
    return {**port._asdict(), "shape": ["batch", *port.shape]}


def results_of(
    policy: TrainedPolicy, run: Path | None, row: EvaluationRow | None, seed: int | None
) -> dict[str, Any]:
    """Return what the policy achieves: from an evaluation, or else from the run's summary."""
    summary = {} if run is None else read_json_table(run / "summary.json")
    trained_at = summary.get("commit")
    commits = {"trained_at_commit": trained_at, "exported_at_commit": commit()}
    if row is not None:
        data: dict[str, Any] = without_nan(dataclasses.asdict(row))
        used = policy.config.seed if seed is None else seed
        return {"source": "evaluation", "evaluation_seed": used, **data, **commits}
    if summary.get("epochs") != policy.epoch:  # of another checkpoint, or there is none
        return {"source": "none", **commits}
    names = ("episode_return", "cost_names", "cost", "cost_limit", "episode_length")
    return {"source": "summary", **{name: summary.get(name) for name in names}, **commits}


def config_json(card: dict[str, Any], results: dict[str, Any], same: Comparison, file: str) -> str:
    """Return config.json."""
    data = {**card, "file": file, "results": results, "comparison": dataclasses.asdict(same)}
    return json.dumps(data, indent=2) + "\n"


def readme(card: dict[str, Any], results: dict[str, Any], same: Comparison, kind: str) -> str:
    """Return README.md: a header that hubs read, and what people read."""
    mode = "deterministic" if card["deterministic"] else "stochastic"
    title = f"{card['algorithm']} on {_inline(card['task'])}"
    parts = [
        _header(card, results),
        f"# {title}",
        f"A {mode} policy, trained with cspo {__version__}: "
        f"algorithm {card['algorithm']}, seed {card['seed']}, {card['steps']:,} steps. Everything "
        "between raw observations and raw actions is in the file.",
        "## What it achieves",
        _achieved(card, results),
        f"Commit of the training: {_known(results['trained_at_commit'])}; "
        f"of the export: {_known(results['exported_at_commit'])}.",
        "## Use it",
        _use(card, kind),
        "## Inputs and outputs",
        _ports(card),
        "## Fidelity",
        fidelity(same),
    ]
    return "\n\n".join(parts) + "\n"


def _header(card: dict[str, Any], results: dict[str, Any]) -> str:
    """Return the YAML between the dashes; JSON strings are YAML."""
    lines = ["---", "library_name: cspo", "pipeline_tag: reinforcement-learning", "tags:"]
    tags = ("reinforcement-learning", "safe-reinforcement-learning", card["algorithm"])
    lines += [f"- {json.dumps(tag)}" for tag in (*tags, card["task"])]
    if results["source"] != "evaluation":
        return "\n".join([*lines, "---"])
    task = json.dumps(card["task"])
    lines += ["model-index:", f"- name: {json.dumps(card['algorithm'])}", "  results:", "  - task:"]
    lines += ["      type: reinforcement-learning", "    dataset:"]
    lines += [f"      name: {task}", f"      type: {task}", "    metrics:"]
    named = [("mean_reward", results["episode_return"])]
    named += list(zip(_cost_labels(card), results["cost"], strict=True))
    for name, value in named:
        lines += [f"    - type: {json.dumps(name)}", f"      value: {json.dumps(value['mean'])}"]
    return "\n".join([*lines, "---"])


def _cost_labels(card: dict[str, Any]) -> list[str]:
    names = card["cost_names"]
    return ["mean_cost"] if len(names) == 1 else [f"mean_{name}" for name in names]


def _achieved(card: dict[str, Any], results: dict[str, Any]) -> str:
    if results["source"] == "none":
        return "Not measured: export with `--episodes 20` to have it here."
    measured = results["source"] == "evaluation"
    rows = ["| | mean | 95 % interval | limit |", "|---|---|---|---|"]
    rows.append(_row("return", results["episode_return"], "", measured))
    for name, cost, limit in zip(
        results["cost_names"], results["cost"], card["cost_limit"], strict=True
    ):
        rows.append(_row(_inline(name), cost, f"{limit:g}", measured))
    if measured:
        told = (
            f"Measured by the export on {results['episodes']} complete episodes, acting "
            f"{'deterministically' if results['mode'] == 'deterministic' else 'stochastically'} "
            f"(seed {results['evaluation_seed']}, bootstrapped intervals)."
        )
    else:
        told = "Read from the run's summary: means over its last episodes of training, which acts "
        told += "stochastically. The export measured nothing, so there is no interval."
    return "\n".join([*rows, "", told])


def _row(name: str, value: Any, limit: str, measured: bool) -> str:
    if not measured:
        return f"| {name} | {_number(value)} | - | {limit} |"
    interval = f"[{_number(value['low'])}, {_number(value['high'])}]"
    return f"| {name} | {_number(value['mean'])} | {interval} | {limit} |"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.2f}"


def _known(value: Any) -> str:
    return "unknown" if value is None else f"`{value}`"


def _inline(text: str) -> str:
    """Return a name as code, in which nothing has a meaning."""
    return f"`{text.replace('`', chr(39)).replace('|', '/')}`"


def _use(card: dict[str, Any], kind: str) -> str:
    arrays = {
        port["name"]: f"np.zeros({(1, *port['shape'][1:])}, np.{port['dtype']})"
        for port in card["inputs"]
    }
    inputs = ", ".join(f"{json.dumps(name)}: {array}" for name, array in arrays.items())
    arguments = ", ".join(f"torch.from_numpy({array})" for array in arrays.values())
    code = USES[kind].replace("{inputs}", f"{{{inputs}}}").replace("{arguments}", arguments)
    code = code.replace("{first}", card["outputs"][0]["name"])
    return code.replace("import torch\n", "import numpy as np\nimport torch\n")


def _ports(card: dict[str, Any]) -> str:
    rows = ["| | name | shape | type | |", "|---|---|---|---|---|"]
    for what in ("inputs", "outputs"):
        for port in card[what]:
            shape = f"({', '.join(map(str, port['shape']))})"
            name, dtype, content = _inline(port["name"]), port["dtype"], port["content"]
            rows.append(f"| {what[:-1]} | {name} | {shape} | {dtype} | {content} |")
    cut = "cut off at their bounds" if card["actions_cut_off_at_their_bounds"] else "not cut off"
    return "\n".join([*rows, "", f"Actions are in the environment's units, and {cut}."])


def fidelity(same: Comparison) -> str:
    """Return how far the file is from the policy, in a sentence."""
    kind = "recorded" if same.recorded else "drawn"
    parts = [f"{same.distribution:.1e} in means and logits"]
    if same.action is not None:
        parts.insert(0, f"{same.action:.1e} in actions")
    if same.choices:
        parts.append(f"{same.different_choices} of {same.choices} choices")
    verdict = "" if same.same else ": it does NOT act as the policy does"
    where = f"on {same.observations} {kind} observations"
    limit = f"(tolerance {same.tolerance:g}, relative)"
    return f"Largest difference from the policy {where}: {', '.join(parts)} {limit}{verdict}."
