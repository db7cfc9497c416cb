"""Nodes of an ONNX graph under construction; needs `cspo[export]`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.errors import CspoError

OPSET, IR_VERSION = 17, 8
INSTALL = "pip install 'cspo[export]'"


def require_onnx() -> Any:
    """Return the package `onnx`, or say how to install it."""
    try:
        import onnx
    except ImportError:
        raise CspoError(f"ONNX files need the package onnx: {INSTALL}") from None
    return onnx


class Graph:
    """Nodes and constants under construction; a value is known by its name."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.onnx = require_onnx()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, operation: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        output = output or f"{operation.lower()}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(operation, list(inputs), [output], **attributes)
        self.nodes.append(node)
        return output

    def constant(self, value: Any, dtype: Any) -> str:
        """Keep an array and return its name."""
        name = f"constant_{len(self.constants)}"
        array = np.ascontiguousarray(np.asarray(value, dtype))
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def cast(self, value: str, dtype: str) -> str:
        """Convert to another type of numbers."""
        return self("Cast", value, to=self.kind(dtype))

    def kind(self, dtype: str) -> int:
        """Return ONNX's number of a type."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def rows(self, value: str, *shape: int) -> str:
        """Return (B, *) as (B, *shape)."""
        return self("Reshape", value, self.constant([-1, *shape], np.int64))

    def columns(self, value: str, begin: int, end: int) -> str:
        """Return columns begin to end of (B, C)."""
        places = (self.constant([at], np.int64) for at in (begin, end, 1))
        return self("Slice", value, *places)

    def together(self, parts: list[str]) -> str:
        """Put columns side by side."""
        return parts[0] if len(parts) == 1 else self("Concat", *parts, axis=1)

    def within(self, value: str, low: Any, high: Any, dtype: str) -> str:
        """Cut (B, C) off at bounds (C,), each where there is one."""
        if np.isfinite(high).any():
            value = self("Min", value, self.constant(high, dtype))
        if np.isfinite(low).any():
            value = self("Max", value, self.constant(low, dtype))
        return value
