// What both pages share: numbers as text, elements, and asking again and again.

export const find = (id) => document.getElementById(id);

/** A number for people, or a dash. */
export function written(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(2).replaceAll("-", "−");
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString("en", { maximumFractionDigits: digits }).replace("-", "−");
}

export const whole = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));

export function shortSteps(value) {
  if (value >= 1e6) return Number((value / 1e6).toPrecision(4)) + "M";
  return value >= 1e3 ? Number((value / 1e3).toPrecision(4)) + "k" : String(value);
}

/** 2:03 or 1:02:03. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const total = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(total / 3600), Math.floor(total / 60) % 60, total % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? hours + ":" + two(minutes) + ":" + two(rest) : minutes + ":" + two(rest);
}

/** Some time, in the largest unit that fits: "40 s", "5 min", "3 h". */
export function roughly(seconds) {
  if (seconds < 90) return Math.round(seconds) + " s";
  if (seconds < 5400) return Math.round(seconds / 60) + " min";
  return seconds < 172800 ? Math.round(seconds / 3600) + " h" : Math.round(seconds / 86400) + " days";
}

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export const STATES = {
  running: "training",
  finished: "finished",
  stopped: "stopped",
  waiting: "waiting",
  failed: "failed",
  removed: "removed",
};

/** Set a text only if it differs: a screen reader repeats what is set again. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Fill the row of tiles; each is [name, text, small text, whether it is bad]. */
export function showTiles(tiles) {
  const list = find("tiles");
  while (list.children.length > tiles.length) list.lastChild.remove();
  tiles.forEach(([name, text, more, bad], i) => {
    if (!list.children[i]) list.append(element("div", {}, element("dt"), element("dd")));
    const [title, value] = list.children[i].children;
    say(title, name);
    if (value.dataset.text !== text + "\n" + more) {
      value.dataset.text = text + "\n" + more;
      value.replaceChildren(text, ...(more ? [" ", element("small", {}, more)] : []));
    }
    value.classList.toggle("above", Boolean(bad));
  });
}

export function showProgress(share, text) {
  const bar = find("bar");
  bar.firstElementChild.style.width = (100 * Math.min(1, Math.max(0, share))).toFixed(2) + "%";
  say(find("progress-text"), text);
}

export function showState(state) {
  const node = find("state");
  node.dataset.state = state;
  say(node, STATES[state] || state);
}

export function warn(text) {
  const banner = find("banner");
  banner.hidden = !text;
  say(banner, text);
}

/**
 * Ask for `query()` below the page's own address again and again, and hand over each answer.
 * `take` returns the seconds until the next question. A page that nobody looks at does not ask.
 */
export function ask(query, take) {
  let timer = null;
  let since = null; // when the server stopped answering
  async function once() {
    timer = null;
    if (document.hidden) return;
    let pause = 2;
    try {
      const answer = await fetch(document.body.dataset.base + "data?" + query(), { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const told = await answer.json();
      if (told.key !== document.body.dataset.key) return location.reload(); // another run is shown here now
      pause = take(told);
      since = null;
    } catch (fault) {
      if (!(fault instanceof TypeError) && !/^\d+$/.test(fault.message)) console.error(fault);
      since = since || new Date();
      warn("No answer from cspo watch since " + since.toLocaleTimeString() + ": it has ended, or what it showed is gone. This page goes on by itself when it is back.");
    }
    if (timer === null) timer = setTimeout(once, 1000 * pause);
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && timer === null) once();
  });
  once();
}
