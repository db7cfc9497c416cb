"""Which network a policy has: the compiled one, the one for images, or one of a user's.

The setting `network` says it: "auto", "mlp", or `module:factory` of a user's own; `<Name>` stands
for a Python object, which has to be passed again. PyTorch is imported only where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.envs.layout import ObservationLayout
from cspo.envs.modules import check_factory, import_of_user
from cspo.errors import CspoError, EnvironmentFault
from cspo.policy.normaliser import Normaliser

AUTO, MLP = "auto", "mlp"
INSTALL = "pip install 'cspo[torch]'"
# (shape of an observation, outputs) -> nn.Module
Network = Callable[[tuple[int, ...], int], object]


class NetworkFault(CspoError):
    """A network that cannot be made or used."""


def is_named(setting: str) -> bool:
    """Whether the setting names code, `module:factory`."""
    return ":" in setting


def is_object(setting: str) -> bool:
    """Whether the setting stands for a Python object."""
    return setting.startswith("<")


def network_of(
    network: str | Network, layout: ObservationLayout | None, hidden: Sequence[int]
) -> Network | None:
    """Return what makes the networks, or None for the compiled ones.

    Args:
        network: The setting, whose module is imported if it names one; or what makes them.
        layout: Of the observations, where they are not flat anyway.
        hidden: The hidden layers.
    """
    image = layout is not None and layout.is_image
    if network == MLP or (network == AUTO and not image):
        return None
    if network == AUTO:
        _require_torch("Images need it for a convolution network, or else --network mlp")
        from cspo.policy.convolution import ConvolutionNetwork

        return partial(ConvolutionNetwork, hidden=hidden)
    _require_torch("A network of your own needs it")
    if not isinstance(network, str):
        if not callable(network):
            what = f"a class or function that makes a torch.nn.Module, not {type(network).__name__}"
            raise NetworkFault(f"policy= takes {what}: see docs/own-network.md.")
        return network
    return _imported(network)


def _imported(name: str) -> Network:
    module_name, _, attribute = name.partition(":")
    module = import_of_user(module_name, name)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise NetworkFault(f"{module_name} has no class or function {attribute!r} ({name}).")
    check_factory(factory, name, "networks")
    made: Network = factory
    return made


def _require_torch(why: str) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise NetworkFault(f"PyTorch is not installed. {why}: {INSTALL}") from None


class Pixels(Normaliser):
    """Passes images through as bytes, a quarter of the memory; networks divide them by 255."""

    dtype = np.uint8

    def __init__(self) -> None:
        """Nothing is counted."""
        super().__init__(0, enabled=False)

    def __call__(self, x: NDArray[np.floating[Any]]) -> NDArray[Any]:
        """Return images (B, D) as bytes."""
        with np.errstate(invalid="ignore"):
            pixels = x.astype(np.uint8)
        if not np.array_equal(pixels, x):
            raise EnvironmentFault(
                "The environment gave an image with numbers other than 0, 1, ... 255, though its "
                "observation_space is of type uint8."
            )
        return pixels


def compare_signatures(saved: Any, ours: list[str] | None) -> None:
    """Refuse another network than the one a run was trained with, by name and shape of its parts.

    Args:
        saved: What a checkpoint says, which may be anything; None of the compiled networks.
        ours: Of the network at hand.
    """
    if saved == ours:
        return
    if ours is None:
        raise NetworkFault("This run used a network of its own: pass it again as policy=.")
    if not isinstance(saved, list) or not all(isinstance(part, str) for part in saved):
        raise NetworkFault("This run used no network of a user's own: leave policy= out.")
    pairs = zip([*saved, *["nothing"] * len(ours)], [*ours, *["nothing"] * len(saved)], strict=True)
    theirs, own = next((a, b) for a, b in pairs if a != b)
    raise NetworkFault(
        "This is another network than the one the run was trained with: it has "
        f"{own:.100} where the run has {theirs!r:.100}."
    )
