// The page of one run: asks for new rows, draws them, and reads one epoch.
import { Plot } from "/plot.js";
import { ask, duration, element, find, roughly, say, shortSteps, showProgress, showState, showTiles, warn, whole, written } from "/words.js";

let version = "";
let columns = [];
let rows = []; // thinned, as the server keeps them
let newest = []; // the newest row, which need not be one of them
let plots = [];
let drawn = []; // the rows in sight
let span = 0; // epochs in sight; 0 for all
let at = null; // the epoch that is read; null for the newest
let film = "";
const place = (name) => columns.indexOf(name);

function take(answer) {
  const fresh = answer.version !== version || answer.since === 0;
  if (fresh) begin(answer);
  const known = rows.length;
  rows.length = answer.since;
  rows.push(...answer.rows);
  const moved = fresh || rows.length !== known || String(newest) !== String(answer.newest);
  newest = answer.newest;
  tell(answer);
  if (moved) draw();
  if (answer.more) return 0.05;
  return answer.state === "running" ? 2 : 5;
}

/** Make the charts of a log that is new to this page. */
function begin(answer) {
  version = answer.version;
  columns = answer.columns;
  rows = [];
  const places = new Map(columns.map((name, i) => [name, i]));
  for (const size of ["large", "small"]) find(size).replaceChildren();
  plots = answer.charts.map((chart) => new Plot(chart, places, find(chart.size)));
}

// ---- what is told above the charts ----

function tell(answer) {
  const latest = new Map(answer.latest);
  showState(answer.state);
  const share = answer.epochs ? answer.done / answer.epochs : 0;
  const steps = shortSteps(answer.steps) + " of " + shortSteps(answer.total_steps) + " steps";
  const left = answer.seconds_left === null ? "" : " · " + duration(answer.seconds_left) + " left";
  showProgress(share, "Epoch " + whole(answer.done) + " of " + whole(answer.epochs) + " · " + steps + left);
  find("bar").setAttribute("aria-valuemax", answer.epochs);
  find("bar").setAttribute("aria-valuenow", answer.done);
  document.title = Math.floor(100 * share) + " % · " + answer.name;
  warn(trouble(answer));
  showTiles(tiles(answer, latest));
  find("empty").hidden = answer.done > 0;
  say(find("empty"), answer.state === "running" ? "The first epoch is under way." : "There is no epoch yet.");
  say(find("thinned"), answer.stride > 1 ? "One epoch of every " + answer.stride + " is drawn." : "");
  showVideo(answer.video);
  showLatest(answer.latest);
}

function trouble(answer) {
  if (answer.state === "failed") return answer.error || "This run has failed.";
  if (answer.stopped_by) return "Ended before its last epoch by the rule " + answer.stopped_by;
  if (answer.state === "removed") return "The folder of this run is gone. What is shown is what it held.";
  const epoch = answer.speed ? answer.total_steps / Math.max(1, answer.epochs) / answer.speed : null;
  if (answer.state === "running" && epoch !== null && answer.age !== null && answer.age > Math.max(60, 10 * epoch)) {
    return "No epoch was written for " + roughly(answer.age) + "; one took " + roughly(epoch) + " before.";
  }
  return "";
}

function tiles(answer, latest) {
  const found = [["Return", written(latest.get("return")), ""]];
  const costs = plots.map((plot) => plot.chart).filter((chart) => chart.lines[0].look === "cost");
  for (const chart of costs) {
    const limit = chart.lines.find((line) => line.look === "limit");
    const [cost, bound] = [latest.get(chart.lines[0].column), limit ? latest.get(limit.column) : null];
    const about = latest.get("cost_estimated") === 1 ? "~" : "";
    found.push([chart.title, about + written(cost), bound === null ? "" : "of " + written(bound), bound !== null && cost > bound]);
  }
  if (!costs.length) found.push(["Cost", "–", ""]);
  const prices = plots.map((plot) => plot.chart).filter((chart) => chart.lines[0].look === "price");
  if (prices.length === 1) found.push([prices[0].title.startsWith("Price") ? "Price" : "Multiplier", written(latest.get(prices[0].lines[0].column)), ""]);
  found.push(["Above a limit", answer.violated === null ? "–" : Math.round(100 * answer.violated) + " %", "of epochs"]);
  found.push(["Speed", whole(answer.speed), "steps/s"]);
  if (answer.state === "running") found.push(["Time left", duration(answer.seconds_left), ""]);
  found.push(["Last epoch", answer.age === null ? "–" : roughly(answer.age), answer.age === null ? "" : "ago"]);
  return found;
}

function showLatest(pairs) {
  const body = find("latest");
  while (body.rows.length > pairs.length) body.deleteRow(-1);
  pairs.forEach(([name, value], i) => {
    if (!body.rows[i]) body.append(element("tr", {}, element("td"), element("td", { class: "number" })));
    say(body.rows[i].cells[0], name);
    say(body.rows[i].cells[1], value === null ? "–" : String(value));
  });
}

function showVideo(video) {
  find("no-video").hidden = video !== null;
  const key = video === null ? "" : video.key;
  if (key === film) return;
  film = key;
  find("video").replaceChildren();
  say(find("video-text"), "");
  if (video === null) return;
  const address = document.body.dataset.base + "video?" + encodeURIComponent(key);
  const moving = video.kind.startsWith("video");
  const node = element(moving ? "video" : "img", { src: address, ...(moving ? { controls: "", loop: "", playsinline: "", preload: "metadata" } : { alt: "Video of the policy" }) });
  node.muted = true;
  find("video").append(node);
  say(find("video-text"), video.name + ", " + new Date(1000 * video.changed).toLocaleString());
}

// ---- charts ----

function draw() {
  const last = newest.length ? newest[place("epoch")] : 0;
  const all = newest.length && (!rows.length || rows[rows.length - 1][place("epoch")] < last) ? [...rows, newest] : rows;
  const known = all.filter((row) => row[place("steps")] !== null);
  drawn = span ? known.filter((row) => row[place("epoch")] > last - span) : known;
  if (drawn.length) for (const plot of plots) plot.draw(drawn);
  read();
}

function index() {
  if (at === null) return drawn.length - 1;
  let best = 0;
  drawn.forEach((row, i) => {
    if (Math.abs(row[place("epoch")] - at) < Math.abs(drawn[best][place("epoch")] - at)) best = i;
  });
  return best;
}

function read() {
  const row = drawn[index()];
  const text = row ? "Epoch " + whole(row[place("epoch")] + 1) + " · " + whole(row[place("steps")]) + " steps" + (at === null ? " · newest" : "") : "";
  say(find("where"), text);
  for (const plot of plots) plot.read(row);
  if (!row) return;
  const slider = find("charts");
  slider.setAttribute("aria-valuemin", drawn[0][place("epoch")] + 1);
  slider.setAttribute("aria-valuemax", drawn[drawn.length - 1][place("epoch")] + 1);
  slider.setAttribute("aria-valuenow", row[place("epoch")] + 1);
  slider.setAttribute("aria-valuetext", text);
}

function point(event) {
  const plot = plots.find((one) => one.canvas.contains(event.target));
  const steps = plot ? plot.stepsAt(event.clientX) : null;
  if (steps === null || !drawn.length) return;
  const nearest = drawn.reduce((a, b) => (Math.abs(b[place("steps")] - steps) < Math.abs(a[place("steps")] - steps) ? b : a));
  at = nearest === drawn[drawn.length - 1] ? null : nearest[place("epoch")];
  read();
}

function step(event) {
  const here = index();
  const moves = { ArrowLeft: here - 1, ArrowDown: here - 1, ArrowRight: here + 1, ArrowUp: here + 1, Home: 0, End: drawn.length - 1, Escape: drawn.length - 1, PageUp: here + 10, PageDown: here - 10 };
  if (!(event.key in moves) || !drawn.length) return;
  event.preventDefault();
  const chosen = Math.min(drawn.length - 1, Math.max(0, moves[event.key]));
  at = chosen === drawn.length - 1 ? null : drawn[chosen][place("epoch")];
  read();
}

find("charts").addEventListener("pointermove", point);
find("charts").addEventListener("pointerdown", point);
find("charts").addEventListener("pointerleave", (event) => {
  if (event.pointerType !== "mouse") return;
  at = null;
  read();
});
find("charts").addEventListener("keydown", step);
for (const button of document.querySelectorAll("[data-span]")) {
  button.addEventListener("click", () => {
    span = Number(button.dataset.span);
    at = null;
    for (const other of document.querySelectorAll("[data-span]")) other.setAttribute("aria-pressed", String(other === button));
    draw();
  });
}
let width = 0;
new ResizeObserver(() => {
  if (find("charts").clientWidth !== width) draw();
  width = find("charts").clientWidth;
}).observe(find("charts"));

ask(() => new URLSearchParams({ version: version, since: rows.length }), take);
