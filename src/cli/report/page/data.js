// The page of `gemmtune report`: charts, sorting, filtering and details over the tables of its data block. It computes no figure
// of its own: it places and prints what stands there. These files are one function (embed_page.cmake): data.js, charts.js,
// sections.js, tables.js, page.js.

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
