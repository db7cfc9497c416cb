"""Names that writers and readers of exported files share, and that need no extra."""

from __future__ import annotations

FORMAT = "cspo-export-1"
KEY = "cspo"  # of the card among the metadata of an ONNX file
CARD = "card.json"  # the card among the files inside of a TorchScript file
SUFFIXES = {"onnx": ".onnx", "torchscript": ".pt", "numpy": ".py"}
