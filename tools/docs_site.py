"""What mkdocs.yml needs beyond docs/: README.md is the first page, and a link to a file outside of docs/ becomes its text."""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files, config):
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / "README.md")))
    return files


def on_page_markdown(markdown, page, **_):
    docs = ROOT / "docs"
    folder = ROOT if page.file.src_uri == "index.md" else (docs / page.file.src_uri).parent

    def link(match):
        image, label, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path:
            return match[0]
        file = (folder / path).resolve()
        if file == ROOT / "README.md":
            path = "index.md"
        elif not file.is_relative_to(docs) or file.is_dir():
            return label
        elif folder == ROOT:
            path = file.relative_to(docs).as_posix()
        return f"{image}[{label}]({path}{hash_}{anchor})"

    return LINK.sub(link, markdown)
