// Interactive curves: two plots over the same steps, and a table of values that is also the legend.
(function () {
  "use strict";

  const data = JSON.parse(document.getElementById("curve-data").textContent);
  const find = (id) => document.getElementById(id);
  const plots = find("plots");
  if (!plots || data.tasks.length === 0) return;

  const SVG = "http://www.w3.org/2000/svg";
  const EDGE = { left: 58, right: 14, top: 26, bottom: 26 };
  const darkGround = window.matchMedia("(prefers-color-scheme: dark)");
  const off = new Set(); // labels that are not drawn
  let task = data.tasks[0];
  let at = null; // steps that are read; null: the last epoch

  // ---- data ----

  const shownCells = () => task.cells.filter((cell) => !off.has(cell.label));
  const gridOf = (cell) => task.grids[cell.grid];
  const keys = () => [find("upper").value, find("lower").value].filter((key) => key !== "");
  const quantity = (key) => task.quantities.find((item) => item.key === key);
  const longest = () => task.grids.reduce((best, grid) => (grid.steps.length > best.steps.length ? grid : best));

  function nearest(steps, value) {
    let best = 0;
    for (let i = 1; i < steps.length; i++) {
      if (Math.abs(steps[i] - value) < Math.abs(steps[best] - value)) best = i;
    }
    return best;
  }

  const position = () => (at === null ? longest().steps[longest().steps.length - 1] : at);

  /** The values of a cell at the epoch that is read, or null if it was not logged or the run is shorter. */
  function reading(cell, key) {
    const curve = cell.curves[key];
    const grid = gridOf(cell);
    const index = nearest(grid.steps, position());
    const gap = longest().steps.length > 1 ? longest().steps[1] - longest().steps[0] : 1;
    if (!curve || curve.mean[index] === null || Math.abs(grid.steps[index] - position()) > gap) return null;
    return {
      steps: grid.steps[index],
      mean: curve.mean[index],
      low: curve.low ? curve.low[index] : null,
      high: curve.high ? curve.high[index] : null,
    };
  }

  /** The limit of a cell's cost at the epoch that is read: the same in all epochs, or one for each. */
  function limitAt(cell, key) {
    const limit = cell.curves[key] && cell.curves[key].limit;
    return Array.isArray(limit) ? limit[nearest(gridOf(cell).steps, position())] : limit;
  }

  // ---- numbers as text ----

  /** A number for people; `exact` keeps trailing zeros, so that a column of numbers lines up. */
  function written(value, exact) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(2).replace("-", "−");
    const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3;
    const text = value.toLocaleString("en", { minimumFractionDigits: exact ? digits : 0, maximumFractionDigits: digits });
    return text.replace("-", "−");
  }

  function shortSteps(value) {
    if (value === 0) return "0";
    if (value >= 1e6) return Number((value / 1e6).toPrecision(4)) + "M";
    return value >= 1e3 ? Number((value / 1e3).toPrecision(4)) + "k" : String(value);
  }

  function ticks(low, high, count) {
    const raw = (high - low) / count;
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step + 0); // no -0
    return found;
  }

  // ---- drawing ----

  function element(name, attributes, parent, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }

  const colour = (label) => (darkGround.matches ? data.looks[label].dark : data.looks[label].colour);

  function range(key) {
    const values = [];
    for (const cell of shownCells()) {
      const curve = cell.curves[key];
      if (!curve) continue;
      values.push(...curve.mean, ...(curve.low || []), ...(curve.high || []));
      if (curve.limit !== undefined) values.push(...[curve.limit].flat());
    }
    const known = values.filter((value) => value !== null);
    if (known.length === 0) return null;
    let low = known.reduce((a, b) => Math.min(a, b));
    let high = known.reduce((a, b) => Math.max(a, b));
    if (quantity(key).limited && low >= 0) low = 0;
    const pad = high > low ? 0.05 * (high - low) : Math.max(0.5, 0.1 * Math.abs(high));
    return { low: low === 0 ? 0 : low - pad, high: high + pad };
  }

  /** Draw a line with gaps where there is no value; a lone point becomes a dot. */
  function line(parent, steps, values, x, y, attributes) {
    let path = "";
    let pen = false;
    for (let i = 0; i < values.length; i++) {
      if (values[i] === null) {
        pen = false;
        continue;
      }
      const alone = !pen && (i + 1 >= values.length || values[i + 1] === null);
      path += (pen ? "L" : "M") + x(steps[i]).toFixed(1) + " " + y(values[i]).toFixed(1);
      if (alone) path += "h0.01";
      pen = true;
    }
    if (path) element("path", { d: path, fill: "none", "stroke-linecap": "round", "stroke-linejoin": "round", ...attributes }, parent);
  }

  function area(parent, steps, low, high, x, y, fill) {
    const known = steps.map((_, i) => i).filter((i) => low[i] !== null && high[i] !== null);
    if (known.length < 2) return;
    const point = (i, values) => x(steps[i]).toFixed(1) + " " + y(values[i]).toFixed(1);
    const path = "M" + known.map((i) => point(i, high)).join("L") + "L" + known.reverse().map((i) => point(i, low)).join("L") + "Z";
    element("path", { d: path, fill: fill, opacity: 0.16 }, parent);
  }

  function drawCurve(parent, cell, key, x, y) {
    const curve = cell.curves[key];
    if (!curve) return;
    const look = data.looks[cell.label];
    const stroke = { stroke: colour(cell.label), "data-label": cell.label };
    const dashed = look.dash.length ? { "stroke-dasharray": look.dash.map((length) => 1.5 * length).join(" ") } : {};
    if (find("single-seeds").checked && curve.seeds) {
      const grid = task.grids[cell.seed_grid];
      for (const seed of curve.seeds) line(parent, grid.steps, seed, x, y, { ...stroke, "stroke-width": 1.1, opacity: 0.85 });
      return;
    }
    const grid = gridOf(cell);
    if (curve.low) area(parent, grid.steps, curve.low, curve.high, x, y, stroke.stroke);
    const few = grid.steps.length === 1;
    line(parent, grid.steps, curve.mean, x, y, { ...stroke, ...dashed, "stroke-width": few ? 7 : look.bold ? 2.8 : 1.8 });
  }

  /** The way of a limit that moves, in steps: that of an epoch holds since the one before. */
  function limitPath(cell, key, x, y) {
    const limit = cell.curves[key] && cell.curves[key].limit;
    if (!Array.isArray(limit)) return "";
    return "M" + x(0) + "," + y(limit[0]) + gridOf(cell).steps.map((at, i) => "V" + y(limit[i]) + "H" + x(at)).join("");
  }

  function axes(svg, area, x, y, key, last) {
    for (const value of ticks(area.low, area.high, 4)) {
      element("line", { x1: EDGE.left, x2: area.width - EDGE.right, y1: y(value), y2: y(value), class: "grid" }, svg);
      element("text", { x: EDGE.left - 7, y: y(value) + 4, class: "tick", "text-anchor": "end" }, svg, written(value));
    }
    const bottom = area.height - (last ? EDGE.bottom : 8);
    for (const value of ticks(0, area.end, Math.max(2, Math.floor(area.width / 130)))) {
      element("line", { x1: x(value), x2: x(value), y1: EDGE.top, y2: bottom, class: "grid" }, svg);
      if (last) element("text", { x: x(value), y: bottom + 17, class: "tick", "text-anchor": "middle" }, svg, shortSteps(value));
    }
    element("text", { x: EDGE.left, y: EDGE.top - 10, class: "name" }, svg, quantity(key).title);
  }

  function drawPlot(key, last) {
    const width = Math.max(240, plots.clientWidth);
    const height = (width < 520 ? 200 : 240) + (last ? 18 : 0);
    const svg = element("svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height, "aria-hidden": "true" }, plots);
    const span = range(key);
    if (span === null) {
      const why = shownCells().length ? quantity(key).title + " was not logged" : "no algorithm is chosen";
      element("text", { x: width / 2, y: height / 2, class: "name", "text-anchor": "middle" }, svg, why);
      return;
    }
    const end = longest().steps[longest().steps.length - 1] || 1;
    const bottom = height - (last ? EDGE.bottom : 8);
    const x = (value) => EDGE.left + (value / end) * (width - EDGE.left - EDGE.right);
    const y = (value) => bottom - ((value - span.low) / (span.high - span.low)) * (bottom - EDGE.top);
    axes(svg, { ...span, width: width, height: height, end: end }, x, y, key, last);
    const cells = shownCells();
    // What stands out is drawn last, on top of the others.
    for (const cell of [...cells].sort((a, b) => data.looks[a.label].bold - data.looks[b.label].bold)) drawCurve(svg, cell, key, x, y);
    const limits = new Set(cells.map((cell) => cell.curves[key] && cell.curves[key].limit).filter((value) => value !== undefined));
    for (const value of limits) {
      if (!Array.isArray(value)) element("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value), class: "limit" }, svg);
    }
    for (const path of new Set(cells.map((cell) => limitPath(cell, key, x, y)))) {
      if (path) element("path", { d: path, class: "limit", fill: "none" }, svg);
    }
    svg.place = { x: x, y: y, end: end, width: width, bottom: bottom, key: key };
  }

  function drawGuides() {
    for (const svg of plots.querySelectorAll("svg")) {
      for (const old of svg.querySelectorAll(".guide")) old.remove();
      if (!svg.place) continue;
      const group = element("g", { class: "guide" }, svg);
      const place = svg.place;
      const here = place.x(position());
      element("line", { x1: here, x2: here, y1: EDGE.top, y2: place.bottom }, group);
      for (const cell of shownCells()) {
        const value = reading(cell, place.key);
        if (value) element("circle", { cx: here, cy: place.y(value.mean), r: 3.5, fill: colour(cell.label) }, group);
      }
    }
  }

  function draw() {
    plots.replaceChildren();
    const chosen = keys();
    chosen.forEach((key, i) => drawPlot(key, i === chosen.length - 1));
    read();
  }

  // ---- the table of values ----

  function cellOf(row, text, className) {
    const cell = row.insertCell();
    cell.textContent = text;
    if (className) cell.className = className;
    return cell;
  }

  function fillValues() {
    const head = find("values").tHead;
    head.replaceChildren();
    const row = head.insertRow();
    for (const title of ["Algorithm", ...keys().map((key) => quantity(key).title)]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = title;
      row.append(cell);
    }
    const body = find("values").tBodies[0];
    body.replaceChildren();
    for (const cell of task.cells) {
      const line = body.insertRow();
      line.dataset.label = cell.label;
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = !off.has(cell.label);
      box.addEventListener("change", () => {
        if (box.checked) off.delete(cell.label);
        else off.add(cell.label);
        draw();
      });
      label.append(box, swatch(cell.label), document.createTextNode(cell.name));
      cellOf(line, "").append(label);
      for (const key of keys()) cellOf(line, "", "number").dataset.key = key;
    }
  }

  function swatch(label) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("width", "26");
    svg.setAttribute("height", "12");
    svg.setAttribute("aria-hidden", "true");
    const look = data.looks[label];
    const attributes = { x1: 1, x2: 25, y1: 6, y2: 6, stroke: colour(label), "stroke-width": look.bold ? 3.2 : 2.2 };
    if (look.dash.length) attributes["stroke-dasharray"] = look.dash.map((length) => 1.4 * length).join(" ");
    element("line", attributes, svg);
    return svg;
  }

  function read() {
    const grid = longest();
    const index = nearest(grid.steps, position());
    const gap = grid.epochs.length > 1 ? grid.epochs[1] - grid.epochs[0] : 1;
    find("thinned").textContent = gap > 1 ? "To keep this page small, one epoch of every " + gap + " is drawn; the figures have all." : "";
    const text = "Epoch " + (grid.epochs[index] + 1) + " · " + grid.steps[index].toLocaleString("en") + " steps";
    find("where").textContent = text;
    plots.setAttribute("aria-valuemin", "1");
    plots.setAttribute("aria-valuemax", String(grid.epochs[grid.epochs.length - 1] + 1));
    plots.setAttribute("aria-valuenow", String(grid.epochs[index] + 1));
    plots.setAttribute("aria-valuetext", text);
    task.cells.forEach((cell, i) => {
      const row = find("values").tBodies[0].rows[i];
      row.classList.toggle("off", off.has(cell.label));
      for (const entry of Array.from(row.cells).slice(1)) {
        const value = reading(cell, entry.dataset.key);
        entry.replaceChildren(document.createTextNode(value ? written(value.mean, true) : "–"));
        if (value && value.low !== null) {
          const span = document.createElement("span");
          span.className = "span";
          span.textContent = written(value.low, true) + " to " + written(value.high, true);
          entry.append(span);
        }
        const limit = limitAt(cell, entry.dataset.key);
        entry.classList.toggle("above", Boolean(value) && limit !== undefined && value.mean > limit);
      }
    });
    drawGuides();
  }

  // ---- what people do ----

  function options(select, items, chosen) {
    select.replaceChildren(...items.map((item) => new Option(item.title, item.key)));
    if (items.some((item) => item.key === chosen)) select.value = chosen;
  }

  function chooseTask() {
    task = data.tasks[find("task").selectedIndex];
    at = null;
    const cost = task.quantities.find((item) => item.limited);
    const fresh = find("upper").options.length === 0;
    const kept = fresh ? ["return", cost ? cost.key : ""] : [find("upper").value, find("lower").value];
    options(find("upper"), task.quantities, kept[0]);
    options(find("lower"), [{ key: "", title: "nothing" }, ...task.quantities], kept[1]);
    fillValues();
    draw();
  }

  function pointAt(event) {
    const svg = event.target.closest && event.target.closest("svg");
    if (!svg || !svg.place || svg.parentNode !== plots) return;
    const box = svg.getBoundingClientRect();
    const share = (event.clientX - box.left - EDGE.left) / (svg.place.width - EDGE.left - EDGE.right);
    const steps = longest().steps;
    at = steps[nearest(steps, share * svg.place.end)];
    read();
  }

  function step(event) {
    const steps = longest().steps;
    const index = nearest(steps, position());
    const moves = { ArrowLeft: index - 1, ArrowDown: index - 1, ArrowRight: index + 1, ArrowUp: index + 1, Home: 0, End: steps.length - 1, PageUp: index + 10, PageDown: index - 10 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    at = steps[Math.min(steps.length - 1, Math.max(0, moves[event.key]))];
    read();
  }

  function turnAll(on) {
    for (const cell of task.cells) {
      if (on) off.delete(cell.label);
      else off.add(cell.label);
    }
    fillValues();
    draw();
  }

  options(find("task"), data.tasks.map((item) => ({ key: item.name, title: item.name })), task.name);
  find("task").addEventListener("change", chooseTask);
  for (const id of ["upper", "lower"]) {
    find(id).addEventListener("change", () => {
      fillValues();
      draw();
    });
  }
  find("single-seeds").addEventListener("change", draw);
  find("all-on").addEventListener("click", () => turnAll(true));
  find("all-off").addEventListener("click", () => turnAll(false));
  plots.addEventListener("pointermove", pointAt);
  plots.addEventListener("pointerdown", pointAt);
  plots.addEventListener("keydown", step);
  darkGround.addEventListener("change", () => {
    fillValues();
    draw();
  });
  let width = 0;
  new ResizeObserver(() => {
    if (plots.clientWidth !== width) {
      width = plots.clientWidth;
      draw();
    }
  }).observe(plots);
  chooseTask();
})();
