// The page of `gemmtune report`: charts, sorting, filtering and details over the tables of its data block. It computes no figure
// of its own: it places and prints what stands there.
"use strict";
(() => {
  const root = document.documentElement;
  root.dataset.scripted = "yes";
  const byId = (id) => document.getElementById(id);

  // ---- elements --------------------------------------------------------------------------------------------------

  /** An HTML element; texts are set as text, never as HTML. */
  function element(tag, properties, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(properties || {})) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return made;
  }

  function shape(tag, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // ---- data ------------------------------------------------------------------------------------------------------

  class Table {
    constructor(json) {
      this.id = json.id;
      this.title = json.title;
      this.rows = json.rows;
      this.columns = json.columns;
      this.byName = new Map(json.columns.map((column) => [column.name, column]));
      this.searched = [];
    }
    /** A number or null, or a text. */
    value(row, name) {
      return this.of(this.byName.get(name), row);
    }
    of(column, row) {
      return column.values ? column.values[row] : column.words[column.at[row]];
    }
    /** As the page shows it. */
    shown(column, row) {
      const value = this.of(column, row);
      if (value === null) return "";
      if (typeof value === "string" || column.decimals < 0) return String(value);
      return value.toFixed(column.decimals);
    }
    text(row, name) {
      return this.shown(this.byName.get(name), row);
    }
    /** Indices of the rows of the shown device and operation; of all where the table has none. */
    here() {
      const column = this.byName.get("view");
      const at = column ? column.words.indexOf(state.view) : 0;
      const rows = [];
      for (let row = 0; row < this.rows; ++row) if (!column || column.at[row] === at) rows.push(row);
      return rows;
    }
    /** The texts of a row in lower case, made when it is first searched. */
    search(row) {
      if (this.searched[row] === undefined)
        this.searched[row] = this.columns.map((column) => this.shown(column, row)).join(" ").toLowerCase();
      return this.searched[row];
    }
  }

  const tables = new Map(JSON.parse(byId("report-data").textContent).tables.map((json) => [json.id, new Table(json)]));
  const table = (id) => tables.get(id) || new Table({ id, title: "", rows: 0, columns: [] });

  /** What a page that loads itself again, or is redrawn, keeps. */
  const state = { view: "", sort: {}, filter: {}, page: {}, lines: null };
  const firstSort = { workload_shapes: { column: "total_us", down: true }, changes: { column: "ratio", down: true }, rows: { column: "saved_us", down: true } };
  const stateKey = "gemmtune-report " + location.pathname;
  function remember() {
    try {
      sessionStorage.setItem(stateKey, JSON.stringify({ ...state, y: scrollY }));
    } catch (error) {
      // Without storage a page begins anew when it is loaded again.
    }
  }
  function recall() {
    try {
      return JSON.parse(sessionStorage.getItem(stateKey)) || {};
    } catch (error) {
      return {};
    }
  }

  // ---- charts ----------------------------------------------------------------------------------------------------

  const verdicts = {
    win: { title: "win", color: "var(--win)", mark: "circle" },
    default: { title: "default stays", color: "var(--default)", mark: "ring" },
    undecided: { title: "undecided", color: "var(--undecided)", mark: "diamond" },
    only: { title: "no default exists", color: "var(--only)", mark: "triangle" },
    default_wrong: { title: "default is wrong", color: "var(--wrong)", mark: "cross" },
  };
  const verdictOf = (text) => verdicts[text] || { title: "no verdict", color: "var(--series-0)", mark: "circle" };

  /** The path of a mark around a place; filled but for ring and cross. */
  function markPath(mark, x, y, r) {
    const at = `${x.toFixed(1)},${y.toFixed(1)}`;
    if (mark === "diamond") return `M${at}m0,${-r * 1.2}l${r * 1.2},${r * 1.2}l${-r * 1.2},${r * 1.2}l${-r * 1.2},${-r * 1.2}z`;
    if (mark === "triangle") return `M${at}m0,${-r * 1.2}l${r * 1.1},${r * 2}l${-r * 2.2},0z`;
    if (mark === "cross") return `M${at}m${-r},${-r}l${2 * r},${2 * r}m0,${-2 * r}l${-2 * r},${2 * r}`;
    return `M${at}m${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`;
  }
  const isOpen = (mark) => mark === "ring" || mark === "cross";

  function niceTicks(low, high, log, count) {
    const ticks = [];
    if (log) {
      const decades = Math.log10(high / low);
      const steps = decades > 3.2 ? [1] : decades > 1.4 ? [1, 2, 5] : decades > 0.5 ? [1, 1.5, 2, 3, 5, 7] : [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 9.5];
      for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); ++decade) {
        for (const step of steps) {
          const tick = step * 10 ** decade;
          if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
        }
      }
      return ticks.filter((tick, i) => i % Math.ceil(ticks.length / count) === 0 || tick === 1);
    }
    const raw = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
    for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) ticks.push(tick);
    return ticks;
  }
  const tickText = (tick) => {
    if (tick >= 1e6) return Number((tick / 1e6).toPrecision(3)) + "M";
    if (tick >= 1e4) return Number((tick / 1e3).toPrecision(3)) + "k";
    return String(Number(tick.toPrecision(4)));
  };
  const powersOfTwo = (low, high) => {
    const ticks = [];
    for (let tick = 1; tick <= high * 1.01; tick *= 2) if (tick >= low * 0.99) ticks.push(tick);
    return ticks;
  };

  /** A chart with two axes. x and y: {low, high, log, title, ticks, format}. */
  class Plot {
    constructor(host, x, y, height) {
      this.host = host;
      this.width = Math.max(300, host.parentElement.clientWidth);
      this.height = height || Math.min(400, Math.max(260, this.width * 0.42));
      this.left = 52;
      this.right = this.width - 12;
      this.top = 22;
      this.bottom = this.height - 40;
      this.x = this.axis(x, this.left, this.right);
      this.y = this.axis(y, this.bottom, this.top);
      this.points = [];
      this.svg = shape("svg", { viewBox: `0 0 ${this.width} ${this.height}`, role: "img", "aria-label": `${y.title} by ${x.title}` });
      host.append(this.svg);
      this.frame(x, y);
    }
    axis(given, from, to) {
      let { low, high } = given;
      const log = given.log;
      if (!(high > low)) [low, high] = log ? [low / 1.25, low * 1.25] : [low - 0.5, low + 0.5];
      const place = log ? Math.log : (v) => v;
      return { low, high, log, at: (v) => from + ((place(v) - place(low)) / (place(high) - place(low))) * (to - from) };
    }
    frame(x, y) {
      const dense = Math.max(4, Math.floor((this.right - this.left) / 58));
      let xs = x.ticks || niceTicks(this.x.low, this.x.high, this.x.log, dense);
      if (xs.length > dense) xs = xs.filter((tick, i) => i % Math.ceil(xs.length / dense) === 0);
      let grid = "";
      for (const tick of xs) {
        const at = this.x.at(tick);
        grid += `M${at.toFixed(1)},${this.top}V${this.bottom}`;
        this.add("text", { x: at, y: this.bottom + 16, "text-anchor": "middle" }, (x.format || tickText)(tick));
      }
      for (const tick of y.ticks || niceTicks(this.y.low, this.y.high, this.y.log, 7)) {
        const at = this.y.at(tick);
        grid += `M${this.left},${at.toFixed(1)}H${this.right}`;
        this.add("text", { x: this.left - 6, y: at + 4, "text-anchor": "end" }, (y.format || tickText)(tick));
      }
      this.svg.prepend(shape("path", { class: "grid", d: grid }));
      this.add("path", { class: "axis", d: `M${this.left},${this.bottom}H${this.right}` });
      this.add("text", { class: "label", x: (this.left + this.right) / 2, y: this.height - 6, "text-anchor": "middle" }, x.title);
      this.add("text", { class: "label", x: 0, y: 12 }, y.title);
    }
    add(tag, attributes, text) {
      const made = shape(tag, attributes, text);
      this.svg.append(made);
      return made;
    }
    level(y) {
      if (y >= this.y.low && y <= this.y.high)
        this.add("path", { class: "even", d: `M${this.left},${this.y.at(y).toFixed(1)}H${this.right}` });
    }
    line(points, color, width, opacity) {
      if (points.length === 0) return;
      const d = points.map(([x, y], i) => `${i ? "L" : "M"}${this.x.at(x).toFixed(1)},${this.y.at(y).toFixed(1)}`).join("");
      this.add("path", { d, fill: "none", stroke: color, "stroke-width": width || 2, "stroke-linejoin": "round", opacity: opacity || 1 });
    }
    /** Marks of one color; equal places are drawn once. points: {x, y, row, tip}; py: a place in pixels instead of y. */
    marks(points, mark, color, radius, opacity) {
      let d = "";
      const taken = new Set();
      for (const point of points) {
        point.px = this.x.at(point.x);
        if (point.py === undefined) point.py = this.y.at(point.y);
        this.points.push(point);
        const cell = Math.round(point.px / 1.5) * 10000 + Math.round(point.py / 1.5);
        if (taken.has(cell)) continue;
        taken.add(cell);
        d += markPath(mark, point.px, point.py, radius);
      }
      const open = isOpen(mark);
      this.add("path", {
        d, fill: open ? "none" : color, stroke: color, "stroke-width": open ? 1.6 : 0.5, opacity: opacity || 1,
      });
    }
    segments(pairs, color, width, opacity) {
      const d = pairs.map(([x, low, high]) => `M${this.x.at(x).toFixed(1)},${this.y.at(low).toFixed(1)}V${this.y.at(high).toFixed(1)}`).join("");
      this.add("path", { d, fill: "none", stroke: color, "stroke-width": width, opacity: opacity || 1 });
    }
    /** Hover shows a point's tip, a click calls `open` with its row. */
    listen(open) {
      const tip = element("div", { class: "tip", hidden: "" });
      this.host.append(tip);
      const nearest = (event) => {
        const box = this.svg.getBoundingClientRect();
        const scale = this.width / box.width;
        const x = (event.clientX - box.left) * scale;
        const y = (event.clientY - box.top) * scale;
        let best = null;
        let distance = 14 ** 2;
        for (const point of this.points) {
          const d = (point.px - x) ** 2 + (point.py - y) ** 2;
          if (d < distance) [best, distance] = [point, d];
        }
        return best && { point: best, scale };
      };
      this.svg.addEventListener("mousemove", (event) => {
        const found = nearest(event);
        tip.hidden = !found;
        this.svg.style.cursor = found && open ? "pointer" : "";
        if (!found) return;
        tip.textContent = found.point.tip();
        const left = found.point.px / found.scale;
        tip.style.left = `${Math.max(0, Math.min(left - 60, this.host.clientWidth - 200))}px`;
        tip.style.top = `${found.point.py / found.scale + 14 + this.svg.offsetTop}px`;
      });
      this.svg.addEventListener("mouseleave", () => (tip.hidden = true));
      if (open) {
        this.svg.addEventListener("click", (event) => {
          const found = nearest(event);
          if (found && found.point.row !== undefined) open(found.point.row);
        });
      }
    }
  }

  function extent(values, pad, log) {
    let low = Infinity;
    let high = -Infinity;
    for (const value of values) {
      if (value === null || value === undefined || !Number.isFinite(value) || (log && value <= 0)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (!Number.isFinite(low)) return null;
    return log ? { low: low / pad, high: high * pad, log: true } : { low: low - pad * (high - low), high: high + pad * (high - low), log: false };
  }

  function chart(id, title) {
    const host = byId(id);
    if (!host) return null;
    host.replaceChildren();
    if (title) host.append(element("h3", {}, title));
    return host;
  }

  /** The title of a chart's section, here and in the contents. */
  function retitle(host, title) {
    const section = host.closest("section");
    section.querySelector("h2").textContent = title;
    const link = document.querySelector(`#contents a[href="#${section.id}"]`);
    if (link) link.textContent = title;
  }

  function markKey(mark, color, title) {
    const icon = shape("svg", { viewBox: "-6 -6 12 12" });
    icon.append(shape("path", { d: markPath(mark, 0, 0, 4), fill: isOpen(mark) ? "none" : color, stroke: color, "stroke-width": 1.6 }));
    return element("span", {}, icon, title);
  }

  const rows = table("rows");
  const sizeText = (row) => `${rows.text(row, "m")}×${rows.text(row, "n")}×${rows.text(row, "k")}`;
  const chosen = () => rows.here().filter((row) => rows.value(row, "not_chosen") === "" && rows.value(row, "us") !== null);

  function rowTip(row) {
    const speedup = rows.value(row, "speedup");
    let text = `${sizeText(row)}: ${rows.text(row, "us")} µs`;
    if (speedup !== null) {
      text += `, ${rows.text(row, "speedup")}×`;
      if (rows.value(row, "speedup_low") !== null) text += ` (${rows.text(row, "speedup_low")} to ${rows.text(row, "speedup_high")})`;
    }
    const verdict = rows.value(row, "verdict");
    return `${text}${verdict ? ", " + verdict : ""}. ${rows.value(row, "kernel")}`;
  }

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
      plot.add("text", { class: "label", x: plot.x.at(i) - half, y: top - 5 }, mean.toFixed(2));
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
        if (present.has(name)) keys.append(markKey(verdict.mark, name === "default_wrong" ? "var(--wrong)" : "var(--muted)", verdict.title));
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
    keys.append(element("span", {}, `roofs ${roofs.text(roof, "tflops")} TFLOP/s and ${roofs.text(roof, "gigabytes")} GB/s`));
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
      for (const [name, color] of [["ratio_90", "var(--default)"], ["median_ratio", "var(--series-0)"]]) {
        plot.line(all.map((row) => [tried.value(row, "candidates"), tried.value(row, name)]), color, 2);
        plot.marks(all.map((row) => ({ x: tried.value(row, "candidates"), y: tried.value(row, name), tip: () => `${tried.text(row, "candidates")} candidates: median ${tried.text(row, "median_ratio")}, 90 % below ${tried.text(row, "ratio_90")}` })), "circle", color, 3);
      }
      plot.listen(null);
    }
    const seconds = table("search_by_seconds");
    host = chart("chart-seconds");
    if (host && seconds.rows > 1) {
      host.append(element("h3", {}, "What the run had gained after so many seconds (geometric mean, by screening times)"));
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
    const colors = { exact: "var(--series-0)", range: "var(--series-5)", bucket: "var(--series-4)", fine: "var(--series-2)", coarse: "var(--series-1)", untuned: "var(--wrong)" };
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

  // ---- cards -----------------------------------------------------------------------------------------------------

  function card(big, unit, what, more, kind) {
    return element("div", { class: `card ${kind || ""}` }, element("div", { class: "big" }, big, unit ? element("small", {}, ` ${unit}`) : null), element("div", { class: "what" }, what), more);
  }

  /** A line of a card; with a filter it leads to the rows. */
  function item(title, value, filter, section) {
    const go = filter || section
      ? element("button", { type: "button", onclick: () => {
          if (filter) {
            state.filter.rows = filter;
            state.page.rows = 0;
            drawTable("rows");
          }
          byId(section || "rows").scrollIntoView();
        } }, title)
      : title;
    return element("li", {}, element("span", {}, go), element("b", {}, String(value)));
  }

  function stackOf(parts) {
    const bar = element("div", { class: "stack" });
    for (const [count, color, title] of parts) if (count > 0) bar.append(element("i", { style: `flex:${count};background:${color}`, title: `${title}: ${count}` }));
    return bar;
  }

  function drawCards() {
    const host = byId("cards");
    host.replaceChildren();
    const summary = table("summary");
    const run = table("run");
    if (run.rows > 0) {
      const [done, all] = [run.value(0, "done"), run.value(0, "shapes")];
      const ended = run.value(0, "ended") === "yes";
      host.append(card(`${done}/${all}`, "shapes", ended ? "the run has ended" : "the run goes on; this page loads itself again",
        element("progress", { max: Math.max(1, all), value: done }), "wide"));
    }
    const here = summary.here()[0];
    if (here === undefined) {
      if (run.rows === 0) host.append(card("0", "rows", "The files have no rows."));
      return;
    }
    const number = (name) => summary.value(here, name);
    const workload = table("workload");
    const calls = workload.here()[0];
    if (number("geometric_mean_speedup") !== null) {
      host.append(card(`${summary.text(here, "geometric_mean_speedup")}×`, "", `geometric mean over the default, ${summary.text(here, "compared")} rows`));
    } else {
      host.append(card(summary.text(here, "rows"), "rows", `${summary.text(here, "kernels")} distinct kernels; no times of a default kernel to compare with`));
    }
    if (calls !== undefined && workload.value(calls, "saved_us_per_token") !== null) {
      host.append(card(workload.text(calls, "saved_us_per_token"), "µs a token", `saved in the captured workload: ${workload.text(calls, "speedup")}× by its calls, ${workload.text(calls, "saved_ms")} of ${workload.text(calls, "default_ms")} ms (${workload.text(calls, "tokens")} tokens, ${workload.value(calls, "tokens_from") === "--tokens" ? "as given" : "estimated; --tokens says how many"})`));
    } else if (number("saved_us") !== null) {
      host.append(card(summary.text(here, "saved_us"), "µs", "saved by one call of each shape; --capture weighs them by a workload's calls"));
    } else {
      const byM = table("by_m").here();
      const roof = table("roofs").here()[0];
      if (roof !== undefined) host.append(card(table("roofs").text(roof, "reached_tflops"), "TFLOP/s", `the highest rate of a row; ${table("roofs").text(roof, "reached_gigabytes")} GB/s the highest traffic, over ${byM.length} classes of M`));
    }
    const counts = Object.entries(verdicts).map(([name, verdict]) => [number(name), verdict.color, verdict.title, name]).filter(([count]) => count > 0);
    if (counts.length > 0) {
      const list = element("ul", {});
      for (const [count, color, title, name] of counts) {
        const line = item(title, count, `verdict=${name}`);
        line.querySelector("span").prepend(element("i", { class: "key", style: `background:${color}` }));
        list.append(line);
      }
      host.append(element("div", { class: "card wide" }, element("div", { class: "what" }, "verdicts"), stackOf(counts), list));
    } else {
      const libtypes = table("libtypes");
      const parts = libtypes.here().map((row, i) => [libtypes.value(row, "rows"), `var(--series-${i % maxSeries})`, libtypes.value(row, "libtype") || "(none)"]);
      const list = element("ul", {});
      for (const [count, color, title] of parts.slice(0, 6)) {
        const line = item(title, count);
        line.querySelector("span").prepend(element("i", { class: "key", style: `background:${color}` }));
        list.append(line);
      }
      host.append(element("div", { class: "card wide" }, element("div", { class: "what" }, "whose kernels win"), stackOf(parts), list));
    }
    const wrong = number("default_wrong");
    if (wrong > 0) host.append(card(String(wrong), wrong === 1 ? "shape" : "shapes", "where the default kernel is wrong: it fails verification, crashes or has an erratum", element("ul", {}, item("show them", "", "verdict=default_wrong")), "wrong"));
    const unsure = element("ul", {});
    const add = (title, count, filter, section) => count > 0 && unsure.append(item(title, count, filter, section));
    add("undecided rows", number("undecided"), "verdict=undecided");
    const near = matcher(rows, "verdict=win speedup_low<=1 not_chosen=");
    add("wins whose interval reaches 1", rows.here().filter(near).length, "verdict=win speedup_low<=1 not_chosen=");
    const busy = rows.here().filter((row) => rows.value(row, "busy") === "yes").length;
    add("rows measured on a busy machine", busy, "busy=yes");
    // A redundant row is right; it is only not needed.
    const findings = table("findings_summary");
    for (let row = 0; row < findings.rows; ++row) if (findings.value(row, "kind") !== "redundant") add(`audit${views.length > 1 ? " of all files" : ""}: ${findings.value(row, "kind")}`, findings.value(row, "findings"), null, "audit");
    const changes = table("changes_summary");
    for (let row = 0; row < changes.rows; ++row) if (changes.value(row, "kind") === "slower") add("rows slower than the base", changes.value(row, "keys"), null, "base");
    const untuned = table("coverage").here().find((row) => table("coverage").value(row, "level") === "untuned");
    if (untuned !== undefined && table("coverage").value(untuned, "calls") > 0) unsure.append(item("of the calls are untuned", `${table("coverage").text(untuned, "calls_percent")} %`, null, "coverage"));
    if (unsure.children.length > 0) host.append(element("div", { class: "card" }, element("div", { class: "what" }, "not sure"), unsure));
  }

  // ---- tables ----------------------------------------------------------------------------------------------------

  const pageRows = 50;
  const smallTable = 12;

  /** "m=16 verdict=win us>5 skinny": conditions on columns, and words that stand anywhere. */
  function matcher(shownTable, text) {
    const tests = text.toLowerCase().split(/\s+/).filter((word) => word !== "").map((word) => {
      const parts = /^([a-z0-9_]+)(>=|<=|=|>|<)(.*)$/.exec(word);
      const column = parts && shownTable.byName.get(parts[1]);
      if (!column) return (row) => shownTable.search(row).includes(word);
      const wanted = column.values ? Number(parts[3]) : parts[3];
      return (row) => {
        const value = shownTable.of(column, row);
        if (typeof value === "string") return value.toLowerCase() === wanted;
        if (value === null) return false;
        return { "=": value === wanted, ">": value > wanted, "<": value < wanted, ">=": value >= wanted, "<=": value <= wanted }[parts[2]];
      };
    });
    return (row) => tests.every((test) => test(row));
  }

  function sorted(shownTable, order, given) {
    if (!order) return given;
    const column = shownTable.byName.get(order.column);
    if (!column) return given;
    const factor = order.down ? -1 : 1;
    const key = column.values ? column.values : column.at.map((at) => column.words[at].toLowerCase());
    return given.sort((a, b) => {
      const [x, y] = [key[a], key[b]];
      if (x === y) return a - b;
      if (x === null) return 1;  // empty cells stay last
      if (y === null) return -1;
      return x < y ? -factor : factor;
    });
  }

  function drawTable(id) {
    const figure = byId(`t-${id}`);
    const shownTable = tables.get(id);
    if (!figure || !shownTable) return;
    const given = id === "summary" ? [...Array(shownTable.rows).keys()] : shownTable.here();
    const all = given.length;
    let matching = [...given];
    const filter = state.filter[id] || "";
    if (filter.trim() !== "") matching = matching.filter(matcher(shownTable, filter));
    matching = sorted(shownTable, state.sort[id], matching);
    const pages = Math.max(1, Math.ceil(matching.length / pageRows));
    const page = Math.min(state.page[id] || 0, pages - 1);
    const filled = (column) => given.some((row) => !["", null].includes(shownTable.of(column, row)));
    const columns = shownTable.columns.filter((column) => !column.detail && !(column.name === "view" && id !== "summary") && filled(column));

    const head = element("tr", {}, ...columns.map((column) => {
      const order = state.sort[id] && state.sort[id].column === column.name ? state.sort[id] : null;
      return element("th", { scope: "col", class: column.values ? "n" : null, "aria-sort": order ? (order.down ? "descending" : "ascending") : null },
        element("button", { type: "button", onclick: () => {
          state.sort[id] = { column: column.name, down: order ? !order.down : Boolean(column.values) };
          state.page[id] = 0;
          remember();
          drawTable(id);
        } }, column.title + (order ? (order.down ? " ↓" : " ↑") : "")));
    }));
    const body = element("tbody", {});
    for (const row of matching.slice(page * pageRows, (page + 1) * pageRows)) {
      const line = element("tr", { "data-row": row, tabindex: id === "rows" ? 0 : null });
      for (const column of columns) {
        const text = shownTable.shown(column, row);
        const cell = element("td", { class: column.values ? "n" : null, title: text.length > 48 ? text : null }, text);
        if (column.name === "verdict" && text) cell.replaceChildren(element("span", { class: `badge v-${text}` }, text));
        if (column.name.endsWith("kernel")) cell.classList.add("kernel");
        line.append(cell);
      }
      body.append(line);
    }
    if (id === "rows" || id === "summary") {
      body.addEventListener("click", (event) => {
        const line = event.target.closest("tr");
        if (line && id === "rows") showRow(Number(line.dataset.row));
        if (line && id === "summary") setView(shownTable.value(Number(line.dataset.row), "view"));
      });
    }
    body.addEventListener("keydown", (event) => event.key === "Enter" && event.target.click());
    figure.querySelector("table").replaceChildren(element("thead", {}, head), body);
    const more = figure.querySelector(".more");
    if (more) more.remove();
    let tools = figure.querySelector(".tools");
    if (all > smallTable || filter !== "") {
      if (!tools) {
        const input = element("input", { type: "search", placeholder: id === "rows" ? "filter: words, m=16, speedup>1.2, verdict=win" : "filter", "aria-label": `filter ${shownTable.title}`,
          oninput: (event) => {
            state.filter[id] = event.target.value;
            state.page[id] = 0;
            remember();
            drawTable(id);
          } });
        tools = element("div", { class: "tools" }, input, element("span", { class: "pages" }));
        figure.querySelector(".scroll").before(tools);
      }
      const input = tools.querySelector("input");
      if (input.value !== filter) input.value = filter;
      const turn = (by) => element("button", { type: "button", disabled: page + by < 0 || page + by >= pages ? "" : null, onclick: () => {
        state.page[id] = page + by;
        drawTable(id);
      } }, by < 0 ? "‹" : "›");
      const first = matching.length === 0 ? 0 : page * pageRows + 1;
      tools.querySelector(".pages").replaceChildren(`${first}–${Math.min(matching.length, (page + 1) * pageRows)} of ${matching.length}${matching.length < all ? ` (${all} in all)` : ""} `, turn(-1), " ", turn(1));
    } else if (tools) {
      tools.remove();
    }
    figure.hidden = all === 0;
  }

  // ---- the details of a row --------------------------------------------------------------------------------------

  /** One word of a shell's command line. */
  const quoted = (text) => (/^[\w./:=+,@%-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

  function commandsOf(row) {
    const [gfxCu, operation] = rows.value(row, "view").split(" ");
    const problem = `${operation} m=${rows.value(row, "m")} n=${rows.value(row, "n")} k=${rows.value(row, "k")} ${rows.value(row, "types")}`;
    const commands = [];
    if (rows.value(row, "own_kernel") === "yes") commands.push(["verify the kernel again", `gemmtune check --problem ${quoted(problem)} --kernel ${quoted(rows.value(row, "kernel"))}`]);
    if (table("run").rows === 0) {
      const [gfx, units] = gfxCu.split("/");
      commands.push(["what a look-up answers", `gemmtune lookup --problem ${quoted(problem)} --table ${quoted(rows.value(row, "file"))} --gfx ${quoted(gfx)} --cu_num ${quoted(units)}`]);
      commands.push(["time the file's rows against the default", `gemmtune bench ${quoted(rows.value(row, "file"))}`]);
    }
    return commands;
  }

  function drawCompetitors(row) {
    const competitors = table("competitors");
    const all = [];
    for (let i = 0; i < competitors.rows; ++i) if (competitors.value(i, "row") === row) all.push(i);
    if (all.length === 0) return [];
    const head = element("tr", {}, ...["kernel", "time over the row's", "from", "to", "rounds", "screening µs"].map((title, i) => element("th", { class: i ? "n" : null }, title)));
    const body = element("tbody", {});
    for (const i of all) {
      body.append(element("tr", {}, element("td", { class: "kernel", title: competitors.value(i, "kernel") }, competitors.value(i, "kernel")),
        ...["ratio", "low", "high", "rounds", "us"].map((name) => element("td", { class: "n" }, competitors.text(i, name)))));
    }
    const host = element("div", { class: "chart" });
    const values = all.flatMap((i) => [competitors.value(i, "ratio"), competitors.value(i, "low"), competitors.value(i, "high")]);
    const step = 18;
    const range = extent([1, ...values], 1.01, true);
    const width = 640;
    const at = (value) => 10 + (Math.log(value / range.low) / Math.log(range.high / range.low)) * (width - 20);
    const svg = shape("svg", { viewBox: `0 0 ${width} ${all.length * step + 24}`, role: "img", "aria-label": "competitors" });
    svg.append(shape("path", { class: "even", d: `M${at(1)},0V${all.length * step}` }));
    svg.append(shape("text", { x: at(1), y: all.length * step + 16, "text-anchor": at(1) < 60 ? "start" : at(1) > width - 60 ? "end" : "middle" }, "this row's kernel"));
    all.forEach((i, n) => {
      const y = n * step + 10;
      if (competitors.value(i, "low") !== null) svg.append(shape("path", { d: `M${at(competitors.value(i, "low"))},${y}H${at(competitors.value(i, "high"))}`, stroke: "var(--series-0)", "stroke-width": 2 }));
      svg.append(shape("path", { d: markPath(competitors.value(i, "low") !== null ? "circle" : "ring", at(competitors.value(i, "ratio")), y, 4), fill: competitors.value(i, "low") !== null ? "var(--series-0)" : "none", stroke: "var(--series-0)" }));
    });
    host.append(svg);
    return [element("h3", {}, "Competitors: paired rounds with their 95 % interval, then by screening times"), host,
      element("figure", { class: "table" }, element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), body)))];
  }

  function showRow(row) {
    const old = byId("detail");
    if (old) old.remove();
    const verdict = rows.value(row, "verdict");
    const close = element("button", { type: "button", onclick: () => dialog.close() }, "close");
    const dialog = element("dialog", { id: "detail", "data-row": row, onclose: () => dialog.remove(),
      onclick: (event) => event.target === dialog && dialog.close() },
      element("h2", {}, element("span", {}, sizeText(row), " ", verdict ? element("span", { class: `badge v-${verdict}` }, verdict) : ""), close),
      element("p", { class: "kernel" }, rows.value(row, "kernel")));
    for (const [title, command] of commandsOf(row)) {
      const code = element("code", {}, command);
      const copy = element("button", { type: "button", title, onclick: async () => {
        getSelection().selectAllChildren(code);
        if (navigator.clipboard) await navigator.clipboard.writeText(command).then(() => (copy.textContent = "copied"), () => {});
      } }, "copy");
      dialog.append(element("div", { class: "what" }, title), element("div", { class: "command" }, code, copy));
    }
    dialog.append(...drawCompetitors(row));
    const findings = table("findings");
    const own = [];
    for (let i = 0; i < findings.rows; ++i) {
      if (findings.value(i, "line") === rows.value(row, "line") && findings.value(i, "file") === rows.value(row, "file")) own.push(i);
    }
    if (own.length > 0) dialog.append(element("h3", {}, "The audit says"), element("ul", {}, ...own.map((i) => element("li", {}, `${findings.value(i, "kind")}: ${findings.value(i, "text")}`))));
    const list = element("dl", {});
    for (const column of rows.columns) {
      const text = rows.shown(column, row);
      if (text !== "") list.append(element("div", {}, element("dt", {}, column.title), element("dd", {}, text)));
    }
    dialog.append(element("h3", {}, "The row"), list);
    document.body.append(dialog);
    dialog.showModal();
  }

  // ---- the page --------------------------------------------------------------------------------------------------

  function drawCharts() {
    for (const draw of [drawByM, drawLines, drawWorkload, drawRoofline, drawFloor, drawTies, drawSearch, drawParameters, drawFailures, drawChanges, drawCoverage]) draw();
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
    .sort((a, b) => summary.value(b, "compared") - summary.value(a, "compared") || summary.value(b, "rows") - summary.value(a, "rows"))
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
})();
