"""Pictures of native tasks, without a screen.

An environment describes what there is to see as a `Scene` (`env.scene(index)`); a `Renderer` turns
scenes into arrays. A scene has simulator data of its own, so that drawing cannot change what the
physics computes.
"""

from __future__ import annotations

import atexit
import functools
import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cspo.envs.tools.opengl import open_context
from cspo.errors import CspoError, nearest

Picture = NDArray[np.uint8]  # (height, width, 3)
Triple = tuple[float, float, float]
SMALLEST, LARGEST = 16, 4096  # pixels of a side
SPARE_GEOMS = 500  # room for what MuJoCo itself adds to a scene


class Mark(NamedTuple):
    """One decorative shape, seen but not felt: a ring of lidar readings, an arrow, a beacon."""

    kind: str  # "sphere", "box", "cylinder", "capsule", "ellipsoid" or "arrow"
    position: Sequence[float]  # (3,)
    size: Sequence[float]  # (3,) as MuJoCo measures that kind of geom
    rgba: Sequence[float]  # (4,)


@dataclass(frozen=True)
class View:
    """A camera that looks at a point, or one that the model brings along.

    Attributes:
        look_at: The point in the middle of the picture.
        distance: Metres from that point to the camera.
        azimuth: Degrees around the vertical; 90 looks along +y, with +x to the right.
        elevation: Degrees above the horizon that the camera looks to; -90 looks straight down.
        fixed: Name of a camera of the model; the others are then not used.
    """

    look_at: Triple = (0.0, 0.0, 0.0)
    distance: float = 3.0
    azimuth: float = 90.0
    elevation: float = -20.0
    fixed: str | None = None


# The viewpoints of Safety-Gymnasium that do not move: 2 m and 5 m high, as far south of the origin.
FIXED_VIEWS = {
    "fixednear": View(distance=2.0 * math.sqrt(2.0), elevation=-45.0),
    "fixedfar": View(distance=5.0 * math.sqrt(2.0), elevation=-45.0),
}


class Scene(NamedTuple):
    """What there is to see of one environment at one moment.

    Every native task has the cameras "follow", which goes along with the robot, "top", which looks
    down on it, and Safety-Gymnasium's "track", "fixednear" and "fixedfar"; robots of the navigation
    tasks look through "vision".
    """

    model: Any  # mujoco.MjModel
    data: Any  # mujoco.MjData for drawing only, its kinematics up to date
    cameras: Mapping[str, View]
    marks: Sequence[Mark] = ()


@runtime_checkable
class Drawable(Protocol):
    """An environment that can be drawn; every native task is one."""

    def scene(self, index: int = 0) -> Scene:
        """Return what there is to see of environment `index` now; valid until the next call."""
        ...


class Renderer:
    """Draws scenes; keeps what is expensive to set up from one picture to the next.

    Use it from one thread, and close it: `with Renderer(640, 480) as renderer: ...`.

    Args:
        width: Of the pictures, in pixels.
        height: Of the pictures, in pixels.

    Raises:
        CspoError: If the size makes no sense, or nothing on this machine can draw.
    """

    def __init__(self, width: int = 640, height: int = 480) -> None:
        """Open an OpenGL context."""
        check_size(width, height)
        self.width, self.height = width, height
        self._context = open_context(width, height)
        self._model: Any = None
        self._geoms: Any = None  # mujoco.MjvScene: what is in the picture
        self._buffers: Any = None  # mujoco.MjrContext: the model's meshes, and the picture
        # MuJoCo ends its connection to the display at exit, after which a context cannot be freed
        # any more.
        self._at_exit = functools.partial(_close, weakref.ref(self))
        atexit.register(self._at_exit)

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    def draw(self, scene: Scene, camera: str = "follow") -> Picture:
        """Return a picture of `scene` from one of its cameras, (height, width, 3)."""
        import mujoco

        if self._context is None:
            raise CspoError("This renderer was closed: make a new one.")
        if camera not in scene.cameras:
            raise CspoError(f"There is no camera {camera!r}: {nearest(camera, scene.cameras)}")
        self._context.make_current()  # other code of the process may have contexts of its own
        if scene.model is not self._model:
            self._prepare(scene.model)
        how = mujoco.MjvOption(), None, _camera(scene.model, scene.cameras[camera])
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(scene.model, scene.data, *how, everything, self._geoms)
        for mark in scene.marks:
            self._add(mark)
        window = mujoco.MjrRect(0, 0, self.width, self.height)
        mujoco.mjr_render(window, self._geoms, self._buffers)
        picture = np.empty((self.height, self.width, 3), np.uint8)
        mujoco.mjr_readPixels(picture, None, window, self._buffers)
        return np.ascontiguousarray(picture[::-1])  # OpenGL counts rows from below

    def close(self) -> None:
        """Release the OpenGL context; closing twice does no harm."""
        atexit.unregister(self._at_exit)
        if self._context is None:
            return
        self._context.make_current()
        if self._buffers is not None:
            self._buffers.free()
        self._context.free()
        self._context = self._buffers = self._geoms = self._model = None

    def _prepare(self, model: Any) -> None:
        """Load a model's meshes and textures into OpenGL."""
        import mujoco

        if self._buffers is not None:
            self._buffers.free()
        try:
            self._buffers = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        except mujoco.FatalError as fault:
            raise CspoError(f"MuJoCo cannot draw with this OpenGL: {fault}") from fault
        # The model's own limit on the size of pictures is left alone: it belongs to the physics.
        mujoco.mjr_resizeOffscreen(self.width, self.height, self._buffers)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._buffers)
        self._geoms = mujoco.MjvScene(model, maxgeom=2 * model.ngeom + SPARE_GEOMS)
        self._model = model

    def _add(self, mark: Mark) -> None:
        import mujoco

        kind = getattr(mujoco.mjtGeom, f"mjGEOM_{mark.kind.upper()}", None)
        if kind is None:
            kinds = "a sphere, box, cylinder, capsule, ellipsoid or arrow"
            raise CspoError(f"A mark is {kinds}, not {mark.kind!r}.")
        if self._geoms.ngeom >= self._geoms.maxgeom:
            raise CspoError(f"A scene can have about {SPARE_GEOMS} marks, not more.")
        place = np.asarray(mark.position, np.float64), np.eye(3).reshape(-1)
        size, rgba = np.asarray(mark.size, np.float64), np.asarray(mark.rgba, np.float32)
        mujoco.mjv_initGeom(self._geoms.geoms[self._geoms.ngeom], kind, size, *place, rgba)
        self._geoms.ngeom += 1


def pose(model: Any, data: Any) -> None:
    """Put everything a picture shows where the joints of `data` say."""
    import mujoco

    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)


def check_size(width: int, height: int) -> None:
    """Refuse a picture of a size that makes no sense."""
    for name, value in (("width", width), ("height", height)):
        if not SMALLEST <= value <= LARGEST:
            allowed = f"{SMALLEST} to {LARGEST} pixels"
            raise CspoError(f"The {name} of a picture is {allowed}, not {value}.")


def _camera(model: Any, view: View) -> Any:
    import mujoco

    camera = mujoco.MjvCamera()
    if view.fixed is not None:
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = model.camera(view.fixed).id
        return camera
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.lookat[:] = view.look_at
    camera.distance, camera.azimuth, camera.elevation = view.distance, view.azimuth, view.elevation
    return camera


def _close(reference: weakref.ref[Renderer]) -> None:
    """Close a renderer if it still exists; a reference does not keep it alive."""
    renderer = reference()
    if renderer is not None:
        renderer.close()
