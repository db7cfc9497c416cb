"""Files of a run, really damaged: nothing readable is lost, what is said is a line or two."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_helpers import PYTHONPATH as RUN_PATH
from run_helpers import SMALL, TASK, TinyEnv, assert_same_run

import cspo
from cspo.cli import main
from cspo.config import read_toml
from cspo.errors import CspoError
from cspo.lab.study.storage import _is_intact as is_intact
from cspo.lab.study.storage import pack, unpack
from cspo.runs import checkpoint
from cspo.runs.files import read_bytes
from cspo.runs.plain import parse_json, parse_toml, read_json
from cspo.runs.progress import read_progress, read_rows

EPOCHS = 6
SETTINGS = {**SMALL, "total_steps": 400 * EPOCHS}


@pytest.fixture(scope="module")
def reference(no_pictures: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    run = tmp_path_factory.mktemp("reference") / "run"
    cspo.train(TASK, run_dir=run, quiet=True, **SETTINGS)
    return run


@pytest.fixture
def run(reference: Path, tmp_path: Path) -> Path:
    shutil.copytree(reference, tmp_path / "run")
    return tmp_path / "run"


def comma(lines: list[str]) -> None:
    lines[2] = lines[2].replace(",", ",,", 1)


def changed_digit(lines: list[str]) -> None:
    cells = lines[2].split(",")
    cells[2] = "9" + cells[2]
    lines[2] = ",".join(cells)


def lost_row(lines: list[str]) -> None:
    del lines[3]


def no_header(lines: list[str]) -> None:
    del lines[0]


def text(lines: list[str]) -> None:
    lines[4] = "what a pity\n"


def twice(lines: list[str]) -> None:
    lines.insert(3, lines[2])


@pytest.mark.parametrize("damage", [comma, changed_digit, lost_row, no_header, text, twice])
def test_resume_builds_rows_again_and_keeps_the_damaged_file(
    run: Path, reference: Path, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = run / "progress.csv"
    lines = progress.read_text().splitlines(keepends=True)
    damage(lines)
    progress.write_text("".join(lines))
    damaged = progress.read_bytes()
    assert main(["train", "--resume", str(run), "--quiet"]) == 0
    said = capsys.readouterr().err
    assert "progress.csv was damaged" in said and "kept as progress.csv.damaged" in said
    assert (run / "progress.csv.damaged").read_bytes() == damaged
    assert_same_run(run, reference)
    assert main(["train", "--resume", str(run), "--quiet"]) == 0
    assert "damaged" not in capsys.readouterr().err
    assert not (run / "progress.csv.damaged-2").exists()


def test_rows_that_were_fine_stay_as_they_were(run: Path) -> None:
    progress = run / "progress.csv"
    before = progress.read_text().splitlines()
    progress.write_text("\n".join([*before[:3], "x" + before[3], *before[4:]]) + "\n")
    cspo.resume(run, quiet=True)
    after = progress.read_text().splitlines()
    assert [*after[:3], *after[4:]] == [*before[:3], *before[4:]]
    speed = before[0].split(",").index("steps_per_second")
    ours, theirs = after[3].split(","), before[3].split(",")
    assert ours.pop(speed) == "nan" and theirs.pop(speed) and ours == theirs


def test_without_rows_in_the_checkpoint_the_readable_ones_stay(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of the first release: its checkpoints had none."""
    for path in checkpoint.list_checkpoints(run / "checkpoints"):
        state = checkpoint.load(path)
        del state["progress"]
        checkpoint.save(path.parent, state["epoch"], state)
    progress = run / "progress.csv"
    lines = progress.read_text().splitlines(keepends=True)
    comma(lines)
    progress.write_text("".join(lines))
    assert main(["train", "--resume", str(run), "--quiet"]) == 0
    said = capsys.readouterr().err
    assert f"holds {EPOCHS - 1} of the {EPOCHS} epochs done" in said
    assert progress.read_text() == "".join([*lines[:2], *lines[3:]])
    assert (run / "progress.csv.damaged").read_text() == "".join(lines)


def test_whatever_happens_to_progress_no_row_is_lost(run: Path, reference: Path) -> None:
    rng, progress = random.Random(3), run / "progress.csv"
    whole = (reference / "progress.csv").read_bytes()
    for _ in range(25):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(len(content))
            how = rng.randrange(4)
            if how == 0:
                content[place] = rng.randrange(256)
            elif how == 1:
                content[place:place] = rng.choice([b",", b"\n", b"\0", b'"', b"\xff", b"1e999"])
            elif how == 2:
                del content[place : place + rng.randrange(80)]
            else:
                content[place:place] = content[: rng.randrange(200)]
        progress.write_bytes(content)
        assert main(["train", "--resume", str(run), "--quiet"]) == 0
        assert_same_run(run, reference)
        kept = [file.read_bytes() for file in run.glob("progress.csv.damaged*")]
        assert (
            bytes(content) in kept
            or progress.read_bytes() == bytes(content)
            or _only_tail(bytes(content), progress.read_bytes())
        )


def _only_tail(before: bytes, after: bytes) -> bool:
    """Whether all that is gone is the end of a line, which a kill leaves."""
    return before.startswith(after) and b"\n" not in before[len(after) :]


def folder_instead(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def pipe_instead(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def writes(content: bytes) -> Any:
    return lambda path: path.write_bytes(content)


DAMAGE: dict[str, Any] = {
    "folder": folder_instead,
    "pipe": pipe_instead,
    "empty": writes(b""),
    "deep list": writes(b"x = " + b"[" * 20_000),
    "deep JSON": writes(b"[" * 20_000),
    "list": writes(b"[1, 2]\n"),
    "digits": writes(b'{"cost_names": ' + b"9" * 5000 + b"}\n"),
    "number": writes(b"task = " + b"9" * 5000 + b"\n"),
    "dates": writes(b"task = 1979-05-27\nalgo = 7\nseed = []\n"),
    "bytes": writes(bytes(range(256)) * 4),
    "utf-16": writes("epoch,steps\n1,2\n".encode("utf-16")),
    "names": writes(b'{"cost_names": ["$\\\\frac", 3, null], "versions": [1], "finished": true}'),
    "no columns": writes(b"epoch,other\n0,1\n1,2\n"),
    "wide": writes(b"a," * 50_000 + b"\n" + b"1," * 50_000 + b"\n"),
    "infinite": writes(b"epoch,steps,return,cost,cost_limit\n0,1e999,-inf,nan,1e308\n1,2,3,4,5\n"),
    "quote": writes(b'epoch,steps,return,cost,cost_limit\n0,1,2,3,"4\n1,2,3,4,5\n'),
}
FILES = ("progress.csv", "summary.json", "config.toml")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_no_command_shows_a_traceback(
    run: Path,
    tmp_path: Path,
    name: str,
    damage: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading commands change nothing; --resume changes nothing that it cannot read."""
    if name != "progress.csv":  # whose numbers are what figures show
        monkeypatch.setattr("cspo.lab.report.figures.draw_figures", lambda results: [])
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
    damage(run / name)
    before = contents(run)
    for words in (
        ["metrics", str(run)],
        ["report", str(run), "--out", str(tmp_path / "report")],
        ["plot", str(run)],
        ["train", "--resume", str(run), "--quiet"],
    ):
        code = main(words)
        said = capsys.readouterr().err
        errors = [line for line in said.splitlines() if "error" in line]
        assert code in (0, 2) and (code == 0 or len(errors) == 1), (words, said)
        assert len(said.splitlines()) <= 4
        if words[0] in ("metrics", "report"):
            assert contents(run) == before, words
    mine = before.get(name, b"")
    kept = [content for file, content in contents(run).items() if file.startswith(name)]
    assert name != "progress.csv" or not mine or mine in kept


def contents(run: Path) -> dict[str, bytes]:
    files = [path for path in run.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in files}


def test_settings_say_what_is_wrong_with_them(run: Path, tmp_path: Path) -> None:
    config = run / "config.toml"
    settings = config.read_bytes()
    config.write_bytes(b"\xef\xbb\xbf" + settings)  # as some editors save it
    assert cspo.load(run).epoch == EPOCHS
    for content, said in ((b"", "is empty"), (settings.split(b"algo")[0], "does not say algo")):
        config.write_bytes(content)
        with pytest.raises(CspoError, match=said):
            cspo.load(run)
    for content, said in (
        (b"x = " + b"[" * 50 + b"]" * 50, "nested"),
        (b"x = 99999999999999999999", "64 bits"),
        ("task = 'ä'".encode("utf-16"), "UTF-8"),
    ):
        config.write_bytes(content)
        with pytest.raises(CspoError, match=said):
            read_toml(config)


def test_huge_numbers_in_settings_are_refused_in_words() -> None:
    for value in (2**63, 10**400, 1e300):
        with pytest.raises(CspoError, match="64 bits"):
            cspo.make_config(TASK, total_steps=value)
    with pytest.raises(CspoError, match="64 bits"):
        cspo.make_config(TASK, gamma=10**400)


def test_random_texts_are_plain_data_or_a_value_error(tmp_path: Path) -> None:
    rng, words = (
        random.Random(5),
        ["[", "]", "{", "}", '"', "=", ",", "1", "e9", ".", "a", "\n", ":"],
    )
    words += [
        "inf",
        "nan",
        "9" * 50,
        "9" * 5000,
        "\0",
        "é",
        "true",
        "[[a]]",
        "#",
        "'''",
        "1979-05-27",
    ]
    for _ in range(2000):
        candidate = "".join(rng.choice(words) for _ in range(rng.randint(1, 40)))
        for parse in (parse_json, parse_toml):
            try:
                parse(candidate)
            except ValueError as fault:
                assert str(fault)
    (tmp_path / "x.json").write_bytes(b"\xff" * 9)
    assert read_json(tmp_path / "x.json") is None and read_json(tmp_path) is None


def test_what_unpacks_to_gigabytes_is_not_unpacked(run: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "progress.csv.gz"
    with gzip.open(bomb, "wb", compresslevel=9) as file:
        for _ in range(80):
            file.write(b"0" * 2**20)
    assert bomb.stat().st_size < 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (read_bytes, read_rows, lambda path: read_progress(path, tail=100)):
        with pytest.raises((OSError, CspoError), match="more than 64 MB"):
            read(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("progress.csv", b"0" * 2**24)
    assert not is_intact(content.getvalue(), None)
    packed = pack(run)[1]
    assert is_intact(packed, None)
    unpack(packed, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(run)


def test_the_same_command_works_after_no_epoch_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SMALL, "total_steps": 400, "num_envs": 1, "run_dir": tmp_path / "run"}

    def broken() -> TinyEnv:
        env = TinyEnv(faulty=True)
        env.steps = 249
        return env

    with pytest.raises(CspoError, match="No epoch was finished"):
        cspo.train(broken, quiet=True, **settings)
    monkeypatch.setenv("CSPO_TEST_MENDED", "1")
    assert cspo.train(broken, quiet=True, **settings).finished
    with pytest.raises(CspoError, match="already holds a run"):
        cspo.train(broken, quiet=True, **settings)


def test_a_trainer_of_this_process_is_not_called_another(tmp_path: Path) -> None:
    config = cspo.make_config(TASK, **SETTINGS)
    trainer = cspo.Trainer(config, run_dir=tmp_path / "run")
    with pytest.raises(CspoError, match="A trainer of this program"):
        cspo.Trainer.resume(tmp_path / "run")
    assert trainer.run is not None
    trainer.run.close()
    trainer.env.close()


FULL = """
import resource, sys
from cspo.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file may grow, as on a full disk
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", [["plot"], ["train", "--quiet", "--resume"]])
def test_a_full_disk_is_one_line(run: Path, words: list[str]) -> None:
    before = contents(run)
    (run / "summary.json").unlink()
    done = subprocess.run(
        [sys.executable, "-c", FULL, *words, str(run)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": RUN_PATH},
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "Cannot write to" in done.stderr and "Traceback" not in done.stderr
    assert {**contents(run), "summary.json": before["summary.json"]} == before


def test_close_says_that_the_disk_is_full(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trainer = cspo.Trainer(cspo.make_config(TASK, **SETTINGS), run_dir=tmp_path / "other")
    assert trainer.run is not None

    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer.run._progress, "close", full)
    with pytest.raises(CspoError, match=r"Cannot write to run folder .*: No space left"):
        trainer.run.close()
    with pytest.raises(CspoError, match="already holds a run"):
        (tmp_path / "other" / "summary.json").write_text("{}")
        cspo.Trainer(cspo.make_config(TASK, **SETTINGS), run_dir=tmp_path / "other")
    assert json.loads((run / "summary.json").read_text())["finished"]
    np.testing.assert_array_equal(read_progress(run / "progress.csv")["epoch"], range(EPOCHS))
