"""Video files from pictures: MP4 that every browser plays, or GIF; complete or not at all."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from cspo.envs.tools.render import Picture
from cspo.errors import CspoError

INSTALL = "pip install 'cspo[video]'"
FASTEST = {".mp4": 60.0, ".gif": 25.0}  # pictures per second of each kind of file
QUALITY = {"crf": "21", "preset": "veryfast"}  # of H.264: smaller crf is better and larger


class VideoWriter:
    """Writes a video picture by picture: `with VideoWriter(...) as video: video.add(picture)`.

    The file is written under a temporary name and renamed when it is complete; if something goes
    wrong, an older file of that name stays as it was.

    Args:
        path: Where to; the ending decides, `.mp4` or `.gif`.
        fps: Pictures per second.
        width: Of the pictures, in pixels.
        height: Of the pictures, in pixels.

    Raises:
        CspoError: If the file cannot be written or a package is missing.
    """

    def __init__(self, path: Path | str, fps: float, width: int, height: int) -> None:
        """Open the file."""
        self.path = check_target(path)
        if not (math.isfinite(fps) and fps > 0):
            raise CspoError(f"A video needs a positive number of pictures per second, not {fps}.")
        self.width, self.height, self.frames = width, height, 0
        self._partial = self.path.with_name(f".{self.path.name}.partial")
        make: type[_Gif | _Mp4] = _Gif if self.path.suffix.lower() == ".gif" else _Mp4
        try:
            with _explained(self.path):
                self._encoder = make(self._partial, fps, width, height)
        except CspoError:
            self._partial.unlink(missing_ok=True)
            raise

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def add(self, picture: Picture) -> None:
        """Append one picture, (height, width, 3) of bytes."""
        if picture.shape != (self.height, self.width, 3) or picture.dtype != np.uint8:
            wanted = f"({self.height}, {self.width}, 3) of uint8"
            given = f"{picture.shape} of {picture.dtype}"
            raise CspoError(f"A picture of this video is {wanted}, not {given}.")
        with _explained(self.path):
            self._encoder.add(picture)
        self.frames += 1

    def close(self) -> None:
        """Complete the file and give it its name."""
        try:
            with _explained(self.path):
                if not self.frames:
                    fault = f"{self.path} was not written"
                    raise CspoError(f"{fault}: a video needs at least one picture.")
                self._encoder.finish()
                with open(self._partial, "rb+") as file:
                    os.fsync(file.fileno())
                os.replace(self._partial, self.path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Give up: leave no file behind."""
        with suppress(Exception):  # what went wrong is already on its way to the user
            self._encoder.close()
        with suppress(OSError):
            self._partial.unlink(missing_ok=True)


def check_target(path: Path | str) -> Path:
    """Return the path of a video to be, or say why it could not be written; costs nothing."""
    path = Path(path).absolute()  # an environment may change the current directory
    suffix = path.suffix.lower()
    if suffix not in FASTEST:
        raise CspoError(f"A video is an .mp4 or a .gif file, and {path.name!r} is neither.")
    _require("PIL" if suffix == ".gif" else "av")
    if os.path.isdir(path):
        raise CspoError(f"{path} is a folder: name a file in it.")
    if not os.path.isdir(path.parent):
        fault = f"There is no folder {path.parent} to write {path.name} to"
        raise CspoError(f"{fault}: create it first.")
    trial = path.with_name(f".{path.name}.partial")
    try:
        trial.unlink(missing_ok=True)  # first: a link would lead elsewhere
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as fault:
        raise CspoError(f"Cannot write {path}: {fault.strerror or fault}.") from fault
    return path


class _Mp4:
    """H.264 in yuv420p, the combination that browsers play; it needs even sides."""

    def __init__(self, path: Path, fps: float, width: int, height: int) -> None:
        import av

        self._frame = av.VideoFrame.from_ndarray
        # The index goes to the front, so that a browser can start before it has the whole file.
        self._file: Any = av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"})
        rate = Fraction(fps).limit_denominator(10_000)
        self._stream = self._file.add_stream("libx264", rate=rate, options=QUALITY)
        self._stream.width, self._stream.height = width + width % 2, height + height % 2
        self._stream.pix_fmt = "yuv420p"
        self._padding = ((0, height % 2), (0, width % 2), (0, 0))

    def add(self, picture: Picture) -> None:
        even = np.pad(picture, self._padding, mode="edge")
        self._file.mux(self._stream.encode(self._frame(even, format="rgb24")))

    def finish(self) -> None:
        self._file.mux(self._stream.encode(None))
        self.close()

    def close(self) -> None:
        self._file.close()


class _Gif:
    """All pictures are kept until the end, one byte per pixel: a GIF is for short films."""

    def __init__(self, path: Path, fps: float, width: int, height: int) -> None:
        self._path, self._fps = path, fps
        self._pictures: list[Any] = []

    def add(self, picture: Picture) -> None:
        from PIL import Image

        self._pictures.append(Image.fromarray(picture).quantize(128, dither=Image.Dither.NONE))

    def finish(self) -> None:
        first, *others = self._pictures
        # GIF counts in hundredths of a second: the times are rounded, not the durations.
        times = np.round(np.arange(len(others) + 2) * 100 / self._fps).astype(int)
        film = {"append_images": others, "duration": (10 * np.diff(times)).tolist(), "loop": 0}
        first.save(self._path, "GIF", save_all=True, **film)

    def close(self) -> None:
        self._pictures.clear()


def _require(module: str) -> None:
    try:
        __import__(module)
    except ImportError as fault:
        package = {"PIL": "pillow"}.get(module, module)
        raise CspoError(f"Videos need the package {package} ({fault}): {INSTALL}") from fault


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn a full disk, a missing permission or a refusal of the encoder into a sentence."""
    try:
        yield
    except CspoError:
        raise
    except Exception as fault:  # the encoders have exception classes of their own
        reason = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
        raise CspoError(f"Cannot write {path}: {str(reason).rstrip('.')}.") from fault
