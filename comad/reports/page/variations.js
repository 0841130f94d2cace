function drawVariations() {
  const shown = (index) => matches(data.results[index]);
  const blocks = data.families.filter((family) => shown(family.base)).flatMap((family) => {
    const base = data.results[family.base];
    const swept = new Set(Object.values(family.swept).flatMap((values) => values.map(([, index]) => index)));
    const others = family.variations.filter(([index]) => shown(index) && !swept.has(index)).map(([index, name]) => ({ name, result: data.results[index] }));
    const sweeps = Object.entries(family.swept).map(([name, values]) => {
      const bars = values.filter(([, index]) => shown(index)).map(([value, index]) => ({ name: index === family.base ? `${value} (as it is)` : String(value), result: data.results[index] }));
      return barChart(`${name.replaceAll("_", " ")}, ${base.label} on ${placeOf(base)}`, bars, base);
    });
    return [...(others.length ? [barChart(`${base.label}, ${placeOf(base)}`, [{ name: "as it is", result: base }, ...others], base)] : []), ...sweeps];
  });
  const alone = data.orphans.filter(shown).map((index) => missing(`${data.results[index].label}, ${placeOf(data.results[index])}: no ${data.results[index].method} as it is with the same data and budget to compare with`));
  find("bars").replaceChildren(...(blocks.length || alone.length ? [...blocks, ...alone] : [missing("no method was run with other settings on the streams shown")]));
  const rows = data.orders.flatMap((same) => same.filter(shown).map((index) => data.results[index])).map((result) => {
    const metric = (name) => {
      const found = metricOf(result, name), theirs = result.published[name];
      return found ? `${number(found.mean, name !== "P")}${theirs ? ` (paper ${number(theirs[0], name !== "P")})` : ""}` : result.undefined.includes(name) ? "–" : "missing";
    };
    return [result.label, result.stream, result.tasks.join(", "), result.updates.toLocaleString("en"), result.seeds.length, metric("P"), metric("FwT"), metric("BwT")];
  });
  const orders = table(["method", "stream", "order of tasks", "updates", "seeds", "P", "FwT", "BwT"], rows);
  find("orders").replaceChildren(...(rows.length ? [make("h3", {}, "The same tasks in other orders"), orders] : [missing("no tasks were learned in several orders")]));
}

function barChart(title, bars, base) {
  const width = Math.max(Math.min(find("bars").clientWidth, 760), 320), line = 26, left = Math.min(230, width * 0.4), right = 96, top = 6;
  const svg = picture(width, top + bars.length * line + 4, title);
  svg.style.maxWidth = `${width}px`;
  const x = (value) => left + (Math.max(value, 0) / 100) * (width - left - right);
  bars.forEach(({ name, result }, place) => {
    const found = metricOf(result, "P"), y = top + place * line, room = Math.floor(left / 7);
    const label = make("svg:text", { x: left - 8, y: y + 16, "text-anchor": "end" }, name.length > room ? `${name.slice(0, room - 1)}…` : name);
    const bar = make("svg:rect", { x: left, y: y + 4, width: x(found.mean) - left, height: line - 9, fill: colorOf(result.label), opacity: result === base ? 1 : 0.75 });
    svg.append(hint(label, name), hint(bar, `${name}: P ${number(found.mean)} ${result.seeds.length > 1 ? `± ${number(found.std)}, seeds` : "seed"} ${result.seeds.join(", ")}`));
    svg.append(make("svg:line", { x1: x(found.low), x2: x(found.high), y1: y + 12, y2: y + 12, stroke: "currentColor", "stroke-width": 1.5 }));
    const difference = result === base ? "" : ` (${number(found.mean - metricOf(base, "P").mean, true)})`;
    svg.append(make("svg:text", { x: x(Math.max(found.mean, found.high)) + 6, y: y + 16, class: "soft" }, number(found.mean) + difference));
  });
  return make("div", {}, make("h3", {}, title), svg);
}
