"""Draw the native tasks and write the page that shows them: docs/pictures/*.png, docs/tasks.md.

python docs/make_pictures.py
"""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path

import numpy as np
from PIL import Image

from cspo.envs import make_batch
from cspo.envs.navigation.facts import TASKS as NAVIGATION
from cspo.envs.navigation.games import GAMES, Game
from cspo.envs.navigation.parts import SUB_STEPS
from cspo.envs.navigation.robots import ROBOTS
from cspo.envs.navigation.robots.car import CAR
from cspo.envs.tools.render import Renderer
from cspo.envs.velocity.facts import TASKS as VELOCITY
from cspo.runs.files import write_bytes, write_text

DOCS = Path(__file__).parent
SIZE = (320, 240)
SCALE = 2  # pictures are drawn larger and shrunk, for smooth edges
COLOURS = 160
LARGEST = 40_000  # bytes of a picture
STEPS = 8  # of random actions before the picture is taken, so that nothing stands as it was set up
# Of worlds with something to see in front of the robot; the front of the Car is another one.
SEEDS = {"Goal": 54, "Button": 11, "Push": 68, "Circle": 30, "Run": 57}
CAR_SEEDS = {"Goal": 22, "Button": 14, "Push": 8, "Run": 46}
VELOCITY_SEED = 5
CAMERAS = {"Circle": "track", "Run": "track"}  # following would show little but lines

TITLE = """# The tasks

The single-agent suite of Safety-Gymnasium: every robot plays every game, and six robots of
Gymnasium run with a speed limit. `cspo tasks` lists all {count}; `cspo tasks Racecar` or
`cspo tasks push 2` lists those with that in their name.
How close they are to the originals: [parity.md](parity.md). How to use them in other code:
[gymnasium.md](gymnasium.md). How to write one: [own-task.md](own-task.md).
`python docs/make_pictures.py` writes this page.

A step costs 0 or 1, an episode the sum of its steps; the benchmark allows 25. Terms of a cost can
be constrained one by one
(`cspo train SafetyPointButton1-v0 --cost-terms hazards,gremlins --cost-limit 25,5`).
`cspo eval RUN --video out.mp4 --camera fixedfar` films a policy on its task.
"""
WORDS_NAVIGATION = """`Safety<Robot><Game><Level>-v0`. Goals and obstacles are placed anew in every
episode, except in Circle and Run. Robots see by lidar, drawn as rings of lights above them. The
pictures show the highest level.
"""
WORDS_LEVELS = """Level 0 of Goal, Button, Push and Circle costs nothing. Vases, buttons, gremlins,
pillars and the box are solid; robots pass through the rest. An episode also ends where no place is
left for the next goal, and where the body of the Ant touches the floor.
"""
WORDS_VELOCITY = """`Safety<Robot>Velocity-v1`, and `-v0` with the limits of older versions. A robot
of Gymnasium (MuJoCo, v4) is paid for going forward; a step in which it is faster than its limit
costs 1 (the term is `velocity`). Falling ends the episode of Ant, Humanoid, Hopper and Walker2d.
All have 1000 steps.
"""
SUMS = {  # what each game pays for, and what its terms cost
    "Goal": "coming nearer to the goal; 1 for reaching it",
    "Button": "coming nearer to the marked button; 1 for pressing it",
    "Push": "coming nearer to the box, and bringing it nearer to the goal; 1 for delivering it",
    "Circle": "speed around the circle, most on its rim, which lies beyond the lines",
    "Run": "60 per metre down the path",
}
TERMS = {
    "hazards": "in a hazard",
    "vases_contact": "touching a vase",
    "vases_velocity": "a vase moves",
    "buttons": "pressing a wrong button",
    "gremlins": "touching a gremlin",
    "pillars": "touching a pillar",
    "out_of_boundary": "beyond a line",
}
FAMILIES = [
    (family, list(games))
    for family, games in itertools.groupby(GAMES, lambda game: game.name.rstrip("012"))
]


def main() -> None:
    """Write the pictures and the page."""
    folder = DOCS / "pictures"
    folder.mkdir(exist_ok=True)
    with Renderer(SCALE * SIZE[0], SCALE * SIZE[1]) as renderer:
        for robot, (family, games) in itertools.product(ROBOTS, FAMILIES):
            name = f"Safety{robot.name}{games[-1].name}-v0"
            seeds = SEEDS | CAR_SEEDS if robot is CAR else SEEDS
            picture = draw(name, seeds[family], CAMERAS.get(family, "follow"), renderer)
            write_picture(picture, folder / f"{name}.png")
        for name in VELOCITY:
            if name.endswith("-v1"):
                write_picture(draw(name, VELOCITY_SEED, "follow", renderer), folder / f"{name}.png")
    write_text(DOCS / "tasks.md", page())


def draw(name: str, seed: int, camera: str, renderer: Renderer) -> np.ndarray:
    """Return a picture of a task a few random steps into an episode."""
    env = make_batch(name, 1)
    env.reset(seed=seed)
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        env.step(random.uniform(env.action_low, env.action_high, (1, env.action_size)))
    picture = renderer.draw(env.scene(0), camera)  # type: ignore[attr-defined]
    env.close()
    return picture


def write_picture(picture: np.ndarray, path: Path) -> None:
    """Write a PNG; few colours keep it small, and shaded floors do not need more."""
    small = Image.fromarray(picture).resize(SIZE, Image.Resampling.LANCZOS)
    content = io.BytesIO()
    # Coverage, not frequency: a robot is small, and must not take on the colour of its floor.
    method = Image.Quantize.MAXCOVERAGE
    fewer = small.quantize(COLOURS, method, kmeans=2, dither=Image.Dither.NONE)
    fewer.save(content, "PNG", optimize=True)
    size = len(content.getvalue())
    assert size < LARGEST, f"{path.name} has {size} bytes"
    write_bytes(path, content.getvalue())
    print(f"{path.relative_to(DOCS.parent)}  {size // 1000} kB")


def page() -> str:
    """Return the page."""
    count = len(NAVIGATION) + len(VELOCITY)
    parts = [TITLE.format(count=count), "## Navigation\n", WORDS_NAVIGATION, grid(), levels()]
    parts += [WORDS_LEVELS, sizes(), "## Velocity\n", WORDS_VELOCITY, velocities()]
    return "\n".join(parts)


def grid() -> str:
    """Return the pictures: robots down, games across."""
    lines = ["| | " + " | ".join(family for family, _ in FAMILIES) + " |"]
    lines.append("|---" * (1 + len(FAMILIES)) + "|")
    for robot in ROBOTS:
        seconds = f"{robot.timestep * SUB_STEPS:g} s"
        actions = f"{robot.action_size} actions"
        cells = [f"**{robot.name}**<br>{actions}<br>{seconds} a step"]
        for _, games in FAMILIES:
            name = f"Safety{robot.name}{games[-1].name}-v0"
            cells.append(f"![{name}](pictures/{name}.png)")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def levels() -> str:
    """Return what there is in each game, and what it costs."""
    lines = ["| Game | Pays for | There are | Costs | Steps |", "|---|---|---|---|---|"]
    for family, games in FAMILIES:
        for game in games:
            pays = SUMS[family] if game is games[0] else ""
            costs = "; ".join(f"{TERMS[term]} (`{term}`)" for term in game.cost_terms)
            cells = [f"**{game.name}**", pays, things(game), costs or "nothing"]
            lines.append(f"| {' | '.join(cells)} | {game.time_limit} |")
    return "\n".join([*lines, ""])


def things(game: type[Game]) -> str:
    """Return what there is in a game, counted."""
    names = {"sigwalls": "lines", "push_box": "box"}
    objects = game.objects_for(ROBOTS[0])
    words = [(one.count, names.get(one.name, one.name)) for one in objects if one.count]
    return ", ".join(
        f"{count} {name.removesuffix('s') if count == 1 else name}" for count, name in words
    )


def sizes() -> str:
    """Return the sizes of the observations."""
    lines = ["Numbers in an observation: the robot's own, and 16 per lidar.", ""]
    lines.append("| | " + " | ".join(robot.name for robot in ROBOTS) + " | lidars of |")
    lines.append("|---" + "|---:" * len(ROBOTS) + "|---|")
    groups: dict[tuple[str, ...], list[str]] = {}
    for game in GAMES:
        seen = tuple(one.name for one in game.objects_for(ROBOTS[0]) if one.lidar)
        groups.setdefault((*seen, game.name[:-1]), []).append(game.name)
    for key, names in groups.items():
        rows = [NAVIGATION[f"Safety{robot.name}{names[0]}-v0"].row for robot in ROBOTS]
        cells = [", ".join(names), *(str(row.observation_size) for row in rows)]
        lines.append(f"| {' | '.join([*cells, ', '.join(key[:-1]) or 'none'])} |")
    return "\n".join([*lines, ""])


def velocities() -> str:
    """Return the robots with a speed limit."""
    lines = ["| | Robot | Limit of v1 | Limit of v0 | Speed | Observation | Action | Step |"]
    lines.append("|---|---|---:|---:|---|---:|---:|---:|")
    for name, task in VELOCITY.items():
        if not name.endswith("-v1"):
            continue
        old = VELOCITY[re.sub("v1$", "v0", name)]
        planar = [one.speed_is_planar for one in (task, old)]
        speed = {(True, True): "in the plane", (False, False): "forward"}.get(
            (planar[0], planar[1]), "forward; v0 in the plane"
        )
        row = task.row
        cells = [f"![{name}](pictures/{name}.png)", f"**{task.robot.name}**"]
        cells += [f"{task.speed_limit:g} m/s", f"{old.speed_limit:g} m/s", speed]
        cells += [str(row.observation_size), str(row.action_size), f"{row.step_seconds:g} s"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
