"""`cspo watch`: what its server answers, to whom, and what it tells of runs and studies."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from report_helpers import STEPS, write_run
from run_helpers import SMALL, TASK, as_flags, start, wait_for_epochs
from watch_helpers import HOSTILE, TINY, Reply, Site, _at_once, add_rows, all_rows, served

from cspo.cli import main
from cspo.lab.watch import run as watched
from cspo.runs.files import open_lock, try_lock
from cspo.runs.progress import read_progress

__all__ = ["_at_once"]  # a fixture
at_once = pytest.mark.usefixtures("_at_once")
REFUSED, GONE, NEVER = 403, 404, 405


def small_run(root: Path, epochs: int = 5, **more: Any) -> Path:
    numbers = np.arange(float(epochs))
    more = {"returns": 10 * numbers, "cost": 40 - 5 * numbers, "planned": 10, **more}
    return write_run(root, **more)


def summarised(run: Path, **told: Any) -> None:
    (run / "summary.json").write_text(json.dumps(told))


def one_more(epoch: int, cost: float = 1.0) -> dict[str, float]:
    steps = STEPS * (epoch + 1)
    return {"epoch": epoch, "steps": steps, "return": 7.0 * epoch, "cost": cost, "cost_limit": 25.0}


def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


# ---- who is answered, and what ----


def test_it_listens_on_this_machine_alone(tmp_path: Path) -> None:
    with served(small_run(tmp_path)) as site:
        assert site.server.server_address[0] == "127.0.0.1"
        assert site.ask("/").status == 200
        if sys.platform == "linux":  # where all of 127.0.0.0/8 leads here
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.2", site.port), timeout=5)


def raw(site: Site, request: bytes) -> bytes:
    """Send bytes and return all that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as line:
        line.sendall(request)
        found = b""
        while chunk := line.recv(65536):
            found += chunk
        return found


def test_only_the_names_of_this_machine_are_answered(tmp_path: Path) -> None:
    """A foreign name that leads here would let a stranger's page read the answers."""
    with served(small_run(tmp_path)) as site:
        for host in ("127.0.0.1", "localhost", "LOCALHOST:9", f"[::1]:{site.port}", "[::1]"):
            assert site.ask("/data", Host=host).status == 200, host
        foreign = ["evil.example", f"evil.example:{site.port}", "127.0.0.1.evil.example", "0.0.0.0"]
        foreign += ["localhost.evil.example", "localhost@evil.example", "evil.example:localhost"]
        for host in [*foreign, "127.0.0.1:evil", ":80", "[::1", "192.168.1.2", ""]:
            for path in ("/", "/data", "/run.js"):
                reply = site.ask(path, Host=host)
                assert reply.status == REFUSED, host
                assert b"SafetyHopper" not in reply.body
        assert raw(site, b"GET /data HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403")
        # The name in the first line counts for nothing.
        whole = f"GET http://127.0.0.1:{site.port}/data HTTP/1.1\r\nHost: evil.example\r\n\r\n"
        assert raw(site, whole.encode()).startswith(b"HTTP/1.1 403")


def test_nothing_can_be_sent_to_it(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    before = {path: path.read_bytes() for path in run.iterdir()}
    with served(run) as site:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
            reply = site.ask("/data", method)
            assert reply.status == NEVER and reply.headers["Allow"] == "GET, HEAD", method
        # What a refused request carries is not taken for the next one.
        body = b"GET /data HTTP/1.1\r\nHost: localhost\r\n\r\n"
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        assert raw(site, head + body).count(b"HTTP/1.1 ") == 1
        whole, head_only = site.ask("/"), site.ask("/", "HEAD")
        assert head_only.body == b"" and head_only.status == 200
        assert head_only.headers["Content-Length"] == str(len(whole.body))
    assert {path: path.read_bytes() for path in run.iterdir()} == before


PATHS = [
    "/config.toml",
    "/progress.csv",
    "/../config.toml",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/..%2f..%2fsecret.txt",
    "//etc/passwd",
    "/run/../secret.txt",
    "/run/..%2fsecret.txt/data",
    "/run/%2e%2e/data",
    "/run/a%2f..%2fb/data",
    "/run/%00/data",
    "/run/a/config.toml",
    "/run/a/data/x",
    "/page/run.html",
    "/run.html",
    "/plot.js/",
    "/video",
    "/" + "a" * 5000,
    "/a" * 500,
]


def test_no_path_leads_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    study = tmp_path / "runs"
    for name in "ab":
        small_run(study, name=name)
    with served(study) as site:
        assert site.data("/run/a/data")["done"] == 5
        for path in PATHS:
            reply = site.ask(path)
            assert reply.status == GONE, path
            assert b"secret" not in reply.body and b"root:" not in reply.body
        long = f"GET /{'a' * 70_000} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        assert raw(site, long).startswith(b"HTTP/1.1 414")
        assert raw(site, b"\x00\xff nonsense\r\n\r\n").count(b"HTTP/1.1 ") <= 1
        assert site.ask("/").status == 200  # it is still there


def test_every_answer_keeps_other_sites_out(tmp_path: Path) -> None:
    with served(small_run(tmp_path)) as site:
        for path in ("/", "/data", "/run.js", "/watch.css", "/icon.svg", "/nothing"):
            headers = site.ask(path, Origin="https://evil.example").headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy and "http" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert not any(name.startswith("Access-Control") for name in headers)


def test_the_page_asks_for_nothing_from_elsewhere(tmp_path: Path) -> None:
    with served(small_run(tmp_path)) as site:
        for path in ("/", "/run.js", "/plot.js", "/words.js", "/shelf.js", "/watch.css"):
            text = site.ask(path).body.decode().replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?:|//\w+\.|@import|url\(", text), path


def test_text_of_a_run_is_text_on_the_page(tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "-")
    run = small_run(tmp_path, task=HOSTILE, algo=HOSTILE, name=name)
    with served(run) as site:
        page = site.ask("/").body.decode()
        assert "<img" not in page and page.count("<script") == 1 and "{{ 7 * 7 }}" in page
        assert site.data()["name"] == name
    with served(tmp_path) as site:
        assert [row["id"] for row in site.data()["rows"]] == [name]


@pytest.mark.skipif(sys.platform != "linux", reason="names of bytes that are no text")
def test_a_folder_whose_name_is_no_text_is_passed_over_or_shown(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    small_run(tmp_path, name="plain").rename(tmp_path / "plain")
    shutil.copytree(tmp_path / "plain", odd)
    with served(tmp_path) as site:
        assert [row["id"] for row in site.data()["rows"]] == ["plain"]
    with served(odd) as site:
        assert site.ask("/").status == site.ask("/data").status == 200


@at_once
def test_films_are_sent_in_parts_and_links_are_not_followed(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    secret = tmp_path / "secret.mp4"
    secret.write_bytes(b"secret")
    (run / "link.mp4").symlink_to(secret)
    (run / "empty.mp4").touch()
    (run / "videos").mkdir()
    film = bytes(range(256)) * 1000
    with served(run) as site:
        assert site.data()["video"] is None and site.ask("/video").status == GONE
        (run / "videos" / "old.gif").write_bytes(b"GIF89a")
        os.utime(run / "videos" / "old.gif", (1, 1))
        (run / "policy.mp4").write_bytes(film)
        assert site.data()["video"]["name"] == "policy.mp4"
        whole = site.ask("/video")
        assert (whole.status, whole.headers["Content-Type"]) == (200, "video/mp4")
        assert whole.body == film

        def part(asked: str) -> Reply:
            return site.ask("/video", Range=asked)

        for asked, wanted in (
            ("bytes=0-9", film[:10]),
            ("bytes=255990-", film[255_990:]),
            ("bytes=-5", film[-5:]),
            ("bytes=100-99999999", film[100:]),
        ):
            reply = part(asked)
            assert (reply.status, reply.body) == (206, wanted), asked
        assert part("bytes=0-9").headers["Content-Range"] == "bytes 0-9/256000"
        for asked in ("bytes=300000-", "bytes=9-3"):
            assert part(asked).status == 416
        (run / "policy.mp4").unlink()
        (run / "policy.mp4").symlink_to(secret)
        assert site.data()["video"]["name"] == "old.gif"


# ---- what is told of a run ----


@at_once
def test_rows_are_told_once_and_as_they_come(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    with served(run) as site:
        first = site.data()
        assert first["columns"][:2] == ["epoch", "steps"] and len(first["rows"]) == 5
        assert (first["done"], first["epochs"], first["total_steps"]) == (5, 10, 10 * STEPS)
        assert first["violated"] == pytest.approx(3 / 5)  # 40, 35 and 30 of 25
        again = site.data(version=first["version"], since=5)
        assert again["rows"] == [] and "columns" not in again
        add_rows(run, [one_more(5), one_more(6)])
        more = site.data(version=first["version"], since=5)
        assert [row[0] for row in more["rows"]] == [5, 6] and more["since"] == 5
        assert dict(more["latest"])["return"] == 42.0 and more["violated"] == pytest.approx(3 / 7)
        for since in ("-1", "99", "1e3", "x", "9" * 400):
            assert len(site.data(version=first["version"], since=since)["rows"]) == 7


@at_once
def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    file = run / "progress.csv"
    with served(run) as site:
        site.data()
        for piece in ("5,60", "00,35.0,1.0,25.", "0"):
            with file.open("a") as stream:
                stream.write(piece)
            assert site.data()["done"] == 5
        with file.open("a") as stream:
            stream.write("\n6,7000")
        assert all_rows(site)["epoch"] == [0, 1, 2, 3, 4, 5]
        with file.open("ab") as stream:  # what a power cut may leave, and then a mended file
            stream.write(b"\0\0\0\n7,x,\xff,1,1\n,,\n")
        assert site.data()["done"] == 6
        lines = file.read_text(errors="replace").splitlines()[:6]
        file.write_text("\n".join(lines) + "\n")
        assert all_rows(site)["epoch"] == [0, 1, 2, 3, 4]
        add_rows(run, [one_more(5), one_more(6)])
        assert all_rows(site)["epoch"] == [0, 1, 2, 3, 4, 5, 6]


@at_once
def test_a_run_that_begins_again_is_read_again(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    with served(run) as site:
        first = site.data()
        header = (run / "progress.csv").read_text().split("\n")[0]
        (run / "progress.csv").unlink()
        assert (site.data()["done"], site.data()["state"]) == (0, "waiting")
        (run / "progress.csv").write_text(header + "\n")
        add_rows(run, [one_more(0, cost=99.0)])
        told = site.data(version=first["version"], since=5)
        assert told["since"] == 0 and len(told["rows"]) == 1 and told["violated"] == 1.0
    with served(run) as another:  # its version is its own, though it reads the same rows
        assert another.data(version=told["version"], since=1)["since"] == 0


@at_once
def test_several_limits_that_move_are_drawn_each_with_its_own(tmp_path: Path) -> None:
    epochs = 4
    columns = {f"margin_{k}": [1.0 + k] * epochs for k in (0, 1)}
    columns |= {
        f"{name}_{k}": [0.5] * epochs for name in ("multiplier", "price_rho") for k in (0, 1)
    }
    run = small_run(
        tmp_path, epochs, cost=[[9.0, 1.0]] * epochs, limit=(25.0, 5.0), columns=columns
    )
    settings = run / "config.toml"
    settings.write_text(settings.read_text() + 'cost_terms = ["heat", "noise"]\n')
    with served(run) as site:
        told = site.data()
        charts = {chart["title"]: chart for chart in told["charts"]}
        assert {"Cost heat", "Cost noise"} <= set(charts)
        looks = [(line["column"], line["look"]) for line in charts["Cost noise"]["lines"]]
        assert looks == [("cost_1", "cost"), ("cost_limit_1", "limit"), ("cost_limit_1", "aim")]
        assert any(title.startswith("Price and its parts of") for title in charts)
        row = dict(told["latest"]) | {"epoch": 4, "steps": 5 * STEPS, "cost_limit_1": 0.5}
        add_rows(run, [row])
        rows = all_rows(site)
        assert rows["cost_limit_1"] == [5.0] * 4 + [0.5] and rows["cost_limit_0"] == [25.0] * 5
        assert site.data()["violated"] == pytest.approx(1 / 5)


@at_once
def test_a_long_run_is_thinned_and_its_newest_epoch_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "POINTS", 50)
    numbers = np.ones(975)
    run = small_run(tmp_path, returns=numbers, cost=numbers, planned=200)
    with served(run) as site:
        rows = all_rows(site)["epoch"]
        assert 50 <= len(rows) <= 100 and len(set(np.diff(rows))) == 1
        told = site.data()
        assert told["newest"][0] == 974 and told["stride"] == rows[1] - rows[0] == 16


@at_once
def test_the_state_is_that_of_the_run(tmp_path: Path) -> None:
    run = small_run(tmp_path, 0, returns=[math.nan], cost=[math.nan])
    (run / "progress.csv").unlink()
    with served(run) as site:

        def state() -> str:
            return str(site.data()["state"])

        assert state() == "waiting"
        with open_lock(run / ".lock") as lock:
            assert try_lock(lock) and state() == "running"
        small_run(tmp_path, name="other")
        shutil.copy(tmp_path / "other" / "progress.csv", run)
        assert state() == "stopped"
        summarised(run, finished=True, epochs=5, stopped_by="cost<25 for 3", ended_by="stop_when")
        told = site.data()
        assert (told["state"], told["stopped_by"]) == ("finished", "cost<25 for 3")
        assert told["epochs"] == told["done"] == 5
        add_rows(run, [one_more(5)])  # trained for longer, and stopped: the summary is an old one
        assert state() == "stopped" and site.data()["stopped_by"] == ""
        with open_lock(run / ".lock") as lock, served(tmp_path) as folder:  # at the first look
            assert try_lock(lock) and folder.data()["states"]["running"] == 1
        shutil.rmtree(run)
        assert state() == "removed" and site.ask("/").status == 200


# ---- trainings and studies of other processes ----


def test_a_training_of_another_process_is_followed_to_its_end(tmp_path: Path) -> None:
    run = tmp_path / "run"
    endless = {**SMALL, "total_steps": 400 * 100_000}  # so that only the signal ends it
    training = start("train", TASK, "--run-dir", run, "--quiet", *as_flags(endless))
    try:
        wait_for_epochs(run, 1, training)
        with served(run) as site:
            seen = []
            until(lambda: seen.append(site.data()) or len({told["done"] for told in seen}) >= 4)
            assert {told["state"] for told in seen} == {"running"}
            assert seen[-1]["speed"] > 0 and seen[-1]["seconds_left"] > 0
            assert [told["done"] for told in seen] == sorted(told["done"] for told in seen)
            training.send_signal(signal.SIGINT)
            assert training.wait(60) == 130
            until(lambda: site.data()["state"] == "stopped")
            stopped_at = site.data()["done"]
            assert stopped_at > 0
            last = stopped_at + 30
            training = start("train", "--resume", run, "--quiet", "--total-steps", 400 * last)
            until(lambda: site.data()["state"] == "running")
            assert training.wait(100) == 0
            until(lambda: site.data()["state"] == "finished")
            told, rows = site.data(), all_rows(site)
        assert told["done"] == told["epochs"] == last
        written = read_progress(run / "progress.csv")
        for name, values in rows.items():
            np.testing.assert_array_equal(values, written[name], err_msg=name)
        assert {"price_rho", "price_delta", "price_push", "margin", "cost_limit"} <= set(rows)
    finally:
        training.kill()


def test_a_study_of_another_process_is_followed_and_its_failures_are_told(tmp_path: Path) -> None:
    small = {key: value for key, value in SMALL.items() if key not in ("seed", "total_steps")}
    tasks = [TINY, "run_helpers:make_faulty"]
    plan = {"name": "two", "tasks": tasks, "algorithms": ["cspo"], "seeds": 1, "settings": small}
    (tmp_path / "two.toml").write_text(tomli_w.dumps(plan | {"total_steps": 400 * 30}))
    folder = tmp_path / "study"
    study = start("study", "run", tmp_path / "two.toml", "--out", folder, "--jobs", "1")
    try:
        until(lambda: (folder / "running.json").is_file())
        with served(folder) as site:
            version, known = -1, {}

            def told() -> dict[str, Any]:
                nonlocal version
                answer = site.data(version=version)
                version = answer["version"]
                known.update({row["id"]: row for row in answer["rows"]})
                return answer

            until(lambda: told()["running"])
            assert told()["runs"] == 2 and len(known) == 2
            assert study.wait(100) == 1  # one run fails
            until(lambda: not told()["running"])
            states = {row["task"]: row["state"] for row in known.values()}
            assert states == {TINY: "finished", tasks[1]: "failed"}
            failed = next(name for name, row in known.items() if row["state"] == "failed")
            assert "reward" in known[failed]["error"]
            for name, row in known.items():
                one = site.data(f"/run/{name}/data")
                assert (one["state"], one["done"]) == (row["state"], row["done"])
                assert one["error"] == row["error"]
            assert site.data(f"/run/{failed}/data")["done"] < 30
            assert site.ask(f"/run/{failed}/").status == 200
            assert site.ask("/run/none/").status == GONE
    finally:
        study.kill()


# ---- the command ----


def test_the_command_says_where_the_page_is_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    before = sorted(path.name for path in run.iterdir())
    watching = start("watch", run, "--port", "0")
    try:
        line = watching.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert address and str(run) in line, line + watching.stderr.read()
        with socket.create_connection(("127.0.0.1", int(address[1])), timeout=20) as open_page:
            open_page.sendall(b"GET /data HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert open_page.recv(100).startswith(b"HTTP/1.1 200")
            watching.send_signal(signal.SIGINT)  # while a browser holds its connection
            assert watching.wait(20) == 0
        assert watching.stderr.read() == ""
    finally:
        watching.kill()
    assert sorted(path.name for path in run.iterdir()) == before


def refused(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    assert main(["watch", *map(str, words)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.strip().split("\n")) <= 2 and "Traceback" not in said.err
    return said.err


def test_wrong_arguments_are_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path)
    assert "There is no folder" in refused(capsys, tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "neither a run nor a study" in refused(capsys, tmp_path / "empty")
    assert "There is no folder" in refused(capsys, run / "progress.csv")
    for port in ("70000", "-1", "x"):
        assert "port" in refused(capsys, run, "--port", port)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port}: it is taken" in refused(capsys, run, "--port", port)
    (run / "config.toml").write_text("task = [")
    assert "config.toml" in refused(capsys, run)
    (tmp_path / "study.toml").write_text("name = [")
    assert "study.toml" in refused(capsys, tmp_path)
    refused(capsys)
