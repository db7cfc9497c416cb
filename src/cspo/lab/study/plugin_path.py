"""Where a text of settings says that the plugin is: a path that moves with the text.

In a study's folder it is the full path, which holds from anywhere on this machine; in an archive,
which is read on others, the file's name alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import tomli_w

from cspo.runs.plain import parse_toml


def with_plugin(text: str, plugin: str) -> str:
    """Return the TOML text with another plugin; comments stay wherever that is possible."""
    line = tomli_w.dumps({"plugin": plugin}).rstrip()
    changed = re.sub(r"^\s*plugin\s*=.*$", lambda _: line, text, count=1, flags=re.MULTILINE)
    wanted = {**parse_toml(text), "plugin": plugin}
    return changed if parse_toml(changed) == wanted else tomli_w.dumps(wanted)


def without_folder(text: str) -> str:
    """Return the TOML text with a plugin's full path shortened to the file's name."""
    plugin = parse_toml(text).get("plugin")
    if not isinstance(plugin, str) or not Path(plugin).is_absolute():
        return text
    return with_plugin(text, Path(plugin).name)


def differ_in_folder(one: str, other: str) -> bool:
    """Whether two TOML texts are equal but for the folder of a plugin that both name alike."""
    texts = [parse_toml(text) for text in (one, other)]
    names = [Path(str(text.pop("plugin", ""))).name for text in texts]
    return texts[0] == texts[1] and names[0] == names[1] != ""
