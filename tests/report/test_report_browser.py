"""The report in a real browser: offline, desktop and phone width, light and dark, by keyboard, with enough contrast."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac import FCAC
from fcac.federation import Server
from fcac.model.verdict import Alternative, Verdict
from fcac.paper.gaussians import run_demo
from fcac.privacy import PaperLaplace
from fcac.report import write_report
from fcac.report.page import page as render_page
from fcac.report.report_data import gather
from testing.waiting import PATIENCE

pytestmark = pytest.mark.slow  # a real browser

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENS = [(1280, 900, "light"), (1280, 900, "dark"), (820, 1180, "light"), (390, 844, "light"), (390, 844, "dark")]
REPORTS = ["demo", "federation", "paper"]
# Each report on the widest and the narrowest screen, and one of them on every screen; `make soak` has them all.
LOOKS = [
    pytest.param(*screen, name, marks=() if name == "demo" or screen in SCREENS[k::3] else pytest.mark.soak)
    for k, name in enumerate(REPORTS)
    for screen in SCREENS
]

# Contrast of every visible piece of text with what lies behind it, by the formula of WCAG 2; those too low come back.
CONTRAST = """() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const f = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || (c.length === 4 && c[3] === 1)) return c;
    }
    return [255, 255, 255];
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let checked = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest("script,.unseen,#tip")) continue;
    if (!element.checkVisibility()) continue;
    const style = getComputedStyle(element), svg = element.closest("svg");
    const ink = parse(svg ? style.fill : style.color);
    const a = light(ink), b = light(behind(svg ? svg.parentElement : element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    checked += 1;
    if (ratio < (large ? 3 : 4.5)) low.push([element.textContent.trim().slice(0, 40), ratio.toFixed(2)]);
  }
  return { low, checked };
}"""

# Where the keyboard is, and whether one can see it.
FOCUS = """() => {
  const e = document.activeElement, s = getComputedStyle(e);
  return { tag: e.tagName, id: e.id, class: e.className, text: e.textContent.trim().slice(0, 30),
           outlined: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 };
}"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    demo = run_demo(0)
    paper_server = Server("cae-fc")
    for batch in demo.model.server_.log:
        paper_server.absorb(batch)
    write_report(demo.model, folder / "demo.html", X=demo.rows, compare=paper_server, feature_names=["x", "y"])

    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(6, 9))
    federation = FCAC(random_state=0)
    names = ["<script>window.hacked = 1</script>", *[f"hospital with a rather long name {k}" for k in range(11)]]
    for number in range(5):
        taking = [name for k, name in enumerate(names) if (k + number) % 4]
        federation.partial_fit(
            {name: centres[rng.integers(6, size=250)] + rng.normal(size=(250, 9)) for name in taking}
        )
    features = ['"><img src=x onerror="window.hacked = 1">', *[f"a feature with a long name {k}" for k in range(8)]]
    write_report(federation.server_, folder / "federation.html", feature_names=features, title=names[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        noised = FCAC(privacy=PaperLaplace(15, random_state=0), random_state=0)
        noised.fit({"a": centres[rng.integers(6, size=900)] + rng.normal(size=(900, 9))})
    write_report(noised, folder / "paper.html")
    return {name: folder / f"{name}.html" for name in REPORTS}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no Chromium on this machine: install the package chromium to check the report in a browser")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra 'dev'")
    with playwright.sync_playwright() as engine:
        running = engine.chromium.launch(executable_path=executable, args=FLAGS)
        yield running
        running.close()


class Page:
    """A report that is open, with everything it asked for or complained about."""

    def __init__(self, browser: Any, path: Path, width: int, height: int, scheme: str) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(path.as_uri())

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.mark.parametrize(("width", "height", "scheme", "name"), LOOKS)
def test_report_looks_right(browser, reports, width, height, scheme, name):
    with Page(browser, reports[name], width, height, scheme) as opened:
        page = opened.page
        for details in page.locator("details").all():
            details.evaluate("e => e.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out sideways"
        for section in page.locator("header, main, section, .panel, footer").all():
            box = section.bounding_box()
            assert box is not None
            assert box["width"] > 0
            assert box["height"] > 0
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width + 0.5
        contrast = page.evaluate(CONTRAST)
        assert contrast["checked"] > 50
        assert contrast["low"] == []
        # a picture that had not been drawn would compress like an empty one
        plot = page.locator("#network-plot")
        drawn = len(plot.screenshot())
        page.add_style_tag(content="#network-plot svg{visibility:hidden}")
        assert drawn > 2 * len(plot.screenshot())
        assert opened.requests == [reports[name].as_uri()], "no request but for the file itself"
        assert opened.complaints == []


def test_light_and_dark_differ(browser, reports):
    shots = []
    for scheme in ("light", "dark"):
        with Page(browser, reports["demo"], 1280, 900, scheme) as opened:
            shots.append(opened.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert shots[0] != shots[1]


def test_strangers_words_do_not_run(browser, reports):
    with Page(browser, reports["federation"], 1280, 900, "light") as opened:
        assert opened.page.evaluate("window.hacked") is None
        assert opened.page.locator("script").count() == 2, "the data and our own"
        assert opened.page.locator("img").count() == 0
        assert opened.page.locator("h1").inner_text() == "<script>window.hacked = 1</script>"
        assert opened.complaints == []


def test_no_other_script_may_run(browser, reports):
    with Page(browser, reports["demo"], 1280, 900, "light") as opened:
        opened.page.evaluate(
            """() => { const s = document.createElement("script"); s.textContent = "window.hacked = 1";
                       document.body.append(s); }"""
        )
        assert opened.page.evaluate("window.hacked") is None


def test_everything_is_reached_by_keyboard(browser, reports):
    with Page(browser, reports["demo"], 1280, 900, "light") as opened:
        page = opened.page
        reached = []
        for _ in range(150):
            page.keyboard.press("Tab")
            at = page.evaluate(FOCUS)
            if at["tag"] == "BODY":
                break
            assert at["outlined"], f"one cannot see where the keyboard is: {at}"
            reached.append(at)
        assert reached[0]["class"] == "skip"
        tags = [at["tag"] for at in reached]
        assert tags.count("BUTTON") == page.locator("button:visible:enabled").count() > 15
        assert sum("pick k" in at["class"] for at in reached) == 3, "one for each cluster"
        assert tags.count("INPUT") == 1, "the slider of the tree"
        assert (
            tags.count("SUMMARY") == page.locator("summary").count() - page.locator("details summary details").count()
        )
        plots = [at for at in reached if at["class"] == "plot"]
        assert len(plots) == page.locator(".plot").count() == 4, "map, tree, flow and novelty"
        assert any("scroll" in at["class"] for at in reached)


def test_arrow_keys_walk_through_the_network(browser, reports):
    with Page(browser, reports["demo"], 1280, 900, "light") as opened:
        page = opened.page
        page.locator("#network-plot").focus()
        heard = []
        for key in ("ArrowRight", "ArrowRight", "End", "Home", "ArrowLeft"):
            page.keyboard.press(key)
            heard.append(page.locator("#live").inner_text())
        assert all(words.startswith("Cluster ") for words in heard)
        assert heard[2] == heard[4], "left of the first is the last"
        assert page.locator("#tip.shown").count() == 1
        page.keyboard.press("Escape")
        assert page.locator("#tip.shown").count() == 0


def test_pointing_at_a_node_tells_about_it(browser, reports):
    with Page(browser, reports["demo"], 1280, 900, "light") as opened:
        # a mark that nothing else covers: of marks at one place the pointer meets the one on top
        opened.page.locator("#network-plot").scroll_into_view_if_needed()
        place = opened.page.evaluate(
            """() => { for (const mark of document.querySelectorAll("#network-plot .m")) {
                const box = mark.getBoundingClientRect();
                const at = [box.x + box.width / 2, box.y + box.height / 2];
                if (document.elementFromPoint(...at) === mark) return at;
            } return null; }"""
        )
        tip = opened.page.locator("#tip.shown")
        for _ in range(50):  # what is left of scrolling hides the tip again
            opened.page.mouse.move(*place)
            opened.page.wait_for_timeout(100)
            if tip.count():
                break
            opened.page.mouse.move(1, 1)
        assert tip.inner_text().startswith("Cluster ")
        box = tip.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 1280


def test_a_cluster_can_be_singled_out(browser, reports):
    with Page(browser, reports["demo"], 1280, 900, "light") as opened:
        page = opened.page
        button = page.locator(".legend button").nth(1)
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-pressed") == "true"
        chosen = button.get_attribute("data-k")
        for part in page.locator("#network-plot g.k").all():
            faint = float(part.evaluate("e => getComputedStyle(e).opacity")) < 0.5
            assert faint == (part.get_attribute("data-k") != chosen)
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-pressed") == "false"


def test_a_cluster_is_followed_through_every_panel(browser, reports):
    with Page(browser, reports["demo"], 1280, 900, "light") as opened:
        page = opened.page
        row = page.locator("#cluster-table tbody tr").nth(1)
        chosen = row.get_attribute("data-k")
        row.click()
        assert page.locator("#following").is_visible()
        assert page.locator("#following-what").inner_text().startswith(f"Cluster {chosen}")
        for panel in ("#network-plot .on", ".legend .on", ".card.on", "#cluster-table .on", "#tree-plot .on"):
            followed = page.locator(panel)
            assert followed.count() > 0, panel
            assert {e.get_attribute("data-k") for e in followed.all()} == {chosen}
        page.keyboard.press("Escape")
        assert not page.locator("#following").is_visible()
        assert page.locator(".on").count() == 0
        page.locator("#network-plot .m").last.click(force=True)
        assert page.locator("#following").is_visible()


PLACES = """() => [...document.querySelectorAll("#network-plot .m")].map(m => m.getAttribute("transform"))"""


def test_zoom_and_views_move_the_dots(browser, reports):
    with Page(browser, reports["federation"], 1280, 900, "light") as opened:
        page = opened.page
        page.emulate_media(reduced_motion="reduce")
        start = page.evaluate(PLACES)
        page.locator("[data-zoom=in]").click()
        assert page.evaluate(PLACES) != start
        page.locator("#network-plot").focus()
        page.keyboard.press("0")
        first = page.evaluate(PLACES)
        assert [p.split(")")[0] for p in first] == [p.split(")")[0].replace(",", ".0,") + ".0" for p in start]
        page.locator("[data-view=b]").click()
        page.wait_for_function("document.querySelector('.map').classList.contains('second')")
        assert page.evaluate(PLACES) != first
        assert page.locator("#network-plot .view.a").first.is_hidden()
        page.locator("[data-view=a]").click()
        page.wait_for_function(f"({PLACES})()[0] === {first[0]!r}")
        assert opened.complaints == []


OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll("#network-plot .number")]
    .filter(e => e.getClientRects().length && e.style.visibility !== "hidden").map(e => e.getBoundingClientRect());
  const clash = boxes.filter((a, i) => boxes.some((b, j) => j > i && a.left < b.right && b.left < a.right
    && a.top < b.bottom && b.top < a.bottom));
  return [boxes.length, clash.length];
}"""


@pytest.mark.parametrize("width", [1280, 820, 390])
def test_labels_never_overlap(browser, reports, width):
    with Page(browser, reports["federation"], width, 900, "light") as opened:
        shown, overlapping = opened.page.evaluate(OVERLAPS)
        assert shown >= 3
        assert overlapping == 0
        opened.page.locator("[data-zoom=in]").click()
        assert opened.page.evaluate(OVERLAPS)[1] == 0


def test_the_table_sorts_and_downloads(browser, reports, tmp_path):
    with Page(browser, reports["federation"], 1280, 900, "light") as opened:
        page = opened.page
        head = page.locator("#cluster-table thead th").nth(2)
        for direction in ("ascending", "descending"):
            head.locator("button").click()
            assert head.get_attribute("aria-sort") == direction
            rows = [int(c.get_attribute("data-v")) for c in page.locator("#cluster-table tbody td:nth-child(3)").all()]
            assert rows == sorted(rows, reverse=direction == "descending")
        with page.expect_download() as waiting:
            page.locator("#csv").click()
        waiting.value.save_as(tmp_path / "clusters.csv")
        lines = (tmp_path / "clusters.csv").read_text("utf-8-sig").splitlines()
        assert lines[0].startswith('"Cluster","Name","Rows","Share"')
        assert len(lines) == 1 + len(rows)
        assert opened.requests == [reports["federation"].as_uri()] or "blob:" in opened.requests[-1]


def test_another_cut_of_the_tree_colours_the_map(browser, reports):
    with Page(browser, reports["demo"], 1280, 900, "light") as opened:
        page = opened.page
        colours = """() => [...new Set([...document.querySelectorAll("#network-plot .m")]
            .map(m => getComputedStyle(m).fill))].length"""
        assert page.evaluate(colours) == 3
        page.locator("#cut").fill("2")
        assert page.locator("#cut-value").inner_text() == "2"
        assert page.evaluate(colours) == 2
        page.locator("#cut-back").click()
        assert page.evaluate(colours) == 3
        box = page.locator("#tree-plot svg").bounding_box()
        assert box is not None
        page.locator("#tree-plot svg").click(position={"x": 60, "y": box["height"] - 4})
        assert int(page.locator("#cut-value").inner_text()) > 3
        assert opened.complaints == []


def test_another_number_of_clusters_is_one_click_away(browser, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 2)) + 9 * rng.integers(3, size=(600, 1))
    data = gather(FCAC(random_state=0).fit(rows))
    told = replace(data, verdict=Verdict(3, 600, 0.8, (Alternative(2, 0.15), Alternative(4, 0.05))))
    (tmp_path / "report.html").write_text(render_page(told), "utf-8")
    with Page(browser, tmp_path / "report.html", 1280, 900, "light") as opened:
        page = opened.page
        page.emulate_media(reduced_motion="reduce")
        assert page.locator("#cut-probable").inner_text() == "probability 80 %"
        page.locator("[data-cut='2']").click()
        assert page.locator("#cut-value").inner_text() == "2"
        assert page.locator("#cut-probable").inner_text() == "probability 15 %"
        assert page.locator("[data-cut][aria-pressed=true]").inner_text().startswith("2 clusters")
        page.locator("#cut-back").click()
        assert page.locator("[data-cut][aria-pressed=true]").inner_text().startswith("3 clusters")
        page.locator("#cut").fill("7")
        assert page.locator("#cut-probable").inner_text() == ""
        assert opened.complaints == []


@pytest.mark.parametrize("name", REPORTS)
def test_structure_serves_those_who_do_not_see_it(browser, reports, name):
    with Page(browser, reports[name], 1280, 900, "light") as opened:
        page = opened.page
        assert page.evaluate("document.documentElement.lang") == "en"
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(e => Number(e.tagName[1]))")
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        # every picture hides its drawing and speaks through a label
        assert page.locator("svg:not([aria-hidden=true])").count() == 0
        for labelled in page.locator("[role=img], [role=application], [role=region], nav").all():
            assert len(labelled.get_attribute("aria-label") or "") > 5
        assert page.locator("table").count() == page.locator("table > caption").count()
        assert page.locator("th:not([scope])").count() == 0
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        for link in page.locator("nav a, .skip").all():
            assert page.locator(link.get_attribute("href") or "#missing").count() == 1
        for section in page.locator("section").all():
            assert page.locator(f"#{section.get_attribute('aria-labelledby')}").count() == 1
        # every chart has a table or words beside it
        assert page.locator("figure:not(:has(figcaption, details, h3))").count() == 0
