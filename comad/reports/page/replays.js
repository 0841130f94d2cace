// Where a person is stays across drawings: by name, because places change when runs come.
const replay = { timer: 0, run: "", task: 0, moment: 0 };

function drawReplays() {
  clearInterval(replay.timer);
  replay.timer = 0;
  const portrayed = chosen().filter((result) => result.portrait?.replays.length);
  if (!portrayed.length) {
    find("stage").replaceChildren(missing("no episodes to show: 'comad portrait RUN' keeps one per task beside a run"));
    return;
  }
  const who = make("select", { id: "replay-run" }, ...portrayed.map((result, place) => make("option", { value: place }, `${result.label}, ${placeOf(result)}`)));
  const what = make("select", { id: "replay-task" });
  const canvas = make("canvas", { width: 480, height: 480, role: "img", "aria-label": "the board" });
  const told = make("p", { id: "replay-told", role: "status" });
  const slider = make("input", { type: "range", min: 0, value: 0, "aria-label": "moment" });
  const press = (name, text, action) => make("button", { type: "button", id: `replay-${name}`, onclick: action }, text);
  const back = press("back", "‹ step", () => show(moment - 1)), on = press("on", "step ›", () => show(moment + 1));
  const play = press("play", "Play", () => (replay.timer ? pause() : start()));
  const name = (result) => `${result.label}, ${placeOf(result)}`;
  let episode, moment = 0;

  const pause = () => { clearInterval(replay.timer); replay.timer = 0; play.textContent = "Play"; };
  const start = () => {
    if (moment === episode.frames.length - 1) show(0);
    play.textContent = "Pause";
    replay.timer = setInterval(() => { if (moment < episode.frames.length - 1) show(moment + 1); else pause(); }, 220);
  };
  const show = (wanted) => {
    moment = Math.min(Math.max(wanted, 0), episode.frames.length - 1);
    slider.value = replay.moment = moment;
    paint(canvas, episode, moment);
    const familiar = episode.familiarity[moment];
    const last = moment === episode.frames.length - 1;
    told.textContent = `${episode.task}, moment ${moment} of ${episode.length}, head ${episode.head}, return ${episode.rewards[moment].toFixed(2)}`
      + (familiar?.length ? `, familiar to heads ${familiar.map((score) => score.toFixed(1)).join(" | ")}` : "") + (last ? (episode.success ? ", success" : ", no success") : "");
  };
  const choose = (task, at) => {
    pause();
    what.value = replay.task = task;
    episode = portrayed[who.value].portrait.replays[task];
    slider.max = episode.frames.length - 1;
    show(at);
  };
  const list = (task, at) => {
    replay.run = name(portrayed[who.value]);
    const { replays } = portrayed[who.value].portrait;
    what.replaceChildren(...replays.map((one, place) => make("option", { value: place }, one.task)));
    choose(Math.min(task, replays.length - 1), at);
  };
  who.onchange = () => list(0, 0);
  what.onchange = () => choose(Number(what.value), 0);
  slider.oninput = () => { pause(); show(Number(slider.value)); };
  find("stage").replaceChildren(make("p", {}, make("label", {}, "Run ", who), " ", make("label", {}, "Task ", what)), canvas, make("p", { class: "controls" }, back, play, on, slider), told);
  const before = portrayed.findIndex((result) => name(result) === replay.run);
  who.value = Math.max(before, 0);
  if (before < 0) list(0, 0);
  else list(replay.task, replay.moment);
}

function paint(canvas, episode, moment) {
  const cell = Math.min(480 / Math.max(episode.rows, episode.columns), 60), sharp = devicePixelRatio || 1;
  const width = episode.columns * cell, height = episode.rows * cell;
  Object.assign(canvas, { width: width * sharp, height: height * sharp });
  canvas.style.width = `${width}px`;
  const pen = canvas.getContext("2d");
  pen.scale(sharp, sharp);
  pen.fillStyle = "#faf9f5";
  pen.fillRect(0, 0, width, height);
  pen.strokeStyle = "#d9dee6";
  for (let line = 0; line <= episode.columns; line++) { pen.beginPath(); pen.moveTo(line * cell, 0); pen.lineTo(line * cell, height); pen.stroke(); }
  for (let line = 0; line <= episode.rows; line++) { pen.beginPath(); pen.moveTo(0, line * cell); pen.lineTo(width, line * cell); pen.stroke(); }
  for (const [kind, row, column, endRow, endColumn] of episode.frames[moment]) {
    const [shape, color, label, size] = episode.palette[kind];
    const x = (column + 0.5) * cell, y = (row + 0.5) * cell, half = (size * cell) / 2;
    pen.fillStyle = color;
    pen.globalAlpha = shape === "zone" ? 0.14 : 1;
    pen.beginPath();
    if (shape === "disc") pen.arc(x, y, half, 0, 2 * Math.PI);
    else if (shape === "diamond") { pen.moveTo(x, y - half); pen.lineTo(x + half, y); pen.lineTo(x, y + half); pen.lineTo(x - half, y); }
    else if (shape === "bar") pen.rect(x - half, y - 0.11 * cell, 2 * half, 0.22 * cell);
    else if (shape === "line") { pen.moveTo(x, y); pen.lineTo((endColumn + 0.5) * cell, (endRow + 0.5) * cell); }
    else pen.rect(x - half, y - half, 2 * half, 2 * half);
    if (shape === "line") {
      pen.strokeStyle = color;
      pen.lineWidth = Math.max(0.12 * cell, 1);
      pen.stroke();
    } else pen.fill();
    pen.globalAlpha = 1;
    if (label) {
      pen.fillStyle = "#fff";
      pen.font = `600 ${Math.max(cell * 0.36, 9)}px system-ui, sans-serif`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(label, x, y);
    }
  }
}
