"""Draw every native task and write the page that shows them: docs/pictures/*.png and docs/tasks.md.

python docs/make_pictures.py
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from cspo.envs import TaskRow, make_batch, native_tasks
from cspo.envs.tools.render import Renderer
from cspo.runs.files import write_bytes, write_text

DOCS = Path(__file__).parent
SIZE = (400, 300)
LARGEST = 150_000  # bytes of a picture
STEPS = 12  # of random actions before the picture is taken, so that nothing stands as it was set up
SEED = 5  # of a world with a goal in front of the robots

TITLE = """# The tasks

What `cspo tasks` lists, drawn by this package. `python docs/make_pictures.py` writes this page and
its pictures.

A step costs 0 or 1, an episode the sum of its steps; the benchmark allows 25 in an episode of 1000
steps.
`cspo eval RUN --video out.mp4` films a policy on its task ([commands.md](commands.md)).
"""
FAMILIES = {
    "velocity": """A robot of Gymnasium (MuJoCo, v4) is rewarded for going forward; every step in
which it is faster than its limit costs 1. Falling ends the episode of Ant, Humanoid and Hopper.""",
    "navigation": """A robot on a plane sees by lidar and is rewarded for coming closer to its goal;
every step in which it touches what it should not costs 1. Goals and obstacles are placed anew in
every episode.""",
}


def main() -> None:
    """Write the pictures and the page."""
    folder = DOCS / "pictures"
    folder.mkdir(exist_ok=True)
    rows = native_tasks()
    with Renderer(*SIZE) as renderer:
        for row in rows:
            write_picture(draw(row.name, renderer), folder / f"{row.name}.png")
    families = dict.fromkeys(row.family for row in rows)
    sections = [
        section(family, [row for row in rows if row.family == family]) for family in families
    ]
    write_text(DOCS / "tasks.md", "\n".join([TITLE, *sections]))


def draw(name: str, renderer: Renderer) -> np.ndarray:
    """Return a picture of a task a few random steps into an episode."""
    env = make_batch(name, 1)
    env.reset(seed=SEED)
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        env.step(random.uniform(env.action_low, env.action_high, (1, env.action_size)))
    picture = renderer.draw(env.scene(0))  # type: ignore[attr-defined]
    env.close()
    return picture


def write_picture(picture: np.ndarray, path: Path) -> None:
    """Write a PNG; few colours keep it small, and shaded floors do not need more."""
    content = io.BytesIO()
    Image.fromarray(picture).quantize(200, dither=Image.Dither.NONE).save(
        content, "PNG", optimize=True
    )
    size = len(content.getvalue())
    assert size < LARGEST, f"{path.name} has {size} bytes"
    write_bytes(path, content.getvalue())
    print(f"{path.relative_to(DOCS.parent)}  {size // 1000} kB")


def section(family: str, rows: list[TaskRow]) -> str:
    """Return the part of the page about one family of tasks."""
    lines = [f"## {family.capitalize()} tasks", "", FAMILIES[family], ""]
    lines += ["| | Task | Observation | Action | Step | Cost of |", "|---|---|---|---|---|---|"]
    for row in rows:
        picture = f"![{row.name}](pictures/{row.name}.png)"
        what = f"**{row.name}**<br>{row.description}"
        sizes = f"{row.observation_size} | {row.action_size} | {row.step_seconds:g} s"
        lines.append(f"| {picture} | {what} | {sizes} | {', '.join(row.cost_terms)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
