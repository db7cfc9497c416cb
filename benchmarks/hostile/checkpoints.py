"""Forged checkpoints: digests are right, what they protect is not; and files that are none."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hostile import damage
from hostile.bases import EPOCHS
from hostile.case import EITHER, FINE, REFUSED, SENTINEL, Case

KIND = "checkpoints"
NEWEST = f"epoch-{EPOCHS:06d}"
OF_ENVIRONMENT = ("/facts", "/cost_limit", "observation_size", "action_size", "cost_names")
OF_ENVIRONMENT += ("no cost_names",)
LONGER = ("--total-steps", str(200 * (EPOCHS + 1)))
# Changes the plain part and the arrays of a state; may return another plain part.
Forge = Callable[[dict[str, Any], dict[str, np.ndarray]], Any]


class _Runs:
    """What a pickle would do."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        import os

        return os.system, (f"touch {SENTINEL}-pickle",)


def cases(random: Random) -> Iterator[Case]:
    """Yield forgeries of the newest checkpoint, and of all of them."""
    for name, forge in _wrong(random).items():
        yield from _with_commands(name, partial(_forged, forge), random, strict=True)
    for name, forge in _odd().items():
        yield from _with_commands(name, partial(_forged, forge), random, strict=False)
    for name, apply in _no_checkpoints(random).items():
        yield from _with_commands(name, apply, random, strict=True)
    for what in ("missing.safetensors", "progress.csv", "../../../etc/passwd", 0, -1, 10**30):
        yield Case(
            KIND,
            f"load, checkpoint={what!r}",
            bases={"run": "run"},
            call=partial(_load, checkpoint=what),
            expected=REFUSED,
            reads=True,
        )


def _with_commands(
    name: str, apply: damage.Damage, random: Random, *, strict: bool
) -> Iterator[Case]:
    """Yield a forgery with the commands that read checkpoints.

    If it can be told from a checkpoint, the one before is used and that is said in words; if all
    are forged, the run is refused.
    """
    newest, every = partial(_apply, apply, False), partial(_apply, apply, True)
    first, second = random.choice(["eval", "resume"]), random.choice(["eval", "resume", "load"])
    # A policy is loaded without what only training needs.
    of_training = name.startswith(("/learner", "/window", "/margin", "/algorithm"))
    sure = [strict and (command == "resume" or not of_training) for command in (first, second)]
    # What an environment has not may also be taken for a change of the environment.
    fits = sure[0] and not name.startswith(OF_ENVIRONMENT)
    said = (NEWEST,) if fits else ()
    yield _command(first, f"{name}, newest", newest, FINE if fits else EITHER, said)
    yield _command(second, f"{name}, all", every, REFUSED if sure[1] else EITHER)


def _command(
    command: str,
    name: str,
    prepare: Any,
    expected: tuple[int, ...],
    says: tuple[str, ...] = (),
) -> Case:
    words: tuple[str, ...] = ()
    if command == "eval":
        words = ("eval", "run", "--episodes", "1")
    elif command == "resume":
        words = ("train", "--resume", "run", *LONGER)
    return Case(
        KIND,
        f"{name}, {command}",
        words,
        {"run": "run"},
        prepare,
        expected,
        reads=command != "resume",
        says=says,
        call=_load if command == "load" else None,
    )


def _load(checkpoint: Any = None) -> None:
    import cspo

    policy = cspo.load("run", checkpoint=checkpoint)
    action = policy(np.zeros(policy.observation_size))
    assert np.isfinite(action).all()


def _apply(apply: damage.Damage, every: bool, space: Path) -> None:
    paths = sorted((space / "run" / "checkpoints").iterdir())
    for path in paths if every else paths[-1:]:
        apply(path)


def _forged(forge: Forge, path: Path) -> None:
    """Change the state in a checkpoint and make its digest right again."""
    import safetensors.numpy

    from cspo.state import digest

    metadata, arrays = _open(path)
    plain = json.loads(metadata["state"])
    other = forge(plain, arrays)
    metadata["state"] = other if isinstance(other, str) else json.dumps(plain)
    metadata["digest"] = digest(arrays, metadata["state"])
    path.write_bytes(safetensors.numpy.save(arrays, metadata))


def _open(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    import safetensors

    with safetensors.safe_open(path, framework="numpy") as file:
        names = file.keys()
        return dict(file.metadata()), {name: file.get_tensor(name) for name in names}


def _array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Forge:
    def forge(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = np.ascontiguousarray(change(arrays[name]))

    return forge


def _filled(name: str, value: float) -> Forge:
    return _array(name, lambda array: np.full_like(array, value))


def _plain(path: str, value: Any) -> Forge:
    """Set a value of the plain part; ... removes it."""

    def forge(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        *parents, last = path.split("/")
        for name in parents:
            plain = plain[name]
        if value is ...:
            del plain[last]
        else:
            plain[last] = value

    return forge


def _text(text: str) -> Forge:
    return lambda plain, arrays: text


def _with_text(old: str, new: str) -> Forge:
    return lambda plain, arrays: json.dumps(plain).replace(old, new, 1)


def _wrong(random: Random) -> dict[str, Forge]:
    """Return forgeries that a look at sizes, types and numbers tells from a checkpoint."""
    long = random.randrange(100, 5000)
    forges: dict[str, Forge] = {}
    for name in ("mean", "square_sum"):
        path = f"/policy/normaliser/{name}"
        forges |= {
            f"normaliser {name} of length 1": _array(path, lambda array: array[:1]),
            f"normaliser {name} too long": _array(path, lambda array: np.zeros(long)),
            f"normaliser {name} empty": _array(path, lambda array: array[:0]),
            f"normaliser {name} of two dimensions": _array(path, lambda array: array[None]),
        }
    for name in ("/policy/actor", "/policy/critics", "/learner/actor/first"):
        forges |= {
            f"{name} too short": _array(name, lambda array: array[..., :-1]),
            f"{name} empty": _array(name, lambda array: array[..., :0]),
            f"{name} in int64": _array(name, lambda array: array.astype(np.int64)),
            f"{name} not a number": _filled(name, np.nan),
        }
    forges |= {
        "/policy/actor in float64": _array("/policy/actor", lambda x: x.astype(np.float64)),
        "/policy/critics of three rows": _array("/policy/critics", lambda x: x[[0, 1, 1]]),
        "/learner/critics/second infinite": _filled("/learner/critics/second", np.inf),
        "/cost_limit of two values": _array("/cost_limit", lambda x: np.zeros(2)),
        "/cost_limit empty": _array("/cost_limit", lambda x: x[:0]),
        "/cost_limit not a number": _filled("/cost_limit", np.nan),
        "/facts/action_low too long": _array("/facts/action_low", lambda x: np.zeros(9)),
        "/window/costs of three columns": _array("/window/costs", lambda x: np.zeros((28, 3))),
        "/window/lengths too short": _array("/window/lengths", lambda x: x[:3]),
        "/algorithm/multiplier of five values": _array(
            "/algorithm/multiplier", lambda x: np.ones(5)
        ),
        "/margin/z empty": _array("/margin/z", lambda x: x[:0]),
        "no epoch": _plain("epoch", ...),
        "epoch is text": _plain("epoch", "four"),
        "epoch is null": _plain("epoch", None),
        "epoch is a list": _plain("epoch", [4]),
        "epoch of 30 digits": _plain("epoch", 10**30),
        "epoch negative": _plain("epoch", -4),
        "no facts": _plain("facts", ...),
        "facts is a list": _plain("facts", []),
        "observation_size 10": _plain("facts/observation_size", 10),
        "observation_size 2e9": _plain("facts/observation_size", 2_000_000_000),
        "observation_size is text": _plain("facts/observation_size", "x"),
        "action_size 0": _plain("facts/action_size", 0),
        "cost_names is a number": _plain("facts/cost_names", 3),
        "no cost_names": _plain("facts/cost_names", []),
        "no policy": _plain("policy", ...),
        "no actor": _plain("policy/actor", ...),
        "actor is a number": _plain("policy/actor", 3.0),
        "actor is text": _plain("policy/actor", "x"),
        "no normaliser": _plain("policy/normaliser", ...),
        "count is text": _plain("policy/normaliser/count", "many"),
        "count negative": _plain("policy/normaliser/count", -5),
        "an array that is not there": _plain("policy/actor", {"array": "/nothing"}),
        "an array named by a list": _plain("policy/actor", {"array": [1]}),
        "state is a list": _text("[]"),
        "state is null": _text("null"),
        "state is text": _text('"x"'),
        "state is empty": _text(""),
        "state is no JSON": _text("{"),
        "state is deep": _text("[" * 100_000),
        "state is deep in a value": _with_text('"epoch": ', '"epoch": ' + '{"a":' * 50_000),
        "state has a number of 5000 digits": _with_text('"count": ', '"count": ' + "9" * 5000),
    }
    return forges


def _odd() -> dict[str, Forge]:
    """Return forgeries that may pass for a checkpoint of another run or version."""
    return {
        "no streams": _plain("streams", ...),
        "streams is a list": _plain("streams", []),
        "another generator": _plain("streams/action/bit_generator", "MT19937"),
        "a generator that is not there": _plain("streams/action/bit_generator", "os"),
        "a generator's state is text": _plain("streams/action/state", "x"),
        "a generator's state is negative": _plain("streams/action/state/state", -1),
        "no env": _plain("env", ...),
        "env is text": _plain("env", "x"),
        "env of one generator": _plain("env/generators", []),
        "env of 9 generators": _plain("env/generators", [{}] * 9),
        "no learner": _plain("learner", ...),
        "learner is text": _plain("learner", "x"),
        "learner count is text": _plain("learner/actor/count", "x"),
        "no algorithm": _plain("algorithm", ...),
        "algorithm with another name": _plain("algorithm/__class__", {"array": "/margin/z"}),
        "algorithm with a method's name": _plain("algorithm/update", 3),
        "algorithm with a name of its own": _plain("algorithm/forecast/predict", 3),
        "window with another name": _plain("window/extend", 1),
        "margin is a list": _plain("margin", [1]),
        "a window not a number": _filled("/window/returns", np.nan),
        "square_sum negative": _filled("/policy/normaliser/square_sum", -1.0),
        "weights of 1e38": _filled("/policy/actor", 1e38),
        "time_limit is text": _plain("facts/time_limit", "x"),
        "bounds not finite": _filled("/facts/action_high", np.inf),
        "bounds the wrong way round": _filled("/facts/action_high", -5.0),
        "epoch 2 in the file of another": _plain("epoch", 2),
        "epoch 4.7": _plain("epoch", 4.7),
        "epoch is true": _plain("epoch", True),
    }


def _header(change: Callable[[bytes], bytes], length: int | None = None) -> damage.Damage:
    """Change the header of a safetensors file; its length is the right one unless given."""

    def apply(data: bytes) -> bytes:
        (size,) = struct.unpack("<Q", data[:8])
        header = change(data[8 : 8 + size])
        return (
            struct.pack("<Q", len(header) if length is None else length) + header + data[8 + size :]
        )

    return damage.changed(apply)


def _no_checkpoints(random: Random) -> dict[str, damage.Damage]:
    """Return files that are none."""
    same = lambda header: header  # noqa: E731
    return {
        "cut": damage.cut(random.uniform(0.05, 0.95)),
        "one byte short": damage.changed(lambda data: data[:-1]),
        "one byte long": damage.appended(b"x"),
        "bytes changed": damage.scrambled(random, 3),
        "empty": damage.content(b""),
        "seven bytes": damage.content(b"1234567"),
        "zeros": damage.content(b"\0" * 10_000),
        "random bytes": damage.content(random.randbytes(10_000)),
        "header of 2**63 bytes": _header(same, 2**63),
        "header of 2**64 - 1 bytes": _header(same, 2**64 - 1),
        "header of 4 GB": _header(same, 1 << 32),
        "header one byte longer than the file": damage.changed(
            lambda data: struct.pack("<Q", len(data) - 7) + data[8:]
        ),
        "header is deep": _header(lambda header: b"[" * 100_000),
        "header is deep tables": _header(lambda header: b'{"a":' * 50_000),
        "header is no JSON": _header(lambda header: b"x" * len(header)),
        "header is no text": _header(lambda header: b"\xff" * len(header)),
        "header is a list": _header(lambda header: b"[]"),
        "header is empty": _header(lambda header: b"{}"),
        "offsets out of the file": _header(
            lambda header: header.replace(b'"data_offsets":[', b'"data_offsets":[999999999', 1)
        ),
        "shape of 2**60": _header(
            lambda header: header.replace(b'"shape":[', b'"shape":[1152921504606846976,', 1)
        ),
        "unknown type": _header(lambda header: header.replace(b'"F64"', b'"F65"', 1)),
        "no metadata": _header(lambda header: header.replace(b"__metadata__", b"__metadeta__", 1)),
        "another format": _header(
            lambda header: header.replace(b"cspo-checkpoint-1", b"cspo-checkpoint-9", 1)
        ),
        "another digest": _header(lambda header: header.replace(b'"digest":"', b'"digest":"0', 1)),
        "a pickle": damage.content(pickle.dumps(_Runs())),
        "a folder": damage.folder,
        "a named pipe": damage.pipe,
        "a link to itself": damage.link_to_itself,
        "a link to /dev/zero": damage.link("/dev/zero"),
    }
