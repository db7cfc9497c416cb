"""Whose code a run may import. SECURITY.md says what is promised, and what is not.

A run folder may come from anybody, and its settings name code: a task or a network
`module:factory`, a plugin. That is imported only if the user names it too, says `--trust`, or
started the run: such a run has a token, and a mark in the user's state folder, which only who has
the user's key can make, ties the token to the names, the options and the places of what it imports.
A run may be moved, then; but not made to import something else, or the same name from somewhere
else.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cspo.algorithms.registry import algorithm_names
from cspo.config import TrainConfig
from cspo.envs.modules import missing_module, names_code, refuse_standard
from cspo.envs.tasks import is_unknown
from cspo.errors import CspoError
from cspo.plugins import is_file_name, load_plugin, missing, plugin_place
from cspo.policy.network import is_named
from cspo.runs.files import read_plain, write_text

STATE = "CSPO_STATE_DIR"  # environment variable: where keys and marks are kept
TOKEN = ".origin"  # file of a run folder
KEY_BYTES = 32
SHOWN = 200  # characters of a name or of options in a message


class Untrusted(CspoError):
    """A run folder names code that its user has not asked for."""


class NamedCode(NamedTuple):
    """Code that the settings of a run name."""

    setting: str  # "task", "network" or "plugin"
    name: str
    options: dict[str, Any]
    place: str | None  # where it would be imported from; None if it is not there

    def __str__(self) -> str:
        with_options = f" with env_options {_shown(self.options)}" if self.options else ""
        where = "" if self.place in (None, self.name) else f" from {_shown(self.place)}"
        return f"the {self.setting} {_shown(self.name)}{with_options}{where}"


def _shown(value: Any) -> str:
    """Return a stranger's text as one harmless line."""
    text = json.dumps(value, default=str)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def task_code(config: TrainConfig) -> list[NamedCode]:
    """Return the code that making the environment of a run imports, if any.

    Raises:
        CspoError: If it is not there, or is refused whoever asks for it.
    """
    task, options = config.task, config.environment.env_options
    if task.startswith("<") or not names_code(task, options):
        return []
    if ":" not in task:
        return [NamedCode("task", task, options, "Gymnasium")]
    return [NamedCode("task", task, options, _place_named(task))]


def network_code(config: TrainConfig) -> list[NamedCode]:
    """Return the code that making the networks of a run imports, if any; raises `CspoError`."""
    name = config.policy.network
    return [NamedCode("network", name, {}, _place_named(name))] if is_named(name) else []


def _place_named(name: str) -> str:
    """Return where the module of `module:factory` is."""
    module = name.partition(":")[0]
    if (place := refuse_standard(module, name)) is None:
        raise CspoError(missing_module(module, name))
    return place.path


def plugin_code(config: TrainConfig) -> list[NamedCode]:
    """Return the code that loading the plugin of a run imports, if any."""
    if config.plugin is None:
        return []
    if not is_file_name(config.plugin):
        refuse_standard(config.plugin, config.plugin)
    return [NamedCode("plugin", config.plugin, {}, plugin_place(config.plugin))]


def require(folder: Path, code: Sequence[NamedCode], trust: bool) -> None:
    """Refuse to import what a run folder names, unless its user trusts it or started the run.

    What is not there cannot be imported: that is said by who tries.
    """
    for one in code:
        if not (trust or one.place is None or is_own(folder, one)):
            raise Untrusted(
                f"{folder} was not trained here by you, and would import {one}. If you know that "
                f"code, add --{one.setting} {_shown(one.name)} or --trust (in Python, trust=True)."
            )


def allowed_task(config: TrainConfig, trust: bool) -> str | None:
    """Return the task of a run if it names code, which may be imported; None if it names none.

    A task that is in the run's plugin is made known by loading that.
    """
    if config.folder is not None and config.plugin is not None and is_unknown(config.task):
        require(config.folder, plugin_code(config), trust)
        load_plugin(config.plugin)
    code = [] if config.folder is None else task_code(config)
    for one in code:
        require(config.folder or Path(), [one], trust)
    return config.task if code else None


def allowed_network(config: TrainConfig, policy: Any, trust: bool) -> Any:
    """Return the network to load a run with: what the user gave, else its name if it may be used.

    None if the run names none.
    """
    name = config.policy.network
    if policy is not None:
        if isinstance(policy, str) and is_named(name) and policy != name:
            raise CspoError(f"The run was trained with --network {_shown(name)}, not {policy}.")
        return policy
    code = [] if config.folder is None else network_code(config)
    for one in code:
        require(config.folder or Path(), [one], trust)
    return name if code else None


def agreed_plugin(folder: Path, config: TrainConfig, named: str | None, trust: bool) -> str | None:
    """Return the plugin to continue a run with, or None if it does without.

    Args:
        folder: The run folder.
        config: What it says.
        named: The plugin that the user names, which takes the place of the folder's.
        trust: Whether the user trusts the folder.
    """
    # Built in, or registered by this program.
    has_task = not is_unknown(config.task)
    is_known = has_task and config.algo in algorithm_names()
    of_plugin = f"algorithm {config.algo!r}" if has_task else f"task {config.task!r}"
    if named is not None or config.plugin is None:
        if not is_known:
            what = f"The {of_plugin} of {folder} is not built in"
            raise CspoError(f"{what}: pass --plugin with the file that has it.")
        return named
    try:
        (code,) = plugin_code(config)
        require(folder, [code], trust)
    except CspoError:
        if not is_known:
            raise
        return None
    if code.place is None and not is_known:
        holds = f"It holds the {of_plugin} of {folder}"
        raise CspoError(f"{missing(config.plugin)} {holds}: pass --plugin with where it is.")
    return None if code.place is None else config.plugin


def is_own(folder: Path, code: NamedCode) -> bool:
    """Whether this user started or continued the run in a folder here, with this code."""
    with contextlib.suppress(OSError):
        token, key, state = _token(folder), _key(), state_folder()
        if token and key is not None and state is not None:
            return (state / "runs" / _mark(key, token, code)).is_file()
    return False


def remember(
    folder: Path, config: TrainConfig, *, with_task: bool = True, with_network: bool = True
) -> None:
    """Mark a run as this user's own; where nothing can be kept, it is not, and nothing is said.

    Settings that come from another run folder, and that nobody has agreed to, make no mark.

    Args:
        folder: The run folder.
        config: Settings that the user has agreed to.
        with_task: Whether that includes what the task imports, or the environment came otherwise.
        with_network: The same for the network.
    """
    with contextlib.suppress(OSError, CspoError):
        code, state = plugin_code(config), state_folder()
        code += task_code(config) if with_task else []
        code += network_code(config) if with_network else []
        if not code or state is None or config.folder is not None:
            return
        _make_key(state)
        if (key := _key()) is None:
            return
        if not (token := _token(folder)):
            token = secrets.token_hex(KEY_BYTES)
            write_text(folder / TOKEN, token)
        for one in code:
            (state / "runs" / _mark(key, token, one)).touch(mode=0o600)


def remember_file(content: bytes) -> None:
    """Mark a file that was exported here as this user's own; where nothing can be kept, it is not.

    It is known by its content: it may be moved, and not changed.
    """
    with contextlib.suppress(OSError):
        if (state := state_folder()) is not None:
            _make_key(state)
            if (key := _key()) is not None:
                (state / "runs" / _mark(key, *_file_code(content))).touch(mode=0o600)


def is_own_file(content: bytes) -> bool:
    """Whether a file was exported here by this user."""
    with contextlib.suppress(OSError):
        key, state = _key(), state_folder()
        if key is not None and state is not None:
            return (state / "runs" / _mark(key, *_file_code(content))).is_file()
    return False


def _file_code(content: bytes) -> tuple[str, NamedCode]:
    return hashlib.sha256(content).hexdigest(), NamedCode("export", "", {}, None)


def _mark(key: bytes, token: str, code: NamedCode) -> str:
    text = json.dumps([token, *code], sort_keys=True, default=str)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _token(folder: Path) -> str:
    return (read_plain(folder / TOKEN, 2 * KEY_BYTES) or b"").decode("ascii", errors="replace")


def state_folder() -> Path | None:
    """Return where this user's key and marks are kept; None without a home."""
    if given := os.environ.get(STATE):
        return Path(given).absolute()
    base = os.environ.get("XDG_STATE_HOME", "")
    try:
        root = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return root / "cspo"


def _key() -> bytes | None:
    """Return this user's key, if nobody else can have read or replaced it."""
    if (state := state_folder()) is None:
        return None
    file = state / "key"
    with contextlib.suppress(OSError):
        facts = file.lstat()
        if hasattr(os, "getuid") and (facts.st_uid != os.getuid() or facts.st_mode & 0o077):
            return None
        key = read_plain(file, KEY_BYTES + 1)
        return key if key is not None and len(key) == KEY_BYTES else None
    return None


def _make_key(state: Path) -> None:
    """Make a key if there is none; of several processes at once, one makes it."""
    for folder in (state, state / "runs"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (state / "key").exists():
        return
    draft = state / f".key-{secrets.token_hex(8)}"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, state / "key")
    finally:
        draft.unlink(missing_ok=True)
