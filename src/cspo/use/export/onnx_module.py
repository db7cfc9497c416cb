"""A network of a user's, in PyTorch, inside of an ONNX graph; needs `cspo[torch]`."""

from __future__ import annotations

import inspect
import io
import warnings
from typing import Any

import torch

from cspo.errors import CspoError, told
from cspo.use.export.onnx_nodes import OPSET, Graph
from cspo.use.export.recipe import DISTRIBUTION, Recipe

PREFIX = "network/"


def add_module(graph: Graph, recipe: Recipe, x: str) -> None:
    """Add the nodes of `recipe.module`, from x (B, *shape) to the distribution's numbers."""
    example, file = torch.zeros(2, *recipe.shape), io.BytesIO()
    batch = {"x": {0: "batch"}, "y": {0: "batch"}}
    # The exporter by tracing needs no further package, and writes the older opset.
    write: Any = torch.onnx.export  # whose types do not know that it takes an open file
    known = inspect.signature(write).parameters
    by_tracing: dict[str, Any] = {"dynamo": False} if "dynamo" in known else {}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            write(
                recipe.module,
                (example,),
                file,
                input_names=["x"],
                output_names=["y"],
                dynamic_axes=batch,
                opset_version=OPSET,
                **by_tracing,
            )
    except Exception as fault:  # of many kinds: operations that ONNX does not have
        said = f"The network cannot be written as ONNX ({told(fault)})"
        raise CspoError(f"{said}: try --to torchscript.") from fault
    model = graph.onnx.load_from_string(file.getvalue())
    inner = graph.onnx.compose.add_prefix(model, PREFIX).graph
    graph("Identity", x, output=f"{PREFIX}x")
    graph.nodes += list(inner.node)
    graph.constants += list(inner.initializer)
    graph("Identity", f"{PREFIX}y", output=DISTRIBUTION)
