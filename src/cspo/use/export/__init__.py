"""A policy as one file that needs no `cspo`: ONNX, TorchScript or plain NumPy."""
