"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const json = (id) => JSON.parse(byId(id)?.textContent || "null");

  function contents() {
    for (const section of document.querySelectorAll("[data-section]")) {
      const link = document.createElement("a");
      link.href = `#${section.id}`;
      link.textContent = section.dataset.section;
      byId("contents").append(link);
    }
  }

  async function loadPlotly() {
    const packed = Uint8Array.from(atob(byId("library").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  /* A link to a folded part unfolds it. */
  function unfold() {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && byId(id);
    let more = target && target.closest("details");
    if (!more) return;
    for (; more; more = more.parentElement.closest("details")) more.open = true;
    target.scrollIntoView();
  }

  const START_MS = 31 * 24 * 3600 * 1000;

  /* The values of a plot as CSV, a row for each point. */
  function csv(figure) {
    const plain = document.createElement("textarea");
    const cell = (value) => {
      plain.innerHTML = value ?? "";
      const text = plain.value;
      return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const { xaxis, yaxis } = figure.layout;
    const isTime = xaxis.type === "date";
    const at = (x) => (isTime && x !== null ? (x - START_MS) / 1000 : x);
    const rows = [["line", isTime ? "time (s)" : xaxis.title.text, yaxis.title.text]];
    const lines = figure.data.filter((trace) => trace.hoverinfo !== "skip");
    if (lines.some((trace) => trace.error_y)) rows[0].push("below", "above");
    if (lines.some((trace) => trace.z)) rows[0].push("value");
    for (const { name, x, y, z, customdata, error_y: error } of lines) {
      /* Points that an axis has no place for are drawn elsewhere. */
      const level = (n) => (typeof customdata?.[n] === "number" ? customdata[n] : y[n]);
      if (z) {
        z.forEach((row, n) => row.forEach((v, m) => rows.push([name, x[m], y[n], v])));
        continue;
      }
      x.forEach((value, n) => {
        if (y[n] === null) return;
        const reach = error ? [error.arrayminus[n], error.array[n]] : [];
        rows.push([name, at(value), level(n), ...reach]);
      });
    }
    return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
  }

  function downloads() {
    const figures = json("figures");
    for (const button of document.querySelectorAll("[data-csv]")) {
      const key = button.dataset.csv;
      button.hidden = false;
      button.addEventListener("click", () => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([csv(figures[key])], { type: "text/csv" }));
        link.download = `${document.title.split(" · ")[0]}-${key}.csv`;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 1000);
      });
    }
  }

  const LEGEND_ROW = 19;
  const LEGEND_SIGN = 52;
  const PLOT_HEIGHT = 235;
  const MARGIN_BELOW = 46;

  /* A legend below the plot takes as many rows as its entries need at this width. */
  function size(figure, width) {
    const { l, r } = figure.layout.margin;
    const entry = figure.layout.legend.entrywidth + LEGEND_SIGN;
    const named = figure.data.filter((trace) => trace.showlegend !== false).length;
    const columns = Math.max(Math.floor((width - l - r) / entry), 1);
    const legend = Math.ceil(named / columns) * LEGEND_ROW + 8;
    const margin = { ...figure.layout.margin, b: MARGIN_BELOW + legend };
    const height = figure.layout.height || PLOT_HEIGHT;
    return { width, height: height + margin.t + margin.b, margin };
  }

  /* Moves the time axes of all linked plots to where one of them was moved. */
  function linkage() {
    const linked = [];
    let following = false;
    async function follow(moved, change) {
      const whole = change["xaxis.autorange"];
      const from = change["xaxis.range[0]"], to = change["xaxis.range[1]"];
      if (following || (!whole && from === undefined)) return;
      following = true;
      await Promise.all(linked.filter(({ canvas }) => canvas !== moved).map(
        ({ canvas, figure }) => Plotly.relayout(canvas, {
          "xaxis.range": whole ? [...figure.layout.xaxis.range] : [from, to],
        }),
      ));
      following = false;
    }
    return (canvas, figure) => {
      linked.push({ canvas, figure });
      canvas.on("plotly_relayout", (change) => follow(canvas, change));
    };
  }

  async function plots() {
    const figures = json("figures");
    const canvases = [...document.querySelectorAll("[data-figure]")];
    if (!canvases.length) return;
    await loadPlotly();
    const drawn = [], link = linkage();
    const draw = async (canvas) => {
      const hidden = canvas.closest("details:not([open])");
      if (hidden || canvas.classList.contains("js-plotly-plot")) return;
      const figure = figures[canvas.dataset.figure];
      const layout = { ...structuredClone(figure.layout), ...size(figure, canvas.clientWidth) };
      const config = { displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };
      await Plotly.newPlot(canvas, structuredClone(figure.data), layout, config);
      drawn.push({ canvas, figure });
      canvas.on("plotly_click", ({ points: [{ data, pointIndex }] }) => {
        const address = data.customdata?.[pointIndex];
        if (typeof address === "string" && address) location.href = address;
      });
      if (figure.linked) link(canvas, figure);
    };
    const fit = (width) => {
      for (const { canvas, figure } of drawn) {
        const wanted = width || canvas.clientWidth;
        if (wanted && wanted !== canvas.layout.width) {
          Plotly.relayout(canvas, size(figure, wanted));
        }
      }
    };
    for (const canvas of canvases) await draw(canvas);
    for (const more of document.querySelectorAll("details")) {
      more.addEventListener("toggle", async () => {
        for (const canvas of more.querySelectorAll("[data-figure]")) await draw(canvas);
      });
    }
    addEventListener("resize", () => fit());
    addEventListener("beforeprint", () => fit(PRINTED_WIDTH));
    addEventListener("afterprint", () => fit());
    root.dataset.plots = String(drawn.length);
  }

  const PRINTED_WIDTH = 690;
  const ROW = 18;
  const NARROWEST = 0.0008;

  function hue(name) {
    let sum = 0;
    for (const character of name) sum = (sum * 31 + character.codePointAt(0)) >>> 0;
    const kernel = name.endsWith("_[k]");
    return kernel ? `hsl(${190 + sum % 25} 45% 72%)` : `hsl(${22 + sum % 28} 78% 68%)`;
  }

  /* The whole width shows one frame, beneath it whoever called it, above it all that it called. */
  function flame() {
    const tree = json("flame-tree"), box = byId("flame");
    if (!tree || !box) return;
    const search = byId("flame-search"), found = byId("flame-found");
    const deepest = (frame) => 1 + Math.max(0, ...(frame.c || []).map(deepest));
    const percent = (samples) => `${(100 * samples / tree.v).toFixed(2)} %`;
    let path = [tree];

    function place(frame, depth, left, width, callers, outer) {
      const button = document.createElement("button");
      const text = `${frame.n}: ${percent(frame.v)} of the samples (${frame.v})`;
      button.type = "button";
      button.textContent = width > 0.02 ? frame.n : "";
      button.title = text;
      button.setAttribute("aria-label", text);
      button.dataset.name = frame.n.toLowerCase();
      button.className = outer ? "outer" : "";
      button.style.cssText = `left:${100 * left}%;width:${100 * width}%;bottom:${depth * ROW}px;` +
        `background:${hue(frame.n)}`;
      button.addEventListener("click", () => { path = [...callers, frame]; draw(); });
      box.append(button);
    }

    function above(frame, depth, left, width, callers) {
      place(frame, depth, left, width, callers, false);
      let from = left;
      for (const call of frame.c || []) {
        const share = width * call.v / frame.v;
        if (share >= NARROWEST) above(call, depth + 1, from, share, [...callers, frame]);
        from += share;
      }
    }

    function draw() {
      box.replaceChildren();
      const callers = path.slice(0, -1), frame = path[path.length - 1];
      callers.forEach((caller, depth) => place(caller, depth, 0, 1, path.slice(0, depth), true));
      above(frame, callers.length, 0, 1, callers);
      box.style.height = `${(callers.length + deepest(frame)) * ROW}px`;
      mark();
    }

    function share(frame, wanted) {
      if (frame.n.toLowerCase().includes(wanted)) return frame.v;
      return (frame.c || []).reduce((sum, call) => sum + share(call, wanted), 0);
    }

    function mark() {
      const wanted = search.value.trim().toLowerCase();
      for (const button of box.children) {
        const hit = wanted !== "" && button.dataset.name.includes(wanted);
        button.classList.toggle("found", hit);
      }
      found.textContent = wanted ? `found in ${percent(share(tree, wanted))} of the samples` : "";
    }

    search.addEventListener("input", mark);
    byId("flame-reset").addEventListener("click", () => { path = [tree]; draw(); });
    draw();
  }

  contents();
  downloads();
  unfold();
  addEventListener("hashchange", unfold);
  flame();
  plots().catch((error) => {
    root.dataset.failed = String(error);
    for (const canvas of document.querySelectorAll("[data-figure]")) {
      canvas.textContent = `The plot could not be drawn: ${error}`;
    }
  });
})();
