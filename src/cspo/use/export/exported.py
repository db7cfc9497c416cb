"""Exported files, read again: for `cspo eval`, and to compare them with the policy.

A file may come from anybody. Its card is read as data and imports nothing. An ONNX file is data;
the code of a NumPy file is run only if it is ours; TorchScript is a program, which is run only if
it was exported here by this user, or is trusted.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.config import from_dict
from cspo.envs.layout import ActionLayout, ObservationLayout
from cspo.errors import CspoError
from cspo.runs import trust
from cspo.runs.files import read_bytes
from cspo.runs.plain import parse_json
from cspo.types import FloatArray
from cspo.use.acting import Acting
from cspo.use.export.names import CARD, FORMAT, KEY, SUFFIXES
from cspo.use.export.numpy_file import card_of, read_numpy_file

LARGEST = 2**31  # bytes
Arrays = dict[str, NDArray[Any]]
Runner = Callable[[Arrays], Arrays]


class ExportedPolicy(Acting):
    """An exported file that acts.

    Attributes:
        card: What the file says of itself.
        format: "onnx", "torchscript" or "numpy".
        deterministic: Whether it takes means and most probable options, or draws.
    """

    def __init__(self, card: dict[str, Any], path: Path, content: bytes, trusted: bool) -> None:
        """Read a file with this card; `trusted` allows it to be run whatever it is."""
        self.card, self.format = card, _format_of(path)
        self.config = from_dict(card["settings"], path.absolute())
        self.deterministic = card["deterministic"]
        self.modes = (self.deterministic,)
        self.observation_layout = ObservationLayout(card["observation_space"])
        self.action_layout = ActionLayout(card["action_space"])
        self.observation_size = self.observation_layout.size
        self.action_size = self.action_layout.size
        self.action_choices = self.action_layout.choices
        self.cost_names = tuple(card["cost_names"])
        self.cost_limit = np.array(card["cost_limit"], dtype=float)
        self._inputs = [str(port["name"]) for port in card["inputs"]]
        self._outputs = [str(port["name"]) for port in card["outputs"]]
        self._content, self._trusted = content, trusted
        self._run = self._runner(None)

    def _runner(self, seed: int | None) -> Runner:
        """Return what maps inputs by name to outputs by name."""
        if self.format == "onnx":
            return _onnx_runner(self._content, seed)
        if self.format == "numpy":
            policy = read_numpy_file(self._content, self._trusted)(seed)
            run: Runner = policy.run
            return run
        return _script_runner(self._content, self._trusted, seed)

    def seed(self, seed: int) -> None:
        """Start the stream that stochastic actions are drawn from anew."""
        if not self.deterministic:
            self._run = self._runner(seed % 2**31)

    def results(self, rows: FloatArray) -> tuple[FloatArray, Arrays]:
        """Return flat actions (B, A) for flat observations (B, D), and all outputs by name."""
        values = self.observation_layout.unflatten(rows)
        outputs = self._run(dict(zip(self._inputs, values, strict=True)))
        leaves = [outputs[name] for name in self._outputs[: len(self.action_layout.leaves)]]
        return self.action_layout.encode_leaves(leaves), outputs

    def act(self, rows: FloatArray, *, deterministic: bool = True) -> FloatArray:
        """Return flat actions (B, A) for flat observations (B, D)."""
        if deterministic != self.deterministic:
            mode = "deterministically" if self.deterministic else "stochastically"
            raise CspoError(f"This file was exported to act {mode}, and cannot otherwise.")
        return self.results(rows)[0]


def load_exported(path: Path | str, *, trust: bool = False) -> ExportedPolicy:
    """Return the policy in a file that `cspo export` wrote.

    Args:
        path: The file.
        trust: Run it whatever it is; see SECURITY.md.
    """
    path = Path(path)
    try:
        content = read_bytes(path, LARGEST)
    except OSError as error:
        raise CspoError(f"Cannot read {path}: {error.strerror}.") from error
    try:
        return ExportedPolicy(_checked_card(_read_card(path, content)), path, content, trust)
    except CspoError as fault:
        raise CspoError(f"{path}: {fault}") from fault
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        said = f"{type(fault).__name__}: {fault}"
        raise CspoError(f"{path} is not a file that cspo exported, or damaged ({said}).") from fault


def is_exported(path: Path | str) -> bool:
    """Whether a path looks like an exported file, and not like a run's folder."""
    return Path(path).suffix in SUFFIXES.values() and not Path(path).is_dir()


def _format_of(path: Path) -> str:
    for name, suffix in SUFFIXES.items():
        if path.suffix == suffix:
            return name
    raise CspoError(f"the name of an exported file ends with {', '.join(SUFFIXES.values())}.")


def _read_card(path: Path, content: bytes) -> Any:
    """Return what a file says of itself, without running it."""
    kind = _format_of(path)
    if kind == "numpy":
        return parse_json(card_of(content))
    if kind == "torchscript":
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                (name,) = (n for n in archive.namelist() if n.endswith(f"/extra/{CARD}"))
                return parse_json(archive.read(name).decode())
        except zipfile.BadZipFile as fault:
            raise ValueError(str(fault)) from fault
    session = _onnx_session(content)
    return parse_json(session.get_modelmeta().custom_metadata_map[KEY])


def _checked_card(card: Any) -> dict[str, Any]:
    """Refuse a card with something missing, or of another kind; spaces are read strictly later."""
    kinds: dict[str, Any] = {
        **{"format": str, "deterministic": bool, "settings": dict, "inputs": list},
        **{"outputs": list, "observation_space": dict, "action_space": dict},
        **{"cost_names": list, "cost_limit": list},
    }
    for name, kind in kinds.items():
        if not isinstance(card[name], kind):
            raise ValueError(f"its {name} is of a wrong kind")
    if card["format"] != FORMAT:
        raise ValueError(f"its format is {card['format']!r:.40}, not {FORMAT!r}")
    if not all(isinstance(name, str) for name in card["cost_names"]):
        raise ValueError("its cost_names are no names")
    if len(card["cost_names"]) != len(card["cost_limit"]):
        raise ValueError("it has not one limit for each cost")
    checked: dict[str, Any] = card
    return checked


def _onnx_session(content: bytes) -> Any:
    try:
        import onnxruntime
    except ImportError:
        install = "pip install 'cspo[export]'"
        raise CspoError(f"ONNX files need the package onnxruntime: {install}") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as fault:  # its own kinds, which say what is wrong with the file
        raise ValueError(f"onnxruntime cannot read it: {fault}") from fault


def _onnx_runner(content: bytes, seed: int | None) -> Runner:
    session = _onnx_session(content)
    if seed is not None:
        import onnxruntime

        onnxruntime.set_seed(seed)  # which new sessions begin with
        session = _onnx_session(content)
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def _script_runner(content: bytes, trusted: bool, seed: int | None) -> Runner:
    if not trusted and not trust.is_own_file(content):
        raise CspoError(
            "it was not exported here by you, and TorchScript is a program that would be run. If "
            "you know its author, add --trust."
        )
    try:
        from cspo.use.export.torch_script import ScriptRunner
    except ImportError:
        raise CspoError("TorchScript needs PyTorch: pip install 'cspo[torch]'") from None
    return ScriptRunner(content, seed)
