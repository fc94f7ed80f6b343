"""The console: what it shows, who may look, what its buttons do, and whom it tells."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from fcac.deployment import metrics
from fcac.deployment.audit_log import AuditLog, verify
from fcac.deployment.console import Console
from fcac.deployment.console.hooks import Hook, news
from fcac.deployment.facts import facts
from fcac.deployment.hub import Hub
from fcac.deployment.settings import STATE, FederationSettings
from fcac.federation import Contribution
from fcac.tables.schema import Schema
from testing.commands import fcac
from testing.federation_study import make_study
from testing.waiting import wait_until


def nodes(shift=0.0):
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(shift, 0.1, (30, 2)), rng.normal(5 + shift, 0.1, (30, 2))])


def contribution(site, number, shift=0.0):
    return Contribution(site, number, nodes(shift), np.full(60, 4)).to_bytes()


@pytest.fixture
def study(tmp_path):
    """A study of three sites, without Flower: one round is closed, and something bad has been sent."""
    schema = tmp_path / "schema.toml"
    schema.write_text(Schema(["x", "y"]).to_toml())
    study = make_study(tmp_path, ["north", "south", "west"], schema, name="Tide <script>", address="127.0.0.1:9")
    settings = FederationSettings.load(study)
    hub = Hub(study / STATE, settings)
    for site in ("north", "south"):
        assert hub.receive(site, contribution(site, 1)).outcome == "accepted"
    assert hub.receive("west", b"\x1b[2Jnonsense").outcome == "rejected"
    hub.close_round()
    return study


@pytest.fixture
def console(study):
    running = Console(study)
    running.start()
    yield running
    running.close()


def ask(console, path, *, token=None, cookie=None, host=None, body=None, button=None):
    headers = {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if cookie:
        headers["Cookie"] = f"fcac_console={cookie}"
    if host:
        headers["Host"] = host
    if button:
        headers["X-Fcac-Token"] = button
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{console.port}{path}", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_facts(study):
    found = facts(study)
    json.dumps(found, allow_nan=False)
    assert found["rounds_closed"] == 1
    assert found["model"]["clusters"] >= 2
    by_name = {site["site"]: site for site in found["sites"]}
    assert by_name["north"]["contributed"] == 1
    assert by_name["west"]["rejected"] == 1
    assert "\x1b" not in json.dumps(found)
    assert {change["kind"] for change in found["lineage"]} == {"born"}


@pytest.mark.slow
def test_status_as_json(study, capfd):
    assert json.loads(fcac(capfd, "federation", "status", study, "--json"))["rounds_closed"] == 1


@pytest.mark.slow
def test_metrics(study):
    text = metrics.as_text(facts(study))
    assert "fcac_rounds_closed_total 1\n" in text
    assert 'fcac_site_rejected_total{site="west"} 1\n' in text
    for line in text.splitlines():
        assert line.startswith("#") or len(line.split(" ")) == 2


@pytest.mark.slow
def test_only_those_with_the_token_get_in(console):
    for path in ("/", "/facts", "/metrics", "/report", "/events", "/assets/console.js"):
        assert ask(console, path)[0] == 401
        assert ask(console, path, token="wrong")[0] == 401
    assert ask(console, "/?token=wrong")[0] == 401
    assert ask(console, "/facts", token=console.token)[0] == 200
    assert ask(console, "/facts", token=console.token, host="evil.example:80")[0] == 403
    status, page = ask(console, f"/?token={console.token}")  # sets the cookie, which urllib does not keep
    assert status == 401
    assert "open the address" in page
    assert ask(console, "/", cookie=console.token)[0] == 200
    assert ask(console, "/assets/../server.py", token=console.token)[0] == 404
    assert ask(console, "/report", token=console.token)[0] == 200


@pytest.mark.slow
def test_buttons_need_the_token_of_the_page(console, study):
    assert ask(console, "/revoke", cookie=console.token, body={"site": "south"})[0] == 403
    assert ask(console, "/revoke", button=console.token, body={"site": "south"})[0] == 403
    both = {"cookie": console.token, "button": console.token}
    status, said = ask(console, "/revoke", body={"site": "nobody"}, **both)
    assert status == 400
    assert "no such site" in said
    assert ask(console, "/stop", body={}, **both)[0] == 400
    assert ask(console, "/run", body={"rounds": 0}, **both)[0] == 400
    assert ask(console, "/run", body=[1], **both)[0] == 400
    assert ask(console, "/revoke", body={"site": "south"}, **both)[0] == 200
    assert FederationSettings.load(study).members["south"].status == "revoked"
    log = AuditLog(study / STATE)
    assert [entry["command"] for entry in log.entries()] == ["console: revoke"]
    assert not verify(log.path).problem


@pytest.mark.slow
def test_what_happens_is_pushed(console, study):
    request = urllib.request.Request(
        f"http://127.0.0.1:{console.port}/events", headers={"Authorization": f"Bearer {console.token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as stream:
        first = json.loads(stream.readline().decode().removeprefix("data: "))
        assert first["rounds_closed"] == 1
        hub = Hub(study / STATE, FederationSettings.load(study))
        hub.receive("north", contribution("north", 2, 0.01))
        hub.close_round()
        while True:
            line = stream.readline().decode()
            if line.startswith("data: ") and json.loads(line[6:])["rounds_closed"] == 2:
                break


@pytest.mark.slow
def test_hooks_are_told(study, tmp_path):
    told = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    written = tmp_path / "told.json"
    hooks = [Hook(f"http://127.0.0.1:{server.server_address[1]}/"), Hook(f"tee {written}"), Hook("no-such-command")]
    console = Console(study, hooks=hooks)
    console.start()
    try:
        Hub(study / STATE, FederationSettings.load(study)).receive("west", b"nonsense again")
        wait_until(lambda: bool(told) and written.exists() and written.stat().st_size > 0)
    finally:
        console.close()
        server.shutdown()
        server.server_close()
    assert told[0]["event"] == "contribution rejected"
    assert json.loads(written.read_text())["site"] == "west"


def test_hooks_stay_on_this_machine():
    with pytest.raises(ValueError, match="is not this machine"):
        Hook("https://example.org/hook")
    assert Hook("https://example.org/hook", elsewhere=True).is_address
    with pytest.raises(ValueError, match="give a command"):
        Hook(" ")


def test_news():
    site = {"site": "a", "presence": "here", "rejected": 0, "privacy": {"spent": 1.0, "budget": 4.0}}
    before = {"sites": [site], "lineage": [], "n_changes": 0}
    after = {
        "sites": [site | {"presence": "away", "privacy": {"spent": 3.5, "budget": 4.0}}],
        "lineage": [{"kind": "born", "cluster": 3, "round": 2}, {"kind": "grew", "cluster": 1, "round": 2}],
        "n_changes": 2,
    }
    assert [item["event"] for item in news(before, after)] == ["site away", "budget low", "cluster born"]
    assert news(None, after) == []
    assert news(after, after) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium on this machine: install chromium")
def test_in_a_browser(console, study):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra 'dev'")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800})
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda request: "127.0.0.1" in request.url or request.url.startswith("data:") or wrong.append(request.url),
        )
        page.goto(console.address)
        page.wait_for_selector("#sites tr", timeout=120_000)
        assert "token" not in page.url
        assert page.inner_text("#name") == "Tide <script>"
        assert page.locator("#sites tr").count() == 3
        # nothing but the table of sites may be wider than a phone
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Revoke south").press("Enter")
        page.wait_for_selector("td.revoked", timeout=120_000)
        browser.close()
    assert wrong == []
    assert FederationSettings.load(study).members["south"].status == "revoked"
