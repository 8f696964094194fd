// Cards, tables and the details of a row. Follows sections.js.

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
    const low = summary.value(here, "speedup_low");
    const interval = low === null ? "" : `, 95 %: ${summary.text(here, "speedup_low")} to ${summary.text(here, "speedup_high")}`;
    host.append(card(`${summary.text(here, "geometric_mean_speedup")}×`, "", `geometric mean over the default of ${summary.text(here, "compared")} ${number("compared") === 1 ? "row" : "rows"}${interval}; ${number("win") || 0} of ${summary.text(here, "rows")} won`));
  } else {
    host.append(card(summary.text(here, "rows"), "rows", `${summary.text(here, "kernels")} distinct kernels; no times of a default kernel to compare with`));
  }
  if (calls !== undefined && workload.value(calls, "saved_us_per_token") !== null) {
    host.append(card(workload.text(calls, "saved_us_per_token"), "µs a token", `saved in the captured workload: ${workload.text(calls, "speedup")}× by its calls, ${workload.text(calls, "saved_ms")} of ${workload.text(calls, "default_ms")} ms (${workload.text(calls, "tokens")} tokens, ${workload.value(calls, "tokens_from") === "--tokens" ? "as given" : "estimated; --tokens says how many"})`));
  } else if (number("geometric_mean_speedup") === null) {
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
  const untimed = number("default_untimed");
  if (untimed > 0) host.append(card(String(untimed), untimed === 1 ? "shape" : "shapes", "where the default kernel could not be timed", element("ul", {}, item("show them", "", "verdict=default_untimed")), "wrong"));
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
  // Of the summary, verdicts that no row has are left out: the table would be wider than the page.
  const empty = id === "summary" ? ["", null, 0] : ["", null];
  const filled = (column) => given.some((row) => !empty.includes(shownTable.of(column, row)));
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
