"""A policy as an ONNX graph, built node by node; PyTorch is needed for a network in it alone.

All versions of onnxruntime since 1.12 run it (opset 17). Statistics, bounds and whole numbers are
computed in double precision and 64 bits, as in training, the network in single precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.envs.described import EXACT, Leaf
from cspo.use.export.onnx_nodes import IR_VERSION, OPSET, Graph
from cspo.use.export.recipe import DISTRIBUTION, NOISE, Options, Port, Recipe, option_columns


def onnx_model(recipe: Recipe, metadata: dict[str, str]) -> bytes:
    """Return the file."""
    graph = Graph()
    helper = graph.onnx.helper
    raw = [port.name for port in recipe.inputs]
    seen = _network_input(graph, recipe, raw)
    _network(graph, recipe, seen)
    _actions(graph, recipe)
    described = helper.make_graph(
        graph.nodes,
        "policy",
        [_value(graph, port) for port in recipe.inputs],
        [_value(graph, port) for port in recipe.outputs],
        graph.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(described, opset_imports=opsets, producer_name="cspo")
    model.ir_version = IR_VERSION
    helper.set_model_props(model, metadata)
    graph.onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _value(graph: Graph, port: Port) -> Any:
    shape = ["batch", *port.shape]
    value = graph.onnx.helper.make_tensor_value_info(port.name, graph.kind(port.dtype), shape)
    value.doc_string = port.content
    return value


def _network_input(graph: Graph, recipe: Recipe, raw: list[str]) -> str:
    """Return what the network sees: flat, standardised, (B, D) or (B, *shape), float32."""
    if recipe.image:
        pixels = graph.cast(raw[0], "float32")
        return graph("Div", pixels, graph.constant(255.0, np.float32))
    parts = [_flat(graph, leaf, name) for leaf, name in zip(recipe.seen.leaves, raw, strict=True)]
    x = graph.together(parts)
    if recipe.mean is not None:
        x = graph("Sub", x, graph.constant(recipe.mean, np.float64))
        x = graph("Mul", x, graph.constant(recipe.inverse_std, np.float64))
        assert recipe.bound is not None
        x = graph.within(x, -recipe.bound, recipe.bound, "float64")
    x = graph.cast(x, "float32")
    return graph.rows(x, *recipe.shape) if len(recipe.shape) != 1 and recipe.layers is None else x


def _flat(graph: Graph, leaf: Leaf, name: str) -> str:
    """Return the columns (B, width) of a leaf, float64."""
    flat = name if len(leaf.shape) == 1 else graph.rows(name, leaf.size)
    if not leaf.start:
        return flat if leaf.dtype == "float64" else graph.cast(flat, "float64")
    numbers, values = option_columns(leaf)
    chosen = flat if leaf.dtype == "int64" else graph.cast(flat, "int64")
    repeated = graph("Gather", chosen, graph.constant(numbers, np.int64), axis=1)
    return graph.cast(graph("Equal", repeated, graph.constant(values, np.int64)), "float64")


def _network(graph: Graph, recipe: Recipe, x: str) -> None:
    """Add the network, whose outputs (B, O) are called `distribution`."""
    if recipe.layers is None:
        from cspo.use.export.onnx_module import add_module  # an extra, and slow to load

        add_module(graph, recipe, x)
        return
    for i, (weight, bias) in enumerate(recipe.layers):
        last = i + 1 == len(recipe.layers)
        arrays = (graph.constant(array, np.float32) for array in (weight, bias))
        x = graph("Gemm", x, *arrays, output=DISTRIBUTION if last else "")
        if not last:
            x = graph("Tanh", x)


def _actions(graph: Graph, recipe: Recipe) -> None:
    """Add what makes the leaves of the action of the distribution's numbers."""
    gaussians, choices = recipe.distribution.gaussians, recipe.distribution.choices
    numbers, chosen, noise = "", "", []
    if gaussians:
        mean = graph.columns(DISTRIBUTION, 0, gaussians) if choices else DISTRIBUTION
        if not recipe.deterministic:
            drawn = graph("RandomNormalLike", mean)
            std = graph.constant(recipe.std, np.float32)
            noise.append(graph("Mul", drawn, std))
            mean = graph("Add", mean, noise[0])
        numbers = _scaled(graph, recipe, mean)
    if choices:
        pairs = [_chosen(graph, recipe, group) for group in recipe.option_groups]
        chosen = graph.together([option for option, _ in pairs])  # (B, M) int64
        noise += [uniform for _, uniform in pairs if uniform]
    if not recipe.deterministic:
        together = graph.together(noise)
        graph("Identity", together, output=NOISE)
    number, choice = 0, 0
    for leaf, port in zip(recipe.done.leaves, recipe.outputs, strict=False):
        if leaf.kind == "box":
            _numbers(graph, leaf, numbers, number, gaussians, port.name)
            number += leaf.size
        else:
            choice = _choices(graph, leaf, chosen, choice, port.name)


def _scaled(graph: Graph, recipe: Recipe, mean: str) -> str:
    """Return numbers (B, G) in the environment's units, float64."""
    x = graph.cast(mean, "float64")
    if (recipe.half_range != 1.0).any():
        x = graph("Mul", x, graph.constant(recipe.half_range, np.float64))
    if (recipe.centre != 0.0).any():
        x = graph("Add", x, graph.constant(recipe.centre, np.float64))
    return x if recipe.low is None else graph.within(x, recipe.low, recipe.high, "float64")


def _chosen(graph: Graph, recipe: Recipe, group: Options) -> tuple[str, str]:
    """Return the options chosen (B, n) of neighbouring choices, and the uniform numbers used."""
    begin = recipe.distribution.gaussians + group.begin
    logits = graph.columns(DISTRIBUTION, begin, begin + group.size * group.options)
    if group.options == 1:
        if recipe.deterministic:
            bits = graph("Greater", logits, graph.constant(0.0, np.float32))
            return graph.cast(bits, "int64"), ""
        uniform = graph("RandomUniformLike", logits)
        return graph.cast(graph("Less", uniform, graph("Sigmoid", logits)), "int64"), uniform
    logits = graph.rows(logits, group.size, group.options)
    if recipe.deterministic:
        return graph("ArgMax", logits, axis=2, keepdims=0), ""
    # The first option at which the distribution function exceeds a uniform number: as many as are
    # passed before it, the last one excepted.
    axis = graph.constant(2, np.int64)
    below = graph("CumSum", graph("Softmax", logits, axis=2), axis)
    places = (graph.constant([at], np.int64) for at in (0, -1, 2))
    below = graph("Slice", below, *places)
    first = (graph.constant([at], np.int64) for at in (0, 1, 2))
    uniform = graph("RandomUniformLike", graph("Slice", logits, *first))  # (B, n, 1)
    passed = graph.cast(graph("GreaterOrEqual", uniform, below), "int64")
    option = graph("ReduceSum", passed, graph.constant([2], np.int64), keepdims=0)
    return option, graph.rows(uniform, group.size)


def _numbers(graph: Graph, leaf: Leaf, numbers: str, begin: int, of: int, name: str) -> None:
    """Add the output of a box: its columns, rounded where it is of whole numbers."""
    x = numbers if leaf.size == of else graph.columns(numbers, begin, begin + leaf.size)
    if np.dtype(leaf.dtype).kind in "iu":
        info = np.iinfo(leaf.dtype)
        low, high = float(max(info.min, -EXACT)), float(min(info.max, EXACT))
        bounds = (graph.constant(bound, np.float64) for bound in (low, high))
        x = graph("Clip", graph("Round", x), *bounds)
    if leaf.dtype != "float64":
        x = graph.cast(x, leaf.dtype)
    _finish(graph, x, leaf, name)


def _choices(graph: Graph, leaf: Leaf, chosen: str, begin: int, name: str) -> int:
    """Add the output of a leaf of choices, and return where the next one's columns begin."""
    if leaf.kind == "multi_binary":
        bits = graph.columns(chosen, begin, begin + leaf.size)
        _finish(graph, graph.cast(bits, leaf.dtype), leaf, name)
        return begin + leaf.size
    is_open = np.array(leaf.options) > 1
    end = begin + int(is_open.sum())
    # What has one option has no column: it takes the zero that is put behind the others.
    parts = [graph.columns(chosen, begin, end)] if end > begin else []
    parts += [] if is_open.all() else [_zeros(graph)]
    where = np.where(is_open, np.cumsum(is_open) - 1, end - begin)
    x = graph("Gather", graph.together(parts), graph.constant(where, np.int64), axis=1)
    if any(leaf.start):
        x = graph("Add", x, graph.constant(leaf.start, np.int64))
    _finish(graph, x if leaf.dtype == "int64" else graph.cast(x, leaf.dtype), leaf, name)
    return end


def _zeros(graph: Graph) -> str:
    """Return a column (B, 1) of zeros, int64."""
    rows = graph("Shape", DISTRIBUTION, start=0, end=1)
    shape = graph("Concat", rows, graph.constant([1], np.int64), axis=0)
    zero = graph.onnx.numpy_helper.from_array(np.zeros(1, np.int64))
    return graph("ConstantOfShape", shape, value=zero)


def _finish(graph: Graph, x: str, leaf: Leaf, name: str) -> None:
    graph("Reshape", x, graph.constant([-1, *leaf.shape], np.int64), output=name)
