"""The console: what it shows, who may look, and what its buttons do."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import ssl
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fcac.deployment import metrics
from fcac.deployment.audit_log import AuditLog, verify
from fcac.deployment.console import new_token
from fcac.deployment.facts import facts
from fcac.deployment.hub import Hub
from fcac.deployment.processes import ServerProcess, free_port
from fcac.deployment.settings import STATE, FederationSettings
from fcac.federation import Contribution
from fcac.tables.schema import Schema
from testing.commands import fcac
from testing.federation_study import make_study
from testing.waiting import PATIENCE


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
    address = f"127.0.0.1:{free_port()}"
    study = make_study(tmp_path, ["north", "south", "west"], schema, name="Tide <script>", address=address)
    settings = FederationSettings.load(study)
    hub = Hub(study / STATE, settings)
    for site in ("north", "south"):
        assert hub.receive(site, contribution(site, 1)).outcome == "accepted"
    assert hub.receive("west", b"\x1b[2Jnonsense").outcome == "rejected"
    hub.close_round()
    return study


class Served(NamedTuple):
    """A hub's service with a console, and the token of whoever watches it."""

    root: Path
    port: int
    token: str

    @property
    def word(self):
        """What the page of the token's holder is given for its buttons."""
        page = ask(self, "/console", cookie=self.token)[1]
        return re.search('name="fcac-token" content="([0-9a-f]+)"', page)[1]


@pytest.fixture
def console(study):
    server = ServerProcess(study)
    server.start()
    yield Served(study, server.settings.join_port, new_token(study))
    server.stop()


def ask(console, path, *, cookie=None, host="localhost", body=None, button=None, kind="application/json"):
    context = ssl.create_default_context(cafile=str(console.root / "ca" / "ca.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", console.port, timeout=PATIENCE, context=context)
    headers = {"Host": f"{host}:{console.port}", "Content-Type": kind}
    if cookie:
        headers["Cookie"] = f"fcac_console={cookie}"
    if button:
        headers["X-Fcac-Token"] = button
    try:
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


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
    assert ask(console, "/console")[0] == 401
    for path in ("facts", "report", "events", "console.js"):
        assert ask(console, f"/console/{path}")[0] == 401
        assert ask(console, f"/console/{path}", cookie="wrong")[0] == 401
        assert ask(console, f"/console/{path}?token={console.token}")[0] == 401
    form = {"kind": "application/x-www-form-urlencoded"}
    assert ask(console, "/console/enter", body="token=wrong", **form)[0] == 401
    status, _, headers = ask(console, "/console/enter", body=f"token={console.token}", **form)
    assert status == 303
    assert all(word in headers["Set-Cookie"] for word in ("HttpOnly", "Secure", "SameSite=Strict", "Path=/console"))
    assert console.token not in headers["Location"]
    assert ask(console, "/console/facts", cookie=console.token)[0] == 200
    assert ask(console, "/console/facts", cookie=console.token, host="evil.example")[0] == 401
    assert ask(console, "/console", cookie=console.token, host="evil.example")[0] == 403
    assert ask(console, "/console/../server.py", cookie=console.token)[0] == 404
    status, _, headers = ask(console, "/console/report", cookie=console.token)
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("sandbox allow-scripts; default-src 'none'")


@pytest.mark.slow
def test_a_token_is_kept_as_a_hash_and_ends_with_the_next(console):
    kept = (console.root / "server" / "console.hash").read_text()
    assert console.token not in kept
    assert (console.root / "server" / "console.hash").stat().st_mode & 0o077 == 0
    assert ask(console, "/console/facts", cookie=console.token)[0] == 200
    fresh = new_token(console.root)
    assert ask(console, "/console/facts", cookie=console.token)[0] == 401
    assert ask(console, "/console/facts", cookie=fresh)[0] == 200


@pytest.mark.slow
def test_buttons_need_the_word_of_the_page(console, study):
    assert ask(console, "/console/revoke", cookie=console.token, body='{"site": "south"}')[0] == 403
    assert ask(console, "/console/revoke", button=console.word, body='{"site": "south"}')[0] == 401
    both = {"cookie": console.token, "button": console.word}
    status, said, _ = ask(console, "/console/revoke", body='{"site": "nobody"}', **both)
    assert status == 400
    assert "no such site" in said
    for action, body in (("stop", "{}"), ("run", '{"rounds": 0}'), ("run", "[1]"), ("run", "{")):
        assert ask(console, f"/console/{action}", body=body, **both)[0] == 400
    assert ask(console, "/console/revoke", body='{"site": "south"}', **both)[0] == 200
    assert FederationSettings.load(study).members["south"].status == "revoked"
    log = AuditLog(study / STATE)
    assert [entry["command"] for entry in log.entries()] == ["console: revoke"]
    assert not verify(log.path).problem


@pytest.mark.slow
def test_what_happens_is_pushed(console, study):
    context = ssl.create_default_context(cafile=str(study / "ca" / "ca.crt"))
    connection = http.client.HTTPSConnection("localhost", console.port, timeout=PATIENCE, context=context)
    connection.request("GET", "/console/events", headers={"Cookie": f"fcac_console={console.token}"})
    stream = connection.getresponse()
    first = json.loads(stream.readline().decode().removeprefix("data: "))
    assert first["rounds_closed"] == 1
    hub = Hub(study / STATE, FederationSettings.load(study))
    hub.receive("north", contribution("north", 2, 0.01))
    hub.close_round()
    while True:
        line = stream.readline().decode()
        if line.startswith("data: ") and json.loads(line[6:])["rounds_closed"] == 2:
            break
    # whoever is put out no longer hears anything
    new_token(study)
    while stream.readline():
        pass
    connection.close()


@pytest.mark.slow
def test_the_command_shows_a_token_once(study, capfd):
    said = fcac(capfd, "federation", "console", study, "--no-open")
    token = re.search(r"Token, shown once: (\S+)", said)[1]
    assert "/console" in said
    assert len(token) == 32
    assert not any(token in path.read_text("utf-8", "replace") for path in study.rglob("*") if path.is_file())
    assert [entry["command"] for entry in AuditLog(study / STATE).entries()] == ["console"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium on this machine: install chromium")
def test_in_a_browser(console, study):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra 'dev'")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        # the study's own authority is none that browsers know
        page = browser.new_page(viewport={"width": 390, "height": 800}, ignore_https_errors=True)
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda request: (
                "//localhost:" in request.url or request.url.startswith("data:") or wrong.append(request.url)
            ),
        )
        page.goto(f"https://localhost:{console.port}/console")
        page.get_by_label("The token").fill(console.token)
        page.get_by_role("button", name="Enter").click()
        page.wait_for_selector("#sites tr", timeout=120_000)
        assert console.token not in page.url
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
