"""What `step` of a Gymnasium environment returns, taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cspo.envs.foreign import WrongAnswer
from cspo.errors import nearest, shown


def split_step(answer: Any) -> tuple[Any, Any, Any, Any, Any, dict[str, Any]]:
    """Return (observation, reward, cost or None, terminated, truncated, info) of an answer."""
    values = len(answer) if isinstance(answer, tuple) else 0
    if values not in (5, 6):
        got = f"{values} values" if values else shown(answer)
        raise WrongAnswer(
            "must return (observation, reward, terminated, truncated, info), or six values with "
            f"the cost third; it returned {got}"
        )
    info = answer[-1]
    if not isinstance(info, dict):
        raise WrongAnswer(f"must return a dict as info, not {shown(info)}")
    if values == 6:
        observation, reward, cost, terminated, truncated, _ = answer
    else:
        (observation, reward, terminated, truncated, _), cost = answer, info.get("cost")
    return observation, reward, cost, terminated, truncated, info


def named_costs(info: dict[str, Any], terms: Sequence[str]) -> list[Any]:
    """Return `info["cost_TERM"]` of each term, or say which there are."""
    for term in terms:
        if f"cost_{term}" not in info:
            there = [key.removeprefix("cost_") for key in map(str, info) if key.startswith("cost_")]
            hint = nearest(term, there) if there else "no name in it starts with cost_"
            raise WrongAnswer(f"gives no info['cost_{term}'] in a step: {hint}")
    return [info[f"cost_{term}"] for term in terms]
