"use strict";
// Everything on the page is drawn from the JSON in it; nothing is fetched.
const data = JSON.parse(document.getElementById("data").textContent);
const colors = ["#0b5fa5", "#d1495b", "#2e8b57", "#e08e0b", "#7b4fa3", "#3aa6b9", "#8c6d46", "#c2559d", "#6b7280"];
const find = (id) => document.getElementById(id);
const labels = [...new Set(data.results.map((result) => result.label))];
const colorOf = (label) => colors[labels.indexOf(label) % colors.length];
const state = { stream: "", quality: "", mode: "sampled", shown: new Set(labels), sort: { column: "stream", down: false } };

function make(tag, attributes = {}, ...children) {
  const element = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick" || name === "onchange" || name.startsWith("onmouse")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const number = (value, sign = false) => (sign && value > 0 ? "+" : "") + value.toFixed(1);
const chosen = () => data.results.filter((result) =>
  (!state.stream || result.stream === state.stream) && (!state.quality || result.quality === state.quality) && state.shown.has(result.label));
const places = () => [...new Set(chosen().map(placeOf))];
const placeOf = (result) => `${result.stream} · ${result.quality} · ${result.updates.toLocaleString("en")} updates per task`;

function drawFilters() {
  const fill = (id, values) => {
    find(id).append(make("option", { value: "" }, "all"), ...values.map((value) => make("option", { value }, value)));
    find(id).onchange = (event) => { state[id] = event.target.value; draw(); };
  };
  fill("stream", [...new Set(data.results.map((result) => result.stream))]);
  fill("quality", [...new Set(data.results.map((result) => result.quality))]);
  find("mode").onchange = (event) => { state.mode = event.target.value; draw(); };
  for (const label of labels) {
    const box = make("input", { type: "checkbox", checked: "" });
    box.onchange = () => { state.shown[box.checked ? "add" : "delete"](label); draw(); };
    find("methods").append(make("label", {}, box, " ", make("span", { class: "swatch", style: `background:${colorOf(label)}` }), label));
  }
  const setTheme = (dark) => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    find("theme").setAttribute("aria-pressed", dark);
    find("theme").textContent = dark ? "Light" : "Dark";
  };
  find("theme").onclick = () => setTheme(document.documentElement.dataset.theme !== "dark");
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
}

function drawScores() {
  const columns = ["stream", "quality", "updates", "label", "seeds", "P", "FwT", "BwT"];
  const names = { quality: "data", label: "method" };
  const metric = (result, name) => result.modes[state.mode].metrics[name];
  const value = (result, column) => (columns.indexOf(column) > 4 ? metric(result, column)?.mean ?? -Infinity : column === "seeds" ? result.seeds.length : result[column]);
  const { column: by, down } = state.sort;
  const rows = chosen().sort((one, other) => {
    const compare = (column, sign) => { const [first, second] = [value(one, column), value(other, column)]; return sign * (first < second ? -1 : first > second ? 1 : 0); };
    return compare(by, down ? -1 : 1) || compare("stream", 1) || compare("quality", 1) || compare("updates", 1) || compare("P", -1);
  });
  const head = make("tr", {}, ...columns.map((column) => {
    const press = make("button", { type: "button" }, (names[column] ?? column) + (by === column ? (down ? " ▾" : " ▴") : ""));
    press.onclick = () => { state.sort = { column, down: by === column ? !down : columns.indexOf(column) > 3 }; drawScores(); find("main-table").querySelectorAll("button")[columns.indexOf(column)].focus(); };
    const sorted = by === column ? (down ? "descending" : "ascending") : "none";
    return make("th", { scope: "col", "aria-sort": sorted, class: columns.indexOf(column) > 3 || column === "updates" ? "number" : "" }, press);
  }));
  const body = rows.map((result) => make("tr", {}, ...columns.map((column) => {
    if (columns.indexOf(column) < 4) return make("td", { class: column === "updates" ? "number" : "" }, column === "updates" ? result.updates.toLocaleString("en") : result[column]);
    if (column === "seeds") return make("td", { class: "number", title: `seeds ${result.seeds.join(", ")}` }, String(result.seeds.length));
    const found = metric(result, column), published = result.published[column];
    if (!found) return make("td", { class: "number missing", title: column === "FwT" ? "needs finished runs of fs with the same stream, data and budget" : "" }, "missing");
    const rank = result.modes[state.mode].rank;
    const mark = column === "P" ? (rank === 1 ? "best" : rank === 2 ? "second" : "") : "";
    const beside = `${number(found.low, column !== "P")} to ${number(found.high, column !== "P")}` + (published ? ` | ${number(published[0], column !== "P")}` : "");
    return make("td", { class: "number" }, make("span", { class: mark }, `${number(found.mean, column !== "P")} ± ${number(found.std)}`), make("small", {}, beside));
  })));
  find("main-table").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

function plot(title, series, tasks, points) {
  // As wide as there is room, so that letters keep their size on a phone.
  const width = Math.max(Math.min(find("curve-plots").clientWidth, 1150), 320), height = Math.round(Math.min(300, 140 + width / 5)), left = 40, right = 10, top = 24, bottom = 28;
  const steps = tasks.length * points;
  const x = (index) => left + (index / (steps - 1)) * (width - left - right);
  const y = (score) => height - bottom - score * (height - top - bottom);
  const svg = make("svg:svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const score of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(make("svg:line", { x1: left, x2: width - right, y1: y(score), y2: y(score), class: "axis" }));
    svg.append(make("svg:text", { x: left - 6, y: y(score) + 4, "text-anchor": "end", class: "soft" }, String(100 * score)));
  }
  tasks.forEach((task, place) => {
    if (place) svg.append(make("svg:line", { x1: x(place * points), x2: x(place * points), y1: top, y2: height - bottom, class: "axis", "stroke-dasharray": "4 3" }));
    const room = (width - left - right) / tasks.length / 7;
    svg.append(make("svg:text", { x: x((place + 0.5) * points), y: height - 8, "text-anchor": "middle", class: "soft" }, task.length > room ? `${task.slice(0, room - 1)}…` : task));
  });
  for (const { label, mean, std } of series) {
    const line = mean.map((score, index) => `${x(index).toFixed(1)},${y(score).toFixed(1)}`);
    const clip = (score) => Math.min(Math.max(score, 0), 1);
    const upper = mean.map((score, index) => `${x(index).toFixed(1)},${y(clip(score + std[index])).toFixed(1)}`);
    const lower = mean.map((score, index) => `${x(index).toFixed(1)},${y(clip(score - std[index])).toFixed(1)}`).reverse();
    svg.append(make("svg:polygon", { points: [...upper, ...lower].join(" "), fill: colorOf(label), opacity: 0.13 }));
    svg.append(make("svg:polyline", { points: line.join(" "), fill: "none", stroke: colorOf(label), "stroke-width": 2 }));
  }
  const hover = make("div", { class: "hover", hidden: "" });
  const box = make("div", {}, make("h3", {}, title), svg, hover);
  svg.onmousemove = (event) => {
    const area = svg.getBoundingClientRect();
    const index = Math.round((((event.clientX - area.left) / area.width) * width - left) / (width - left - right) * (steps - 1));
    if (index < 0 || index >= steps) { hover.hidden = true; return; }
    const lines = [...series].sort((one, other) => other.mean[index] - one.mean[index]).map(({ label, mean }) => `${label} ${number(100 * mean[index])}`);
    hover.textContent = `${tasks[Math.floor(index / points)]}, evaluation ${index % points}\n${lines.join("\n")}`;
    hover.style.left = `${Math.min(event.clientX + 14, innerWidth - 180)}px`;
    hover.style.top = `${event.clientY + 14}px`;
    hover.hidden = false;
  };
  svg.onmouseleave = () => { hover.hidden = true; };
  return box;
}

function drawCurves() {
  const which = find("curve").value || "seen";
  const tasks = [...new Set(chosen().flatMap((result) => result.tasks))];
  find("curve").replaceChildren(make("option", { value: "seen" }, "mean over tasks seen so far"), ...tasks.map((task) => make("option", { value: task }, `on ${task}`)));
  find("curve").value = which === "seen" || tasks.includes(which) ? which : "seen";
  const plots = places().map((place) => {
    const here = chosen().filter((result) => placeOf(result) === place);
    const series = here.flatMap((result) => {
      const curves = result.modes[state.mode].curves;
      if (find("curve").value === "seen") return [{ label: result.label, ...curves.seen }];
      const on = result.tasks.indexOf(find("curve").value);
      return on < 0 ? [] : [{ label: result.label, ...curves.tasks[on] }];
    });
    return series.length ? plot(place, series, here[0].tasks, here[0].points) : "";
  });
  find("curve-plots").replaceChildren(...plots);
}

function drawMatrices() {
  const tables = chosen().map((result) => {
    const head = make("tr", {}, make("th", {}, ""), ...result.tasks.map((task) => make("th", { scope: "col" }, task)));
    const rows = result.modes[state.mode].matrix.map((row, after) => make("tr", {}, make("th", { scope: "row" }, `after ${result.tasks[after]}`),
      ...row.map((score) => make("td", { style: `background:hsl(${Math.round(10 + 120 * score)} 55% ${document.documentElement.dataset.theme === "dark" ? 30 : 82}%)` }, String(Math.round(100 * score))))));
    return make("div", {}, make("h3", {}, `${result.label}, ${result.stream} ${result.quality}`), make("div", { class: "scroll" }, make("table", { class: "heat" }, make("thead", {}, head), make("tbody", {}, ...rows))));
  });
  find("matrix-plots").replaceChildren(...tables);
}

function drawLibrary() {
  const blocks = chosen().filter((result) => result.heads.length).map((result) => {
    const head = make("tr", {}, ...["task", "head", "heads in all", "familiarity to the heads there were", "own data", "with noise"].map((name) => make("th", { scope: "col" }, name)));
    const rows = result.heads.map((entry) => make("tr", {}, ...[entry.task, `${entry.reused ? "re-used" : "opened"} ${entry.head}`, entry.used, entry.scores.map((score) => score.toFixed(2)).join("  "), entry.own.toFixed(2), entry.noise.toFixed(2)].map((cell) => make("td", {}, String(cell)))));
    return make("div", {}, make("h3", {}, `${result.label}, ${placeOf(result)}`), make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  });
  find("growth").replaceChildren(...(blocks.length ? blocks : [make("p", { class: "missing" }, "no method with a library among the runs shown")]));
}

function drawRuns() {
  find("provenance").replaceChildren(...chosen().map((result) => make("details", {}, make("summary", {}, `${result.label}, ${placeOf(result)}, seeds ${result.seeds.join(", ")}`), make("pre", {}, result.command), make("pre", {}, JSON.stringify(result.provenance, null, 1)))));
  const flaws = data.flaws.map((flaw) => make("li", {}, flaw));
  find("flaws").replaceChildren(...(flaws.length ? [make("h3", {}, "Not counted"), make("ul", {}, ...flaws)] : []));
}

function draw() {
  drawScores();
  drawCurves();
  drawMatrices();
  drawLibrary();
  drawRuns();
}

const runs = data.results.reduce((sum, result) => sum + result.seeds.length, 0);
find("lead").textContent = `${runs} runs of ${labels.length} methods on ${new Set(data.results.map((result) => result.stream)).size} streams` + (data.flaws.length ? `, ${data.flaws.length} not counted` : "") + ".";
drawFilters();
find("curve").onchange = drawCurves;
addEventListener("resize", drawCurves);
draw();
