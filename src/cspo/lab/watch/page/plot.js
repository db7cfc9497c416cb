// One chart: lines over environment steps, drawn anew whenever there are more rows.
import { element, say, shortSteps, written } from "/words.js";

const SVG = "http://www.w3.org/2000/svg";
const EDGES = { large: { left: 54, right: 12, top: 8, bottom: 24 }, small: { left: 44, right: 8, top: 6, bottom: 20 } };

function shape(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step + 0); // no -0
  return found;
}

/** A tick, as short as it can be. */
function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e4) return shortSteps(size).replace(/^/, value < 0 ? "−" : "");
  return size !== 0 && size < 0.001 ? value.toExponential(0).replaceAll("-", "−") : String(Number(value.toPrecision(4))).replace("-", "−");
}

export class Plot {
  /** `chart` is one of the answer's charts, `places` tells the place of a column in a row. */
  constructor(chart, places, parent) {
    this.chart = chart;
    this.lines = chart.lines.map((line) => ({ ...line, at: places.get(line.column), less: line.minus ? places.get(line.minus) : null }));
    this.steps = places.get("steps");
    const legend = element("p", { class: "legend" });
    this.readings = this.lines.map((line) => {
      const value = element("b");
      const mark = chart.lines.length > 1 ? [element("i", { class: "swatch " + line.look, "aria-hidden": "true" }), line.title + " "] : [];
      legend.append(element("span", {}, ...mark, value));
      return value;
    });
    this.canvas = element("div", { class: "canvas" });
    this.host = element("figure", { class: "plot" }, element("figcaption", {}, element("strong", {}, chart.title), legend), this.canvas);
    parent.append(this.host);
  }

  value(row, line) {
    const own = row[line.at];
    if (line.less === null || own === null) return own;
    return row[line.less] === null ? null : own - row[line.less];
  }

  /** Draw these rows; `width` is what the page has for it. */
  draw(rows) {
    const empty = rows.every((row) => this.lines.every((line) => !this.value(row, line)));
    this.host.hidden = this.chart.optional && empty;
    this.canvas.replaceChildren();
    this.place = null;
    const span = this.range(rows);
    if (this.host.hidden || span === null) return;
    const edge = EDGES[this.chart.size];
    const width = Math.max(140, this.canvas.clientWidth);
    const height = this.chart.size === "small" ? 112 : width < 420 ? 190 : 230;
    const svg = shape("svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height, "aria-hidden": "true" }, this.canvas);
    const [first, last] = [rows[0][this.steps], rows[rows.length - 1][this.steps]];
    const start = rows.length > 1 && first > (last - first) / 4 ? first : 0;
    const scale = (width - edge.left - edge.right) / Math.max(1, last - start);
    const bottom = height - edge.bottom;
    const x = (steps) => edge.left + (steps - start) * scale;
    const y = (value) => bottom - ((value - span.low) / (span.high - span.low)) * (bottom - edge.top);
    this.place = { svg, x, y, edge, bottom, width, start, scale };
    this.axes(span, start, last);
    this.excess(rows);
    for (const line of [...this.lines].reverse()) this.line(rows, line); // the first one lies on top
  }

  range(rows) {
    let [low, high] = [Infinity, -Infinity];
    for (const row of rows) {
      for (const line of this.lines) {
        const value = this.value(row, line);
        if (value === null || value === undefined) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (low > high) return null;
    if (this.chart.from_zero && low > 0) low = 0;
    const pad = high > low ? 0.06 * (high - low) : Math.max(1e-6, 0.1 * Math.abs(high)) || 1;
    return { low: this.chart.from_zero && low === 0 ? 0 : low - pad, high: high + pad };
  }

  axes(span, start, last) {
    const { svg, x, y, edge, bottom, width } = this.place;
    const small = this.chart.size === "small";
    for (const value of ticks(span.low, span.high, small ? 2 : 4)) {
      shape("line", { x1: edge.left, x2: width - edge.right, y1: y(value), y2: y(value), class: value === 0 ? "zero" : "grid" }, svg);
      shape("text", { x: edge.left - 6, y: y(value) + 4, class: "tick", "text-anchor": "end" }, svg, tickText(value));
    }
    if (last <= start) return;
    for (const value of ticks(start, last, small ? 2 : Math.max(2, Math.floor(width / 110)))) {
      const anchor = x(value) > width - 22 ? "end" : "middle";
      shape("text", { x: Math.min(x(value), width - 2), y: bottom + (small ? 14 : 17), class: "tick", "text-anchor": anchor }, svg, shortSteps(value));
    }
  }

  path(rows, valueOf) {
    const { x, y } = this.place;
    let text = "";
    let pen = false;
    for (let i = 0; i < rows.length; i++) {
      const value = valueOf(rows[i]);
      if (value === null || value === undefined) {
        pen = false;
        continue;
      }
      text += (pen ? "L" : "M") + x(rows[i][this.steps]).toFixed(1) + " " + y(value).toFixed(1);
      if (!pen) text += "h0.01"; // a lone point is a dot
      pen = true;
    }
    return text;
  }

  line(rows, line) {
    const path = this.path(rows, (row) => this.value(row, line));
    if (path) shape("path", { d: path, class: "line " + line.look }, this.place.svg);
  }

  /** Shade what is above the limit: between the cost and the limit of each epoch. */
  excess(rows) {
    const cost = this.lines.find((line) => line.look === "cost");
    const limit = this.lines.find((line) => line.look === "limit");
    if (!cost || !limit) return;
    const { svg, x, y } = this.place;
    let text = "";
    const point = (steps, value) => x(steps).toFixed(1) + " " + y(value).toFixed(1);
    for (let i = 1; i < rows.length; i++) {
      const [s0, s1] = [rows[i - 1][this.steps], rows[i][this.steps]];
      const [c0, c1] = [this.value(rows[i - 1], cost), this.value(rows[i], cost)];
      const [d0, d1] = [this.value(rows[i - 1], limit), this.value(rows[i], limit)];
      if ([c0, c1, d0, d1].includes(null) || (c0 <= d0 && c1 <= d1)) continue;
      const cross = (c0 - d0) / (c0 - d0 - (c1 - d1)); // where cost and limit meet, if they do
      const meeting = point(s0 + cross * (s1 - s0), d0 + cross * (d1 - d0));
      const from = c0 > d0 ? "M" + point(s0, d0) + "L" + point(s0, c0) : "M" + meeting;
      text += from + "L" + (c1 > d1 ? point(s1, c1) + "L" + point(s1, d1) : meeting) + "Z";
    }
    if (text) shape("path", { d: text, class: "excess" }, svg);
  }

  /** Show the values of a row, and where it is. */
  read(row) {
    const limit = this.lines.find((line) => line.look === "limit");
    this.lines.forEach((line, i) => {
      const value = row ? this.value(row, line) : null;
      say(this.readings[i], written(value));
      const bound = row && limit ? this.value(row, limit) : null;
      this.readings[i].classList.toggle("above", line.look === "cost" && bound !== null && value > bound);
    });
    if (!this.place) return;
    const { svg, x, y, edge, bottom } = this.place;
    for (const old of svg.querySelectorAll(".guide")) old.remove();
    if (!row) return;
    const group = shape("g", { class: "guide" }, svg);
    const here = x(row[this.steps]);
    shape("line", { x1: here, x2: here, y1: edge.top, y2: bottom }, group);
    for (const line of this.lines) {
      const value = this.value(row, line);
      if (value !== null && line.look !== "aim" && line.look !== "limit") shape("circle", { cx: here, cy: y(value), r: 3.2, class: line.look }, group);
    }
  }

  /** The steps under a place on the screen. */
  stepsAt(clientX) {
    if (!this.place) return null;
    const box = this.place.svg.getBoundingClientRect();
    return this.place.start + (clientX - box.left - this.place.edge.left) / this.place.scale;
  }
}
