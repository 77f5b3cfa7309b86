// The page: headline, graph, and sections of blocks, from the data in the page.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const SHOWN_ROWS = 200; // of a table, until all are wanted
  const NAMES_ON_AXES = 40;

  function html(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function shown(value) {
    if (value === null || value === undefined) return "–";
    if (value === true) return "yes";
    if (value === false) return "no";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value)) return value.toLocaleString("en");
    const size = Math.abs(value);
    if (size >= 1e-3 && size < 1e6) return String(Number(value.toPrecision(4)));
    return value.toExponential(2);
  }

  // Blocks. Each function returns an element.

  const blocks = {
    text: ({ text }) => html("p", {}, text),

    list({ title, items, tone }) {
      const list = html("ul", {}, ...items.map((item) => html("li", {}, item)));
      return html("div", { class: tone === "bad" ? "notice" : "plain" }, ...(title ? [html("h3", {}, title)] : []), list);
    },

    facts({ title, rows }) {
      const facts = html("dl", {}, ...rows.flatMap(([label, value]) => [html("dt", {}, label), html("dd", {}, shown(value))]));
      return title ? html("div", {}, html("h3", {}, title), facts) : facts;
    },

    folded({ title, blocks: parts }) {
      return html("details", { class: "folded" }, html("summary", {}, title), ...parts.map((block) => blocks[block.kind](block)));
    },

    table({ caption, columns, rows }) {
      const numeric = columns.map((_, k) => rows.some((row) => typeof row[k] === "number") && rows.every((row) => row[k] === null || row[k] === undefined || typeof row[k] === "number"));
      const kinds = columns.map((_, k) => numeric[k] ? "number" : rows.some((row) => shown(row[k]).length > 60) ? "text long" : "text");
      const body = html("tbody");
      let order = [...rows.keys()], words = "", all = false;
      const more = html("button", { type: "button", class: "more" });
      more.addEventListener("click", () => { all = true; fill(); });
      function fill() {
        const wanted = order.filter((k) => !words || rows[k].some((cell) => shown(cell).toLowerCase().includes(words)));
        const kept = all ? wanted : wanted.slice(0, SHOWN_ROWS);
        body.replaceChildren(...kept.map((k) => html("tr", {}, ...rows[k].map((cell, j) => html("td", { class: kinds[j] }, shown(cell))))));
        more.hidden = kept.length === wanted.length;
        more.textContent = `Show all ${wanted.length} rows`;
        count.textContent = words ? ` ${wanted.length} of ${rows.length} rows` : "";
      }
      const heads = columns.map((name, k) => {
        const sort = html("button", { type: "button", title: "Sort" }, name || "mark");
        const cell = html("th", { scope: "col", class: kinds[k] }, sort);
        sort.addEventListener("click", () => {
          const down = cell.getAttribute("aria-sort") === "ascending" || (numeric[k] && !cell.hasAttribute("aria-sort"));
          heads.forEach((one) => one.removeAttribute("aria-sort"));
          cell.setAttribute("aria-sort", down ? "descending" : "ascending");
          const sign = down ? -1 : 1;
          const value = (i) => rows[i][k];
          const none = (v) => v === null || v === undefined;
          order = [...rows.keys()].sort((a, b) => {
            if (none(value(a)) || none(value(b))) return none(value(a)) - none(value(b));
            return sign * (numeric[k] ? value(a) - value(b) : shown(value(a)).localeCompare(shown(value(b)), "en", { numeric: true }));
          });
          fill();
        });
        return cell;
      });
      const count = html("span", { "aria-live": "polite" });
      const filter = html("input", { type: "search", placeholder: "filter", "aria-label": `Filter: ${caption}` });
      filter.addEventListener("input", () => { words = filter.value.trim().toLowerCase(); fill(); });
      const table = html("table", columns.length > 12 ? { class: "wide" } : {}, html("caption", {}, caption), html("thead", {}, html("tr", {}, ...heads)), body);
      fill();
      const hint = html("p", { class: "wider", hidden: "" }, "The table is wider than the screen: it scrolls sideways.");
      const scroll = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
      const place = html("div", {});
      if (rows.length > 8) place.append(html("div", { class: "filter" }, filter, count));
      place.append(hint, scroll, more);
      new ResizeObserver(() => { hint.hidden = scroll.scrollWidth <= scroll.clientWidth; }).observe(scroll);
      return place;
    },

    heat({ title, unit, axes, names, across, cells, share }) {
      const columns = across || names;
      const values = cells.map(([row, column, value]) => ({ row: names[row], column: columns[column], value }));
      const extreme = Math.max(1e-12, ...cells.map((cell) => Math.abs(cell[2])));
      const signed = cells.some((cell) => cell[2] < 0);
      const few = Math.max(names.length, columns.length) <= NAMES_ON_AXES;
      const axis = (name) => ({ title: name, labels: few, ticks: few, labelLimit: 130 });
      const encoding = {
        x: { field: "column", type: "nominal", scale: { domain: columns }, axis: { ...axis(axes[1]), labelAngle: -60 } },
        y: { field: "row", type: "nominal", scale: { domain: names }, axis: axis(axes[0]) },
        tooltip: [{ field: "row", title: axes[0] }, { field: "column", title: axes[1] }, { field: "value", title: unit, format: ".4~g" }],
      };
      const scale = signed ? { scheme: "blueorange", domain: [-extreme, extreme], reverse: true } : { scheme: "blues", domain: [0, share ? 1 : extreme] };
      const spec = (room) => {
        const wide = Math.max(few ? 9 : 1, Math.min(30, (room - 190) / columns.length));
        const high = Math.max(few ? 12 : 1, Math.min(22, 640 / names.length));
        const legend = { title: unit, orient: room < 500 ? "bottom" : "right" };
        const layer = [{ mark: { type: "rect", stroke: "#fff", strokeWidth: few ? 1 : 0 }, encoding: { color: { field: "value", type: "quantitative", scale, legend } } }];
        if (wide >= 26) layer.push({ mark: { type: "text", fontSize: 8.5 }, encoding: { text: { field: "value", type: "quantitative", format: ".2~r" }, color: { condition: { test: `abs(datum.value) > ${0.6 * extreme}`, value: "#fff" }, value: "#1a202c" } } });
        return { data: { values }, encoding, layer, width: { step: wide }, height: { step: high }, config: { view: { stroke: "#a0aec0" } } };
      };
      return html("figure", {}, html("figcaption", {}, title), plot(spec));
    },

    lines({ title, x, panels }) {
      return grid(title, panels.map((panel) => plot((room) => ({
        data: { values: panel.points.map(([at, value]) => ({ at, value })) },
        mark: { type: "line", point: panel.points.length < 60, color: "#1d5fa8", tooltip: true },
        encoding: {
          x: { field: "at", type: "quantitative", title: x, axis: { tickMinStep: 1, format: "d", grid: false }, scale: { zero: false, nice: false } },
          y: { field: "value", type: "quantitative", title: null, scale: panel.log ? { type: "log" } : { zero: true }, axis: { format: panel.log ? "~g" : Math.max(...panel.points.map((one) => one[1])) < 1e4 ? ",.3~r" : "~s", tickCount: 4 } },
        },
        width: beside(room), height: 110,
      }), panel.name)));
    },

    shapes({ title, panels }) {
      return grid(title, panels.map((panel) => {
        if (panel.points) {
          return plot((room) => ({
            data: { values: panel.points.map(([at, density]) => ({ at, density })) },
            mark: { type: "area", interpolate: panel.steps ? "step-after" : "linear", line: { color: "#1d5fa8" }, color: "#cfe0f3" },
            encoding: { x: { field: "at", type: "quantitative", title: null, scale: { zero: false, nice: false }, axis: { tickCount: 4, format: ",.3~r" } }, y: { field: "density", type: "quantitative", title: "density", stack: null, axis: { tickCount: 3, format: ",.3~r" } } },
            width: beside(room), height: 100,
          }), panel.name);
        }
        const values = panel.bars.map(([label, value]) => ({ label, value }));
        const across = { field: "label", type: "nominal", sort: null, title: null, axis: { labelLimit: 90, labelOverlap: true, labelAngle: panel.bars.length > 6 ? -60 : 0 } };
        const up = { field: "value", type: "quantitative", title: panel.unit, axis: { tickCount: 3, format: ",.3~r" } };
        return plot((room) => ({ data: { values }, mark: { type: "bar", color: "#1d5fa8", tooltip: true }, encoding: { x: across, y: up }, width: beside(room), height: 100 }), panel.name);
      }));
    },
  };

  // The width of a plot beside its axis and its menu.
  const beside = (room) => Math.max(90, Math.min(260, room - 80));

  function grid(title, panels) {
    return html("figure", {}, html("figcaption", {}, title), html("div", { class: "panels" }, ...panels));
  }

  // Plots are drawn when they come near the window, and all of them before printing.
  const waiting = new Map();
  function show(place) {
    if (!waiting.has(place)) return Promise.resolve();
    const spec = waiting.get(place)(place.clientWidth);
    waiting.delete(place);
    watcher.unobserve(place);
    const room = html("div");
    place.append(room);
    const actions = { export: { svg: true, png: true }, source: false, compiled: false, editor: false };
    const config = { font: "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif", axis: { labelColor: "#1a202c", titleColor: "#1a202c" }, legend: { labelColor: "#1a202c", titleColor: "#1a202c" }, ...spec.config };
    return vegaEmbed(room, { ...spec, background: "#fff", config }, { mode: "vega-lite", renderer: "svg", actions, downloadFileName: "plot" });
  }
  const watcher = new IntersectionObserver((entries) => {
    entries.filter((entry) => entry.isIntersecting).forEach((entry) => show(entry.target));
  }, { rootMargin: "300px" });
  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details.folded")) folded.open = true;
    for (const place of [...waiting.keys()]) show(place);
  });

  function plot(spec, title) {
    const place = html("div", { class: "plot" });
    if (title) place.append(html("h3", {}, title));
    waiting.set(place, spec);
    watcher.observe(place);
    return place;
  }

  // The page.

  document.getElementById("heading").textContent = data.heading;
  document.getElementById("question").textContent = data.question;
  const verdict = document.getElementById("verdict");
  if (data.verdict) verdict.append(html("a", { href: "#trust" }, data.verdict));
  const links = document.getElementById("sections");
  const addSection = ({ id, title, blocks: parts }) => {
    links.append(html("li", {}, html("a", { href: `#${id}` }, title)));
    main.append(html("section", { id, "aria-labelledby": `${id}-title` }, html("h2", { id: `${id}-title` }, title), ...parts.map((block) => blocks[block.kind](block))));
  };
  data.first.forEach(addSection);
  if (data.graph) {
    const section = html("section", { id: "graph", "aria-label": "Graph" });
    main.append(section);
    drawGraph(section, data.graph);
  }
  data.sections.forEach(addSection);
  document.documentElement.dataset.ready = "yes";
})();
