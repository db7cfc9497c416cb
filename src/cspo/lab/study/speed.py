"""What a study costs, from measured speeds."""

from __future__ import annotations

from cspo.envs.tasks import native_name
from cspo.lab.study.grid import Study

# Environment steps per second of training on one core: half of what two single-threaded runs side
# by side make on the two cores of benchmarks/README.md, CSPO with the paper's settings.
STEPS_PER_SECOND = {
    "SafetyAntVelocity-v1": 4_450,
    "SafetyHumanoidVelocity-v1": 2_950,
    "SafetyHalfCheetahVelocity-v1": 14_300,
    "SafetyHopperVelocity-v1": 10_150,
    "SafetySwimmerVelocity-v1": 16_000,
    "SafetyPointGoal1-v0": 10_000,
    "SafetyPointButton1-v0": 5_200,
    "SafetyCarGoal1-v0": 4_600,
    "SafetyCarButton1-v0": 3_150,
}
OTHERWISE = 5_000  # assumed of an environment that was not measured


def core_hours(study: Study) -> float:
    """Return the hours one core needs for a study, at the speeds above."""
    seconds = 0.0
    for spec in study.runs:
        seconds += spec.steps / STEPS_PER_SECOND.get(native_name(spec.task) or "", OTHERWISE)
    return seconds / 3600.0
