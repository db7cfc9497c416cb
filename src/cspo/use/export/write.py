"""`cspo.export`: a trained policy as one file, with a card beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cspo.errors import CspoError
from cspo.runs import trust as trusting
from cspo.runs.files import refuse_link, write_bytes, write_text, writes_to
from cspo.runs.plain import read_json_table
from cspo.types import FloatArray
from cspo.use.acting import Acting
from cspo.use.evaluate import EvaluationRow, evaluate
from cspo.use.export import card as cards
from cspo.use.export.compare import Comparison, compare, drawn_observations
from cspo.use.export.exported import ExportedPolicy
from cspo.use.export.names import FORMAT, KEY, SUFFIXES
from cspo.use.export.recipe import Recipe, recipe_of
from cspo.use.load import TrainedPolicy, load

COMPARED = 1000  # observations at which a file is compared with its policy
STORED = "*.onnx filter=lfs diff=lfs merge=lfs -text\n*.pt filter=lfs diff=lfs merge=lfs -text\n"


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        path: The file.
        comparison: How far it is from the policy.
        results: What the policy achieves, and how that is known: `source` is "evaluation",
            "summary" or "none".
    """

    path: Path
    comparison: Comparison
    results: dict[str, Any]


class _Recorder(Acting):
    """Acts as a policy does, and keeps some of the observations that it sees."""

    def __init__(self, policy: TrainedPolicy) -> None:
        self._policy, self._every, self._calls = policy, 1, 0
        self.config, self.modes = policy.config, policy.modes
        self.observation_size, self.action_size = policy.observation_size, policy.action_size
        self.action_choices, self.cost_names = policy.action_choices, policy.cost_names
        self.cost_limit = policy.cost_limit
        self._rows: list[FloatArray] = []

    def seed(self, seed: int) -> None:
        self._policy.seed(seed)

    def act(self, rows: FloatArray, *, deterministic: bool = True) -> FloatArray:
        if self._calls % self._every == 0:
            self._rows.append(rows.copy())
        self._calls += 1
        if len(self._rows) * len(rows) >= 2 * COMPARED:  # thin out: from all of the time
            self._rows, self._every = self._rows[::2], 2 * self._every
        return self._policy.act(rows, deterministic=deterministic)

    def observations(self) -> FloatArray:
        """Return at most as many as are compared, (B, D)."""
        rows = np.concatenate(self._rows)
        picked = np.linspace(0, len(rows) - 1, min(COMPARED, len(rows))).astype(int)
        return np.asarray(rows[picked])


def export(
    run: Path | str | TrainedPolicy,
    to: Literal["onnx", "torchscript", "numpy"] = "onnx",
    *,
    deterministic: bool = True,
    clip: bool | None = None,
    out: Path | str | None = None,
    episodes: int = 10,
    seed: int | None = None,
    checkpoint: Path | str | int | None = None,
    env: Any = None,
    cost_fn: Any = None,
    policy: Any = None,
    trust: bool = False,
) -> Export:
    """Write a policy as one file that needs no `cspo`, compare it, and write a card beside it.

    Args:
        run: A run's folder, or a policy from `load`.
        to: The format.
        deterministic: Let the file take means and most probable options, or draw as training did.
        clip: As in the call of a policy: cut actions off at their bounds, by default as in
            training.
        out: Folder to write to; by default `export-FORMAT` in the run's folder.
        episodes: On which the policy is measured for its card, and whose observations the file is
            compared on; 0 takes the run's summary and observations drawn from its statistics.
        seed: Of these episodes, as in `evaluate`.
        checkpoint: As in `load`.
        env: As in `evaluate`.
        cost_fn: The cost function, if the run used one.
        policy: As in `load`.
        trust: As in `evaluate`.

    Raises:
        CspoError: If the format cannot hold the policy, or an extra is missing.
    """
    if to not in SUFFIXES:
        raise CspoError(f"--to is one of {', '.join(SUFFIXES)}, not {to!r}.")
    if isinstance(run, TrainedPolicy):
        if out is None:
            raise CspoError("Name a folder, out=, to export a policy that is already loaded.")
        source, trained, folder = None, run, Path(out)
    else:
        source, trained = Path(run), load(run, checkpoint, policy=policy, trust=trust)
        folder = source / f"export-{to}" if out is None else Path(out)
    _check_folder(folder, may_be_link=out is not None)
    recipe = recipe_of(trained, deterministic, clip)
    card = cards.card_of_policy(trained, recipe)
    path, content = folder / f"policy{SUFFIXES[to]}", _content(recipe, card, to)
    file = ExportedPolicy(card, path, content, trusted=True)
    rows, row = _measured(trained, recipe, episodes, seed, env, cost_fn, trust)
    comparison = compare(trained, recipe, file, rows, row is not None)
    results = cards.results_of(trained, source, row, seed)
    page = cards.readme(card, results, comparison, to)
    _write(path, content, page, cards.config_json(card, results, comparison, path.name))
    trusting.remember_file(content)
    return Export(path, comparison, results)


def _write(path: Path, content: bytes, page: str, config: str) -> None:
    """Write the file and what lies beside it, in the layout of a model hub."""
    with writes_to(f"folder {path.parent}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
        write_text(path.with_name("README.md"), page)
        write_text(path.with_name(".gitattributes"), STORED)
        write_text(path.with_name("config.json"), config)


def _content(recipe: Recipe, card: dict[str, Any], to: str) -> bytes:
    """Return the file, made with what its format needs."""
    if to == "numpy":
        from cspo.use.export.numpy_file import numpy_file

        return numpy_file(recipe, card)
    if to == "onnx":
        from cspo.use.export.onnx_graph import onnx_model

        return onnx_model(recipe, {KEY: json.dumps(card)})
    try:
        from cspo.use.export.torch_script import torch_script
    except ImportError:
        raise CspoError("TorchScript needs PyTorch: pip install 'cspo[torch]'") from None
    return torch_script(recipe, json.dumps(card))


def _measured(
    policy: TrainedPolicy,
    recipe: Recipe,
    episodes: int,
    seed: int | None,
    env: Any,
    cost_fn: Any,
    trust: bool,
) -> tuple[FloatArray, EvaluationRow | None]:
    """Return observations (B, D), and what the policy achieved on the way to them."""
    if episodes == 0:
        return drawn_observations(policy, recipe.seen, COMPARED), None
    recorder, mode = _Recorder(policy), recipe.deterministic
    own: Any = {"env": env, "cost_fn": cost_fn, "trust": trust, "deterministic": mode}
    try:
        (row,) = evaluate(recorder, episodes, seed=seed, **own)
    except CspoError as fault:
        advice = "--episodes 0 exports without an environment (episodes=0)."
        raise CspoError(f"{fault}\n{advice}") from fault
    return recorder.observations(), row


def _check_folder(folder: Path, may_be_link: bool) -> None:
    """Refuse a folder whose README.md is somebody else's, and a link in a run."""
    with writes_to(f"folder {folder}"):
        if not may_be_link:
            refuse_link(folder)
        if folder.exists() and not folder.is_dir():
            raise CspoError(f"{folder} is a file: name a folder with --out.")
    taken = any((folder / name).exists() for name in ("README.md", "config.json"))
    if taken and read_json_table(folder / "config.json").get("format") != FORMAT:
        raise CspoError(f"{folder} holds other files: name a new folder with --out.")
