"""The documentation keeps its word: code runs, commands exist, every public name is there, pages are accessible.

In the pages, ``python`` and ``sh`` blocks run, in their order, in one empty directory per page; a ``text`` block right
after one of them is what it prints. ``bash`` blocks are for what cannot run here (other machines, long work): their
``fcac`` commands must exist with the options shown.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import gzip
import importlib
import inspect
import io
import itertools
import json
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import typer.main

import fcac
from fcac import cli
from fcac.paper.gaussians import run_demo
from fcac.tables import ReadOptions, kinds
from fcac.tables.column import COMMON, MISSING, SCALINGS, SETTINGS
from fcac.tables.schema import _TOP
from testing.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: What a newcomer runs in the environment that `make demo` makes.
FIRST_PAGES = ("README.md", "docs/start.md", "docs/understand.md", "docs/trust.md")
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
# Their names are for the programs behind the commands, not for users.
NOT_IN_REFERENCE = ("fcac.cli", "fcac.flower", "fcac.deployment")


class Block(NamedTuple):
    """One fenced block of a page."""

    language: str
    code: str
    line: int
    printed: str | None


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page; a ``text`` block right after another belongs to it."""
    text = page.read_text("utf-8")
    found = list(BLOCK.finditer(text))
    result = []
    for here, following in itertools.zip_longest(found, found[1:]):
        printed = None
        if following is not None and following["language"] == "text":
            between = text[here.end() : following.start()]
            printed = None if between.strip() else following["code"]
        result.append(Block(here["language"], here["code"], text.count("\n", 0, here.start()) + 1, printed))
    return result


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUNNING = [page for page in PAGES if any(block.language in ("python", "sh") for block in blocks_of(page))]


# Contrast of every visible text with what lies behind it, by the formula of WCAG 2; colours may be translucent.
CONTRAST = """() => {
  const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = colour => {
    pixel.clearRect(0, 0, 1, 1); pixel.fillStyle = colour; pixel.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const linear = v => v <= 10.31 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
  const parents = element => element ? [element, ...parents(element.parentElement)] : [];
  const low = [];
  let checked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || element.closest("script, style, noscript, svg") || element.getBoundingClientRect().width < 2) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const style = getComputedStyle(element), chain = parents(element), ink = parse(style.color);
    ink[3] *= chain.reduce((product, e) => product * parseFloat(getComputedStyle(e).opacity), 1);
    const layers = chain.map(e => parse(getComputedStyle(e).backgroundColor)).filter(c => c[3] > 0);
    const ground = layers.reduceRight((below, top) => over(top, below), [255, 255, 255]);
    const [a, b] = [light(over(ink, ground)), light(ground)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    checked += 1;
    if (ratio < (large ? 3 : 4.5)) low.push([text.slice(0, 40), ratio.toFixed(2)]);
  }
  return { low, checked };
}"""


# ---------------------------------------------------------------- code


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNING, ids=name_of)
def test_code_of_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.language not in ("python", "sh"):
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            if block.language == "python":
                exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
            else:
                run_commands(block)
        if block.printed is not None:
            assert out.getvalue() == block.printed, f"{name_of(page)}:{block.line} prints something else"


def run_commands(block: Block) -> None:
    for words in commands_of(block):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            code = cli.run(words)
        assert code == 0, f"fcac {shlex.join(words)}: {errors.getvalue()}"


def commands_of(block: Block) -> Iterator[list[str]]:
    """Yield the words after ``fcac`` of every ``fcac`` command in a block."""
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["fcac"]:
            yield words[1:]


def shell_commands() -> list[tuple[str, list[str]]]:
    listed = []
    for page in PAGES:
        for block in blocks_of(page):
            if block.language in ("bash", "sh"):
                listed += [(f"{name_of(page)}:{block.line}", words) for words in commands_of(block)]
        inline = re.findall(r"`fcac ([^`]+)`", page.read_text("utf-8"))
        listed += [(name_of(page), shlex.split(words)) for words in inline]
    return listed


@functools.cache
def whole_command() -> click.Command:
    """Return what `fcac` is, with everything below it; making it takes longer than looking something up in it."""
    return typer.main.get_command(cli.app)


@functools.cache
def command_named(name: str) -> click.Command:
    """Return a command by its first word; an unknown one is an error."""
    root = whole_command()
    assert isinstance(root, click.Group)
    _, found, _ = root.resolve_command(click.Context(root), [name])
    assert found is not None
    return found


@pytest.mark.parametrize(("where", "words"), shell_commands(), ids=lambda value: str(value)[:70])
def test_command_and_options_exist(where: str, words: list[str]) -> None:
    command, rest = whole_command(), list(words)
    if rest and not rest[0].startswith("-"):
        command, rest = command_named(rest[0]), rest[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        _, found, rest = command.resolve_command(click.Context(command), rest)  # an unknown name is an error
        assert found is not None, where
        command = found
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "-h"}
    used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    assert used <= known, f"{where}: no such option: {', '.join(sorted(used - known))}"


def test_every_command_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    root = whole_command()
    assert isinstance(root, click.Group)
    names = set()
    for name in root.list_commands(click.Context(root)):
        _, command, _ = root.resolve_command(click.Context(root), [name])
        inner = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []
        names |= {f"{name} {one}" for one in inner} or {name}
    assert len(names) > 20
    assert {name for name in names if f"`fcac {name}`" not in page} == set()


def test_every_schema_key_is_in_the_guide() -> None:
    page = (ROOT / "docs" / "guide" / "schema.md").read_text("utf-8")
    keys = {*SETTINGS, *COMMON, *_TOP}
    assert len(keys) > 25
    assert {key for key in keys if not re.search(rf"`{key}\b", page)} == set()
    assert {name for name in kinds.names() if f"**{name}**" not in page} == set()
    values = {*SCALINGS, *MISSING}
    assert {value for value in values if f'`"{value}"`' not in page} == set()


def test_every_read_option_is_in_the_guide() -> None:
    page = (ROOT / "docs" / "guide" / "files.md").read_text("utf-8")
    elsewhere = {"query", "new_by", "forgiving"}  # databases have a page of their own; privacy sets the last
    names = {field.name for field in dataclasses.fields(ReadOptions)} - elsewhere
    assert {name for name in names if f"--read {name}=" not in page} == set()


def test_every_command_line_option_has_a_help_text() -> None:
    without = []
    waiting: list[tuple[str, click.Command]] = [("fcac", whole_command())]
    while waiting:
        name, command = waiting.pop()
        if isinstance(command, click.Group):
            inner = [command.resolve_command(click.Context(command), [one]) for one in command.list_commands(None)]
            waiting += [(f"{name} {one}", found) for one, found, _ in inner if one and found is not None]
        without += [
            f"{name} {parameter.opts[0]}"
            for parameter in command.params
            if isinstance(parameter, click.Option) and not parameter.help
        ]
    assert without == []


def test_no_page_installs_from_an_index() -> None:
    for page in PAGES:
        assert not re.search(r"pip install (--\S+ )*'?fcac\b", page.read_text("utf-8")), name_of(page)


def test_architecture_names_every_package() -> None:
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text("utf-8")
    table = page.split("## The packages of")[1].split("\n## ")[0]
    named = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    there = {info.name for info in pkgutil.iter_modules(fcac.__path__) if not info.name.startswith("_")}
    assert set(named) == there
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = next(found["layers"] for found in settings["tool"]["importlinter"]["contracts"] if "layers" in found)
    order = {name.strip(): -height for height, line in enumerate(layers) for name in line.split("|")}
    heights = [order[name] for name in named if name in order]
    assert heights == sorted(heights), "list packages from the bottom up"


def test_python_blocks_are_python() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "python":
                ast.parse(block.code, f"{name_of(page)}:{block.line}")


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST_PAGES)
def test_what_a_newcomer_runs_needs_no_pandas(name: str, tmp_path: Path) -> None:
    code = "\n".join(block.code for block in blocks_of(ROOT / name) if block.language == "python")
    program = f"from fcac._without import leave_out\nleave_out('pandas')\n{code}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, cwd=tmp_path)


def test_results_on_the_page_come_from_the_run() -> None:
    fill = runpy.run_path(str(ROOT / "docs" / "results" / "fill.py"))
    text = fill["PAGE"].read_text("utf-8")
    assert fill["filled"](text) == text, "run python docs/results/fill.py"
    for file, made in (("README", "readme"), ("ONE_TABLE", "one_table"), ("HOW_GOOD", "how_good")):
        text = fill[file].read_text("utf-8")
        assert fill[made](text) == text, "run python docs/results/fill.py"


def test_the_page_of_real_tables_is_that_of_its_results() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks" / "real_tables.py"))
    found = json.loads(made["RESULTS"].read_text("utf-8"))
    assert made["PAGE"].read_text("utf-8") == made["page"](found), "run python benchmarks/real_tables.py --page"
    assert len(found["tables"]) >= 20


def test_a_published_page_keeps_what_was_written_by_hand() -> None:
    published = runpy.run_path(str(ROOT / "docs" / "results" / "publish.py"))["published"]
    made = "# Title\n\nOne trial.\n\n![ranks](cd_AMI.png)\n"
    first = published("mine", made)
    assert "![ranks](mine_cd_AMI.png)" in first
    by_hand = first.replace("# Title\n", "# Title\n\nWhat it says.\n", 1)
    again = published("mine", made.replace("One", "Two"), by_hand)
    assert again.startswith("# Title\n\nWhat it says.\n")
    assert "Two trial" in again
    assert "One trial" not in again


def test_results_table_from_a_small_run(tmp_path: Path) -> None:
    fill = runpy.run_path(str(ROOT / "docs" / "results" / "fill.py"))
    found = tmp_path / "quality.json.gz"
    entries = [
        {"dataset": "d", "epsilon": "inf", "n_trials": 5}
        | {"scenario": scenario, "method": method, "measure": measure, "mean": mean}
        for scenario in ("iid", "non-iid")
        for method, mean in (("communities", 0.8), ("FCAC", 0.5), ("k-means", 0.6))
        for measure in ("ARI", "AMI", "NMI")
    ]
    found.write_bytes(gzip.compress(json.dumps({"entries": entries}).encode()))
    lines = fill["table"](found).splitlines()
    assert lines[2] == "| d | **0.800** | 0.500 | 0.600 |"
    assert lines[3] == "| average rank | 1.00 | 3.00 | 2.00 |"
    assert lines[5].startswith("Fewer trials: d, `communities`: 5; ")


# ---------------------------------------------------------------- pictures and examples


def test_pages_and_what_they_hold_are_small() -> None:
    files = [path for path in (ROOT / "docs").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 1_500_000
    for path in files:
        limits = {".png": 80_000, ".svg": 80_000, ".json": 100_000}
        smaller = "python docs/pictures/shrink.py" if path.suffix == ".png" else "gzip -9n"
        assert path.stat().st_size < limits.get(path.suffix, 200_000), f"{name_of(path)}: run {smaller}"


def test_pictures_are_described() -> None:
    for page in PAGES:
        text = BLOCK.sub("", page.read_text("utf-8"))
        for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text):
            assert len(alt) > 30, f"{name_of(page)}: say in words what {target} shows"
            assert (page.parent / target).is_file(), f"{name_of(page)}: {target} is missing"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_of_the_first_pages_lead_somewhere(name: str) -> None:
    text = BLOCK.sub("", (ROOT / name).read_text("utf-8"))
    targets = [target for target in re.findall(r"\]\(([^)#]+)", text) if not target.startswith("http")]
    assert len(targets) > 5
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    named = set(re.findall(r"'([\w./-]+\.md)'", str(settings["project"]["nav"])))
    there = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert named == there, "name every page of docs/, and no other, in the nav of zensical.toml"


def test_the_site_names_its_version() -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    assert settings["project"]["site_name"] == f"fcac {fcac.__version__}"
    assert settings["project"]["site_dir"] == f"site/{fcac.__version__}"


@pytest.mark.slow
def test_figures_in_words_are_those_of_the_demo() -> None:
    result = run_demo(seed=0, server="communities")
    first, second = (len(sent.nodes) for sent in result.model.server_.latest().values())
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert f"the {first} and {second} nodes that the sites send" in text
    assert f"{len(result.points()[0]):,} rows at two sites stay where they are, {first + second} nodes travel" in text
    assert result.model.n_clusters_ == 3


@pytest.mark.slow
def test_pictures_can_be_drawn_again(tmp_path: Path) -> None:
    draw = runpy.run_path(str(ROOT / "docs" / "pictures" / "draw.py"))
    draw["main"](tmp_path)
    drawn = {picture.name for picture in tmp_path.glob("*.png")}
    assert drawn == {picture.name for picture in (ROOT / "docs" / "pictures").glob("*.png")}


@pytest.mark.soak
def test_federation_example_ends_in_a_report(tmp_path: Path) -> None:
    example = ROOT / "examples" / "federation_on_loopback.py"
    done = subprocess.run(
        [sys.executable, example, tmp_path], check=False, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "<html" in (tmp_path / "report.html").read_text("utf-8")


# ---------------------------------------------------------------- reference


def public_names() -> set[str]:
    """Every name a user may rely on: ``__all__`` where there is one, else what a public module defines itself."""
    names = {f"fcac.{name}" for name in fcac.__all__ if not inspect.ismodule(getattr(fcac, name))}
    for info in pkgutil.walk_packages(fcac.__path__, "fcac."):
        if any(part.startswith("_") for part in info.name.split(".")) or info.name.startswith(NOT_IN_REFERENCE):
            continue
        module = importlib.import_module(info.name)
        if hasattr(module, "__all__") and info.ispkg:  # modules say with it what they pass on to others
            names |= {f"{info.name}.{name}" for name in module.__all__}
        elif info.name in USER_MODULES:
            names |= {
                f"{info.name}.{name}"
                for name, value in vars(module).items()
                if not name.startswith("_")
                and (inspect.isclass(value) or inspect.isfunction(value))
                and value.__module__ == info.name
            }
    return names


# Public modules without ``__all__`` whose own classes and functions are for users.
USER_MODULES = ("fcac.paper.gaussians",)


# ---------------------------------------------------------------- the built site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as `make docs` builds it, in a copy of what it needs."""
    pytest.importorskip("zensical")
    root = tmp_path_factory.mktemp("site")
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc"))
    for name in ("zensical.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, root)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, check=False, cwd=root, capture_output=True, text=True, timeout=PATIENCE)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "warning" not in said.lower(), said
    return root / "site" / fcac.__version__


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(inventory[inventory.index(b"zlib.\n") + 6 :]).decode().splitlines()
    documented = {line.split(" ")[0] for line in lines}
    assert public_names() - documented == set()


def test_every_subpackage_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "index.md").read_text("utf-8")
    modules = {info.name for info in pkgutil.iter_modules(fcac.__path__) if not info.name.startswith("_")}
    assert {name for name in modules if f"`fcac.{name}`" not in page} == set()


class Outline(HTMLParser):
    """What matters for a reader who does not see: language, headings, alternative texts, what is fetched from where."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.language: str | None = None
        self.headings: list[int] = []
        self.pictures: list[tuple[str, str | None]] = []
        self.fetched: list[str] = []
        self.titled = False
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.anchors |= {given.get("id") or ""}
        if tag == "a":
            self.links.append(given.get("href") or "")
        if tag == "html":
            self.language = given.get("lang")
        elif re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        elif tag == "img":
            self.pictures.append((given.get("src") or "", given.get("alt")))
        elif tag == "title":
            self.titled = True
        if tag in ("img", "script", "iframe", "source"):
            self.fetched.append(given.get("src") or "")
        elif tag == "link":
            self.fetched.append(given.get("href") or "")


@pytest.mark.slow
def test_pages_are_accessible_and_offline(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) >= len(list((ROOT / "docs").rglob("*.md")))
    for page in pages:
        outline, name = Outline(page), page.relative_to(site).as_posix()
        assert outline.language == "en", name
        assert outline.titled, name
        assert outline.headings.count(1) == 1, f"{name}: one first-level heading"
        steps = zip(outline.headings, outline.headings[1:], strict=False)
        assert all(deeper <= level + 1 for level, deeper in steps), f"{name}: a heading level is left out"
        assert all(alt for _, alt in outline.pictures), f"{name}: a picture without words"
        assert not [source for source in outline.fetched if re.match(r"(https?:)?//", source)], f"{name}: fetches"


@pytest.mark.slow
def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    outlines = {page.resolve(): Outline(page) for page in site.rglob("*.html") if page.name != "404.html"}
    for page, outline in outlines.items():
        for link in outline.links:
            target, _, anchor = link.partition("#")
            if re.match(r"\w+:", link) or not link:
                continue
            there = (page.parent / target).resolve() if target else page
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), f"{page.name} links to {link}"
            assert not anchor or there not in outlines or anchor in outlines[there].anchors, f"{page.name}: {link}"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_site_in_a_browser(site: Path, scheme: str) -> None:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no Chromium on this machine: install the package chromium to check the site in a browser")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra 'dev'")
    asked: list[str] = []
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index", "guide/with-privacy", "reference/federation", "differences"):
            page.goto((site / f"{name}.html").as_uri())
            contrast = page.evaluate(CONTRAST)
            assert contrast["checked"] > 50
            assert contrast["low"] == [], name
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent.trim()") == "Skip to content"
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing sticks out on a phone"
        browser.close()
    assert [url for url in asked if not url.startswith("file:")] == []


@pytest.mark.slow
def test_the_menu_of_versions_leads_from_one_to_another(site: Path, tmp_path: Path) -> None:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no Chromium on this machine: install the package chromium to check the site in a browser")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra 'dev'")
    for version in ("0.9.0", "0.10.0"):
        shutil.copytree(site, tmp_path / version)
    (tmp_path / "0.9.0" / "guide" / "text.html").unlink()
    assert runpy.run_path(str(ROOT / "docs" / "versions.py"))["write_versions"](tmp_path) == ["0.10.0", "0.9.0"]
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto((tmp_path / "index.html").as_uri())
        page.wait_for_url("**/0.10.0/index.html")
        for start, arrives in (("guide/files.html", "guide/files.html"), ("guide/text.html", "index.html")):
            page.goto((tmp_path / "0.10.0" / start).as_uri())
            menu = page.get_by_label("Version of fcac")
            assert menu.locator("option").all_inner_texts() == ["0.10.0", "0.9.0"]
            assert menu.input_value() == "0.10.0"
            menu.select_option("0.9.0")
            page.wait_for_url(f"**/0.9.0/{arrives}")
        browser.close()
