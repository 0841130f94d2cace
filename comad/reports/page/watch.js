// Ask the server that this page came from for news. What a person has chosen stays, and a replay that plays is not disturbed.
let version = "";
async function refresh() {
  try {
    const answer = replay.timer ? null : await fetch("data.json", { headers: version ? { "If-None-Match": version } : {}, cache: "no-store" });
    if (answer?.status === 200) {
      version = answer.headers.get("ETag");
      take(await answer.json());
    }
    if (answer && answer.status !== 200 && answer.status !== 304) find("lead").textContent = await answer.text();
    else tellCounts();
  } catch {
    find("lead").textContent = "The server does not answer; this is what it said last.";
  }
  setTimeout(refresh, 3000);
}

function take(news) {
  const finished = ({ going, ...rest }) => JSON.stringify(rest);
  const more = finished(news) !== finished(data);
  data = news;
  // As a rule only runs that go on have changed; all else stays untouched.
  if (more) begin();
  else drawGoing();
}
setTimeout(refresh, 1000);
