"""Links of the pages that leave docs/: to pages elsewhere in the repository, and to its code.

In the repository a link leads to a file. On the site there is a page for each file that is linked,
and a link whose text is code leads to the line that has it: to the definition of a name, else to
the first line with that text. Nobody writes line numbers, so none goes stale.
"""

from __future__ import annotations

import ast
import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Pages that are outside docs/ in the repository, and where they are on the site.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "speed.md",
    "results/health-check/README.md": "evidence/health-check.md",
}
FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^)\s]+)\)")
FILE_NAME = re.compile(r"^\[(?:[\w.-]*/)*([\w-]+)\.(?:md|ipynb)\]$")


class WrongLink(Exception):
    """A link that leads nowhere."""


def source_of(uri: str) -> str:
    """Return where a page of the site is in the repository."""
    inside = {target: source for source, target in PAGES.items()}
    return inside.get(uri, f"docs/{uri}")


def links(text: str) -> Iterator[re.Match[str]]:
    """Yield the links of a page that lead to files, without those in blocks of code."""
    fences = [block.span() for block in FENCE.finditer(text)]
    for match in LINK.finditer(text):
        target = match["target"]
        if any(start <= match.start() < end for start, end in fences):
            continue
        if not re.match(r"[a-z]+:|#", target):
            yield match


def resolve(page: str, target: str) -> tuple[str, str]:
    """Return the path in the repository that a link on `page` leads to, and its anchor."""
    path, _, anchor = target.partition("#")
    found = os.path.normpath(os.path.join(os.path.dirname(page), path))
    if found.startswith("..") or not (ROOT / found).exists():
        raise WrongLink(f"{page} links to {target}, which is not there")
    if (ROOT / found / "README.md").is_file():
        found = os.path.join(found, "README.md")
    return found, anchor


def line_of(path: str, code: str) -> int | None:
    """Return the line of a file that a link with this code as its text is about, if it is one."""
    if code.endswith("/") or path == code or path.endswith("/" + code):
        return None
    text = (ROOT / path).read_text(encoding="utf-8")
    name = code.removesuffix("()")
    if path.endswith(".py") and re.fullmatch(r"[A-Za-z_][\w.]*", name):
        for found, line in definitions(ast.parse(text)):
            if found == name or found.endswith("." + name):
                return line
    words = " ".join(code.split())
    for number, line in enumerate(text.splitlines(), 1):
        if words in " ".join(line.split()):
            return number
    raise WrongLink(f"{path} has no `{code}`, which a link to it names")


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the names that a module defines, `Class.method` among them, with their lines."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node.lineno
            yield from definitions(node, f"{prefix}{node.name}.")


def target_on_site(page: str, match: re.Match[str]) -> tuple[str, str]:
    """Return the file of the site that a link leads to, and its anchor."""
    found, anchor = resolve(page, match["target"])
    if found in PAGES:
        return PAGES[found], anchor
    if found.startswith("docs/"):
        name = os.path.basename(found)
        if name.endswith(".ipynb") and match["text"] != f"[`{name}`]":  # else: the file itself
            found = found.removesuffix(".ipynb") + ".md"
        return found.removeprefix("docs/"), anchor
    if found == "README.md":
        return "README.md", ""
    if found.endswith((".png", ".svg", ".gif")):
        return f"pictures/{found.replace('/', '-')}", ""
    code = re.fullmatch(r"\[`([^`]+)`\]", match["text"])
    if code and (ROOT / found).is_file() and not anchor:
        line = line_of(found, code[1])
        anchor = f"L{line}" if line else ""
    return f"source/{found}.md", anchor


def rewritten(page: str, uri: str, text: str) -> str:
    """Return a page with its links as the site has them."""
    parts, done = [], 0
    for match in links(text):
        target, anchor = target_on_site(page, match)
        relative = os.path.relpath(target, os.path.dirname(uri) or ".")
        words = FILE_NAME.sub(r"[\1]", match["text"])  # a page of the site is no .md file
        parts += [text[done : match.start()], words, "(", relative]
        parts += [f"#{anchor}" if anchor else "", ")"]
        done = match.end()
    return "".join([*parts, text[done:]])


def source_page(path: str) -> str:
    """Return the page of a file, with an anchor per line, or of a folder."""
    title = f"---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n# `{path}`\n\n"
    if (ROOT / path).is_dir():
        names = sorted(one.name for one in (ROOT / path).iterdir() if one.name[0] not in "._")
        return title + "\n".join(f"- `{name}`" for name in names) + "\n"
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import TextLexer, get_lexer_for_filename
    from pygments.util import ClassNotFound

    text = (ROOT / path).read_text(encoding="utf-8")
    try:
        lexer = get_lexer_for_filename(path, stripnl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False)
    lines = highlight(text, lexer, HtmlFormatter(nowrap=True)).splitlines()
    numbered = "".join(  # each a block of its own
        f'<span class="line" id="L{number}"><a href="#L{number}">{number:4d}</a> {line}</span>'
        for number, line in enumerate(lines, 1)
    )
    name = html.escape(path)
    return f'{title}<div class="highlight source"><pre aria-label="{name}">{numbered}</pre></div>\n'
