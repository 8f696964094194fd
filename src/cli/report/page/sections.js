// The charts of each section. Follows charts.js.

// ---- charts of the sections ------------------------------------------------------------------------------------

function drawByM() {
  const host = chart("chart-by-m");
  const byM = table("by_m");
  if (!host) return;
  const here = byM.here().filter((row) => byM.value(row, "geometric_mean_speedup") !== null);
  retitle(host, here.length === 0 ? "Overview" : "What was gained");
  if (here.length === 0) return;
  host.append(element("h3", {}, "Geometric mean of the speed-up by M; the thin line is the lowest and the highest"));
  const names = here.map((row) => {
    const to = byM.value(row, "m_to");
    return byM.value(row, "m_from") === to || to <= 2 ? String(to) : `≤ ${to}`;
  });
  const y = extent(here.flatMap((row) => [1, byM.value(row, "lowest_speedup"), byM.value(row, "highest_speedup")]), 1.06, true);
  const ticks = here.map((row, i) => i);
  const plot = new Plot(host, { low: -0.6, high: here.length - 0.4, title: "M", ticks, format: (tick) => names[tick] }, { ...y, title: "speed-up" }, 240);
  const half = Math.min(26, ((plot.right - plot.left) / here.length) * 0.32);
  const points = [];
  here.forEach((row, i) => {
    const mean = byM.value(row, "geometric_mean_speedup");
    const top = plot.y.at(Math.max(1, mean));
    const bottom = plot.y.at(Math.min(1, mean));
    plot.add("rect", { x: plot.x.at(i) - half, width: 2 * half, y: top, height: Math.max(1, bottom - top), fill: "var(--win)", opacity: 0.75 });
    points.push({ x: i, py: top, tip: () => `M ${names[i]}: ${byM.text(row, "geometric_mean_speedup")}× over ${byM.text(row, "compared")} rows, ${byM.text(row, "lowest_speedup")} to ${byM.text(row, "highest_speedup")}` });
    // Above the whisker, which is drawn from the lowest to the highest.
    plot.add("text", { class: "label", x: plot.x.at(i), y: Math.min(top, plot.y.at(byM.value(row, "highest_speedup"))) - 5, "text-anchor": "middle" }, mean.toFixed(2));
  });
  plot.segments(here.map((row, i) => [i, byM.value(row, "lowest_speedup"), byM.value(row, "highest_speedup")]), "var(--text)", 1.2);
  plot.level(1);
  for (const point of points) plot.points.push({ ...point, px: plot.x.at(point.x) });
  plot.listen(null);
}

/** Rows by N × K, the most valuable first. */
function weights(all) {
  const groups = new Map();
  for (const row of all) {
    const name = `${rows.text(row, "n")}×${rows.text(row, "k")}`;
    const types = rows.value(row, "types");
    const key = `${name} ${types}`;
    if (!groups.has(key)) groups.set(key, { key, name, types, rows: [], worth: 0 });
    const group = groups.get(key);
    group.rows.push(row);
    group.worth += (rows.value(row, "calls") || 1) * (rows.value(row, "saved_us") ?? rows.value(row, "us"));
  }
  const list = [...groups.values()].sort((a, b) => b.worth - a.worth);
  const names = new Map();
  for (const each of list) names.set(each.name, (names.get(each.name) || 0) + 1);
  for (const each of list) {
    each.rows.sort((a, b) => rows.value(a, "m") - rows.value(b, "m"));
    if (names.get(each.name) > 1) each.name += ` ${each.types}`;
  }
  return list;
}

const maxSeries = 8;
function drawLines() {
  const all = chosen();
  const compared = all.filter((row) => rows.value(row, "speedup") !== null);
  const byTime = compared.length === 0;
  const host = chart("chart-lines");
  if (!host || all.length === 0) return;
  retitle(host, byTime ? "Time by M" : "Speed-up by M");
  const lead = host.closest("section").querySelector(".lead");
  lead.dataset.text = lead.dataset.text || lead.textContent;
  lead.textContent = byTime ? "A line for each weight (N × K). The rows have no times of a default kernel, so there is no speed-up to show." : lead.dataset.text;
  const measure = byTime ? "us" : "speedup";
  const list = weights(all);
  const selected = (state.lines && state.lines[state.view]) || list.slice(0, maxSeries).map((each) => each.key);
  const colors = new Map(selected.map((key, i) => [key, `var(--series-${i % maxSeries})`]));
  const legend = element("div", { class: "legend" });
  const choose = (keys) => {
    state.lines = { ...state.lines, [state.view]: keys };
    remember();
    drawLines();
  };
  for (const each of list.filter((one, i) => i < maxSeries || colors.has(one.key))) {
    const on = colors.has(each.key);
    legend.append(element("button", {
      type: "button", "aria-pressed": String(on),
      onclick: () => choose(on ? selected.filter((key) => key !== each.key) : [...selected, each.key]),
    }, element("i", { class: "key", style: `background:${on ? colors.get(each.key) : "var(--line)"}` }), each.name));
  }
  if (list.length > maxSeries) {
    const more = element("select", { "aria-label": "another weight", onchange: (event) => choose([...selected, event.target.value]) },
      element("option", { value: "" }, `one of ${list.length} weights …`));
    for (const each of list.slice(maxSeries, 2000)) if (!colors.has(each.key)) more.append(element("option", { value: each.key }, each.name));
    legend.append(more);
  }
  host.append(legend);
  const ms = all.map((row) => rows.value(row, "m"));
  const x = extent(ms, 1.12, true);
  const shown = byTime ? all : compared;
  let y = extent([...shown.map((row) => rows.value(row, measure)), ...(byTime ? [] : [1, 1.05])], 1.06, true);
  // Intervals count as far as they leave the lines readable.
  const ends = shown.flatMap((row) => [rows.value(row, "speedup_low"), rows.value(row, "speedup_high")]).filter((end) => end !== null);
  if (!byTime && ends.length > 0) y = { ...y, low: Math.min(y.low, Math.max(y.low / 1.2, Math.min(...ends) / 1.02)), high: Math.max(y.high, Math.min(y.high * 1.25, Math.max(...ends) * 1.02)) };
  const plot = new Plot(host, { ...x, title: "M (tokens)", ticks: powersOfTwo(x.low, x.high), format: String }, { ...y, title: byTime ? "µs" : "speed-up over the default" });
  if (!byTime) plot.level(1);
  const others = list.filter((each) => !colors.has(each.key));
  for (const each of others.slice(0, 300)) {
    const points = each.rows.filter((row) => rows.value(row, measure) !== null).map((row) => [rows.value(row, "m"), rows.value(row, measure)]);
    plot.line(points, "var(--default)", 0.8, 0.35);
  }
  const marks = new Map();
  const add = (row, color, y0) => {
    const verdict = verdictOf(rows.value(row, "verdict"));
    const key = `${verdict.mark} ${color}`;
    if (!marks.has(key)) marks.set(key, { mark: verdict.mark, color, points: [] });
    marks.get(key).points.push({ x: rows.value(row, "m"), y: rows.value(row, measure), py: y0, row, tip: () => rowTip(row) });
  };
  for (const each of others) for (const row of each.rows) if (rows.value(row, measure) !== null) add(row, "var(--default)");
  for (const each of list.filter((one) => colors.has(one.key))) {
    const color = colors.get(each.key);
    const timed = each.rows.filter((row) => rows.value(row, measure) !== null);
    plot.line(timed.map((row) => [rows.value(row, "m"), rows.value(row, measure)]), color, 2);
    if (!byTime) {
      const whiskers = timed.filter((row) => rows.value(row, "speedup_low") !== null)
        .map((row) => [rows.value(row, "m"), Math.max(y.low, rows.value(row, "speedup_low")), Math.min(y.high, rows.value(row, "speedup_high"))]);
      plot.segments(whiskers, color, 1.6, 0.7);
    }
    for (const row of timed) add(row, color);
  }
  // Rows without a ratio: their verdict is what counts.
  const without = byTime ? [] : all.filter((row) => rows.value(row, "speedup") === null);
  for (const row of without) add(row, verdictOf(rows.value(row, "verdict")).color, plot.bottom - 6);
  const radius = all.length > 60 * list.length ? 1.7 : 3.4;
  for (const each of marks.values()) plot.marks(each.points, each.mark, each.color, radius);
  plot.listen(showRow);
  if (!byTime) {
    const present = new Set(all.map((row) => rows.value(row, "verdict")));
    const keys = element("div", { class: "legend" });
    for (const [name, verdict] of Object.entries(verdicts)) {
      if (present.has(name)) keys.append(markKey(verdict.mark, name.startsWith("default_") ? "var(--wrong)" : "var(--muted)", verdict.title));
    }
    host.append(keys);
  }
  host.append(element("p", { class: "hint" }, "A click on a point shows its row, the command that repeats it and its competitors."));
}

function drawWorkload() {
  const shapes = table("workload_shapes");
  const host = chart("chart-workload");
  if (!host || shapes.rows === 0) return;
  const here = shapes.here().sort((a, b) => shapes.value(b, "total_us") - shapes.value(a, "total_us")).slice(0, 14);
  if (here.length === 0) return;
  host.append(element("h3", {}, "The shapes with the most time: with tuned kernels (filled) and with the default (outline)"));
  const width = Math.max(300, host.parentElement.clientWidth);
  const step = 22;
  const left = Math.min(210, width * 0.36);
  const most = Math.max(...here.map((row) => Math.max(shapes.value(row, "total_us"), (shapes.value(row, "default_us") ?? 0) * shapes.value(row, "calls"))));
  const svg = shape("svg", { viewBox: `0 0 ${width} ${here.length * step + 6}`, role: "img", "aria-label": "time by shape" });
  host.append(svg);
  here.forEach((row, i) => {
    const y = i * step + 4;
    const scale = (value) => (value / most) * (width - left - 70);
    const layer = shapes.value(row, "layer");
    const name = `${shapes.text(row, "m")}×${shapes.text(row, "n")}×${shapes.text(row, "k")}${layer ? " " + layer : ""}`;
    svg.append(shape("text", { class: "label", x: left - 8, y: y + 12, "text-anchor": "end" }, name.length > left / 7.2 ? name.slice(0, left / 7.2 - 1) + "…" : name));
    const color = verdictOf(shapes.value(row, "verdict")).color;
    const total = shapes.value(row, "total_us");
    svg.append(shape("rect", { x: left, y, height: 14, width: Math.max(1, scale(total)), fill: color, opacity: shapes.value(row, "estimated") ? 0.35 : 0.85, rx: 2 }));
    const base = shapes.value(row, "default_us");
    if (base !== null) {
      svg.append(shape("rect", { x: left, y: y - 1.5, height: 17, width: Math.max(1, scale(base * shapes.value(row, "calls"))), fill: "none", stroke: "var(--muted)", rx: 2 }));
    }
    svg.append(shape("text", { x: left + scale(Math.max(total, (base ?? 0) * shapes.value(row, "calls"))) + 6, y: y + 12 }, `${shapes.text(row, "time_percent")} %`));
  });
}

function drawRoofline() {
  const roofs = table("roofs");
  const host = chart("chart-roofline");
  const all = chosen().filter((row) => rows.value(row, "flop_per_byte") > 0 && rows.value(row, "tflops") > 0);
  const roof = roofs.here()[0];
  if (!host || all.length === 0 || roof === undefined) return;
  const tflops = roofs.value(roof, "tflops");
  const memory = roofs.value(roof, "gigabytes") / 1000;
  const x = extent(all.map((row) => rows.value(row, "flop_per_byte")), 1.6, true);
  const y = extent([...all.flatMap((row) => [rows.value(row, "tflops"), rows.value(row, "default_tflops")]), tflops], 1.25, true);
  const plot = new Plot(host, { ...x, title: "operations a byte" }, { ...y, title: "TFLOP/s" });
  const ridge = tflops / memory;
  const roofLine = [];
  const start = Math.max(x.low, y.low / memory);
  if (start < ridge) roofLine.push([start, start * memory], [Math.min(ridge, x.high), Math.min(ridge, x.high) * memory]);
  if (ridge < x.high) roofLine.push([Math.max(ridge, x.low), tflops], [x.high, tflops]);
  plot.line(roofLine, "var(--text)", 1.4);
  const withDefault = all.filter((row) => rows.value(row, "default_tflops") !== null && rows.value(row, "verdict") !== "default");
  if (withDefault.length <= 1500) {
    plot.segments(withDefault.map((row) => [rows.value(row, "flop_per_byte"), rows.value(row, "default_tflops"), rows.value(row, "tflops")]), "var(--default)", 1, 0.6);
  }
  const point = (row, name) => ({ x: rows.value(row, "flop_per_byte"), y: rows.value(row, name), row, tip: () => rowTip(row) });
  plot.marks(withDefault.map((row) => point(row, "default_tflops")), "ring", "var(--default)", 3);
  for (const name of ["", ...Object.keys(verdicts)]) {
    const group = all.filter((row) => rows.value(row, "verdict") === name);
    if (group.length > 0) plot.marks(group.map((row) => point(row, "tflops")), verdictOf(name).mark, verdictOf(name).color, 3, group.length > 2000 ? 0.6 : 0.9);
  }
  plot.listen(showRow);
  const keys = element("div", { class: "legend" });
  const present = new Set(all.map((row) => rows.value(row, "verdict")));
  if (withDefault.length > 0) present.add("default");
  for (const [name, verdict] of Object.entries(verdicts)) if (present.has(name)) keys.append(markKey(verdict.mark, verdict.color, name === "default" ? "the default kernel" : verdict.title));
  const compute = roofs.value(roof, "tflops");
  keys.append(element("span", {}, `roofs ${compute < 10 ? compute.toPrecision(2) : roofs.text(roof, "tflops")} TFLOP/s and ${roofs.text(roof, "gigabytes")} GB/s`));
  host.append(keys);
}

function drawFloor() {
  const host = chart("chart-floor");
  const all = chosen().filter((row) => rows.value(row, "floor_share") !== null);
  if (!host || all.length === 0) return;
  host.append(element("h3", {}, "Share of the floor by M: 1 is as fast as the roofs allow; the line is the median"));
  const x = extent(all.map((row) => rows.value(row, "m")), 1.12, true);
  const plot = new Plot(host, { ...x, title: "M (tokens)", ticks: powersOfTwo(x.low, x.high), format: String },
    { low: 0, high: Math.max(1.02, ...extentPair(all.map((row) => rows.value(row, "floor_share")))), title: "share of the floor" }, 260);
  plot.level(1);
  plot.marks(all.map((row) => ({ x: rows.value(row, "m"), y: rows.value(row, "floor_share"), row, tip: () => `${rows.text(row, "floor_share")} of the floor. ${rowTip(row)}` })),
    "circle", "var(--series-0)", 2.6, all.length > 1000 ? 0.35 : 0.6);
  const byM = table("by_m");
  plot.line(byM.here().filter((row) => byM.value(row, "median_floor_share") !== null)
    .map((row) => [Math.min(x.high, Math.max(x.low, byM.value(row, "m_to"))), byM.value(row, "median_floor_share")]), "var(--text)", 2);
  plot.listen(showRow);
}
const extentPair = (values) => {
  const found = extent(values, 0, false);
  return found ? [found.low, found.high] : [];
};

function drawTies() {
  const ties = table("ties");
  const host = chart("chart-ties");
  if (!host || ties.rows === 0) return;
  const classes = [[0, 0], [1, 1], [2, 3], [4, 7], [8, 15], [16, 31], [32, 1e9]];
  const names = ["none", "1", "2–3", "4–7", "8–15", "16–31", "32+"];
  const counts = classes.map(([low, high]) => ties.here().filter((row) => ties.value(row, "ties") >= low && ties.value(row, "ties") <= high)
    .reduce((sum, row) => sum + ties.value(row, "rows"), 0));
  if (counts.every((count) => count === 0)) return;
  host.append(element("h3", {}, "Rows by the number of other kernels that are as fast: where there are many, the choice matters little"));
  const plot = new Plot(host, { low: -0.6, high: 6.6, title: "kernels as fast as the winner", ticks: [0, 1, 2, 3, 4, 5, 6], format: (tick) => names[tick] },
    { low: 0, high: Math.max(...counts) * 1.12, title: "rows", format: (tick) => (Number.isInteger(tick) ? tickText(tick) : "") }, 210);
  counts.forEach((count, i) => {
    const half = Math.min(30, ((plot.right - plot.left) / 7) * 0.34);
    const top = plot.y.at(count);
    plot.add("rect", { x: plot.x.at(i) - half, width: 2 * half, y: top, height: Math.max(0, plot.bottom - top), fill: "var(--series-0)", opacity: 0.75 });
    if (count > 0) plot.add("text", { class: "label", x: plot.x.at(i), y: top - 4, "text-anchor": "middle" }, String(count));
  });
}

function drawSearch() {
  const tried = table("search_by_candidates");
  let host = chart("chart-candidates");
  if (host && tried.rows > 1) {
    host.append(element("h3", {}, "Fastest so far against the fastest in the end, by candidates: median and 90th percentile of the shapes"));
    const all = tried.here();
    const x = extent(all.map((row) => tried.value(row, "candidates")), 1.05, true);
    const y = extent([1, ...all.map((row) => tried.value(row, "ratio_90"))], 1.03, true);
    const plot = new Plot(host, { ...x, title: "candidates tried", ticks: powersOfTwo(x.low, x.high) }, { ...y, title: "time over the fastest" }, 240);
    plot.level(1);
    host.append(element("div", { class: "legend" }, markKey("circle", "var(--series-0)", "median"), markKey("circle", "var(--default)", "90th percentile")));
    for (const [name, color] of [["ratio_90", "var(--default)"], ["median_ratio", "var(--series-0)"]]) {
      plot.line(all.map((row) => [tried.value(row, "candidates"), tried.value(row, name)]), color, 2);
      plot.marks(all.map((row) => ({ x: tried.value(row, "candidates"), y: tried.value(row, name), tip: () => `${tried.text(row, "candidates")} candidates: median ${tried.text(row, "median_ratio")}, 90 % below ${tried.text(row, "ratio_90")}` })), "circle", color, 3);
    }
    plot.listen(null);
  }
  const seconds = table("search_by_seconds");
  host = chart("chart-seconds");
  if (host && seconds.rows > 1) {
    host.append(element("h3", {}, "What the run had gained after so many seconds (geometric mean, by screening times; the last point is the rows', by paired rounds)"));
    const all = seconds.here();
    const x = extent(all.map((row) => seconds.value(row, "seconds")), 1.05, true);
    const y = extent([1, ...all.map((row) => seconds.value(row, "gain"))], 1.03, true);
    const plot = new Plot(host, { ...x, title: "seconds" }, { ...y, title: "speed-up so far" }, 240);
    plot.level(1);
    plot.line(all.map((row) => [seconds.value(row, "seconds"), seconds.value(row, "gain")]), "var(--series-2)", 2);
    plot.marks(all.map((row) => ({ x: seconds.value(row, "seconds"), y: seconds.value(row, "gain"), tip: () => `${seconds.text(row, "seconds")} s: ${seconds.text(row, "gain")}×, ${seconds.text(row, "problems")} shapes begun` })), "circle", "var(--series-2)", 3);
    plot.listen(null);
  }
}

/** The numbers that a candidate can be placed by: those of its columns, and its settings. */
const scatterColumns = { order: "order tried", us: "µs", ratio: "time over the fastest", err_ratio: "error share" };
const scatter = { shape: "", x: "order", y: "ratio" };
function settingOf(candidates, row, key) {
  const found = candidates.value(row, "settings").split(" ").find((word) => word.startsWith(`${key}=`));
  return found === undefined ? null : found.slice(key.length + 1);
}

function drawScatter() {
  const candidates = table("candidates");
  const host = chart("chart-scatter");
  if (!host || candidates.rows === 0) return;
  const here = candidates.here();
  const shapes = [...new Set(here.map((row) => candidates.value(row, "shape")))];
  if (shapes.length === 0) return;
  if (!shapes.includes(scatter.shape)) scatter.shape = shapes[0];
  const all = here.filter((row) => candidates.value(row, "shape") === scatter.shape);
  const keys = [...new Set(all.flatMap((row) => candidates.value(row, "settings").split(" ").map((word) => word.split("=")[0])))].filter((key) => key !== "");
  const names = { ...scatterColumns };
  for (const key of keys) names[`setting ${key}`] = key;
  for (const axis of ["x", "y"]) if (!(scatter[axis] in names)) scatter[axis] = axis === "x" ? "order" : "ratio";
  const choice = (label, what, options) => element("label", {}, `${label} `, element("select", { "aria-label": label, onchange: (event) => {
    scatter[what] = event.target.value;
    drawScatter();
  } }, ...options.map(([value, title]) => element("option", { value, selected: scatter[what] === value ? "" : null }, title))));
  host.append(element("div", { class: "tools" }, choice("shape", "shape", shapes.map((name) => [name, name])),
    choice("across", "x", Object.entries(names)), choice("up", "y", Object.entries(names))));
  // Settings that are no numbers stand in the order of their names.
  const valuesOf = (name) => {
    if (!name.startsWith("setting ")) return { at: (row) => candidates.value(row, name), words: null, log: name !== "order" && name !== "err_ratio" };
    const key = name.slice(8);
    const texts = all.map((row) => settingOf(candidates, row, key)).filter((text) => text !== null);
    const numeric = texts.every((text) => Number.isFinite(Number(text)));
    const words = [...new Set(texts)].sort((a, b) => (numeric ? Number(a) - Number(b) : a < b ? -1 : 1));
    return { at: (row) => { const text = settingOf(candidates, row, key); return text === null ? null : words.indexOf(text); }, words, log: false };
  };
  const axisOf = (name) => {
    const values = valuesOf(name);
    const placed = all.map(values.at).filter((value) => value !== null);
    const range = values.words ? { low: -0.6, high: values.words.length - 0.4, log: false } : extent(placed, values.log ? 1.06 : 0.04, values.log);
    return { values, range, axis: { ...range, title: names[name], ...(values.words ? { ticks: values.words.map((word, i) => i), format: (tick) => values.words[tick] ?? "" } : {}) } };
  };
  const x = axisOf(scatter.x);
  const y = axisOf(scatter.y);
  if (!x.range || !y.range) {
    host.append(element("p", { class: "hint" }, "No candidate of this shape has both."));
    return;
  }
  const plot = new Plot(host, x.axis, y.axis, 320);
  const families = [...new Set(all.map((row) => candidates.value(row, "family")))];
  families.forEach((family, i) => {
    const points = all.filter((row) => candidates.value(row, "family") === family && x.values.at(row) !== null && y.values.at(row) !== null)
      .map((row) => ({ x: x.values.at(row), y: y.values.at(row), tip: () => `${candidates.text(row, "us")} µs, ${candidates.text(row, "ratio")} of the fastest. ${candidates.value(row, "kernel")}` }));
    plot.marks(points, "circle", `var(--series-${i % maxSeries})`, 3, 0.75);
  });
  plot.listen(null);
  host.append(element("div", { class: "legend" }, ...families.map((family, i) => markKey("circle", `var(--series-${i % maxSeries})`, family))));
}

const maxParameters = 12;
function drawParameters() {
  const parameters = table("parameters");
  const host = chart("chart-parameters");
  if (!host || parameters.rows === 0) return;
  const groups = new Map();
  for (const row of parameters.here()) {
    const key = `${parameters.value(row, "family")}: ${parameters.value(row, "parameter")}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  const loss = (row) => parameters.value(row, "loss_percent");
  const reach = (list) => Math.max(...list.map(loss)) - Math.min(...list.map(loss));
  const best = [...groups.entries()].sort((a, b) => reach(b[1]) - reach(a[1])).slice(0, maxParameters);
  const most = Math.max(1, ...best.flatMap(([, list]) => list.map(loss)));
  host.append(element("p", { class: "hint" }, "Loss in percent where the parameter is held at the value; the parameters that matter most come first."));
  const grid = element("div", { class: "bars" });
  for (const [name, list] of best) {
    const body = element("tbody", {});
    for (const row of list.sort((a, b) => loss(a) - loss(b)).slice(0, 8)) {
      body.append(element("tr", {}, element("td", { title: parameters.value(row, "value") }, parameters.value(row, "value")),
        element("td", { class: "bar" }, element("i", { style: `width:${Math.max(0, (loss(row) / most) * 100)}%` })),
        element("td", { class: "n" }, `${parameters.text(row, "loss_percent")} %`)));
    }
    grid.append(element("div", {}, element("h3", {}, name), element("table", {}, body)));
  }
  host.append(grid);
}

function drawFailures() {
  const failures = table("failures");
  const host = chart("chart-failures");
  if (!host || failures.rows === 0) return;
  const all = failures.here();
  const kinds = [...new Set(all.map((row) => failures.value(row, "kind")))];
  const families = [...new Set(all.map((row) => failures.value(row, "family")))];
  const head = element("tr", {}, element("th", {}, "family"), element("th", { class: "n" }, "tried"), ...kinds.map((kind) => element("th", { class: "n" }, kind)));
  const body = element("tbody", {});
  for (const family of families) {
    const of = all.filter((row) => failures.value(row, "family") === family);
    const tried = failures.value(of[0], "tried");
    body.append(element("tr", {}, element("td", {}, family), element("td", { class: "n" }, String(tried)), ...kinds.map((kind) => {
      const row = of.find((each) => failures.value(each, "kind") === kind);
      const count = row === undefined ? 0 : failures.value(row, "candidates");
      const shade = Math.round(Math.min(1, count / tried) * 45);
      return element("td", { class: "n", style: `background:color-mix(in srgb, var(--wrong) ${shade}%, transparent)`, title: row === undefined ? "" : failures.value(row, "reason") }, count ? String(count) : "");
    })));
  }
  host.append(element("figure", { class: "table" }, element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), body))));
}

function drawChanges() {
  const changes = table("changes");
  const host = chart("chart-changes");
  if (!host || changes.rows === 0) return;
  const all = changes.here().filter((row) => changes.value(row, "ratio") !== null && changes.value(row, "m") > 0);
  if (all.length === 0) return;
  const x = extent(all.map((row) => changes.value(row, "m")), 1.12, true);
  const y = extent([1, ...all.map((row) => changes.value(row, "ratio"))], 1.05, true);
  const plot = new Plot(host, { ...x, title: "M (tokens)", ticks: powersOfTwo(x.low, x.high), format: String }, { ...y, title: "time over the base's: above 1 is slower" }, 250);
  plot.level(1);
  const tip = (row) => () => `${changes.value(row, "kind")}: ${changes.text(row, "m")}×${changes.text(row, "n")}×${changes.text(row, "k")}: ${changes.text(row, "before_us")} → ${changes.text(row, "after_us")} µs. ${changes.value(row, "after_kernel")}`;
  const points = (test) => all.filter(test).map((row) => ({ x: changes.value(row, "m"), y: changes.value(row, "ratio"), tip: tip(row) }));
  plot.marks(points((row) => changes.value(row, "ratio") <= 1), "circle", "var(--win)", 3.2);
  plot.marks(points((row) => changes.value(row, "ratio") > 1), "cross", "var(--wrong)", 3.4);
  plot.listen(null);
}

function drawCoverage() {
  const coverage = table("coverage");
  const host = chart("chart-coverage");
  if (!host || coverage.rows === 0) return;
  const colors = { exact: "var(--series-0)", range: "var(--series-5)", bucket: "var(--series-4)", fine: "var(--series-2)", coarse: "var(--series-1)", fewer_threads: "var(--series-6)", untuned: "var(--wrong)" };
  for (const [name, title] of [["calls_percent", "of the calls"], ["us_percent", "of the time"]]) {
    const bar = element("div", { class: "stack" });
    const keys = element("div", { class: "legend" });
    for (const row of coverage.here()) {
      const share = coverage.value(row, name);
      if (!share) continue;
      const color = colors[coverage.value(row, "level")];
      bar.append(element("i", { style: `width:${share}%;background:${color}` }));
      keys.append(element("span", {}, element("i", { class: "key", style: `background:${color}` }), `${coverage.value(row, "level")} ${coverage.text(row, name)} %`));
    }
    host.append(element("h3", {}, title), bar, keys);
  }
}
