"""What the site adds to the Markdown of docs/ while it is built; mkdocs.yml names this file.

Pages that live elsewhere in the repository, the code that pages link to, the reference of the
command line, and the notebooks with what they print.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import notebooks
import reference
import repository


def on_files(files: Files, config: Any) -> Files:
    """Add everything that is not a file of docs/."""
    for source, uri in repository.PAGES.items():
        files.append(File.generated(config, uri, content=_text(source)))
    run = notebooks.pages(repository.ROOT / "build" / "notebooks")
    for uri, content in (reference.pages() | run).items():
        files.append(File.generated(config, uri, content=content))
    for page in list(files.documentation_pages()):
        _add_linked(page.src_uri, page.content_string, files, config)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make the links of a page lead to where the site has what they are about."""
    uri = page.file.src_uri
    if uri.startswith(("source/", "reference/")):
        return markdown
    try:
        return repository.rewritten(repository.source_of(uri), uri, markdown)
    except repository.WrongLink as error:
        raise PluginError(str(error)) from None


def _add_linked(uri: str, text: str, files: Files, config: Any) -> None:
    if uri.startswith("reference/"):
        return
    page = repository.source_of(uri)
    for match in repository.links(text):
        try:
            target, _ = repository.target_on_site(page, match)
        except repository.WrongLink as error:
            raise PluginError(str(error)) from None
        if files.get_file_from_path(target) is not None:
            continue
        path = repository.resolve(page, match["target"])[0]
        if target.startswith("pictures/"):
            files.append(File.generated(config, target, abs_src_path=str(repository.ROOT / path)))
        elif target.startswith("source/"):
            content = repository.source_page(path)
            files.append(File.generated(config, target, content=content))


def _text(path: str) -> str:
    return (repository.ROOT / path).read_text(encoding="utf-8")
