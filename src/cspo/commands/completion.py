"""`cspo completion`: a script that lets a shell complete commands, options, names and run folders.

Everything is in the script: pressing Tab starts no Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from cspo.commands.completion_scripts import script
from cspo.commands.completion_words import described_commands, names
from cspo.commands.options import parse


@dataclass(frozen=True)
class CompletionOptions:
    """Print a script that completes commands, options and names when Tab is pressed.

    Examples:
        cspo completion bash > ~/.local/share/bash-completion/completions/cspo
        cspo completion zsh > ~/.zfunc/_cspo
        cspo completion fish > ~/.config/fish/completions/cspo.fish

    For zsh, ~/.zshrc needs `fpath+=~/.zfunc; autoload -Uz compinit; compinit`.
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Which shell."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo completion`."""
    options = parse(CompletionOptions, "completion", arguments)
    print(script(options.shell, described_commands(), names()), end="")
    return 0
