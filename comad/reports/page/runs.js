function drawToy() {
  const { ticks, height, slope, ways, at, densities } = data.toy;
  const size = 380, edge = 30, span = ticks[ticks.length - 1], cell = (size - 2 * edge) / ticks.length;
  const place = (value) => edge + ((value + span) / (2 * span)) * (size - 2 * edge);
  const map = picture(size, size, "distance of the model from the data over both means");
  const most = Math.max(...height.flat());
  height.forEach((row, second) => row.forEach((value, first) => {
    const box = make("svg:rect", { x: place(ticks[first]) - cell / 2, y: size - place(ticks[second]) - cell / 2, width: cell + 0.5, height: cell + 0.5, fill: `hsl(210 60% ${Math.round(30 + 62 * Math.sqrt(value / most))}%)` });
    map.append(hint(box, `means ${ticks[first]} and ${ticks[second]}: ${value}`));
  }));
  slope.forEach((row, second) => row.forEach(([one, other], first) => {
    if (first % 4 || second % 4) return;
    const length = Math.hypot(one, other) || 1, reach = Math.min(12, 9 * length);
    const [x, y] = [place(ticks[first]), size - place(ticks[second])];
    map.append(make("svg:line", { x1: x, y1: y, x2: x - (reach * one) / length, y2: y + (reach * other) / length, stroke: "#fff", opacity: 0.75 }), make("svg:circle", { cx: x, cy: y, r: 1.3, fill: "#fff" }));
  }));
  const tints = { data: "#6b7280", tied: "#d1495b", free: "#e08e0b" };
  for (const [name, way] of Object.entries(ways)) {
    map.append(make("svg:polyline", { points: way.map(([first, second]) => `${place(first)},${size - place(second)}`).join(" "), fill: "none", stroke: tints[name], "stroke-width": 2.5 }));
    const [first, second] = way[way.length - 1];
    map.append(hint(make("svg:circle", { cx: place(first), cy: size - place(second), r: 5, fill: tints[name] }), `${name}: ends at ${first}, ${second}`));
  }
  map.append(make("svg:text", { x: size / 2, y: size - 6, "text-anchor": "middle", class: "soft" }, "first mean"), make("svg:text", { x: 12, y: size / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${size / 2})`, class: "soft" }, "second mean"));
  const lines = picture(size, size, "densities in the end");
  const top = Math.max(...Object.values(densities).flat());
  for (const [name, values] of Object.entries(densities)) {
    const points = values.map((value, index) => `${edge + (index / (at.length - 1)) * (size - 2 * edge)},${size - edge - (value / top) * (size - 3 * edge)}`);
    lines.append(make("svg:polyline", { points: points.join(" "), fill: "none", stroke: tints[name], "stroke-width": name === "data" ? 6 : 2.5, opacity: name === "data" ? 0.45 : 1 }));
  }
  for (const tick of [-6, -4, -2, 0, 2, 4, 6]) lines.append(make("svg:text", { x: edge + ((tick + 6) / 12) * (size - 2 * edge), y: size - 10, "text-anchor": "middle", class: "soft" }, String(tick)));
  const names = { data: "data", tied: "one shared mean", free: "a mean for each mode" };
  const legend = make("p", { class: "legend" }, ...Object.entries(names).map(([name, text]) => make("span", {}, swatch(tints[name]), text)));
  find("toy-plots").replaceChildren(map, make("div", {}, lines, legend));
}

function drawCost() {
  const known = chosen().filter((result) => result.cost);
  const rows = known.map(({ stream, quality, updates, label, cost }) => [stream, quality, updates.toLocaleString("en"), label, cost.seeds, cost.updates_per_second, cost.evaluation_seconds, cost.compiling_seconds, (cost.peak_bytes / 2 ** 30).toFixed(2)]);
  const columns = ["stream", "data", "updates", "method", "seeds", "updates/s", "s per evaluation", "s compiling", "GiB"];
  const uncounted = chosen().length - known.length;
  find("cost-table").replaceChildren(...(rows.length ? [table(columns, rows)] : []), ...(uncounted ? [missing(`${uncounted} of the results shown did not count their cost`)] : []));
}

function drawRuns() {
  find("provenance").replaceChildren(...chosen().map((result) => {
    const programs = Object.entries(result.programs).map(([seed, versions]) => `seed ${seed}: ${versions.join("; then ")}`);
    const several = distinct(Object.values(result.programs).flat()).length > 1;
    const made = make("p", { class: "note" }, several ? `Made by several versions of comad. ${programs.join(". ")}.` : "Made by one version of comad.");
    return make("details", {}, make("summary", {}, `${result.label}, ${placeOf(result)}, seeds ${result.seeds.join(", ")}`), make("pre", {}, result.command), made, make("pre", {}, JSON.stringify(result.provenance, null, 1)));
  }));
  const list = (title, lines) => (lines.length ? [make("h3", {}, title), make("ul", {}, ...lines.map((line) => make("li", {}, line)))] : []);
  find("flaws").replaceChildren(...list("Compare with care: not the same data or budget", data.unequal), ...list("Noticed", data.flaws));
}

function drawGoing() {
  const rows = data.going.map((run) => [run.name, make("progress", { max: 1, value: run.share, "aria-label": "share of updates made" }), `${Math.round(100 * run.share)} %`, spark(run), run.curve.length ? number(100 * run.curve[run.curve.length - 1]) : ""]);
  find("going").replaceChildren(...(rows.length ? [make("h3", {}, "Not finished"), table(["run", "", "done", "tasks seen so far", "now"], rows)] : []));
}

function spark(run) {
  // As wide as the whole run will be, so that one sees how much is to come.
  const svg = make("svg:svg", { viewBox: "0 0 160 26", class: "spark", role: "img", "aria-label": "mean score over the tasks seen so far" });
  const points = run.curve.map((score, index) => `${((160 * index) / Math.max(run.points - 1, 1)).toFixed(1)},${(24 - 22 * score).toFixed(1)}`);
  svg.append(make("svg:rect", { x: 0.5, y: 0.5, width: 159, height: 25, fill: "none", class: "axis" }), make("svg:polyline", { points: points.join(" "), fill: "none", stroke: "var(--accent)", "stroke-width": 1.5 }));
  return svg;
}
