"use strict";
/* Charts of lines over time, as SVG: Chart(figure, chart) draws what `show` gets. */
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const HEIGHT = 202, LEFT = 46, RIGHT = 10, TOP = 22, BELOW = 22;
  /* Dashes of lines, so that their colours are not all that tells them apart. */
  const DASHES = ["", "7 4", "2 4", "9 4 2 4"];
  /* Steps of a line without a value, times its usual step, from which it has a gap. */
  const GAP = 2;
  const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200];

  function make(name, attributes, parent) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    parent?.append(element);
    return element;
  }

  const two = (number) => String(number).padStart(2, "0");

  /* Seconds as on a stop-watch. */
  function clock(at) {
    const whole = Math.round(at);
    const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
    const seconds = two(whole % 60);
    return hours ? `${hours}:${two(minutes)}:${seconds}` : `${minutes}:${seconds}`;
  }

  function number(value) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
    const [whole, part] = value.toFixed(digits).split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+$)/g, "\u202f");
    const rest = (part || "").replace(/0+$/, "");
    return rest ? `${grouped}.${rest}` : grouped;
  }

  function short(value) {
    for (const [factor, sign] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
      if (Math.abs(value) >= factor) {
        return `${number(value / (sign === "k" ? 1e3 : factor))}${sign}`;
      }
    }
    return number(value);
  }

  function linearTicks(most) {
    const rough = most / 4, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
    const ticks = [];
    for (let n = 0; n * step < most + step * .999; n++) ticks.push(Number((n * step).toPrecision(6)));
    return ticks;
  }

  function logTicks(least, most) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(least)); 10 ** power <= most * 1.001; power++) {
      ticks.push(10 ** power);
    }
    const last = ticks[ticks.length - 1];
    if (last < most) ticks.push(last * 10);
    return ticks.length > 1 ? ticks : [...ticks, ticks[0] * 10];
  }

  window.Chart = class {
    constructor(figure, chart) {
      this.chart = chart;
      this.svg = make("svg", { role: "img", "aria-hidden": "true" }, figure);
      this.legend = document.createElement("ul");
      this.legend.className = "legend";
      figure.append(this.legend);
      this.pointed = null;
      this.svg.addEventListener("pointermove", (event) => {
        this.pointed = event.clientX - this.svg.getBoundingClientRect().left;
        this.draw();
      });
      this.svg.addEventListener("pointerleave", () => { this.pointed = null; this.draw(); });
      this.items = chart.lines.map((line, n) => this.item(line, n));
    }

    item(line, n) {
      const item = document.createElement("li");
      const value = document.createElement("b");
      const sample = make("svg", { class: "sample", "aria-hidden": "true" }, item);
      make("line", { x1: 0, x2: 26, y1: 2, y2: 2, ...this.look(n) }, sample);
      item.append(line.label || this.chart.title, value);
      this.legend.append(item);
      return { item, value };
    }

    look(n) {
      const { colour } = this.chart.lines[n];
      return { stroke: colour, "stroke-dasharray": DASHES[n % DASHES.length] };
    }

    /* `values` has a Map of value by step for each line; `until` is the present instant. */
    show(data) {
      this.data = data;
      this.draw();
    }

    draw() {
      const { data, svg, chart } = this;
      const width = svg.clientWidth;
      if (!data || !width) return;
      const shown = chart.lines.map((line) => data.values.get(line.id) || new Map());
      const moves = shown.map((steps) => [...steps.values()].some((value) => value !== 0));
      const last = Math.max(...shown.map((steps) => Math.max(-1, ...steps.keys())));
      const end = Math.max(data.until, (last + 1) * data.width, data.width * 10);
      const x = (at) => LEFT + (width - LEFT - RIGHT) * at / end;
      const ticks = this.ticks(shown);
      const low = ticks[0], high = ticks[ticks.length - 1];
      const inner = HEIGHT - TOP - BELOW;
      const share = chart.log
        ? (value) => Math.log(Math.max(value, low) / low) / Math.log(high / low)
        : (value) => (value - low) / (high - low);
      const y = (value) => TOP + inner * (1 - Math.max(0, Math.min(share(value), 1)));
      svg.replaceChildren();
      this.ground(x, end, width);
      for (const tick of ticks) {
        make("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }, svg);
        make("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, svg)
          .textContent = short(tick);
      }
      if (chart.unit) {
        make("text", { class: "unit", x: LEFT - 6, y: 10, "text-anchor": "end" }, svg)
          .textContent = chart.unit;
      }
      chart.lines.forEach((line, n) => {
        if (!moves[n]) return;
        const d = this.path(shown[n], x, y);
        make("path", { class: "line", d, ...this.look(n) }, svg);
      });
      this.labels(shown, moves, x, end);
    }

    ticks(shown) {
      let most = 0, least = Infinity;
      for (const steps of shown) {
        for (const value of steps.values()) {
          most = Math.max(most, value);
          if (value > 0) least = Math.min(least, value);
        }
      }
      if (this.chart.log) return most ? logTicks(least, most) : [0.1, 1, 10];
      return linearTicks(most || 1);
    }

    /* Bands of the stages, ticks of the time, and a line for each event. */
    ground(x, end, width) {
      const { data, svg } = this;
      data.stages.forEach((stage, n) => {
        const until = n + 1 < data.stages.length ? data.stages[n + 1].at : end;
        if (n % 2) {
          make("rect", { class: "stage", x: x(stage.at), y: TOP,
            width: Math.max(x(until) - x(stage.at), 0), height: HEIGHT - TOP - BELOW }, svg);
        }
      });
      for (const event of data.events) {
        make("line", { class: "event", x1: x(event.at), x2: x(event.at), y1: TOP,
          y2: HEIGHT - BELOW }, svg);
      }
      const step = STEPS_S.find((each) => (width - LEFT) * each / end >= 56) || 86400;
      for (let at = 0; at <= end; at += step) {
        make("text", { x: x(at), y: HEIGHT - 4, "text-anchor": at ? "middle" : "start" }, svg)
          .textContent = clock(at);
      }
    }

    /* A line with its gaps; a value between two gaps is a dot. */
    path(steps, x, y) {
      const { width } = this.data, parts = [];
      const keys = [...steps.keys()].sort((one, other) => one - other);
      const apart = keys.slice(1).map((step, n) => step - keys[n]);
      const usual = [...apart].sort((one, other) => one - other)[Math.floor(apart.length / 2)];
      const isGap = (n) => n < 0 || n >= apart.length || apart[n] > GAP * usual;
      keys.forEach((step, n) => {
        parts.push(`${isGap(n - 1) ? "M" : "L"}${x((step + 1) * width).toFixed(1)} ` +
          `${y(steps.get(step)).toFixed(1)}`);
        if (isGap(n - 1) && isGap(n)) parts.push("h0");
      });
      return parts.join("");
    }

    /* The legend has the present values, or those under the pointer. */
    labels(shown, moves, x, end) {
      const { data, svg, chart, pointed } = this;
      let step = null;
      if (pointed !== null) {
        const at = (pointed - LEFT) / (svg.clientWidth - LEFT - RIGHT) * end;
        step = Math.max(Math.round(at / data.width) - 1, 0);
        const place = x((step + 1) * data.width);
        make("line", { class: "pointer", x1: place, x2: place, y1: TOP, y2: HEIGHT - BELOW }, svg);
        make("text", { x: place, y: 8, "text-anchor": "middle" }, svg)
          .textContent = clock((step + 1) * data.width);
      }
      chart.lines.forEach((line, n) => {
        const last = shown[n].size ? Math.max(...shown[n].keys()) : null;
        const isNow = last !== null && (last + 4) * data.width >= data.until;
        const value = shown[n].get(step ?? (isNow ? last : -1));
        const unit = chart.unit && `${chart.unit === "/s" ? "" : "\u202f"}${chart.unit}`;
        this.items[n].item.hidden = !moves[n];
        this.items[n].value.textContent = value === undefined ? "–" : `${number(value)}${unit}`;
      });
    }
  };
})();
