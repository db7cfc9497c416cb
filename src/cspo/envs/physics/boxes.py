"""Contacts of two boxes as mujoco 2.3.3 found them.

Newer versions leave out those that lie outside of a box by more than a hundredth of its size. A
bumper that meets a vase at an edge then has one contact less: positions are off by up to 7 mm after
a step. So what was left out is added again between the detection of contacts and the making of
constraints: MuJoCo's own function still tells all of them, it is its caller that leaves some out.

`integrators.py` holds the same in machine code.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.physics.calls import mujoco_library

BOX = -1.0  # in place of the radius of a geom
MOST_CONTACTS = 50  # of two geoms: MuJoCo's mjMAXCONPAIR


def restore(model: Any, data: Any, radii: FloatArray) -> bool:
    """Add the contacts of boxes that were left out; return whether there were any.

    Args:
        model: A `mujoco.MjModel`.
        data: Its `mujoco.MjData`, with contacts.
        radii: (geoms,) BOX for a box.
    """
    geoms = data.contact.geom  # (contacts, 2)
    of_boxes = np.flatnonzero((radii[geoms] == BOX).all(axis=1))
    functions = _functions() if of_boxes.size else None
    if functions is None:
        return False
    box_box, add_contact = functions
    pairs, stride, start = geoms[of_boxes].copy(), geoms.strides[0], data.contact.dist.ctypes.data
    restored = False
    for one, other in dict.fromkeys(map(tuple, pairs.tolist())):
        same = of_boxes[(pairs == (one, other)).all(axis=1)].tolist()
        kept = {_place(start + stride * i) for i in same}
        raw = ctypes.create_string_buffer(MOST_CONTACTS * stride)
        first = ctypes.addressof(raw)
        count = box_box(model._address, data._address, first, one, other, 0.0)
        # Of those in one place the last counts.
        found = {_place(first + stride * i): first + stride * i for i in range(count)}
        for place in sorted(found.keys() - kept, key=found.__getitem__):
            added = ctypes.create_string_buffer(ctypes.string_at(start + stride * same[0], stride))
            ctypes.memmove(added, found[place], 4 * 8)  # distance and position
            add_contact(model._address, data._address, added)
            restored = True
    return restored


@functools.cache
def _functions() -> tuple[Any, Any] | None:
    """Return the C functions for contacts of boxes and for adding one, or None if not found."""
    library, address, whole = mujoco_library(), ctypes.c_void_p, ctypes.c_int
    if library is None:
        return None
    box_box, add_contact = library.mjc_BoxBox, library.mj_addContact
    box_box.argtypes = [address, address, address, whole, whole, ctypes.c_double]
    add_contact.argtypes = [address, address, address]
    return box_box, add_contact


def _place(contact: int) -> tuple[float, ...]:
    """Return the position of a contact, which follows its distance."""
    return tuple((ctypes.c_double * 3).from_address(contact + 8))
