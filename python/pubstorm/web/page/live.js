"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const SIGNS = { pass: "✓", fail: "✗", invalid: "!", open: "?", none: "…" };
  const EVENTS_MAX = 300;
  let state = null, charts = [], source = null;

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  /* Changes a text only if it is another one, so that screen readers and selections stay. */
  function write(target, text) {
    if (target.textContent !== text) target.textContent = text;
  }

  /* Makes a list have one child for each entry, and fills each. */
  function fill(list, entries, make, put) {
    while (list.children.length > entries.length) list.lastElementChild.remove();
    while (list.children.length < entries.length) list.append(make());
    entries.forEach((entry, n) => put(list.children[n], entry));
  }

  function link(text, className) {
    write(byId("link"), text);
    byId("link").className = `link ${className}`;
  }

  function merge(values) {
    for (const [id, flat] of Object.entries(values)) {
      const steps = state.values.get(id) || new Map();
      for (let n = 0; n < flat.length; n += 2) steps.set(flat[n], flat[n + 1]);
      state.values.set(id, steps);
    }
  }

  function whole(news) {
    if (!news.run) {
      // The page of the run before is no beginning of the next one.
      if (state) location.reload();
      write(byId("headline"), news.starting || news.step || "Waiting for the run.");
      return;
    }
    state = { ...news, values: new Map() };
    merge(news.values);
    document.title = `${news.run.name} · Pubstorm`;
    write(byId("name"), news.run.name);
    byId("charts").replaceChildren();
    charts = news.charts.filter((chart) => chart.lines.length).map((chart) => {
      const figure = element("figure", undefined, "chart");
      const title = element("h3", chart.title);
      title.id = `t-${chart.key}`;
      title.title = chart.caption;
      figure.setAttribute("aria-labelledby", title.id);
      figure.append(title, element("figcaption", chart.caption, "hidden"));
      byId("charts").append(figure);
      return new Chart(figure, chart);
    });
    show();
  }

  function news(part) {
    if (!state) return;
    merge(part.values);
    const last = state.events.length ? state.events[state.events.length - 1].n : 0;
    const events = part.events.filter((event) => event.n > last);
    state.events = [...state.events, ...events].slice(-EVENTS_MAX);
    state.stages = part.stages;
    state.now = part.now;
    show();
  }

  function show() {
    const { now } = state;
    requestAnimationFrame(draw);
    write(byId("headline"), now.sentence);
    byId("headline").className = `headline ${now.verdict?.status || ""}`;
    byId("progress").hidden = !now.stage;
    if (now.stage) byId("progress").firstElementChild.style.width = `${100 * now.stage.share}%`;
    const badge = byId("badge");
    badge.hidden = !now.verdict;
    if (now.verdict) {
      write(badge, `${SIGNS[now.verdict.status] || "–"} ${now.verdict.word.toUpperCase()}`);
      badge.className = `badge ${now.verdict.status}`;
    }
    write(byId("more"), now.verdict?.more || "");
    const isOver = now.state === "over";
    const length = isOver ? `took ${now.elapsed}` : `${now.elapsed} since the start`;
    const starting = now.state === "starting" && now.starting;
    const where = [now.step, starting, length, state.run.folder];
    byId("report").hidden = !now.report;
    byId("kept").hidden = !now.kept;
    if (now.kept) {
      const [file, command] = byId("kept").children;
      write(file, now.kept);
      write(command, `pubstorm view ${state.run.folder}`);
    }
    write(byId("when"), where.filter(Boolean).join(" · "));
    const evidence = now.verdict && now.verdict.status !== "pass" ? now.evidence : [];
    byId("evidence").hidden = !evidence.length;
    fill(byId("evidence"), evidence, () => element("li"), write);
    figures(now);
    tables(now);
    events();
    Controls.show(now.offer);
    root.dataset.state = now.state;
    root.dataset.at = now.seen;
    if (now.state === "over" || now.state === "gone") link("the run is over", "");
  }

  function figures(now) {
    const make = () => {
      const box = element("div"), value = element("dd");
      const sign = element("span", "", "sign");
      sign.setAttribute("aria-hidden", "true");
      value.append(sign, element("span", "", "value"), element("span", "", "hidden"),
        element("span", "", "note"));
      box.append(element("dt"), value);
      return box;
    };
    fill(byId("figures"), now.figures, make, (box, figure) => {
      box.className = figure.status;
      write(box.querySelector("dt"), figure.name);
      write(box.querySelector(".sign"), SIGNS[figure.status] || "");
      write(box.querySelector(".value"), figure.value);
      write(box.querySelector(".hidden"), figure.status && ` ${figure.status}`);
      write(box.querySelector(".note"), figure.note);
    });
  }

  function tables(now) {
    const heads = ["population", ...now.heads];
    if (byId("heads").children.length !== heads.length) byId("rows").replaceChildren();
    const head = () => {
      const made = element("th", "", "number");
      made.scope = "col";
      return made;
    };
    const row = () => {
      const made = element("tr"), name = element("th");
      name.scope = "row";
      made.append(name);
      heads.slice(1).forEach(() => made.append(element("td", "", "number")));
      return made;
    };
    fill(byId("heads"), heads, head, write);
    fill(byId("rows"), now.populations, row, (made, population) => {
      write(made.cells[0], population.name);
      population.cells.forEach((cell, n) => write(made.cells[n + 1], cell));
    });
    const item = () => {
      const made = element("li");
      const mark = element("span", "", "mark");
      mark.setAttribute("aria-hidden", "true");
      made.append(mark, element("span", "", "hidden"), element("code"),
        element("span", "", "found"));
      return made;
    };
    const far = now.state === "over" ? "" : " so far";
    const words = { pass: `met${far}: `, fail: `not met${far}: `, invalid: `undecided${far}: ` };
    fill(byId("outcomes"), now.thresholds, item, (made, threshold) => {
      made.className = threshold.status;
      write(made.children[0], SIGNS[threshold.status] || "–");
      write(made.children[1], words[threshold.status] || `no data${far}: `);
      write(made.children[2], threshold.text);
      write(made.children[3], threshold.found);
    });
    if (now.state === "over") write(byId("evaluated"), "As evaluated at the end of the run.");
    else if (now.problem) {
      write(byId("evaluated"), `The thresholds cannot be evaluated now: ${now.problem}`);
    } else if (now.evaluated !== null) {
      write(byId("evaluated"), `Values of the run so far, at ${Math.round(now.evaluated)} s.`);
    }
  }

  function events() {
    const list = byId("happened"), newest = [...state.events].sort((one, other) => other.at - one.at);
    list.hidden = !newest.length;
    byId("quiet").hidden = newest.length > 0;
    const make = () => {
      const made = element("li");
      made.append(element("span", "", "at"), element("span", "", "kind"), element("span"));
      return made;
    };
    fill(list, newest, make, (made, event) => {
      write(made.children[0], `${event.at.toFixed(1)} s`);
      write(made.children[1], event.kind);
      write(made.children[2], event.text);
    });
  }

  function draw() {
    if (!state) return;
    const { values, width, stages, events } = state;
    for (const chart of charts) {
      chart.show({ values, width, stages, events, until: state.now.at });
    }
  }

  function connect() {
    source = new EventSource("/events");
    const take = (handle) => (event) => {
      link("live", "live");
      handle(JSON.parse(event.data));
    };
    source.addEventListener("whole", take(whole));
    source.addEventListener("news", take(news));
    source.addEventListener("error", () => {
      if (state && ["over", "gone"].includes(state.now.state)) {
        source.close();
        return;
      }
      link("no connection, trying again", "broken");
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
    });
  }

  byId("home").hidden = location.pathname === "/";
  addEventListener("resize", () => requestAnimationFrame(draw));
  connect();
})();
