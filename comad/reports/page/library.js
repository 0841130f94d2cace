function drawLibrary() {
  const blocks = chosen().filter((result) => result.heads.length).map((result) => {
    const theirs = result.published_heads;
    const columns = ["task", "head", "heads in all", "familiarity to the heads there were", "own data", "with noise", "P", ...(theirs.length ? ["paper: head", "heads", "familiarity", "P"] : [])];
    const rows = result.heads.map((entry, place) => {
      const row = [entry.task, `${entry.reused ? "re-used" : "opened"} ${entry.head}`, entry.used, entry.scores.map((score) => score.toFixed(2)).join(" | "), entry.own.toFixed(2), entry.noise.toFixed(2), number(entry.P)];
      const published = theirs[place];
      if (!theirs.length) return row;
      return [...row, ...(published ? [published.head === "new" ? "opened" : `re-used ${published.head}'s`, published.heads, published.familiarity, number(Number(published.performance))] : ["", "", "", ""])];
    });
    const heading = make("summary", {}, `${result.label}, ${placeOf(result)}`);
    return make("details", result.label === result.method || theirs.length ? { open: "" } : {}, heading, table(columns, rows));
  });
  find("growth").replaceChildren(...(blocks.length ? blocks : [missing("no method with a library among the runs shown")]));
  const portrayed = chosen().filter((result) => result.portrait?.skills);
  const none = missing("no skills to show: 'comad portrait RUN' keeps them beside a run");
  find("skills").replaceChildren(...(portrayed.length ? portrayed.map(drawSkills) : [none]));
}

function drawSkills(result) {
  const { skills, reuse, seed } = result.portrait;
  const stage = make("select", {}, ...skills.stages.map(({ after }, place) => make("option", { value: place }, `after ${after}`)));
  const key = `${result.label} ${placeOf(result)}`, kept = (state.skills[key] ??= { stage: skills.stages.length - 1, by: "task" });
  stage.value = kept.stage;
  const by = make("select", {}, make("option", { value: "task" }, "task"), make("option", { value: "head" }, "head"));
  const cloud = make("div", {});
  by.value = kept.by;
  const redraw = () => { Object.assign(kept, { stage: stage.value, by: by.value }); cloud.replaceChildren(...scatter(skills, Number(stage.value), by.value, result.tasks)); };
  stage.onchange = by.onchange = redraw;
  redraw();
  const shares = skills.explained.map((share) => `${Math.round(100 * share)} %`).join(" and ");
  const title = make("h3", {}, `Skills of ${result.label}, ${placeOf(result)}, seed ${seed}`);
  const note = make("p", { class: "note" }, `The skill that each agent infers from its history, over recorded episodes, in the two directions of greatest variance (${shares} of it). The plane has no unit: a head whose agents infer the same skill whatever they have seen is one dot.`);
  return make("div", {}, title, note, make("p", {}, make("label", {}, "Stage ", stage), " ", make("label", {}, "Colour by ", by)), make("div", { class: "grid" }, cloud, reuse ? drawReuse(reuse) : ""));
}

function scatter(skills, place, by, tasks) {
  const size = 380, edge = 14, stage = skills.stages[place];
  const all = skills.stages.flatMap((one) => one.points);
  const scale = [0, 1].map((axis) => {
    const values = all.map((point) => point[axis]), low = Math.min(...values), high = Math.max(...values);
    return (value) => edge + ((value - low) / (high - low || 1)) * (size - 2 * edge);
  });
  const svg = picture(size, size, `skills after ${stage.after}`);
  svg.append(make("svg:rect", { x: 0.5, y: 0.5, width: size - 1, height: size - 1, fill: "none", class: "axis" }));
  const name = (value) => (by === "task" ? tasks[value] : `head ${value}`);
  stage.points.forEach((point, index) => {
    const dot = make("svg:circle", { cx: scale[0](point[0]).toFixed(1), cy: (size - scale[1](point[1])).toFixed(1), r: 3, fill: colors[stage[by][index] % colors.length], opacity: 0.25 + 0.6 * stage.time[index] });
    svg.append(hint(dot, `${tasks[stage.task[index]]}, head ${stage.head[index]}, at ${Math.round(100 * stage.time[index])} % of the episode`));
  });
  const legend = distinct(stage[by]).sort((one, other) => one - other).map((value) => make("span", {}, swatch(colors[value % colors.length]), name(value)));
  return [svg, make("p", { class: "legend" }, ...legend, make("span", {}, "pale: early in the episode"))];
}

function drawReuse(reuse) {
  const width = 380, left = 64, line = 15, gap = 22;
  const heads = reuse[0].weights[0].length;
  const block = gap + heads * line + 4;
  const svg = picture(width, 18 + reuse.length * block + 20, "re-use weights over the episode");
  svg.append(make("svg:text", { x: 0, y: 12, class: "soft" }, "How much each head is heard (Delta) over the episode"));
  reuse.forEach(({ task, weights }, place) => {
    const top = 18 + place * block;
    svg.append(make("svg:text", { x: 0, y: top + gap - 6 }, task));
    for (let head = 0; head < heads; head++) {
      const y = top + gap + head * line;
      svg.append(make("svg:text", { x: left - 6, y: y + 11, "text-anchor": "end", class: "soft" }, `head ${head}`));
      weights.forEach((row, tenth) => {
        const cell = make("svg:rect", { x: left + (tenth * (width - left)) / weights.length, y, width: (width - left) / weights.length - 1, height: line - 1, fill: colors[head % colors.length], opacity: 0.05 + 0.95 * row[head] });
        svg.append(hint(cell, `${task}, head ${head}, tenth ${tenth + 1} of the episode: ${row[head].toFixed(2)}`));
      });
    }
  });
  const bottom = 18 + reuse.length * block + 14;
  svg.append(make("svg:text", { x: left, y: bottom, class: "soft" }, "start"), make("svg:text", { x: width, y: bottom, "text-anchor": "end", class: "soft" }, "end of the episode"));
  return svg;
}
