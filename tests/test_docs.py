"""The code on the documentation pages runs as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import cspo
from cspo.algorithms import registry

ROOT = Path(__file__).parents[1]


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_algorithm_of_the_page_trains_and_prices_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry.algorithm_names()  # loads the built-in ones
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    code, in_torch = python_blocks("docs/own-algorithm.md")
    assert "total_steps=100_000" in code
    short = 'total_steps=800, steps_per_epoch=400, num_envs=4, run_dir="run", quiet=True'
    code = code.replace("total_steps=100_000", short)
    (tmp_path / "page.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    page = __import__("page")
    try:
        assert page.summary.epochs == 2
        assert cspo.resume("run", quiet=True).parameter_hash == page.summary.parameter_hash
        size: Any = {"total_steps": 800, "steps_per_epoch": 400, "num_envs": 4, "quiet": True}
        task = "SafetyHopperVelocity-v1"
        free = cspo.train(task, "fixed-price", price=0.0, run_dir="free", **size)
        assert free.parameter_hash != page.summary.parameter_hash  # the price does something
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'cspo[torch]'")
        names: dict[str, Any] = {}
        exec(compile(in_torch, "own-algorithm.md", "exec"), names)
        monkeypatch.setattr(page.FixedPrice, "update", names["update"])
        torch = cspo.train(task, "fixed-price", run_dir="torch", **size)
        assert torch.finished
    finally:
        del sys.modules["page"]


def test_the_readme_loop_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = python_blocks("README.md")
    assert "total_steps=1_000_000" in code
    code = code.replace("total_steps=1_000_000", "total_steps=800, steps_per_epoch=400, num_envs=4")
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    policy = names["policy"]
    assert callable(policy)
    assert policy([0.0] * 11).shape == (3,)


def test_the_index_of_algorithms_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        name
        for name in registry.algorithm_names()
        if registry.is_built_in(registry.get_algorithm(name))
    ]
    monkeypatch.setattr(
        registry, "_registry", {name: registry.get_algorithm(name) for name in names}
    )
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    index = __import__("make_algorithm_index")
    assert index.PAGE.read_text(encoding="utf-8") == index.page(), (
        "run python docs/make_algorithm_index.py"
    )


def test_the_code_of_the_gymnasium_page_runs() -> None:
    blocks = python_blocks("docs/gymnasium.md")
    assert len(blocks) == 3
    for code in blocks:
        exec(compile(code, "docs/gymnasium.md", "exec"), {})


def test_the_page_of_the_tasks_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL", reason="pip install 'cspo[video]' brings Pillow")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    tasks = __import__("make_pictures")
    page = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    assert page == tasks.page(), "run python docs/make_pictures.py"
    shown = {ROOT / "docs" / name for name in re.findall(r"pictures/Safety[^)]*\.png", page)}
    assert shown == set((ROOT / "docs" / "pictures").glob("Safety*.png")) and len(shown) == 31
    assert sum(path.stat().st_size for path in shown) < 1_500_000
