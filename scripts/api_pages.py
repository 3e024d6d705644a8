"""Writes the API's pages from the docstrings with pdoc, and checks them: every public name described, every link leading somewhere.

.venv/bin/python scripts/api_pages.py [FOLDER]           # build/api without it
"""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path

import edgellm

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r'href="([^"]+)"')
ANCHOR = re.compile(r'\bid="([^"]+)"')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "api")
    folder = parser.parse_args().folder
    if bare := undescribed():
        raise SystemExit(f"public names without a docstring: {', '.join(bare)}")
    write(folder)
    if broken := broken_links(folder):
        raise SystemExit("links that lead nowhere: " + ", ".join(broken))
    if missing := [name for name in edgellm.__all__ if f'id="{name}"' not in (folder / "edgellm.html").read_text(encoding="utf-8")]:
        raise SystemExit(f"names that the pages lack: {', '.join(missing)}")
    pages = list(folder.rglob("*.html"))
    print(f"{len(pages)} pages in {folder}, {len(edgellm.__all__)} public names")


def undescribed() -> list[str]:
    """Public names, and public methods of public classes, that say nothing of themselves."""
    bare = []
    for name in edgellm.__all__:
        value = getattr(edgellm, name)
        if not inspect.getdoc(value):
            bare.append(name)
        if inspect.isclass(value):
            bare += [
                f"{name}.{key}"
                for key, member in vars(value).items()
                if not key.startswith("_") and inspect.isfunction(member) and not member.__doc__
            ]
    return bare


def write(folder: Path) -> None:
    """One page: the names of `edgellm` itself."""
    import pdoc

    for name in edgellm.__all__:  # they are imported on first use, and pdoc looks at what is there
        getattr(edgellm, name)
    pdoc.render.configure(docformat="markdown", footer_text=f"edgellm {edgellm.__version__}", search=False)
    pdoc.pdoc("edgellm", "!edgellm.", output_directory=folder)


def broken_links(folder: Path) -> list[str]:
    """Links of the pages to files or anchors that are not there; other sites are not asked."""
    anchors = {page.resolve(): set(ANCHOR.findall(page.read_text(encoding="utf-8"))) for page in folder.rglob("*.html")}
    broken = []
    for page in anchors:
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            if re.match(r"https?:|mailto:|data:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and target in anchors and anchor not in anchors[target]):
                broken.append(f"{page.name}: {link}")
    return broken


if __name__ == "__main__":
    main()
