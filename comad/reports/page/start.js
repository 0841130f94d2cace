function draw() {
  for (const part of [drawGlance, drawScores, drawOverall, drawCurves, drawMatrices, drawLibrary, drawVariations, drawReplays, drawToy, drawCost, drawRuns, drawGoing]) {
    // One part that cannot be drawn must not take the others with it.
    try { part(); } catch (error) { console.error(part.name, error); }
  }
}

function tellCounts() {
  const runs = data.results.reduce((sum, result) => sum + result.seeds.length, 0);
  const methods = distinct(data.results.map((result) => result.method)).length, variants = labels.filter((label) => data.results.every((result) => result.method !== label)).length;
  const streams = distinct(data.results.map((result) => result.stream)).length;
  find("lead").textContent = `${runs} finished runs of ${methods} methods${variants ? ` and ${variants} variants of them` : ""} on ${streams} streams` + (data.going.length ? `, ${data.going.length} not finished` : "") + (data.flaws.length ? `, ${data.flaws.length} not counted` : "") + ".";
}

function begin() {
  // Methods as they are first, so that their colours stay when variants come.
  labels = distinct([...data.results].sort((one, other) => (one.label !== one.method) - (other.label !== other.method)).map((result) => result.label));
  tellCounts();
  drawFilters();
  draw();
}

find("theme").onclick = () => { setTheme(!isDark()); draw(); };
find("curve").onchange = drawCurves;
addEventListener("resize", () => { drawCurves(); drawVariations(); });
setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
begin();
