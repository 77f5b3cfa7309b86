// The page: headline, graph, and sections of blocks, from the data in the page.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const SHOWN_ROWS = 200; // of a table, until all are wanted
  const { html } = drawing;

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

    heat: (block) => figure(block.title, plot((room) => plots.heat(room, block))),

    lines: ({ title, x, panels }) => grid(title, panels.map((panel) => plot((room) => plots.line(room, panel, x), panel.name))),

    shapes: ({ title, panels }) => grid(title, panels.map((panel) => plot((room) => panel.points ? plots.area(room, panel) : plots.bars(room, panel), panel.name))),
  };

  const figure = (title, ...children) => html("figure", {}, html("figcaption", {}, title), ...children);
  const grid = (title, panels) => figure(title, html("div", { class: "panels" }, ...panels));

  // Plots are drawn when they come near the window, and all of them before printing.
  const waiting = new Map();
  function show(place) {
    if (!waiting.has(place)) return;
    const drawn = waiting.get(place)(place.clientWidth);
    waiting.delete(place);
    watcher.unobserve(place);
    const box = { x: 0, y: 0, w: Number(drawn.getAttribute("width")), h: Number(drawn.getAttribute("height")) };
    const buttons = ["SVG", "PNG"].map((kind) => {
      const made = html("button", { type: "button", "aria-label": `Save the plot as ${kind}` }, kind);
      made.addEventListener("click", () => drawing.save(drawn, box, kind.toLowerCase(), "plot"));
      return made;
    });
    place.append(html("details", { class: "save" }, html("summary", { "aria-label": "Save the plot" }, "⋯"), ...buttons), drawn);
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
