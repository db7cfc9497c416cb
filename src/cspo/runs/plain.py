"""Data as JSON can hold it."""

from __future__ import annotations

import math
from typing import Any


def without_nan(value: Any) -> Any:
    """Return nested data with null in place of NaN and infinity, which JSON does not know."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
