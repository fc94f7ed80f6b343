"use strict";

// Everything a site has sent is put into the page as text, never as markup.
const byId = (id) => document.getElementById(id);
const token = document.querySelector('meta[name="fcac-token"]').content;
let shownRound = null;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function clock(text) {
  if (!text) return "never";
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toLocaleString();
}

function showNow(facts) {
  const figures = [
    ["Rounds closed", facts.rounds_closed],
    ["Clusters", facts.model ? facts.model.clusters : "none yet"],
    ["Nodes", facts.model ? facts.model.nodes.toLocaleString() : "none yet"],
    ["Arrived", `${facts.arrived.length} of ${facts.arrived.length + facts.missing.length}`],
    ["Certificate until", facts.certificate_until || "none"],
  ];
  byId("now").replaceChildren(...figures.map(([name, value]) => {
    const box = element("div");
    box.append(element("dt", name), element("dd", value));
    return box;
  }));
  byId("stop").disabled = !facts.running;
  document.querySelector('#play button[type="submit"]').disabled = facts.running;
  byId("said").hidden = facts.said.length === 0;
  byId("said").textContent = facts.said.join("\n");
}

function spent(privacy) {
  if (!privacy) return "";
  if (privacy.mechanism === "none") return "no privacy";
  return privacy.spent === undefined ? privacy.mechanism : `ε ${privacy.spent.toPrecision(3)}`;
}

function showSites(sites) {
  byId("sites").replaceChildren(...sites.map((site) => {
    const row = element("tr");
    const name = element("th", site.site);
    name.scope = "row";
    const skew = site.clock_skew === null ? "" : `${site.clock_skew} s`;
    const cells = [
      element("td", site.presence, site.presence.split(" ")[0]), element("td", clock(site.last_heard)),
      element("td", site.contributed), element("td", site.newest_round), element("td", site.nodes),
      element("td", site.rejected), element("td", site.missed), element("td", spent(site.privacy)),
      element("td", skew), element("td", site.version),
    ];
    const action = element("td");
    if (site.status === "active") {
      const button = element("button", "Revoke");
      button.type = "button";
      button.setAttribute("aria-label", `Revoke ${site.site}`);
      button.addEventListener("click", () => {
        if (window.confirm(`Block the key of ${site.site}? What it has contributed stays in the model.`)) {
          act("/console/revoke", { site: site.site });
        }
      });
      action.append(button);
    }
    row.append(name, ...cells, action);
    return row;
  }));
}

function showEvents(events) {
  byId("events").replaceChildren(...events.map((event) => {
    const item = element("li", null, event.event.split(" ")[0]);
    const who = event.site ? `${event.site} ` : "";
    item.append(element("time", clock(event.time)));
    item.append(`${who}${event.words}${event.round ? `, round ${event.round}` : ""}${event.reason ? `: ${event.reason}` : ""}`);
    return item;
  }));
}

function showLineage(changes) {
  byId("lineage").replaceChildren(...changes.slice().reverse().map((change) => {
    const item = element("li");
    item.append(element("span", `round ${change.round}`, "round"));
    const others = change.others.length > 1 ? ` (${change.others.join(", ")})` : "";
    item.append(`cluster ${change.cluster} ${change.kind}${others}, ${change.rows.toLocaleString()} rows`);
    return item;
  }));
}

function show(facts) {
  document.title = `${facts.name} · fcac console`;
  byId("name").textContent = facts.name;
  showNow(facts);
  showSites(facts.sites);
  showEvents(facts.events);
  showLineage(facts.lineage);
  if (facts.model && facts.rounds_closed !== shownRound) {
    shownRound = facts.rounds_closed;
    byId("report-section").hidden = false;
    byId("report").src = `/console/report?round=${facts.rounds_closed}`;
  }
}

async function act(path, body) {
  const outcome = byId("outcome");
  try {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Fcac-Token": token },
      body: JSON.stringify(body),
    });
    outcome.textContent = answer.ok ? "done" : await answer.text();
  } catch {
    outcome.textContent = "the console does not answer";
  }
}

byId("play").addEventListener("submit", (event) => {
  event.preventDefault();
  act("/console/run", { rounds: Number(byId("rounds").value) });
});
byId("stop").addEventListener("click", () => act("/console/stop", {}));

const stream = new EventSource("/console/events");
stream.addEventListener("open", () => { byId("link").textContent = "live"; });
stream.addEventListener("error", () => { byId("link").textContent = "not connected, trying again"; });
stream.addEventListener("message", (event) => show(JSON.parse(event.data)));
