// The report's script: tips, zoom and views of the map, following a cluster, sorting, another cut of the tree.
"use strict";
(() => {
  const $ = id => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const data = JSON.parse($("data").textContent);
  const tip = $("tip"), live = $("live");
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  // ------------------------------------------------------------ tips
  let at = null, byKey = false;
  const hide = () => {
    tip.classList.remove("shown");
    if (at) at.classList.remove("at");
    at = null;
  };
  const place = () => {
    const box = at.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const x = Math.min(Math.max(8, box.x + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const y = box.y - own.height - 8;
    tip.style.transform = `translate(${x}px,${y < 8 ? Math.min(box.y + box.height + 8, innerHeight - own.height - 8) : y}px)`;
  };
  const marks = all("#network-plot .m");
  const indexOf = new Map(marks.map((mark, i) => [mark, i]));
  const clusterOf = element => element.closest("[data-k]")?.dataset.k;
  const plural = (n, word) => `${n.toLocaleString("en")} ${n === 1 ? word.replace(/s$/, "") : word}`;
  const words = mark => {
    const i = indexOf.get(mark);
    if (i === undefined) return mark.dataset.t || "";
    const k = clusterOf(mark), map = data.map;
    const name = data.names[k] ? `: ${data.names[k]}` : "";
    const nodes = map.nodes[i] > 1 ? `, ${plural(map.nodes[i], "nodes")}` : "";
    const values = map.columns.map((column, c) => `${column}: ${map.values[i][c]}`);
    return [`Cluster ${k}${name}`, `${plural(map.n[i], data.counted)}${nodes}`, ...values].join("\n");
  };
  const show = (mark, key) => {
    if (at && at !== mark) at.classList.remove("at");
    at = mark;
    byKey = key;
    mark.classList.add("at");
    const text = words(mark);
    tip.textContent = text;
    place();
    tip.classList.add("shown");
    if (key) live.textContent = text.replaceAll("\n", ", ");
  };
  document.addEventListener("pointerover", event => {
    const mark = event.target.closest?.("[data-t], .m");
    if (mark) show(mark, false);
    else if (at) hide();
  });
  addEventListener("scroll", () => at && (byKey ? place() : hide()), { passive: true });
  for (const plot of all(".plot")) {
    const stops = all("[data-t], .m", plot);
    let position = -1;
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Enter" && stops[position]) return follow(clusterOf(stops[position]));
      if (event.key === "Home") position = 0;
      else if (event.key === "End") position = stops.length - 1;
      else if (step && stops.length) position = (position + step + stops.length) % stops.length;
      else return;
      event.preventDefault();
      if (stops[position]) show(stops[position], true);
    });
  }

  // ------------------------------------------------------------ following a cluster
  let followed = null;
  const follow = k => {
    followed = k === undefined || k === null || k === followed ? null : k;
    for (const group of all(".follow")) group.classList.toggle("only", followed !== null);
    for (const element of all(".k")) element.classList.toggle("on", followed !== null && element.dataset.k === followed);
    for (const button of all(".pick")) button.setAttribute("aria-pressed", String(button.dataset.k === followed));
    $("following").hidden = followed === null;
    if (followed === null) return;
    const name = data.names[followed];
    $("following-what").textContent = `Cluster ${followed}${name ? `: ${name}` : ""}`;
  };
  $("following-end").addEventListener("click", () => follow(null));
  document.addEventListener("click", event => {
    if (event.target.closest?.("#tree-plot, thead, #following")) return;
    const element = event.target.closest?.("[data-k]");
    if (element && (element.tagName !== "ARTICLE") && !dragged) follow(element.dataset.k);
  });
  document.addEventListener("keydown", event => {
    if (event.key !== "Escape") return;
    if (at) hide();
    else follow(null);
  });

  // ------------------------------------------------------------ the map: views, zoom, labels
  const svg = document.querySelector("#network-plot svg"), shapes = svg.querySelector(".shapes");
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const parsed = element => element.getAttribute("transform").match(/-?[\d.]+/g).map(Number);
  const first = marks.map(parsed), second = data.map.other;
  const labels = all(":scope > .view > text", svg).map(text => ({ text, from: parsed(text) }));
  const fixed = all(".fixed text[transform]", svg).map(text => ({ text, from: parsed(text) }));
  const leaders = all(".leaders", svg);
  let zoom = 1, moveX = 0, moveY = 0, share = 0, dragged = false;
  const draw = () => {
    const matrix = `matrix(${zoom} 0 0 ${zoom} ${moveX} ${moveY})`;
    shapes.setAttribute("transform", matrix);
    for (const group of leaders) group.setAttribute("transform", matrix);
    const grown = Math.sqrt(Math.sqrt(zoom));
    marks.forEach((mark, i) => {
      const x = first[i][0] + share * (second[i][0] - first[i][0]);
      const y = first[i][1] + share * (second[i][1] - first[i][1]);
      const size = zoom === 1 ? "" : `scale(${grown.toFixed(2)})`;
      mark.setAttribute("transform", `translate(${(zoom * x + moveX).toFixed(1)},${(zoom * y + moveY).toFixed(1)})${size}`);
    });
    for (const { text, from } of fixed) {
      const across = text.classList.contains("mid");
      const x = across ? zoom * from[0] + moveX : from[0], y = across ? from[1] : zoom * from[1] + moveY;
      text.setAttribute("transform", `translate(${x.toFixed(1)},${y.toFixed(1)})`);
    }
    for (const { text, from } of labels) {
      text.setAttribute("transform", `translate(${(zoom * from[0] + moveX).toFixed(1)},${(zoom * from[1] + moveY).toFixed(1)})`);
    }
    unclutter();
  };
  // labels keep their size on the screen, so that some may have no room: then the larger cluster keeps its label
  const unclutter = () => {
    const scale = svg.getBoundingClientRect().width / width || 1;
    for (const view of all(":scope > .view", svg)) {
      const taken = [];
      for (const text of all(":scope > text", view)) {
        text.style.visibility = "";
        if (!text.getClientRects().length) continue;
        const box = text.getBoundingClientRect();
        const clash = taken.some(other =>
          box.left < other.right + 2 && other.left < box.right + 2 && box.top < other.bottom && other.top < box.bottom);
        if (clash) text.style.visibility = "hidden";
        else taken.push(box);
      }
    }
    return scale;
  };
  const zoomTo = (factor, x = width / 2, y = height / 2) => {
    const next = Math.min(40, Math.max(1, zoom * factor));
    moveX = x - (x - moveX) * next / zoom;
    moveY = y - (y - moveY) * next / zoom;
    zoom = next;
    keepInside();
    draw();
  };
  const keepInside = () => {
    moveX = Math.min(0, Math.max(width - zoom * width, moveX));
    moveY = Math.min(0, Math.max(height - zoom * height, moveY));
  };
  const whole = () => {
    zoom = 1;
    moveX = moveY = 0;
    draw();
  };
  const point = event => {
    const box = svg.getBoundingClientRect();
    return [(event.clientX - box.x) * width / box.width, (event.clientY - box.y) * height / box.height];
  };
  for (const button of all("[data-zoom]")) button.addEventListener("click", () => {
    const what = button.dataset.zoom;
    if (what === "all") whole();
    else zoomTo(what === "in" ? 1.6 : 1 / 1.6);
  });
  svg.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomTo(Math.exp(-event.deltaY / 300), ...point(event));
  }, { passive: false });
  svg.addEventListener("dblclick", event => zoomTo(2, ...point(event)));
  $("network-plot").addEventListener("keydown", event => {
    if (event.key === "+" || event.key === "=") zoomTo(1.6);
    else if (event.key === "-") zoomTo(1 / 1.6);
    else if (event.key === "0") whole();
  });
  const fingers = new Map();
  svg.addEventListener("pointerdown", event => {
    fingers.set(event.pointerId, point(event));
    dragged = false;
  });
  addEventListener("pointermove", event => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const now = point(event);
    if (fingers.size === 2) {
      const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
      const apart = p => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
      zoomTo(apart(now) / apart(before), other[0], other[1]);
    } else if (zoom > 1) {
      moveX += now[0] - before[0];
      moveY += now[1] - before[1];
      svg.classList.add("moving");
      keepInside();
      draw();
    }
    if (Math.hypot(now[0] - before[0], now[1] - before[1]) > 2) dragged = true;
    fingers.set(event.pointerId, now);
  });
  const release = event => {
    fingers.delete(event.pointerId);
    svg.classList.remove("moving");
    // a click follows the release; only then a drag is over
    setTimeout(() => { dragged = false; }, 0);
  };
  addEventListener("pointerup", release);
  addEventListener("pointercancel", release);
  const views = all("[data-view]");
  for (const button of views) button.addEventListener("click", () => {
    const target = button.dataset.view === "b" ? 1 : 0;
    for (const other of views) other.setAttribute("aria-pressed", String(other === button));
    svg.classList.toggle("second", target === 1);
    zoom = 1;
    moveX = moveY = 0;
    const begin = share, started = performance.now(), takes = still.matches ? 0 : 500;
    const move = time => {
      const part = takes ? Math.min(1, Math.max(0, (time - started) / takes)) : 1;
      share = begin + (target - begin) * part * part * (3 - 2 * part);
      draw();
      if (part < 1) requestAnimationFrame(move);
    };
    move(started);
  });
  addEventListener("resize", unclutter);
  unclutter();

  // ------------------------------------------------------------ another cut of the tree
  const tree = data.tree, slider = $("cut");
  if (tree && slider) {
    const plot = document.querySelector("#tree-plot svg");
    const found = marks.map(mark => mark.parentNode.getAttribute("class").match(/\bc(\d+|x)\b/)[0]);
    const line = $("cut-line"), cuts = all("[data-cut]");
    const cutAt = level => {
      slider.value = level;
      $("cut-value").textContent = level;
      const probable = tree.probable[level];
      $("cut-probable").textContent = probable ? `probability ${probable}` : "";
      for (const button of cuts) button.setAttribute("aria-pressed", String(Number(button.dataset.cut) === level));
      const original = level === tree.found;
      $("cut-back").disabled = original;
      svg.classList.toggle("cut", !original);
      const y = tree.heights[level - 1];
      line.setAttribute("d", line.getAttribute("d").replace(/^M(\d+) \d+/, `M$1 ${y}`));
      const parts = tree.branches.filter(branch => branch[0] <= level && level <= branch[1]);
      parts.sort((a, b) => a[5] - b[5] || b[4] - a[4]);
      // the largest part of a found cluster keeps its colour, others get those not yet used
      const taken = new Set(), style = new Map();
      for (const part of parts) if (!taken.has(part[5])) {
        taken.add(part[5]);
        style.set(part, part[5]);
      }
      let free = 0;
      for (const part of parts) if (!style.has(part)) {
        while (taken.has(free)) free += 1;
        taken.add(free);
        style.set(part, free);
      }
      const ofLeaf = [];
      for (const [part, rank] of style) for (let leaf = part[2]; leaf <= part[3]; leaf += 1) {
        ofLeaf[leaf] = rank < data.styles ? `c${rank % data.colours}` : "cx";
      }
      marks.forEach((mark, i) => mark.setAttribute("class", `m ${original ? "" : ofLeaf[data.map.leaf[i]] || found[i]}`.trim()));
      live.textContent = `${original ? `The ${level} clusters found` : `A cut into ${level} clusters`}${probable ? `, probability ${probable}` : ""}`;
    };
    for (const button of cuts) button.addEventListener("click", () => {
      cutAt(Number(button.dataset.cut));
      $("network").scrollIntoView();
    });
    slider.addEventListener("input", () => cutAt(Number(slider.value)));
    $("cut-back").addEventListener("click", () => cutAt(tree.found));
    plot.addEventListener("click", event => {
      const box = plot.getBoundingClientRect();
      const y = (event.clientY - box.y) * Number(plot.getAttribute("viewBox").split(" ")[3]) / box.height;
      let level = 1;
      tree.heights.forEach((height, i) => {
        if (Math.abs(height - y) < Math.abs(tree.heights[level - 1] - y)) level = i + 1;
      });
      cutAt(level);
    });
  }

  // ------------------------------------------------------------ the table and the cards
  const table = $("cluster-table");
  if (table) {
    const value = (row, column) => {
      const cell = row.children[column];
      return cell.dataset.v !== undefined && cell.dataset.v !== "" ? Number(cell.dataset.v) : cell.textContent.trim();
    };
    all("thead th", table).forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of all("thead th", table)) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = all("tbody tr", table).map(row => [value(row, column), row]);
      rows.sort(([a], [b]) => {
        const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    }));
    $("csv").addEventListener("click", () => {
      // a leading = + - or @ would be a formula to a spreadsheet
      const quoted = text => `"${String(text).replace(/^([=+\-@])/, "'$1").replaceAll('"', '""')}"`;
      const cell = c => c.dataset.v !== undefined ? c.dataset.v : quoted(c.textContent.trim());
      const lines = all("tr", table).map(row => [...row.children].map(cell).join(","));
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([`\ufeff${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
      link.download = "clusters.csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  }
  const unfold = $("all-cards");
  if (unfold) unfold.addEventListener("click", () => {
    document.querySelector(".cards").classList.add("all");
    unfold.remove();
  });
})();
