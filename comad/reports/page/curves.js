function plot(title, series, tasks, points) {
  // As wide as there is room, so that letters keep their size on a phone.
  const width = Math.max(Math.min(find("curve-plots").clientWidth, 1150), 320), height = Math.round(Math.min(300, 140 + width / 5)), left = 40, right = 10, top = 24, bottom = 28;
  const begins = (place) => left + (place / tasks.length) * (width - left - right);
  const y = (score) => height - bottom - score * (height - top - bottom);
  const svg = picture(width, height, title);
  for (const score of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(make("svg:line", { x1: left, x2: width - right, y1: y(score), y2: y(score), class: "axis" }));
    svg.append(make("svg:text", { x: left - 6, y: y(score) + 4, "text-anchor": "end", class: "soft" }, String(100 * score)));
  }
  tasks.forEach((task, place) => {
    if (place) svg.append(make("svg:line", { x1: begins(place), x2: begins(place), y1: top, y2: height - bottom, class: "axis", "stroke-dasharray": "4 3" }));
    const room = (width - left - right) / tasks.length / 7;
    svg.append(make("svg:text", { x: begins(place + 0.5), y: height - 8, "text-anchor": "middle", class: "soft" }, task.length > room ? `${task.slice(0, room - 1)}…` : task));
  });
  for (const { label, method, mean, std } of series) {
    // Whatever the number of evaluations, a task is as wide as all others; the last of one is at the place of the next one's first.
    const each = mean.length / tasks.length;
    const at = (index) => begins(Math.floor(index / each) + (index % each) / (each - 1)).toFixed(1), clip = (score) => Math.min(Math.max(score, 0), 1);
    const line = mean.map((score, index) => `${at(index)},${y(score).toFixed(1)}`);
    const upper = mean.map((score, index) => `${at(index)},${y(clip(score + std[index])).toFixed(1)}`);
    const lower = mean.map((score, index) => `${at(index)},${y(clip(score - std[index])).toFixed(1)}`).reverse();
    svg.append(make("svg:polygon", { points: [...upper, ...lower].join(" "), fill: colorOf(label), opacity: 0.13 }));
    svg.append(make("svg:polyline", { points: line.join(" "), fill: "none", stroke: colorOf(label), ...(label === method ? { "stroke-width": 2 } : { "stroke-width": 1, "stroke-dasharray": "5 3" }) }));
  }
  const hover = make("div", { class: "hover", hidden: "" });
  const legend = make("p", { class: "legend" }, ...series.map(({ label }) => make("span", {}, swatch(colorOf(label)), label)));
  const box = make("div", {}, make("h3", {}, title), svg, legend, hover);
  svg.onmousemove = (event) => {
    const area = svg.getBoundingClientRect();
    const place = (((event.clientX - area.left) / area.width) * width - left) / (width - left - right) * tasks.length;
    if (place < 0 || place > tasks.length) { hover.hidden = true; return; }
    const task = Math.min(Math.floor(place), tasks.length - 1), within = (each) => Math.round((place - task) * (each - 1));
    const now = ({ mean }) => mean[(task * mean.length) / tasks.length + within(mean.length / tasks.length)];
    const lines = [...series].sort((one, other) => now(other) - now(one)).map((one) => `${one.label} ${number(100 * now(one))}`);
    hover.textContent = `${tasks[task]}, evaluation ${within(points)}\n${lines.join("\n")}`;
    hover.style.left = `${Math.min(event.clientX + 14, innerWidth - 180)}px`;
    hover.style.top = `${event.clientY + 14}px`;
    hover.hidden = false;
  };
  svg.onmouseleave = () => { hover.hidden = true; };
  return box;
}

function drawCurves() {
  const which = find("curve").value || "seen";
  const tasks = distinct(chosen().flatMap((result) => result.tasks));
  find("curve").replaceChildren(make("option", { value: "seen" }, "mean over tasks seen so far"), ...tasks.map((task) => make("option", { value: task }, `on ${task}`)));
  find("curve").value = which === "seen" || tasks.includes(which) ? which : "seen";
  const plots = places().map((place) => {
    const here = chosen().filter((result) => placeOf(result) === place);
    const series = here.flatMap((result) => {
      const curves = played(result).curves;
      if (find("curve").value === "seen") return [{ label: result.label, method: result.method, ...curves.seen }];
      const on = result.tasks.indexOf(find("curve").value);
      return on < 0 ? [] : [{ label: result.label, method: result.method, ...curves.tasks[on] }];
    });
    return series.length ? plot(place, series, here[0].tasks, here[0].points) : "";
  });
  find("curve-plots").replaceChildren(...plots);
}

function drawMatrices() {
  const tables = chosen().map((result) => {
    const head = make("tr", {}, make("th", {}, ""), ...result.tasks.map((task) => make("th", { scope: "col" }, task)));
    const rows = played(result).matrix.map((row, after) => make("tr", {}, make("th", { scope: "row" }, `after ${result.tasks[after]}`),
      ...row.map((score) => make("td", { style: heat(score) }, String(Math.round(100 * score))))));
    return make("div", {}, make("h3", {}, `${result.label}, ${result.stream} ${result.quality}, ${result.updates.toLocaleString("en")}`), make("div", { class: "scroll" }, make("table", { class: "heat" }, make("thead", {}, head), make("tbody", {}, ...rows))));
  });
  find("matrix-plots").replaceChildren(...tables);
}

