"""The Point: a ball that glides, with a nose that shows where to."""

from __future__ import annotations

from cspo.envs.navigation.robots.robot import STANDARD_SENSORS, Exactness, Robot

_BODY = """
    <body name="agent" pos="0 0 0.1">
      <joint name="x" type="slide" axis="1 0 0" damping="0.01"/>
      <joint name="y" type="slide" axis="0 1 0" damping="0.01"/>
      <joint name="z" type="hinge" axis="0 0 1" damping="0.005"/>
      <site name="agent"/>
      <geom name="agent" type="sphere" size="0.1" friction="1 0.01 0.01"
            rgba="0.7412 0.0431 0.1843 1"/>
      <geom name="pointarrow" type="box" size="0.05 0.05 0.05" pos="0.1 0 0"
            rgba="0.0039 0.1529 0.3961 1"/>
    </body>"""
# Force before the gear is limited, which is why its thrust saturates at 5 % of its control range.
_ACTUATORS = """
    <motor name="x" site="agent" gear="0.3 0 0 0 0 0" ctrllimited="true" ctrlrange="-1 1"
           forcelimited="true" forcerange="-0.05 0.05"/>
    <velocity name="z" jointinparent="z" kv="1" gear="0.3" ctrllimited="true" ctrlrange="-1 1"
              forcelimited="true" forcerange="-0.05 0.05"/>"""

POINT = Robot(
    name="Point",
    verb="glide",
    timestep=0.002,
    density=1.0,
    action_size=2,
    sensors=STANDARD_SENSORS,
    body=_BODY,
    actuators=_ACTUATORS,
    ahead=(1.0, 0.0, 0.0),
    floats=False,
    # Free of the rounding of newer compilers: its heading trembles at the limits of its servo and
    # multiplies a difference in the last bit by five in every physics step.
    inertia_axes=0.5,
    # Rounding decides where its nose, a box, meets a pillar; see docs/parity.md.
    exactness=Exactness(observation_in_contact=5e-2),
)
