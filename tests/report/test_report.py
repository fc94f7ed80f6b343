"""The report: what it says is true, and it holds nothing that it must not hold (appearance: test_report_browser.py)."""

from __future__ import annotations

import copy
import re
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import fcac.report
from fcac import FCAC
from fcac.federation import Contribution, Server
from fcac.federation.replay import replay, rounds_to_show
from fcac.model.verdict import Alternative, Caution, Verdict
from fcac.paper.gaussians import run_demo
from fcac.privacy import NodeRelease, PaperLaplace
from fcac.privacy.samplers import InsecureTestSampler
from fcac.report import render_report, snapshot, write_report
from fcac.report.charts import N_STYLES, PALETTE, ClusterStyle
from fcac.report.clustering import adjusted_rand
from fcac.report.dots import MIN_ROWS, condense
from fcac.report.layout import fit_projection
from fcac.report.page import environment, page
from fcac.report.report_data import gather
from testing.data import blobs

HOSTILE = "<script>alert('site')</script>"
HOSTILE_FEATURE = '"><img src=x onerror="alert(\'feature\')">'


def three_blobs(n: int = 900, d: int = 3, scale: float = 1.0) -> np.ndarray:
    centres = scale * np.array([[0.0] * d, [5.0] * d, [0.0, 5.0] + [0.0] * (d - 2)])
    return blobs(n, 0, centres, 0.3 * scale)


@pytest.fixture(scope="module")
def demo():
    return run_demo(0, server="cae-fc")


@pytest.fixture(scope="module")
def in_process():
    rows = three_blobs()
    sites = np.random.default_rng(1).choice(["north", "south"], size=len(rows))
    model = FCAC(random_state=0)
    for part in np.array_split(np.arange(len(rows)), 2):
        model.partial_fit(rows[part], groups=sites[part])
    return model, rows


def text_of(html: str) -> str:
    """The page without its style and script."""
    return re.sub(r"<(style|script)(?: type=\"application/json\" id=\"data\")?>.*?</\1>", "", html, flags=re.DOTALL)


# ------------------------------------------------------------ what is said


@pytest.mark.slow
def test_headline_figures_are_the_models(demo):
    data = gather(demo.model)
    assert data.n_rows == 45_000
    assert len(data.found.clusters) == demo.model.n_clusters_
    assert data.n_sent_nodes == sum(len(c.counts) for c in demo.model.server_.latest().values())
    assert sum(c.rows for c in data.found.clusters) == 45_000
    assert sum(c.share for c in data.found.clusters) == pytest.approx(1)
    assert [c.rows for c in data.found.clusters] == sorted((c.rows for c in data.found.clusters), reverse=True)
    html = render_report(demo.model)
    assert "45,000 rows at 2 sites, seen over 3 rounds" in html
    assert f"{demo.model.n_clusters_} clusters" in html


def test_rows_give_exact_sizes_and_novelty(demo):
    points = np.concatenate(list(demo.rows.values()))
    data = gather(demo.model, rows=demo.rows)
    labels, counts = np.unique(demo.model.predict(points), return_counts=True)
    exact = dict(zip(labels.tolist(), counts.tolist(), strict=True))
    assert {c.label: c.rows for c in data.found.clusters if c.rows} == exact
    novel = -demo.model.score_samples(points) > demo.model.novelty_reach()
    assert data.novelty is not None
    assert data.novelty.n_novel == int(novel.sum())
    assert data.novelty.n_rows == len(points)


@pytest.mark.slow
def test_rows_come_in_any_form(in_process):
    model, rows = in_process
    whole = gather(model, rows=rows)
    streamed = gather(model, rows=iter([("a", rows[:100]), ("b", rows[100:])]))
    by_site = gather(model, rows={"a": rows[:7], "b": rows[7:]})
    for other in (streamed, by_site):
        assert [c.rows for c in other.found.clusters] == [c.rows for c in whole.found.clusters]
        assert other.novelty.n_novel == whole.novelty.n_novel


@pytest.mark.slow
def test_differences_name_the_telling_feature_first():
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 1, size=(4000, 3))
    rows[:2000, 1] += 40
    model = FCAC(server="communities", n_clusters=2, random_state=0).fit(rows)
    data = gather(model, feature_names=["a", "b", "c"])
    high = model.predict([[0.0, 40.0, 0.0]])[0]
    for label, profile in data.profiles.clusters.items():
        assert profile.columns[0].column.name == "b"
        assert profile.columns[0].effect == pytest.approx(1 if label == high else -1, abs=0.1)
        assert profile.name == ("high b" if label == high else "low b")


@pytest.mark.slow
def test_sites_shares_and_participation():
    rng = np.random.default_rng(0)
    near, far = rng.normal(0, 0.1, size=(400, 2)), rng.normal(9, 0.1, size=(400, 2))
    model = FCAC(server="communities", n_clusters=2, random_state=0)
    model.partial_fit({"a": near, "b": far})
    model.partial_fit({"a": near + 0.01})
    data = gather(model)
    by_label = {c.label: c for c in data.found.clusters}
    assert by_label[model.predict([[0.0, 0.0]])[0]].site_shares == {"a": 1.0}
    assert by_label[model.predict([[9.0, 9.0]])[0]].site_shares == {"b": 1.0}
    assert {s.name: sorted(s.participation) for s in data.history.sites} == {"a": [0, 1], "b": [0]}
    assert '<td class="out">away</td>' in render_report(model)


@pytest.mark.slow
def test_late_contributions_are_told():
    server = Server()
    rng = np.random.default_rng(0)

    def sent(site: str, number: int) -> Contribution:
        return Contribution(site, number, rng.normal(size=(30, 2)), np.full(30, 4))

    server.absorb([sent("a", 1)])
    server.absorb([sent("a", 2), sent("b", 1)])
    data = gather(server)
    assert {s.name: {k: part.late for k, part in s.participation.items()} for s in data.history.sites} == {
        "a": {0: False, 1: False},
        "b": {1: True},
    }
    assert "30 late" in render_report(server)


# ------------------------------------------------------------ rounds


def test_replay_ends_at_the_server_itself(demo):
    server = demo.model.server_
    shots = replay(server)
    assert [s.round for s in shots] == [1, 2, 3]
    assert np.array_equal(shots[-1].nodes, server.nodes)
    first = Server("cae-fc", server.random_state)
    first.absorb(server.log[0])
    assert np.array_equal(shots[0].nodes, first.nodes)
    assert np.array_equal(shots[0].labels, first.node_labels)


def test_rows_flow_on_without_loss(demo):
    shots = replay(demo.model.server_)
    for before, now in pairwise(shots):
        assert sum(now.flow.values()) == sum(before.cluster_rows.values())
        for label, rows in before.cluster_rows.items():
            assert sum(n for (source, _), n in now.flow.items() if source == label) == rows


@pytest.mark.slow
def test_lineage_of_communities_is_told_in_words():
    result = run_demo(1, server="communities")
    html = render_report(result.model)
    assert "Round 1: cluster 0 was born." in html
    assert "Round 2: clusters 1 and 2 were born." in html
    assert "Round 3: cluster 1 grew from" in html
    assert "Clusters keep their names." in html


def test_many_rounds_show_first_last_and_some_between():
    shown = rounds_to_show(100)
    assert shown[0] == 1
    assert shown[-1] == 100
    assert len(shown) == 6


@pytest.mark.slow
def test_after_forgetting_a_site_the_report_knows_nothing_of_it():
    rows = three_blobs()
    model = FCAC(random_state=0).fit(rows, groups=np.where(np.arange(len(rows)) % 2, "stays", "leaves-soon"))
    assert "leaves-soon" in render_report(model)
    model.forget("leaves-soon")
    assert "leaves-soon" not in render_report(model)


# ------------------------------------------------------------ the verdict


@pytest.fixture(scope="module")
def doubtful():
    """Data of a report whose server knows how probable other numbers of clusters are."""
    data = gather(FCAC(random_state=0).fit(three_blobs()))
    others = (Alternative(2, 0.2), Alternative(4, 0.04), Alternative(999, 0.01))
    told = (Caution("unstable", "First <this>.", serious=True), Caution("scaling", "Then that."))
    return replace(data, verdict=Verdict(3, 900, 0.75, others, told))


def test_the_verdict_comes_first_and_other_numbers_are_one_click_away(doubtful):
    html = page(doubtful)
    head = html[: html.index("</header>")]
    assert "<h1>Uncertain: perhaps 3 clusters in 900 rows</h1>" in head
    assert "Probability 75 %; next: 2 clusters, 20 %." in head
    assert head.index("<h1>") < head.index("First &lt;this&gt;.") < head.index("Then that.") < head.index('"tiles"')
    assert re.findall(r'data-cut="(\d+)" aria-pressed="(\w+)"', head) == [("3", "true"), ("2", "false"), ("4", "false")]
    assert '"probable":{"3":"75 %","2":"20 %","4":"4.0 %","999":"1.0 %"}' in html
    assert "probability 75 %</span>" in html, "beside the slider"


def test_a_title_of_ones_own_does_not_replace_the_verdict(doubtful):
    html = page(doubtful, "Four clinics")
    assert "<h1>Four clinics</h1>" in html
    assert "<strong>Uncertain: perhaps 3 clusters in 900 rows</strong>" in html


# ------------------------------------------------------------ two clusterings


def read_as_communities(model: FCAC) -> Server:
    """The same contributions, read by the other server."""
    other = Server("communities", model.server_.random_state)
    for batch in model.server_.log:
        other.absorb(batch)
    return other


@pytest.mark.slow
def test_two_read_outs_side_by_side(demo):
    other = read_as_communities(demo.model)
    data = gather(other, compare=demo.model)
    assert data.comparison is not None
    assert sum(data.comparison.rows.values()) == 45_000
    first = data.found.clusters[0]
    twin = max(data.comparison.other.clusters, key=lambda c: data.comparison.rows.get((first.label, c.label), 0))
    assert twin.style == first.style, "clusters that share most rows share a colour"
    ranks = [c.style.rank for c in data.comparison.other.clusters]
    assert len(set(ranks)) == len(ranks)
    html = render_report(other, compare=demo.model)
    assert "Two clusterings side by side" in html
    assert "The paper&#39;s network: 15 clusters" in html


def test_compare_needs_the_same_contributions(demo):
    with pytest.raises(ValueError, match="same contributions"):
        gather(demo.model, compare=run_demo(1, server="cae-fc").model)


def test_adjusted_rand_is_scikit_learns():
    rng = np.random.default_rng(0)
    first, second = rng.integers(4, size=500), rng.integers(3, size=500)
    pairs, counts = np.unique(np.column_stack([first, second]), axis=0, return_counts=True)
    table = {(int(a), int(b)): int(n) for (a, b), n in zip(pairs, counts, strict=True)}
    assert adjusted_rand(table) == pytest.approx(adjusted_rand_score(first, second))


# ------------------------------------------------------------ what may not be in it


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cae-fc", "communities"])
def test_no_row_is_in_the_file(kind):
    # values between 7,000 and 8,000 occur nowhere else, so any of them with decimals would be a row's
    rng = np.random.default_rng(0)
    rows = 7000 + 999 * rng.random(size=(300, 2))
    html = render_report(FCAC(server=kind, random_state=0).fit(rows), X=rows)
    assert not re.findall(r"7,?\d\d\d\.\d", re.sub(r' points="[^"]*"', "", html))
    # and positions are whole units of a picture
    places = re.findall(r' transform="translate\(([^"]*)\)"', html)
    assert len(places) > 10
    for place in places:
        assert re.fullmatch(r"\d{1,3},\d{1,3}", place)


@pytest.mark.slow
def test_dots_of_sites_nodes_stand_for_several_rows():
    rows = three_blobs(n=300, d=2, scale=50.0)
    model = FCAC(server="communities", random_state=0).fit(rows)
    assert (model.server_.counts == 1).any()
    data = gather(model.server_)
    assert (data.found.dots.counts >= MIN_ROWS).all()
    assert f"at least {MIN_ROWS} rows" in render_report(model.server_)


def test_condensing_loses_no_rows_of_drawn_clusters():
    rng = np.random.default_rng(0)
    points, counts = rng.normal(size=(500, 2)), rng.integers(1, 4, size=500)
    labels = np.append(rng.integers(3, size=499), 9)  # cluster 9 has a single node
    counts[-1] = 2
    edges = rng.integers(500, size=(900, 2))
    dots = condense(points, counts, labels, edges, min_rows=5)
    assert dots.n_hidden == 1
    assert 9 not in dots.labels
    assert int(dots.counts.sum()) == int(counts[:-1].sum())
    assert dots.edges.max() < len(dots.points)
    for label in range(3):
        inside = labels[:-1] == label
        mean = np.average(points[:-1][inside], axis=0, weights=counts[:-1][inside])
        drawn = dots.labels == label
        np.testing.assert_allclose(np.average(dots.points[drawn], axis=0, weights=dots.counts[drawn]), mean)


def test_clusters_of_few_rows_are_not_described():
    server = Server("communities")
    rng = np.random.default_rng(0)
    nodes = np.concatenate([rng.normal(0, 1, size=(60, 2)), [[500.123, 500.456]]])
    server.absorb([Contribution("a", 1, nodes, np.append(np.full(60, 9), 1))])
    data = gather(server)
    for cluster in data.found.clusters:
        assert (cluster.label in data.profiles.clusters) == (cluster.rows >= MIN_ROWS)


@pytest.mark.slow
def test_rows_are_refused_in_a_federation_and_with_privacy(in_process):
    model, rows = in_process
    with pytest.raises(ValueError, match="federation: leave rows out"):
        gather(model.server_, rows=rows)
    with pytest.raises(ValueError, match="federation: leave rows out"):
        gather(model, rows=rows, federation=True)
    with pytest.raises(ValueError, match="pass it instead of a Server"):
        gather(model.server_, rows=rows, federation=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        noised = FCAC(privacy=PaperLaplace(15, random_state=0), random_state=0).fit(rows)
    with pytest.raises(ValueError, match="privacy is set: leave rows out"):
        gather(noised, rows=rows)


@pytest.mark.slow
def test_wrong_input_is_named(in_process):
    model, rows = in_process
    with pytest.raises(TypeError, match="fitted FCAC or a Server"):
        gather("model.fcac")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="call fit or partial_fit"):
        gather(FCAC())
    with pytest.raises(ValueError, match="run a round"):
        gather(Server())
    with pytest.raises(ValueError, match="each of the 3 features"):
        gather(model, feature_names=["only one"])
    with pytest.raises(ValueError, match="rows have 2 features, the model has 3"):
        gather(model, rows=rows[:, :2])
    with pytest.raises(ValueError, match="rows are empty"):
        gather(model, rows=rows[:0])


# ------------------------------------------------------------ strangers' words


@pytest.mark.slow
def test_names_cannot_become_markup():
    rows = three_blobs(d=2)
    model = FCAC(random_state=0).fit({HOSTILE: rows[:400], "b\x00\ud800": rows[400:]})
    html = render_report(model.server_, feature_names=[HOSTILE_FEATURE, "y"], title=HOSTILE)
    body = text_of(html)
    assert "<script" not in body
    assert "<img" not in body
    assert "\x00" not in html
    html.encode()  # a lone surrogate would not go into a file
    assert "&lt;script&gt;" in body


def test_words_in_contributions_cannot_become_markup():
    server = Server()
    nodes = np.random.default_rng(0).normal(size=(40, 2))
    server.absorb([Contribution("a", 1, nodes, np.ones(40, int), {"mechanism": HOSTILE, "epsilon": HOSTILE})])
    html = text_of(render_report(server))
    assert "<script" not in html
    assert "does not know" in html


def test_every_template_escapes_what_it_is_given():
    shown = environment().from_string('<p title="{{ text }}">{{ text }}</p>').render(text="\"<b>'&")
    assert shown == '<p title="&#34;&lt;b&gt;&#39;&amp;">&#34;&lt;b&gt;&#39;&amp;</p>'
    source = environment().loader
    for name in environment().list_templates():
        text = source.get_source(environment(), name)[0]
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", text), name
        for attribute in re.findall(r"""=\s*[^"'\s>{]*\{\{""", re.sub(r"\{%.*?%\}", "", text)):
            raise AssertionError(f"{name}: a value stands outside quotes: {attribute}")
    # what is markup already: the package's own style sheet and script
    source_of_page = Path(environment.__wrapped__.__code__.co_filename).read_text("utf-8")
    assert sorted(re.findall(r"Markup\((.*)\)", source_of_page)) == ["script", "style_sheet()"]
    others = [path for path in Path(fcac.report.__file__).parent.glob("*.py") if path.name != "page.py"]
    assert not [path.name for path in others if "Markup" in path.read_text("utf-8")]


# ------------------------------------------------------------ privacy


@pytest.mark.slow
def test_no_privacy_is_a_note_in_process_and_red_in_a_federation(in_process):
    model, _ = in_process
    assert gather(model).privacy.level == "note"
    words = gather(model.server_).privacy
    assert words.level == "danger"
    counts = np.concatenate([c.counts for c in model.server_.latest().values()])
    assert words.figures[0][0] == f"{(counts == 1).sum():,}"
    html = render_report(model.server_)
    assert html.count("callout danger") == 2, "a banner on top and the statement below"
    assert "No privacy at any site." in html


def test_sizes_that_noise_leaves_open_are_a_caution():
    rng = np.random.default_rng(0)
    nodes = np.concatenate([rng.normal(0, 1, (40, 2)), rng.normal(20, 1, (40, 2))])
    counts, noise = np.full(80, 50.0), np.where(np.arange(80) < 40, 1.0, 60.0)  # 2,000 rows ± 12.6 and ± 759
    server = Server()
    server.learn([Contribution("a", 1, nodes, counts, deviation=np.full((80, 2), 0.01), count_deviation=noise)])
    verdict = gather(server).verdict
    (told,) = [caution.text for caution in verdict.cautions if caution.kind == "noisy-sizes"]
    assert f"cluster {server.predict(np.array([[20.0, 20.0]]))[0]} is uncertain" in told


def test_one_open_site_among_private_ones_is_red():
    server = Server()
    rng = np.random.default_rng(0)
    private = {"mechanism": "NodeRelease", "epsilon": 4.0, "delta": 1e-6, "spent": 4.0}
    server.learn(
        [
            Contribution("open", 1, rng.normal(size=(40, 2)), np.ones(40, int), {"mechanism": "none"}),
            Contribution("closed", 1, rng.normal(size=(9, 2)), np.full(9, 40), private),
        ]
    )
    words = gather(server).privacy
    assert words.level == "danger"
    assert words.headline == "No privacy at 1 of 2 sites."


@pytest.mark.slow
def test_paper_noise_is_shown_with_the_figures_of_the_data():
    rows = three_blobs(d=4)
    rows[:, 3] = 7.0  # a constant column, sent exactly
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FCAC(privacy=PaperLaplace(15, random_state=0), random_state=0).fit(rows)
    words = gather(model).privacy
    assert words.level == "warning"
    figures = {text: number for number, text in words.figures}
    assert figures["nominal ε per record: ε = 15 is spent on each of 4 features"] == "60"
    assert figures["constant columns over all sites: they are sent exactly"] == "1"
    counts = model.server_.latest()[0].counts
    single = next(number for number, text in words.figures if "single row" in text)
    assert single == f"{(counts == 1).sum():,}"
    # the same from the contributions alone, as a federation's server has them
    assert gather(model.server_).privacy.figures == words.figures


@pytest.mark.slow
def test_node_release_states_its_promise_and_its_limits():
    rows = three_blobs(d=2)
    bounds = [[-2, 8], [-2, 8]]
    model = FCAC(privacy=NodeRelease(4, bounds), server="communities", random_state=0)
    model.partial_fit({"a": rows[:400], "b": rows[400:]})
    model.partial_fit({"a": rows[:400]})
    html = render_report(model)
    assert "differentially private per row" in html
    assert "<dd>one row</dd>" in html, "in the type of figures"
    assert "ε = 4 at δ = 10⁻⁶ per row and round" in html
    assert "Somebody at 2 of these sites: eps at most" in html
    assert "What is not promised" in html
    assert "about" in html
    assert gather(model).privacy.groups[0].sites == ["a"], "the one that has spent most comes first"
    groups = {tuple(g.sites): g for g in gather(model).privacy.groups}
    assert groups["a",].n_rounds == 2
    assert groups["a",].spent > groups["b",].spent


def test_people_are_named_as_the_unit_where_ids_were_given():
    model = FCAC(privacy=NodeRelease(4, [[-2, 8], [-2, 8]]), random_state=0)
    model.fit({"a": three_blobs(d=2)[:300]}, record_ids={"a": np.arange(300) // 3})
    assert "<dd>one person</dd>" in render_report(model)


@pytest.mark.slow
def test_of_sites_that_were_summed_nothing_single_is_shown_and_the_page_says_why():
    rows = three_blobs(d=2)
    privacy = NodeRelease(8, [[-2, 8], [-2, 8]])
    model = FCAC(privacy=privacy, aggregation="secure", random_state=0).fit(
        rows, groups=np.arange(len(rows)) % 6, public_groups=True
    )
    html = render_report(model)
    assert "<dt>Sites, summed before anyone saw</dt><dd>6</dd>" in html
    assert "Shares of single sites are known to nobody, so they are not shown." in html
    assert "rows at 6 sites, seen over 1 round" in html


def test_test_noise_does_not_pass_for_privacy():
    noise = InsecureTestSampler(0)
    model = FCAC(privacy=NodeRelease(4, [[-2, 8], [-2, 8]], sampler=noise), random_state=0).fit(three_blobs(d=2))
    html = render_report(model.server_)
    assert "No privacy at any site" in html
    assert "differentially private per" not in html


# ------------------------------------------------------------ edges


@pytest.mark.slow
def test_one_feature_one_site_one_round():
    html = render_report(FCAC(random_state=0).fit(np.random.default_rng(0).normal(size=(200, 1))))
    assert "Round by round" not in html
    assert "200 rows" in html.split("</h1>")[0]


def test_contributions_without_nodes_give_a_page_that_says_so():
    server = Server()
    server.absorb([Contribution("a", 1, np.empty((0, 3)), np.empty(0, int), {"mechanism": "NodeRelease"})])
    html = render_report(server)
    assert "no node has arrived yet" in html


def test_equal_nodes_do_not_break_the_picture():
    server = Server("communities")
    server.absorb([Contribution("a", 1, np.ones((12, 3)), np.full(12, 6))])
    html = render_report(server)
    assert not re.search(r"\bnan\b", text_of(html), re.IGNORECASE)


def test_features_of_different_scales_are_standardised_in_the_picture():
    rng = np.random.default_rng(0)
    nodes = rng.normal(size=(100, 5)) * [1, 1, 1, 1, 1000]
    assert fit_projection(nodes, np.ones(100, int), list("abcde")).standardised
    assert not fit_projection(nodes / [1, 1, 1, 1, 1000], np.ones(100, int), list("abcde")).standardised


@pytest.mark.slow
def test_many_sites_rounds_and_clusters_stay_readable(tmp_path):
    rng = np.random.default_rng(0)
    server = Server()
    for number in range(1, 31):
        batch = [
            Contribution(f"site {k:03d}", number, rng.normal(size=(5, 8)), rng.integers(1, 9, size=5))
            for k in range(120)
            if rng.random() < 0.8
        ]
        server.learn(batch)
    path = tmp_path / "report.html"
    write_report(server, path)
    assert path.stat().st_size < 1_000_000
    html = path.read_text()
    assert "The 60 largest of 120 sites are listed." in html
    assert "The last 24 of 30 rounds are listed." in html
    assert "too many rounds to draw them again" in html


@pytest.mark.slow
def test_file_is_small_and_written_whole(demo, tmp_path):
    path = tmp_path / "report.html"
    write_report(demo.model, path, X=demo.rows)
    data = path.read_bytes()
    assert len(data) < 500_000
    assert data.startswith(b"<!doctype html>")
    assert data.rstrip().endswith(b"</html>")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(demo):
    html = render_report(demo.model, X=demo.rows)
    assert "http://" not in html
    assert "https://" not in html
    assert not re.search(r'\b(src|srcset|data|action|xlink:href)="', html)
    assert not re.search(r"url\(|@import", html)
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', html))
    assert "default-src &#39;none&#39;" in html


# ------------------------------------------------------------ colours


def seen_by(colours: np.ndarray, kind: str) -> np.ndarray:
    """Linear-light simulation of dichromacy (Machado et al. 2009, severity 1), then CIE Lab."""
    matrices = {
        "full": np.eye(3),
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    }
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.array(matrices[kind]).T, 0, 1)
    xyz = linear @ np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]).T
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.column_stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])])


@pytest.mark.parametrize("kind", ["full", "protan", "deutan"])
def test_colours_differ_for_every_eye(kind):
    colours = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in PALETTE])
    lab = seen_by(colours, kind)
    distance = np.sqrt(((lab[:, None] - lab) ** 2).sum(axis=2))
    assert distance[~np.eye(len(lab), dtype=bool)].min() > 10


def test_every_look_is_its_own():
    styles = {(ClusterStyle(rank).colour, ClusterStyle(rank).shape) for rank in range(N_STYLES)}
    assert len(styles) == N_STYLES
    assert ClusterStyle(N_STYLES).colour == "cx"


@pytest.mark.slow
def test_a_shaky_partition_is_said_to_be_one():
    rows = np.random.default_rng(0).normal(size=(1500, 2))
    model = FCAC(n_clusters=6).fit(rows)
    html = render_report(model)
    told = [caution.text for caution in gather(model).verdict.cautions]
    assert "uncertain" in told[0], told
    assert "1 cluster is more likely" in told[0], told
    assert html.index(told[0]) < html.index('class="tiles"'), "before all figures"
    firm = gather(FCAC().fit(np.concatenate([rows, rows + 40]))).verdict
    assert firm.certain


@pytest.mark.slow
def test_rounds_that_cannot_be_drawn_again_still_tell_what_became_of_the_clusters(monkeypatch):
    from fcac.report import round_history

    monkeypatch.setattr(round_history, "replay", lambda server: None)  # as with very many contributions
    rng = np.random.default_rng(0)
    model = FCAC().fit({"a": rng.normal(size=(300, 2))})
    model.partial_fit({"a": rng.normal(30, 1, size=(300, 2))})
    html = render_report(model)
    assert "too many rounds" in html
    assert "Round 2: cluster 1 was born." in html


# ------------------------------------------------------------ while the federation goes on


def kept_server(n_rounds: int, n_sites: int = 3) -> Server:
    """A server whose earlier states were kept, as a hub keeps them."""
    rng = np.random.default_rng(0)
    nodes = rng.normal(0, 1, (n_sites, 40, 2)) + 9 * (np.arange(n_sites) % 2)[:, None, None]
    server, states = Server(), {}
    for number in range(1, n_rounds + 1):
        server.absorb([Contribution(f"s{k}", number, nodes[k] + 0.01 * number, np.full(40, 9)) for k in range(n_sites)])
        states[number] = copy.deepcopy(server)
    server.past = states.get
    return server


@pytest.mark.slow
def test_a_report_of_a_snapshot_needs_neither_lock_nor_store():
    server = kept_server(9)
    whole = render_report(server)
    assert "6 of 9 are shown." in whole
    seen = snapshot(server)
    server.forget("s1")  # as somebody may, before the report is written
    assert render_report(seen) == whole
    with pytest.raises(ValueError, match="not here"):
        seen.log  # noqa: B018
    assert "s1" not in render_report(server)


@pytest.mark.slow
def test_equal_runs_give_equal_files():
    pages = {render_report(FCAC(random_state=0).fit(three_blobs(), groups=np.arange(900) % 3)) for _ in range(2)}
    assert len(pages) == 1


@pytest.mark.slow
def test_pages_do_not_grow_with_the_rounds():
    sizes = [len(render_report(snapshot(kept_server(n)))) for n in (30, 90)]
    assert sizes[1] < 1.05 * sizes[0]
