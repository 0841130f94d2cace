"use strict";
// Everything on the page is drawn from the JSON in it; nothing is fetched.
let data = JSON.parse(document.getElementById("data").textContent);
const colors = ["#0b5fa5", "#d1495b", "#2e8b57", "#e08e0b", "#7b4fa3", "#3aa6b9", "#8c6d46", "#c2559d", "#6b7280", "#5a7d2a", "#a04000", "#34495e"];
const find = (id) => document.getElementById(id);
const distinct = (values) => [...new Set(values)];
let labels = [];
const state = { stream: "", quality: "", play: data.play, hidden: new Set(), sort: { column: "stream", down: false }, skills: {} };
const colorOf = (label) => colors[labels.indexOf(label) % colors.length];

function make(tag, attributes = {}, ...children) {
  const element = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// As Python writes it, so that tables and page show the same number:
// without rounding errors, and of the two tenths beside x.25 the even one.
const number = (value, sign = false) => {
  const exact = Math.round(1e6 * value) / 1e6, tie = Math.abs(exact) % 1 === 0.25;
  const even = tie ? exact - 0.05 * Math.sign(exact) : exact;
  return (sign && value > 0 ? "+" : "") + even.toFixed(1);
};
const matches = (result) => (!state.stream || result.stream === state.stream) && (!state.quality || result.quality === state.quality) && !state.hidden.has(result.label);
const chosen = () => data.results.filter(matches);
const placeOf = (result) => `${result.stream} · ${result.quality} · ${result.updates.toLocaleString("en")} updates per task`;
const places = () => distinct(chosen().map(placeOf));
const played = (result) => result.modes[state.play === "usual" ? result.usual : state.play];
const metricOf = (result, name) => played(result).metrics[name];
const isDark = () => document.documentElement.dataset.theme === "dark";
const swatch = (color) => make("span", { class: "swatch", style: `background:${color}` });
const missing = (text) => make("p", { class: "missing" }, text);

function table(columns, rows, attributes = {}) {
  // Columns that hold nothing but numbers are aligned as such.
  const isNumber = (cell) => cell === "" || typeof cell === "number" || /^[+-]?\d[\d.,]*$/.test(String(cell));
  const side = columns.map((_, place) => (rows.length && rows.every((row) => isNumber(row[place])) ? "number" : ""));
  const head = make("tr", {}, ...columns.map((name, place) => make("th", { scope: "col", class: side[place] }, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell, place) => make("td", { class: side[place] }, cell instanceof Node ? cell : String(cell)))));
  return make("table", attributes, make("thead", {}, head), make("tbody", {}, ...body));
}

function picture(width, height, title) {
  return make("svg:svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
}

function hint(element, text) {
  element.append(make("svg:title", {}, text));
  return element;
}

function drawFilters() {
  const fill = (id, values) => {
    find(id).replaceChildren(make("option", { value: "" }, "all"), ...values.map((value) => make("option", { value }, value)));
    if (!values.includes(state[id])) state[id] = "";
    find(id).value = state[id];
    find(id).onchange = (event) => { state[id] = event.target.value; draw(); };
  };
  fill("stream", distinct(data.results.map((result) => result.stream)));
  fill("quality", distinct(data.results.map((result) => result.quality)));
  find("play").value = state.play;  // browsers remember what was chosen before a reload
  find("play").onchange = (event) => { state.play = event.target.value; draw(); };
  find("methods").replaceChildren(...labels.map((label) => {
    const box = make("input", { type: "checkbox" });
    box.checked = !state.hidden.has(label);
    box.onchange = () => { state.hidden[box.checked ? "delete" : "add"](label); draw(); };
    return make("label", {}, box, " ", swatch(colorOf(label)), label);
  }));
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  find("theme").setAttribute("aria-pressed", dark);
  find("theme").textContent = dark ? "Light" : "Dark";
}
