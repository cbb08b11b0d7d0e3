"""What mkdocs adds to docs/: the pages of the repository's root, the API references from OpenAPI, and llms.txt."""

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import api_page  # noqa: E402 - mkdocs does not put the folder of a hook on the path

# Files outside of docs/ by their page on the site.
ROOT_PAGES = {
    "index.md": "README.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/security.md": "SECURITY.md",
    "project/licence.md": "LICENSE",
    "project/benchmarks.md": "bench/README.md",
}
LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
FOREIGN_FILE = re.compile(r"<(?:script|img)[^>]+src=.?https?:|<link[^>]+stylesheet[^>]+https?:")
pages: list[Page] = []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, source in ROOT_PAGES.items():
        content = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, name, content=content))
    files.append(File.generated(config, "api.md", content=api_page.mgmt_page()))
    files.append(File.generated(config, "search-api.md", content=api_page.front_end_page()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links at the pages of the site."""
    here = ROOT_PAGES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    names = {source: name for name, source in ROOT_PAGES.items()}
    folder = posixpath.dirname(page.file.src_uri) or "."

    def target(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        name = names.get(path, path.removeprefix("docs/"))
        return f"{match[1]}{posixpath.relpath(name, folder)}{match[3]}"

    blocks = CODE.findall(markdown)
    texts = [LINK.sub(target, text) for text in CODE.split(markdown)]
    return texts[0] + "".join(a + b for a, b in zip(blocks, texts[1:], strict=True))


def on_nav(nav: Navigation, **_: object) -> None:
    pages[:] = nav.pages


def on_post_build(config: MkDocsConfig) -> None:
    site = Path(config.site_dir)
    for file in site.rglob("*.html"):
        if FOREIGN_FILE.search(file.read_text("utf-8")):
            raise PluginError(f"{file} loads a script or a style sheet from another server.")
    write_list_of_pages(site, config)


def write_list_of_pages(site: Path, config: MkDocsConfig) -> None:
    """Write llms.txt, which lists the pages for language models, and the Markdown of each."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Pages", ""]
    for page in pages:
        text = site / page.file.src_uri
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(page.markdown or "", "utf-8")
        lines.append(f"- [{page.title}]({page.file.src_uri})")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
