/* A menu of the versions that are side by side in the folder above this site's. The list is a script, not JSON, because a
   browser lets a page opened from a disk load scripts but fetch nothing. */
(() => {
  "use strict";
  const here = new URL("..", document.currentScript.src); // .../site/VERSION/
  const current = decodeURIComponent(here.pathname.split("/").at(-2));
  const list = document.createElement("script");
  list.src = new URL("../versions.js", here).href;
  list.addEventListener("load", () => {
    const versions = window.fcacVersions; // { version: [its pages] }, newest first
    const title = document.querySelector(".md-header__title");
    if (!versions || !title || !(current in versions) || Object.keys(versions).length < 2) return;
    const menu = document.createElement("select");
    menu.className = "versions";
    menu.setAttribute("aria-label", "Version of fcac");
    for (const version of Object.keys(versions)) menu.add(new Option(version, version, false, version === current));
    menu.addEventListener("change", () => {
      const page = decodeURIComponent(location.pathname.slice(here.pathname.length)) || "index.html";
      const there = versions[menu.value].includes(page) ? page : "index.html";
      location.assign(new URL(`../${encodeURIComponent(menu.value)}/${there}`, here));
    });
    title.after(menu);
  });
  document.head.append(list);
})();
