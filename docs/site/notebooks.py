"""The notebooks as pages: run when the site is built, shown with what they print and draw."""

from __future__ import annotations

import base64
import hashlib
import re
import tempfile
from pathlib import Path
from typing import Any

import cspo
from cspo.runs.files import write_text

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
SECONDS = 300  # for one cell; on an idle machine they take a few


def pages(cache: Path) -> dict[str, str]:
    """Return the pages of all notebooks; one that did not change is not run again."""
    return {
        f"notebooks/{file.stem}.md": page(file, cache) for file in sorted(FOLDER.glob("*.ipynb"))
    }


def page(file: Path, cache: Path) -> str:
    """Return a notebook as Markdown, with its outputs."""
    kept = cache / f"{file.stem}-{_state(file)}.md"
    if not kept.is_file():
        text = to_markdown(run(file.read_text(encoding="utf-8")), file.name)
        cache.mkdir(parents=True, exist_ok=True)
        write_text(kept, text)
    return kept.read_text(encoding="utf-8")


def _state(file: Path) -> str:
    """Return a digest of all that decides what a notebook prints: itself, the package, this."""
    package = Path(cspo.__file__).parent
    digest = hashlib.sha256()
    for source in (file, Path(__file__), *sorted(package.rglob("*.py"))):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def run(notebook: str) -> Any:
    """Return a notebook with the outputs of its cells, run in an empty folder."""
    import nbclient
    import nbformat
    from traitlets.config import Config

    nodes = nbformat.reads(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as sockets:
        # Sockets of files, not of the network: nobody else can connect, and none is needed.
        kernel = {"transport": "ipc", "ip": f"{sockets}/k"}
        client = nbclient.NotebookClient(
            nodes,
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            config=Config({"KernelManager": kernel}),
        )
        return client.execute()


def to_markdown(notebook: Any, name: str) -> str:
    """Return an executed notebook as a page."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif source.strip():
            parts.append(f"```python\n{source}\n```")
            parts += filter(None, map(_output, _joined(cell["outputs"])))
    where = f"*This page is [`{name}`]({name}), run when the site was built.*"
    head, *rest = parts
    return "\n\n".join([head, where, *rest]) + "\n"


def _joined(outputs: list[Any]) -> list[Any]:
    """Return outputs with texts that follow each other as one."""
    joined: list[Any] = []
    for output in outputs:
        before = joined[-1] if joined else {}
        if output["output_type"] == "stream" and before.get("name") == output["name"]:
            joined[-1] = {**before, "text": before["text"] + output["text"]}
        else:
            joined.append(output)
    return joined


def _output(output: Any) -> str:
    """Return what a cell put out."""
    kind, data = output["output_type"], output.get("data", {})
    if kind == "error":
        raise RuntimeError(f"{output['ename']}: {output['evalue']}")
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        base64.b64decode(picture, validate=True)
        return f"![What the cell drew](data:image/png;base64,{picture})"
    text = output["text"] if kind == "stream" else data.get("text/plain", "")
    text = re.sub(r"\x1b\[[0-9;]*m", "", "".join(text))  # colours of a terminal
    if kind == "stream" and output["name"] == "stderr":
        return ""  # compilation, warnings of other libraries
    return f'```text title="Output"\n{text.rstrip()}\n```' if text.strip() else ""
