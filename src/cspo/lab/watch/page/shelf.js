// The page of a study or of a folder of runs: a table that is kept up to date.
import { STATES, ask, duration, element, find, say, showProgress, showState, showTiles, warn, whole, written } from "/words.js";

const ORDER = ["running", "failed", "stopped", "waiting", "finished"];
const runs = new Map(); // id: what is known of a run
const lines = new Map(); // id: its row of the table
let version = -1;
let sort = { key: "", descending: false }; // "" as the server lists them

function take(answer) {
  if (answer.whole) {
    runs.clear();
    for (const row of lines.values()) row.remove();
    lines.clear();
  }
  version = answer.version;
  for (const run of answer.rows) {
    run.over = Math.max(...run.cost.map((cost, k) => (cost === null ? -Infinity : cost / Math.max(run.limit[k], 1e-9))));
    runs.set(run.id, run);
    show(run);
  }
  tell(answer);
  if (answer.rows.length) arrange();
  return answer.running ? 2 : 5;
}

function tell(answer) {
  const states = answer.states;
  const state = answer.running ? "running" : states.failed ? "failed" : states.finished === answer.runs ? "finished" : states.stopped ? "stopped" : "waiting";
  showState(state);
  const left = answer.seconds_left ? " · about " + duration(answer.seconds_left) + " left" : "";
  showProgress(answer.share, (100 * answer.share).toFixed(1) + " % of all epochs" + (answer.running ? left : ""));
  find("bar").setAttribute("aria-valuenow", Math.round(100 * answer.share));
  document.title = Math.floor(100 * answer.share) + " % · " + answer.name;
  const counts = ORDER.filter((one) => states[one]).map((one) => [STATES[one][0].toUpperCase() + STATES[one].slice(1), whole(states[one]), "", one === "failed"]);
  const above = [...runs.values()].filter((run) => run.over > 1).length;
  showTiles([["Runs", whole(answer.runs), ""], ...counts, ["Above a limit now", whole(above), "", above > 0]]);
  warn("");
}

// ---- the table ----

function show(run) {
  if (!lines.has(run.id)) {
    const link = element("a", { href: "/run/" + encodeURIComponent(run.id) + "/" });
    const bar = element("span", { class: "bar small" }, element("span"));
    const row = element("tr", {}, element("td", {}, link, element("span", { class: "fault" })), element("td", {}, element("span", { class: "state" })), element("td", { class: "share" }, bar, element("span")));
    for (let i = 0; i < 4; i++) row.append(element("td", { class: "number" }));
    lines.set(run.id, row);
    document.querySelector("#runs tbody").append(row);
  }
  const cells = lines.get(run.id).cells;
  const link = cells[0].firstChild;
  say(link, run.id);
  if (run.state === "waiting") link.removeAttribute("href"); // there is nothing to see yet
  else link.setAttribute("href", "/run/" + encodeURIComponent(run.id) + "/");
  say(cells[0].lastChild, run.error);
  cells[1].firstChild.dataset.state = run.state;
  say(cells[1].firstChild, STATES[run.state]);
  cells[2].firstChild.firstChild.style.width = (100 * Math.min(1, run.share)).toFixed(1) + "%";
  say(cells[2].lastChild, Math.floor(100 * run.share) + " %");
  cells[2].title = whole(run.done) + " of " + whole(run.epochs) + " epochs";
  say(cells[3], written(run.return));
  cells[4].replaceChildren(...costs(run));
  say(cells[5], whole(run.speed));
  say(cells[6], run.left === null ? "" : duration(run.left));
}

function costs(run) {
  if (!run.cost.length) return ["–"];
  return run.cost.map((cost, k) => {
    const above = cost !== null && cost > run.limit[k];
    return element("span", { class: "cost" + (above ? " above" : "") }, written(cost) + " / " + written(run.limit[k]));
  });
}

function key(run) {
  if (sort.key === "state") return ORDER.indexOf(run.state);
  const value = run[sort.key];
  return value === null || value === undefined || value === -Infinity ? null : value;
}

function compare(a, b) {
  const [x, y] = [key(a), key(b)];
  if (x === null || y === null) return (x === null) - (y === null); // what is missing comes last
  const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
  return sort.descending ? -order : order;
}

function arrange() {
  const words = find("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const only = find("only").value;
  const listed = sort.key ? [...runs.values()].sort(compare) : [...runs.values()];
  let shown = 0;
  for (const run of listed) {
    const text = (run.id + " " + run.algo + " seed" + run.seed).toLowerCase();
    const row = lines.get(run.id);
    row.hidden = !words.every((word) => text.includes(word)) || (only !== "" && run.state !== only);
    shown += !row.hidden;
  }
  const body = document.querySelector("#runs tbody");
  const wanted = listed.map((run) => lines.get(run.id));
  if (wanted.some((row, i) => body.rows[i] !== row)) {
    const focused = document.activeElement;
    body.append(...wanted);
    if (focused && body.contains(focused)) focused.focus({ preventScroll: true }); // moving a row loses it
  }
  say(find("shown"), shown === runs.size ? whole(shown) + " runs" : whole(shown) + " of " + whole(runs.size) + " runs");
}

for (const button of document.querySelectorAll("#runs th button")) {
  button.addEventListener("click", () => {
    const again = sort.key === button.dataset.key;
    const large = ["share", "return", "over", "speed"].includes(button.dataset.key); // what is asked for first
    sort = { key: button.dataset.key, descending: again ? !sort.descending : large };
    for (const cell of document.querySelectorAll("#runs th")) cell.removeAttribute("aria-sort");
    button.closest("th").setAttribute("aria-sort", sort.descending ? "descending" : "ascending");
    arrange();
  });
}
find("filter").addEventListener("input", arrange);
find("only").addEventListener("change", arrange);

ask(() => new URLSearchParams({ version: version }), take);
