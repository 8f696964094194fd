// What the page does when it is opened. Follows tables.js.

// ---- the page --------------------------------------------------------------------------------------------------

function drawCharts() {
  for (const draw of [drawByM, drawLines, drawWorkload, drawRoofline, drawFloor, drawTies, drawSearch, drawScatter, drawParameters, drawFailures, drawChanges, drawCoverage]) draw();
}

function setView(view) {
  state.view = view;
  state.page = {};
  const select = byId("view");
  if (select) select.value = view;
  remember();
  drawCards();
  drawCharts();
  for (const id of tables.keys()) drawTable(id);
}

function drawContents(views) {
  const nav = byId("contents");
  if (views.length > 1) {
    nav.append(element("select", { id: "view", "aria-label": "device and operation", onchange: (event) => setView(event.target.value) },
      ...views.map((view) => element("option", { value: view }, view))));
  } else if (views.length === 1) {
    nav.append(element("b", {}, views[0]));
  }
  for (const section of document.querySelectorAll("main section")) {
    const title = section.querySelector("h2");
    nav.append(element("a", { href: `#${section.id}` }, title.textContent));
  }
}

const summary = table("summary");
const views = [...Array(summary.rows).keys()]
  .sort((a, b) => summary.value(b, "rows") - summary.value(a, "rows") || summary.value(b, "compared") - summary.value(a, "compared"))
  .map((row) => summary.value(row, "view"));
drawContents(views);
const kept = recall();
Object.assign(state, { sort: { ...firstSort, ...kept.sort }, filter: kept.filter || {}, page: {}, lines: kept.lines || null });
setView(views.includes(kept.view) ? kept.view : views[0] || "");

let width = root.clientWidth;
addEventListener("resize", () => {
  if (Math.abs(root.clientWidth - width) < 24) return;
  width = root.clientWidth;
  drawCharts();
});
addEventListener("beforeunload", remember);

const refresh = Number(document.body.dataset.refresh);
if (refresh > 0) {
  if (kept.y) scrollTo(0, kept.y);
  setInterval(() => {
    if (byId("detail") || document.hidden || (document.activeElement && document.activeElement.tagName === "INPUT")) return;
    location.reload();
  }, refresh * 1000);
}
document.body.dataset.ready = "yes";
