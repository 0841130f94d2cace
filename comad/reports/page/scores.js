// Each stream with the budget that most methods were given, of equal ones the larger; only where there is something to compare.
function glanced() {
  const plain = chosen().filter((result) => result.label === result.method);
  return distinct(plain.map((result) => `${result.stream} ${result.quality}`)).map((place) => {
    const here = plain.filter((result) => `${result.stream} ${result.quality}` === place), { stream, quality } = here[0], count = (updates) => here.filter((result) => result.updates === updates).length;
    const updates = distinct(here.map((result) => result.updates)).sort((one, other) => count(other) - count(one) || other - one)[0];
    return { stream, quality, updates, results: here.filter((result) => result.updates === updates) };
  }).filter((column) => column.results.length > 1);
}

function drawGlance() {
  const columns = glanced(), reached = (result) => metricOf(result, "P").mean;
  if (!columns.length) return find("glance-table").replaceChildren(missing("no stream has runs of more than one method as it is"));
  const shareBelow = (column, result) => column.results.filter((other) => reached(other) < reached(result)).length / (column.results.length - 1);
  const rows = distinct(columns.flatMap((column) => column.results.map((result) => result.label))).map((label) => {
    const cells = columns.map((column) => column.results.find((result) => result.label === label));
    const shares = cells.flatMap((result, place) => (result ? [shareBelow(columns[place], result)] : []));
    return { label, cells, standing: shares.reduce((sum, share) => sum + share, 0) / shares.length };
  }).sort((one, other) => other.standing - one.standing);
  const head = make("tr", {}, make("th", { scope: "col" }, "method"), ...columns.map((column) => make("th", { scope: "col", class: "number" }, column.stream, make("small", {}, column.quality), make("small", {}, `${column.updates.toLocaleString("en")} updates`))));
  const body = rows.map((row) => make("tr", {}, make("th", { scope: "row" }, swatch(colorOf(row.label)), row.label), ...row.cells.map((result) => {
    if (!result) return make("td", { class: "number missing", title: "not run" }, "·");
    const mark = { 1: "best", 2: "second" }[played(result).rank] ?? "", published = result.published.P;
    const seeds = `${result.seeds.length} seed${result.seeds.length > 1 ? "s" : ""}`;
    return make("td", { class: "number", title: seeds, style: heat(reached(result) / 100) }, make("span", { class: mark }, number(reached(result))), make("small", {}, seeds), make("small", {}, published ? `paper ${number(published[0])}` : ""));
  })));
  find("glance-table").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

function drawScores() {
  const columns = ["stream", "quality", "updates", "label", "seeds", "P", "FwT", "BwT"];
  const names = { quality: "data", label: "method" };
  const value = (result, column) => (columns.indexOf(column) > 4 ? metricOf(result, column)?.mean ?? -Infinity : column === "seeds" ? result.seeds.length : result[column]);
  const { column: by, down } = state.sort;
  const rows = chosen().sort((one, other) => {
    const compare = (column, sign) => { const [first, second] = [value(one, column), value(other, column)]; return sign * (first < second ? -1 : first > second ? 1 : 0); };
    return compare(by, down ? -1 : 1) || compare("stream", 1) || compare("quality", 1) || compare("updates", 1) || compare("P", -1);
  });
  const head = make("tr", {}, ...columns.map((column, place) => {
    const press = make("button", { type: "button" }, (names[column] ?? column) + (by === column ? (down ? " ▾" : " ▴") : ""));
    press.onclick = () => { state.sort = { column, down: by === column ? !down : place > 3 }; drawScores(); find("main-table").querySelectorAll("button")[place].focus(); };
    const sorted = by === column ? (down ? "descending" : "ascending") : "none";
    return make("th", { scope: "col", "aria-sort": sorted, class: place > 3 || column === "updates" ? "number" : "" }, press);
  }));
  const body = rows.map((result) => make("tr", {}, ...columns.map((column, place) => {
    if (column === "updates") return make("td", { class: "number" }, result.updates.toLocaleString("en"));
    if (place < 4) return make("td", {}, result[column]);
    if (column === "seeds") return make("td", { class: "number", title: `seeds ${result.seeds.join(", ")}` }, String(result.seeds.length));
    return scoreCell(result, column);
  })));
  find("main-table").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

function scoreCell(result, column) {
  const found = metricOf(result, column), published = result.published[column], sign = column !== "P", late = metricOf(result, "late P");
  if (result.undefined.includes(column)) return make("td", { class: "number missing", title: "says nothing of this method" }, "–");
  if (!found) return make("td", { class: "number missing", title: column === "FwT" ? "needs finished runs of fs with the same stream, data and budget" : "a stream of one task has none" }, "missing");
  const rank = played(result).rank;
  const mark = column === "P" ? { 1: "best", 2: "second" }[rank] ?? "" : "";
  const interval = result.seeds.length > 1 ? `${number(found.low, sign)} to ${number(found.high, sign)}` : "one seed";
  const steady = column === "P" && late.mean !== found.mean ? make("small", {}, `late ${number(late.mean)}`) : "";
  const beside = published ? make("small", {}, `paper ${number(published[0], sign)}, ${number(found.mean - published[0], true)}`) : "";
  return make("td", { class: "number" }, make("span", { class: mark }, number(found.mean, sign) + (result.seeds.length > 1 ? ` ± ${number(found.std)}` : "")), make("small", {}, interval), steady, beside);
}

function drawOverall() {
  const blocks = distinct(data.overall[state.play].map((row) => row.updates)).map((updates) => {
    const rows = data.overall[state.play].filter((row) => row.updates === updates && !state.hidden.has(row.label));
    const span = ([value, low, high], seeds) => number(value) + (seeds > 1 ? ` (${number(low)} to ${number(high)})` : "");
    const cells = rows.map((row) => row.mean
      ? [row.label, row.seeds, span(row.mean, row.seeds), span(row.middle, row.seeds), row.published ?? ""]
      : [row.label, "", make("span", { class: "missing" }, `missing on ${row.missing.join(", ") || "a common seed"}`), "", row.published ?? ""]);
    const columns = ["method", "seeds", "mean P, 95 %", "interquartile mean, 95 %", "paper, all its streams"];
    const title = make("h3", {}, `${updates.toLocaleString("en")} updates per task: ${rows[0]?.places.join(", ") ?? ""}`);
    return make("div", {}, title, make("div", { class: "scroll" }, table(columns, cells)), improvement(rows.filter((row) => row.mean)));
  });
  find("overall-tables").replaceChildren(...(blocks.length ? blocks : [missing("no stream has runs of more than one method")]));
}

function improvement(rows) {
  if (rows.length < 2) return "";
  const head = make("tr", {}, make("th", {}, ""), ...rows.map((row) => make("th", { scope: "col" }, row.label)));
  const body = rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row.label), ...rows.map((other) => {
    const chance = row.improvement[other.label];
    return chance === undefined ? make("td", {}, "") : make("td", { style: heat(chance) }, chance.toFixed(2));
  })));
  return make("div", { class: "scroll" }, make("table", { class: "heat" }, make("thead", {}, head), make("tbody", {}, ...body)));
}

const heat = (share) => `background:hsl(${Math.round(10 + 120 * share)} 55% ${isDark() ? 30 : 82}%)`;
