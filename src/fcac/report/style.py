"""The page's style sheet and its small script; no file, font or picture is loaded from elsewhere."""

from __future__ import annotations

from fcac.report.cluster_style import PALETTE

_COLOURS = "".join(f".c{k}{{--c:{colour}}}" for k, colour in enumerate(PALETTE))

CSS = (
    """
:root{color-scheme:light dark;
--bg:#f6f6f3;--surface:#fff;--ink:#17202a;--muted:#55606b;--line:#dfe1df;--faint:#eeefec;--accent:#0a5a88;
--edge:#8d98a2;
--danger:#a3201a;--danger-bg:#fdeeec;--warning:#7a4a00;--warning-bg:#fff3d9;--good:#0d5a3c;--good-bg:#e6f4ec;
--note:#1d4a6b;--note-bg:#e9f1f7;--outline:#17202a}
@media (prefers-color-scheme:dark){:root{
--bg:#10151a;--surface:#181f26;--ink:#e9eef2;--muted:#a9b4be;--line:#2d3842;--faint:#212a32;--accent:#7cc0ee;
--edge:#66737f;
--danger:#ffaba4;--danger-bg:#3b1715;--warning:#ffcf7d;--warning-bg:#362708;--good:#8fdcb5;--good-bg:#12301f;
--note:#a9d3f2;--note-bg:#152a3a;--outline:#dfe6ec}}
"""
    + _COLOURS
    + """.cx{--c:var(--edge)}
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;overflow-wrap:anywhere}
a{color:var(--accent);text-underline-offset:.18em}
:focus-visible{outline:3px solid var(--accent);outline-offset:3px;border-radius:4px}
.skip{position:absolute;left:-9999px}.skip:focus{left:16px;top:12px;background:var(--surface);padding:8px 14px;
z-index:9}
header,main,footer{max-width:1120px;margin:0 auto;padding:0 28px}
header{padding-top:44px}
.kicker{margin:0;color:var(--muted);font-size:.82rem;letter-spacing:.08em;text-transform:uppercase}
h1{margin:.15em 0 .3em;font-size:clamp(1.7rem,1.2rem + 2vw,2.5rem);line-height:1.15;letter-spacing:-.015em;
font-weight:680}
.lead{margin:0;max-width:46em;font-size:1.1rem;color:var(--muted)}
.lead strong{color:var(--ink);font-weight:600}
nav ul{display:flex;flex-wrap:wrap;gap:4px 20px;list-style:none;margin:22px 0 0;padding:0;font-size:.92rem}
nav a{text-decoration:none;padding:4px 0;display:inline-block}nav a:hover{text-decoration:underline}
section{margin-top:56px;scroll-margin-top:16px}
h2{margin:0 0 .25em;font-size:1.4rem;letter-spacing:-.01em;line-height:1.25}
h3{margin:0;font-size:1.02rem;line-height:1.3}
h2+p{margin:0 0 18px;max-width:48em;color:var(--muted)}
.panel{background:var(--surface);border:1px solid var(--line);border-radius:12px;padding:20px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:1px;margin:28px 0 0;padding:0;
background:var(--line);border:1px solid var(--line);border-radius:12px;overflow:hidden}
.tiles>div{background:var(--surface);padding:16px 20px;display:flex;flex-direction:column-reverse;
justify-content:flex-end}
.tiles .danger dd{color:var(--danger)}.tiles .warning dd{color:var(--warning)}
.tiles dt{color:var(--muted);font-size:.88rem;line-height:1.35}
.tiles dd{margin:0;font-size:1.75rem;font-weight:660;line-height:1.25;font-variant-numeric:tabular-nums;
letter-spacing:-.01em}
.callout{border-left:5px solid currentColor;border-radius:8px;padding:14px 18px;margin-top:24px}
.callout p{margin:0}.callout p+p{margin-top:.5em}.callout a{color:inherit}
.danger{color:var(--danger);background:var(--danger-bg)}.warning{color:var(--warning);background:var(--warning-bg)}
.good{color:var(--good);background:var(--good-bg)}.note{color:var(--note);background:var(--note-bg)}
.stage{display:grid;grid-template-columns:minmax(0,1fr) 290px;gap:24px;align-items:start}
figure{margin:0}
figcaption,.caption{color:var(--muted);font-size:.88rem;margin:10px 0 0;max-width:60em}
.plot{border-radius:8px}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--muted);font:11px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
svg .axis{font-size:11.5px}
@media (min-width:901px){.wide text,.wide .axis{font-size:8px}}
svg .mid{text-anchor:middle}svg .end{text-anchor:end}svg .strong{fill:var(--ink);font-weight:600}
svg .number{fill:var(--ink);font-size:13px;font-weight:700;text-anchor:middle;dominant-baseline:central;
paint-order:stroke;stroke:var(--surface);stroke-width:4px;stroke-linejoin:round;pointer-events:none}
.net .k circle,.net .k polygon,.chip>*{fill:var(--c);stroke:var(--outline);stroke-width:.9;stroke-opacity:.7}
.edges{fill:none;stroke:var(--edge);stroke-width:1.1;stroke-opacity:.75}
.grid{stroke:var(--faint);fill:none}.rule{stroke:var(--edge);fill:none}
.mark-line{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:4 3;fill:none}
.bar{fill:var(--c);stroke:var(--outline);stroke-width:.7;stroke-opacity:.7}
.ribbon{fill:var(--c);fill-opacity:.32}.ribbon:hover,.ribbon.at{fill-opacity:.6}
.bar.plain{fill:var(--accent);stroke:none}.bar.novel{fill:#D55E00;stroke:none}
.at{stroke:var(--ink)!important;stroke-width:2.5!important;stroke-opacity:1!important}
.only .k{opacity:.1}.only .k.on{opacity:1}
.chip{width:16px;height:16px;flex:none;display:inline-block;vertical-align:-2px}
.legend{list-style:none;margin:0;padding:0;max-height:560px;overflow-y:auto;scrollbar-width:thin}
.legend button{all:unset;box-sizing:border-box;cursor:pointer;width:100%;display:grid;
grid-template-columns:16px 1fr auto;gap:2px 10px;align-items:center;padding:5px 10px;border-radius:8px}
.legend button:hover{background:var(--faint)}.legend button[aria-pressed=true]{background:var(--note-bg)}
.legend button:focus-visible{outline:3px solid var(--accent);outline-offset:-3px}
.legend .num{font-variant-numeric:tabular-nums;color:var(--muted);font-size:.92rem}
.meter{grid-column:2/4;height:5px;background:var(--faint);border-radius:3px;overflow:hidden}
.meter>i{display:block;height:100%;background:var(--c,var(--accent));border-radius:3px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(310px,100%),1fr));gap:16px}
.card{display:flex;flex-direction:column;gap:14px}
.card header{all:unset;display:flex;align-items:center;gap:10px}
.card header h3{flex:1}
.card .big{font-size:1.15rem;font-weight:640;font-variant-numeric:tabular-nums}
.card h4{margin:0 0 6px;font-size:.8rem;color:var(--muted);font-weight:600}
.rows{list-style:none;margin:0;padding:0;display:grid;gap:5px;font-size:.9rem}
.rows li{display:grid;grid-template-columns:minmax(0,11em) 1fr 3.4em;gap:10px;align-items:center}
.rows .name{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.rows .num{text-align:right;font-variant-numeric:tabular-nums}
.rows .meter{grid-column:auto;height:8px}
.swing{position:relative;height:10px;background:linear-gradient(var(--edge),var(--edge)) center/1px 100% no-repeat}
.swing>i{position:absolute;top:1px;bottom:1px;background:var(--accent);border-radius:2px}
.swing>i.down{background:#D55E00}
.small{display:grid;gap:16px;
grid-template-columns:repeat(auto-fit,minmax(min(max(230px,calc(100%/var(--n) - 12px)),100%),1fr))}
.small .panel{padding:14px}
.small h3{display:flex;justify-content:space-between;gap:10px;margin-bottom:8px}
.small h3 span{font-weight:400;color:var(--muted)}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(400px,100%),1fr));gap:16px}
.gap{margin-top:16px}
.scroll{overflow-x:auto;border-radius:8px}
table{overflow-wrap:break-word;border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:6px 12px;text-align:right;border-bottom:1px solid var(--line);vertical-align:middle}
th{font-weight:600}
.words td,.words th{text-align:left;min-width:7em}
th:first-child,td:first-child,.left{text-align:left}
thead th{color:var(--muted);font-weight:600;white-space:nowrap}
tbody tr:last-child>*{border-bottom:0}
.presence{width:auto}
.presence td{text-align:center;border:3px solid var(--surface);border-radius:8px;min-width:64px}
.presence th{border:0}
.presence th[scope=row]{white-space:nowrap;position:sticky;left:0;background:var(--surface);max-width:20em;
overflow:hidden;
text-overflow:ellipsis}
.presence .in{background:var(--good-bg);color:var(--good)}
.presence .late{background:var(--warning-bg);color:var(--warning)}
.presence .out{background:var(--faint);color:var(--muted)}
.cross td.hot{font-weight:600}
details{margin-top:12px;font-size:.92rem}
summary{cursor:pointer;color:var(--accent);padding:6px 0;width:fit-content}
details .scroll{margin-top:6px}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(220px,100%),1fr));gap:14px 28px;margin:16px 0 0}
.figures div{display:flex;flex-direction:column-reverse;justify-content:flex-end}
.figures dd{margin:0;font-size:1.45rem;font-weight:660;font-variant-numeric:tabular-nums}
.figures dt{font-size:.9rem;line-height:1.4}
.facts{display:grid;grid-template-columns:minmax(0,13em) 1fr;gap:6px 20px;margin:0;font-size:.94rem}
.facts dt{color:var(--muted)}.facts dd{margin:0}
.events{margin:12px 0 0;padding-left:1.2em;font-size:.94rem}.events li{margin:2px 0}
footer{margin-top:64px;padding-bottom:48px;color:var(--muted);font-size:.88rem}
footer>div{border-top:1px solid var(--line);padding-top:20px}
footer dl{display:grid;grid-template-columns:minmax(0,9em) 1fr;gap:4px 20px;margin:0 0 16px}
footer dt{color:var(--ink);font-weight:600}footer dd{margin:0}
#tip{position:fixed;z-index:5;pointer-events:none;max-width:280px;background:var(--ink);color:var(--bg);
font-size:.86rem;
line-height:1.35;padding:6px 10px;border-radius:6px;opacity:0;left:0;top:0}
#tip.shown{opacity:1}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media (max-width:900px){.stage{grid-template-columns:minmax(0,1fr)}.legend{max-height:330px;display:grid;
grid-template-columns:repeat(auto-fill,minmax(150px,1fr))}
.legend .meter{display:none}.legend button{padding:5px 4px;gap:2px 8px;white-space:nowrap;font-size:.94rem}}
@media (max-width:600px){
header,main,footer{padding-left:16px;padding-right:16px}header{padding-top:28px}
section{margin-top:44px}.panel{padding:14px}
.tiles{grid-template-columns:1fr 1fr}.tiles>div{padding:12px 14px}.tiles dd{font-size:1.4rem}
svg text,svg .axis{font-size:19px}svg .number{font-size:22px;stroke-width:6px}.small svg text{font-size:15px}
.facts,footer dl{grid-template-columns:1fr;gap:0}.facts dd,footer dd{margin-bottom:10px}
.rows li{grid-template-columns:minmax(0,11em) 1fr 3.4em}
.net .axis.far{display:none}}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
@media print{:root{--bg:#fff;--surface:#fff;--ink:#000;--muted:#444;--line:#ccc}nav,summary,.skip{display:none}
section,.panel{break-inside:avoid}}
"""
)

SCRIPT = """
(() => {
  const tip = document.getElementById("tip"), live = document.getElementById("live");
  let at = null, byKey = false;
  const hide = () => { tip.classList.remove("shown"); if (at) at.classList.remove("at"); at = null; };
  const place = () => {
    const box = at.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const x = Math.min(Math.max(8, box.x + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const y = box.y - own.height - 8;
    tip.style.transform = `translate(${x}px,${y < 8 ? box.y + box.height + 8 : y}px)`;
  };
  const show = (mark, key) => {
    if (at && at !== mark) at.classList.remove("at");
    at = mark;
    byKey = key;
    mark.classList.add("at");
    tip.textContent = mark.dataset.t;
    place();
    tip.classList.add("shown");
    if (key) live.textContent = mark.dataset.t;
  };
  document.addEventListener("pointerover", event => {
    const mark = event.target.closest("[data-t]");
    if (mark) show(mark, false); else if (at) hide();
  });
  addEventListener("scroll", () => at && (byKey ? place() : hide()), { passive: true });
  for (const plot of document.querySelectorAll(".plot")) {
    const marks = [...plot.querySelectorAll("[data-t]")];
    let place = -1;
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") return hide();
      if (event.key === "Home") place = 0;
      else if (event.key === "End") place = marks.length - 1;
      else if (step) place = (place + step + marks.length) % marks.length;
      else return;
      event.preventDefault();
      if (marks[place]) show(marks[place], true);
    });
  }
  const net = document.getElementById("network-plot");
  const buttons = [...document.querySelectorAll(".legend button")];
  for (const button of buttons) button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    for (const other of buttons) other.setAttribute("aria-pressed", String(on && other === button));
    net.classList.toggle("only", on);
    for (const part of net.querySelectorAll(".k"))
      part.classList.toggle("on", on && part.dataset.k === button.dataset.k);
  });
})();
"""
