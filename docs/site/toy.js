// The toy as a live picture: takes the place of toy.gif where there is a browser. The steps are
// those of src/cspo/lab/toy; tests/test_site.py compares the numbers.
(function () {
  "use strict";
  const EPSILON = 1e-8, TARGET = [2, 1.5];
  const METHODS = [
    ["Primal-dual", "#d55e00"], ["CSPO (paper)", "#7b61c4"], ["CSPO", "#0072b2"],
  ];

  function problem(p, c) {
    const r = (t) => t[0] * t[0] / 4 + t[1] * t[1];
    return {
      g: (t) => Math.pow(r(t), p) - 1,
      a: (t) => [c * (TARGET[0] - t[0]), c * (TARGET[1] - t[1])],  // -grad f
      b: (t) => {                                                  // grad g
        const factor = p * Math.pow(r(t), p - 1);
        return [factor * t[0] / 2, factor * 2 * t[1]];
      },
    };
  }

  const dot = (u, v) => u[0] * v[0] + u[1] * v[1];

  // Points, constraint and price of each method, iteration by iteration.
  function follow(method, options) {
    const { g, a, b } = problem(options.steepness, options.curvature);
    const { stepTheta, stepLambda, alpha, steps } = options;
    const price = (t) => {
      const square = dot(b(t), b(t)) + EPSILON;
      return Math.max(0, dot(a(t), b(t)) / square + alpha * g(t) / (stepTheta * square));
    };
    let t = options.start.slice(), lam = method === 2 ? price(t) : 0;
    const theta = [t], values = [g(t)], prices = [lam];
    for (let k = 0; k < steps; k++) {
      const at = a(t), bt = b(t), gt = g(t);
      const extra = method === 1 ? alpha * Math.max(0, gt) / (dot(bt, bt) + EPSILON) : 0;
      const next = [0, 1].map((i) => t[i] + stepTheta * (at[i] - (lam + extra) * bt[i]));
      if (!next.every((x) => Math.abs(x) < 1e3)) break;  // it diverges
      lam = method === 2 ? price(next) : Math.max(0, lam + stepLambda * gt);
      t = next;
      theta.push(t); values.push(g(t)); prices.push(lam);
    }
    return { theta, g: values, lam: prices };
  }

  function above(run, until) {
    return run.g.slice(0, until + 1).filter((value) => value > 1e-3).length;
  }

  function mount(picture) {
    const box = document.createElement("div");
    box.className = "toy";
    box.innerHTML =
      '<canvas width="900" height="720" role="img" aria-label="Three methods on their way to the best point of an ellipse"></canvas>' +
      '<label>alpha <input type="range" name="alpha" min="0" max="2" step="0.05" value="0.85"> <output></output></label>' +
      '<label>step <input type="range" name="stepTheta" min="0.02" max="0.7" step="0.01" value="0.1"> <output></output></label>' +
      '<label>steepness <input type="range" name="steepness" min="1" max="4" step="0.5" value="2"> <output></output></label>' +
      '<button type="button">Again</button>' +
      '<table><thead><tr><th>Method</th><th>Iterations above the limit</th><th>Price now</th></tr></thead><tbody></tbody></table>';
    const canvas = box.querySelector("canvas"), ink = canvas.getContext("2d");
    const options = { alpha: 0.85, stepTheta: 0.1, stepLambda: 0.05, steepness: 2, curvature: 0.2, steps: 200, start: [0, 1.5] };
    let runs = [], frame = 0, timer = null;

    const X = (x) => (x + 2.6) / 5.2 * canvas.width, Y = (y) => canvas.height - (y + 2.1) / 4.2 * canvas.height;

    function draw() {
      const style = getComputedStyle(document.body);
      const text = style.getPropertyValue("--md-default-fg-color") || "#222";
      ink.clearRect(0, 0, canvas.width, canvas.height);
      ink.beginPath();
      ink.ellipse(X(0), Y(0), X(2) - X(0), Y(0) - Y(1), 0, 0, 2 * Math.PI);
      ink.fillStyle = "rgba(0, 158, 115, .15)"; ink.fill();
      ink.lineWidth = 3; ink.strokeStyle = "rgb(0, 158, 115)"; ink.stroke();
      ink.fillStyle = text; ink.font = "22px sans-serif";
      ink.fillText("within the limit", X(-0.75), Y(-0.05));
      ink.fillText("\u2605 the objective alone would end here", X(-0.5), Y(TARGET[1]) - 24);
      ink.fillText("\u2605", X(TARGET[0]) - 10, Y(TARGET[1]) + 8);
      runs.forEach((run, method) => {
        const end = Math.min(frame, run.theta.length - 1);
        ink.strokeStyle = ink.fillStyle = METHODS[method][1];
        ink.lineWidth = 3; ink.beginPath();
        run.theta.slice(0, end + 1).forEach((t, k) => (k ? ink.lineTo : ink.moveTo).call(ink, X(t[0]), Y(t[1])));
        ink.stroke();
        ink.beginPath(); ink.arc(X(run.theta[end][0]), Y(run.theta[end][1]), 8, 0, 7); ink.fill();
        ink.fillText(METHODS[method][0], 24, canvas.height - 84 + 30 * method);
      });
      box.querySelector("tbody").innerHTML = runs.map((run, method) => {
        const end = Math.min(frame, run.theta.length - 1);
        const note = end < frame ? " (diverged)" : "";
        return `<tr><td style="color:${METHODS[method][1]}">${METHODS[method][0]}</td><td>${above(run, end)} of ${end + 1}${note}</td><td>${run.lam[end].toFixed(2)}</td></tr>`;
      }).join("");
    }

    function begin() {
      runs = METHODS.map((_, method) => follow(method, options));
      frame = 0;
      clearInterval(timer);
      timer = setInterval(() => {
        if (++frame >= options.steps) clearInterval(timer);
        draw();
      }, 40);
      draw();
    }

    box.querySelectorAll("input").forEach((input) => {
      const show = () => { input.parentElement.querySelector("output").textContent = options[input.name]; };
      input.addEventListener("input", () => { options[input.name] = Number(input.value); show(); begin(); });
      show();
    });
    box.querySelector("button").addEventListener("click", begin);
    canvas.addEventListener("click", (event) => {
      const area = canvas.getBoundingClientRect();
      options.start = [
        (event.clientX - area.left) / area.width * 5.2 - 2.6,
        2.1 - (event.clientY - area.top) / area.height * 4.2,
      ];
      begin();
    });
    picture.replaceWith(box);
    begin();
  }

  if (typeof document === "undefined") { module.exports = { follow, above }; return; }
  const start = () => document.querySelectorAll('img[src$="toy.gif"]').forEach(mount);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
