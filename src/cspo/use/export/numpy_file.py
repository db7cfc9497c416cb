"""A policy as one Python file of plain NumPy: `standalone.py`, followed by its numbers.

The code of such a file is always the same. A stranger's file is read only if its code is that, byte
for byte, and what follows nothing but data.
"""

from __future__ import annotations

import base64
import io
import json
import re
import textwrap
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.envs.described import EXACT, Leaf
from cspo.errors import CspoError
from cspo.use.export.recipe import Recipe

EMPTY = 'DATA = ""\n'
FILLED = re.compile(rb'DATA = """\n([A-Za-z0-9+/=\n]*)"""\n')


def numpy_file(recipe: Recipe, card: dict[str, Any]) -> bytes:
    """Return the file."""
    if recipe.layers is None:
        raise CspoError(
            "A network in PyTorch cannot be written in plain NumPy: only the compiled MLP can. "
            "Use --to onnx or --to torchscript."
        )
    arrays: dict[str, NDArray[Any]] = {
        "card": _text(card),
        "spec": _text(_spec(recipe)),
        "std": recipe.std,
        "half_range": recipe.half_range,
        "centre": recipe.centre,
    }
    for name in ("mean", "inverse_std", "bound", "low", "high"):
        if (array := getattr(recipe, name)) is not None:
            arrays[name] = array
    for i, (weight, bias) in enumerate(recipe.layers):
        arrays |= {f"weight_{i}": weight, f"bias_{i}": bias}
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    lines = textwrap.wrap(base64.b64encode(packed.getvalue()).decode(), 100)
    data = "\n".join(lines)
    return _code() + f'DATA = """\n{data}\n"""\n'.encode()


def read_numpy_file(content: bytes, trusted: bool) -> Any:
    """Return the `Policy` of a file, whose code must be ours unless it is trusted."""
    code = _code()
    if not trusted and not (content.startswith(code) and FILLED.fullmatch(content[len(code) :])):
        raise CspoError(
            "The code in this file is not what this version of cspo writes, and would be run. If "
            "you know it, add --trust."
        )
    names: dict[str, Any] = {"__name__": "policy"}
    exec(compile(content, "policy.py", "exec"), names)
    return names["Policy"]


def card_of(content: bytes) -> str:
    """Return the card of a file, without running it."""
    if (found := FILLED.search(content)) is None:
        raise ValueError("it holds no data")
    packed = io.BytesIO(base64.b64decode(found[1]))
    with np.load(packed, allow_pickle=False) as file:
        return str(file["card"].tobytes().decode())


def _code() -> bytes:
    """Return the part of the file that is always the same."""
    source = (files("cspo.use.export") / "standalone.py").read_text(encoding="utf-8")
    assert source.endswith(EMPTY)
    return source.removesuffix(EMPTY).encode()


def _text(data: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(data).encode(), np.uint8)


def _spec(recipe: Recipe) -> dict[str, Any]:
    """Return what the code has to know besides the arrays."""
    assert recipe.layers is not None
    seen, done = recipe.seen, recipe.done
    return {
        "deterministic": recipe.deterministic,
        "gaussians": recipe.distribution.gaussians,
        "choices": list(recipe.distribution.choices),
        "layers": len(recipe.layers),
        "seen_tree": _tree(seen.description),
        "done_tree": _tree(done.description),
        "seen": [
            _leaf(leaf, port.name) for leaf, port in zip(seen.leaves, recipe.inputs, strict=True)
        ],
        "done": _done(recipe),
    }


def _done(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the leaves of the action, with the columns of numbers or of choices they have."""
    described, number, choice = [], 0, 0
    for leaf, port in zip(recipe.done.leaves, recipe.outputs, strict=False):
        own = _leaf(leaf, port.name)
        own["open"] = [i for i, options in enumerate(leaf.options) if options > 1]
        size = len(own["open"]) if leaf.options else leaf.size
        own["begin"] = number if leaf.kind == "box" else choice
        own["end"] = own["begin"] + size
        own["round"] = None
        if leaf.kind == "box":
            number += size
            if np.dtype(leaf.dtype).kind in "iu":
                info = np.iinfo(leaf.dtype)
                own["round"] = [max(int(info.min), -EXACT), min(int(info.max), EXACT)]
        else:
            choice += size
        described.append(own)
    return described


def _leaf(leaf: Leaf, name: str) -> dict[str, Any]:
    return {"name": name, **leaf._asdict()}


def _tree(description: dict[str, Any]) -> Any:
    """Return how leaves are nested: null is one, a list a tuple, an object a dict."""
    if description["kind"] == "tuple":
        return [_tree(part) for part in description["parts"]]
    if description["kind"] == "dict":
        return {name: _tree(part) for name, part in description["parts"]}
    return None
