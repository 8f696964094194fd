// Charts of any data. Follows data.js.

// ---- charts ----------------------------------------------------------------------------------------------------

const verdicts = {
  win: { title: "win", color: "var(--win)", mark: "circle" },
  default: { title: "default stays", color: "var(--default)", mark: "ring" },
  undecided: { title: "undecided", color: "var(--undecided)", mark: "diamond" },
  only: { title: "no default exists", color: "var(--only)", mark: "triangle" },
  default_wrong: { title: "default is wrong", color: "var(--wrong)", mark: "cross" },
  default_untimed: { title: "default could not be timed", color: "var(--wrong)", mark: "ring" },
  energy: { title: "chosen by joules", color: "var(--only)", mark: "circle" },
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
  /** False for what has no place: a cell without a number, one that is not finite, 0 on a logarithmic axis. */
  holds(x, ...ys) {
    const isPlaced = (axis, value) => Number.isFinite(value) && Number.isFinite(axis.at(value));
    return isPlaced(this.x, x) && ys.every((y) => isPlaced(this.y, y));
  }
  line(given, color, width, opacity) {
    const points = given.filter(([x, y]) => this.holds(x, y));
    if (points.length === 0) return;
    const d = points.map(([x, y], i) => `${i ? "L" : "M"}${this.x.at(x).toFixed(1)},${this.y.at(y).toFixed(1)}`).join("");
    this.add("path", { d, fill: "none", stroke: color, "stroke-width": width || 2, "stroke-linejoin": "round", opacity: opacity || 1 });
  }
  /** Marks of one color; equal places are drawn once. points: {x, y, row, tip}; py: a place in pixels instead of y. */
  marks(points, mark, color, radius, opacity) {
    let d = "";
    const taken = new Set();
    for (const point of points) {
      if (!(point.py === undefined ? this.holds(point.x, point.y) : this.holds(point.x) && Number.isFinite(point.py))) continue;
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
    const d = pairs.filter((pair) => this.holds(...pair)).map(([x, low, high]) => `M${this.x.at(x).toFixed(1)},${this.y.at(low).toFixed(1)}V${this.y.at(high).toFixed(1)}`).join("");
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
