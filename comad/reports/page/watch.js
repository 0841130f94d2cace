// Ask the server that this page came from for news. What a person has chosen above stays, and a replay is not disturbed.
let version = "";
async function refresh() {
  try {
    const answer = replay.timer ? null : await fetch("data.json", { headers: version ? { "If-None-Match": version } : {}, cache: "no-store" });
    if (answer?.status === 200) {
      version = answer.headers.get("ETag");
      const news = await answer.json();
      if (JSON.stringify(news) !== JSON.stringify(data)) { data = news; begin(); }
    } else if (answer && answer.status !== 304) find("lead").textContent = await answer.text();
  } catch {
    find("lead").textContent = "The server does not answer; this is what it said last.";
  }
  setTimeout(refresh, 3000);
}
setTimeout(refresh, 1000);
