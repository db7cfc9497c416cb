"""An exported policy where there is no cspo: a new virtual environment with onnxruntime alone.

python benchmarks/onnx_alone.py RUN

Makes the environment, exports the run, and compares the actions of the file there with those of
the policy here, on 500 observations of the policy's episodes and on 500 that it never saw.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from contextlib import closing
from pathlib import Path

import numpy as np

import cspo

THERE = """
import importlib.util, sys
import numpy, onnxruntime
assert importlib.util.find_spec("cspo") is None
file, given, taken = sys.argv[1:]
session = onnxruntime.InferenceSession(file)
rows = numpy.load(given)
actions = [session.run(["action"], {"observation": row[None]})[0][0] for row in rows]
numpy.save(taken, actions)
print("onnxruntime", onnxruntime.__version__, "and numpy", numpy.__version__, "without cspo")
"""


def main(run: Path) -> None:
    policy = cspo.load(run)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python = str(folder / "env" / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "onnxruntime", "numpy"]
        subprocess.run(install, check=True)
        cspo.export(run, "onnx", out=folder / "export", episodes=0)
        with closing(cspo.make_batch(policy.config.task, num_envs=1)) as env:
            seen = [env.reset(seed=3)[0].copy()]
            while len(seen) < 500:
                seen.append(env.step(policy.act(seen[-1][None])).observation[0].copy())
        wild = np.random.default_rng(0).normal(0.0, 2.0, (500, policy.observation_size))
        for title, rows in (("its own episodes", np.array(seen)), ("noise", wild)):
            given, taken = folder / "rows.npy", folder / "actions.npy"
            np.save(given, rows)
            words = [folder / "export" / "policy.onnx", given, taken]
            subprocess.run([python, "-c", THERE, *map(str, words)], check=True, cwd=folder, env={})
            here = np.array([policy(row) for row in rows])
            difference = np.abs(here - np.load(taken)).max()
            print(f"{title}: {difference:.1e} at most, of actions up to {np.abs(here).max():.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
