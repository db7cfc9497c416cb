"""Copies of a slow environment in processes of their own.

`batch` is the `BatchEnv` of the training process, `handle` its hold on one worker, `process` what
a worker runs, `channel` how the two talk and `memory` the arrays they share.
"""
