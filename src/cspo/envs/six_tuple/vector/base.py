"""What vector environments with six values share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray


class SixVectorEnv(VectorEnv[Any, Any, Any], gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """N environments, each reset within the step that ends its episode.

    Where one ended, `info` has the last observation in `final_observation` and what `info` would
    have been in `final_info`, arrays of objects, and masks of them with a `_` in front. Being an
    `Env` too, as every vector environment was when that code was written, it can be wrapped.
    """

    is_vector_env = True
    reward_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012


def tiled(pictures: Sequence[Any]) -> NDArray[np.uint8]:
    """Return pictures (height, width, 3) side by side, in as many rows as columns, or one more."""
    rows = math.ceil(math.sqrt(len(pictures)))
    columns = math.ceil(len(pictures) / rows)
    height, width, depth = pictures[0].shape
    sheet = np.zeros((rows, height, columns, width, depth), np.uint8)
    for i, picture in enumerate(pictures):
        sheet[i // columns, :, i % columns] = picture
    return sheet.reshape(rows * height, columns * width, depth)


def batched(infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the infos of N environments as arrays (N,) with masks of who has that key."""
    result: dict[str, Any] = {}
    for i, info in enumerate(infos):
        for key, value in info.items():
            if key not in result:
                plain = isinstance(value, bool | int | float | np.number | np.bool_)
                kind: Any = np.asarray(value).dtype if plain else object
                empty = np.zeros(len(infos), kind) if plain else np.full(len(infos), None, object)
                result[key], result[f"_{key}"] = empty, np.zeros(len(infos), np.bool_)
            result[key][i], result[f"_{key}"][i] = value, True
    return result
