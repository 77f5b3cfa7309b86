// The graph of the page: which edges are shown, where they are drawn, and as what.
"use strict";

const drawGraph = (() => {
  const LETTERS = 32; // longer names are cut in the drawing
  const FEW_VARIABLES = 30; // so many are shown with or without edges
  const MANY_EDGES = 80; // from more edges the strongest are shown first
  const STRONGEST = 60;
  const LAYERED = 160; // nodes and edges that are laid out with routes
  const POSITIVE = "#1d5fa8", NEGATIVE = "#a8420c", NEUTRAL = "#3d4757", LEFT_OUT = "#5d6778";
  // How an edge is drawn by what is known of it: colour, dashes, a sign on it.
  const VERDICTS = {
    right: { colour: "#1d5fa8", dash: "", sign: "", words: "in the truth, too" },
    open: { colour: "#1d5fa8", dash: "", sign: "", words: "in the truth, direction left open" },
    extra: { colour: "#a32020", dash: "9 4", sign: "+", words: "extra: not in the truth" },
    reversed: { colour: "#7a2a9a", dash: "14 3 3 3", sign: "⇄", words: "reversed in the truth" },
    missing: { colour: "#7a5200", dash: "2 4", sign: "?", words: "missing: in the truth only" },
  };

  const { element, html, widthOf } = drawing;

  const LOOP = 26; // the reach of an edge from a variable to itself
  const labelWidth = (text) => (text ? widthOf(text) * 0.82 + 6 : 0);
  const shortened = (text) => (text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text);
  const strengthOf = (edge) => edge.strength ?? Math.abs((edge.found ? edge.weight : edge.raw) || 0);
  const rounded = (value) => Number(value).toPrecision(3).replace(/\.?0+$/, (m) => (m.includes(".") ? "" : m));

  // Positions.

  // Each connected part is laid out for itself, and the parts are put beside each other.
  function arranged(nodes, edges, ratio) {
    const parts = connected(nodes, edges);
    const tried = ["TB", "LR"].map((direction) => {
      const placed = parts.map((part) => {
        const large = part.nodes.length + part.edges.length > LAYERED;
        return { ...part, ...(large ? inRows(part, ratio) : layered(part, direction)) };
      });
      return packed(placed, ratio);
    });
    const [down, across] = tried;
    const best = across.scale > 1.15 * down.scale ? across : down;
    for (const part of best.parts) {
      const moved = (point) => ({ x: point.x + part.left, y: point.y + part.top });
      part.nodes.forEach((node, k) => Object.assign(node, moved(part.centres[k])));
      part.edges.forEach((edge, k) => {
        edge.points = part.routes[k] && part.routes[k].map(moved);
        edge.flow = part.flow;
      });
    }
  }

  function connected(nodes, edges) {
    const parent = new Map(nodes.map((node) => [node.key, node.key]));
    const root = (key) => {
      let top = key;
      while (parent.get(top) !== top) top = parent.get(top);
      parent.set(key, top);
      return top;
    };
    edges.forEach((edge) => parent.set(root(edge.from), root(edge.to)));
    const parts = new Map();
    nodes.forEach((node) => {
      const key = root(node.key);
      if (!parts.has(key)) parts.set(key, { nodes: [], edges: [] });
      parts.get(key).nodes.push(node);
    });
    edges.forEach((edge) => parts.get(root(edge.from)).edges.push(edge));
    return [...parts.values()];
  }

  function packed(parts, ratio) {
    const gap = 34;
    const sorted = [...parts].sort((a, b) => b.height - a.height || b.width - a.width);
    const area = sorted.reduce((sum, part) => sum + (part.width + gap) * (part.height + gap), 0);
    const limit = Math.max(...sorted.map((part) => part.width), Math.sqrt((area * ratio.width) / ratio.height));
    let x = 0, y = 0, row = 0, width = 1;
    for (const part of sorted) {
      if (x > 0 && x + part.width > limit) {
        y += row + gap;
        x = row = 0;
      }
      Object.assign(part, { left: x, top: y });
      x += part.width + gap;
      width = Math.max(width, x - gap);
      row = Math.max(row, part.height);
    }
    const height = y + row;
    return { parts: sorted, scale: Math.min(1, ratio.width / width, ratio.height / Math.max(1, height)) };
  }

  function layered({ nodes, edges }, direction) {
    const plan = new dagre.graphlib.Graph({ multigraph: true });
    plan.setGraph({ rankdir: direction, nodesep: 22, ranksep: 46, edgesep: 14, acyclicer: "greedy" });
    plan.setDefaultEdgeLabel(() => ({}));
    const loops = new Map(edges.filter((edge) => edge.from === edge.to).map((edge) => [edge.from, 2 * (LOOP + labelWidth(edge.label))]));
    nodes.forEach((node) => plan.setNode(node.key, { width: node.width + (loops.get(node.key) || 0), height: node.height }));
    edges.forEach((edge, k) => {
      if (edge.from !== edge.to) {
        const label = edge.label ? { width: widthOf(edge.label) * 0.8, height: 12, labelpos: "c" } : {};
        // Of a cycle, an edge of the past points against the others.
        plan.setEdge(edge.from, edge.to, { ...label, weight: edge.edges.some((one) => !one.lag) ? 8 : 1 }, String(k));
      }
    });
    dagre.layout(plan);
    return {
      width: plan.graph().width,
      height: plan.graph().height,
      flow: direction,
      centres: nodes.map((node) => plan.node(node.key)),
      routes: edges.map((edge, k) => edge.from === edge.to ? null : plan.edge({ v: edge.from, w: edge.to, name: String(k) }).points),
    };
  }

  // Many variables: causes above effects, in rows of the width that there is.
  function inRows({ nodes, edges }, ratio) {
    const centres = new Map();
    const parents = new Map(nodes.map((node) => [node.key, []]));
    edges.forEach((edge) => edge.from !== edge.to && parents.get(edge.to).push(edge.from));
    const depth = new Map();
    const deep = (key, path) => {
      if (depth.has(key)) return depth.get(key);
      if (path.has(key)) return 0; // a cycle
      path.add(key);
      const found = Math.max(0, ...parents.get(key).map((parent) => deep(parent, path) + 1));
      path.delete(key);
      depth.set(key, found);
      return found;
    };
    nodes.forEach((node) => deep(node.key, new Set()));
    const layers = [];
    nodes.forEach((node) => (layers[depth.get(node.key)] ??= []).push(node));
    const total = nodes.reduce((sum, node) => sum + node.width + 16, 0);
    const width = Math.max(600, Math.sqrt(total * 62 * (ratio.width / ratio.height)));
    let y = 24;
    layers.filter(Boolean).forEach((layer) => {
      const wish = (node) => {
        const xs = parents.get(node.key).filter((key) => centres.has(key)).map((key) => centres.get(key).x);
        return xs.length ? xs.reduce((a, b) => a + b, 0) / xs.length : width / 2;
      };
      const sorted = layer.map((node) => [wish(node), node]).sort((a, b) => a[0] - b[0]).map((pair) => pair[1]);
      const needed = Math.ceil(sorted.reduce((sum, node) => sum + node.width + 16, 0) / width);
      for (let row = 0; row < needed; row += 1) {
        const members = sorted.filter((_, k) => k % needed === row);
        const gap = (width - members.reduce((sum, node) => sum + node.width, 0)) / (members.length + 1);
        let x = gap;
        members.forEach((node) => {
          centres.set(node.key, { x: x + node.width / 2, y });
          x += node.width + gap;
        });
        y += 44;
      }
      y += 26;
    });
    return { width, height: y, flow: "", centres: nodes.map((node) => centres.get(node.key)), routes: edges.map(() => null) };
  }

  // One column for each time slice, the present on the right; variables from causes to effects.
  function inSlices(nodes, lags) {
    const widest = Math.max(...nodes.map((node) => node.width));
    nodes.forEach((node) => {
      node.x = 20 + widest / 2 + (lags - node.lag) * (widest + 120);
      node.y = 30 + node.row * 48;
    });
  }

  // Shapes.

  function border(node, towards) {
    const dx = towards.x - node.x, dy = towards.y - node.y;
    const share = Math.min(node.width / 2 / Math.abs(dx || 1e-9), node.height / 2 / Math.abs(dy || 1e-9), 1);
    return { x: node.x + share * dx, y: node.y + share * dy };
  }

  // Where a routed edge meets its node: on a side across the flow, so that it passes no neighbour.
  function gate(node, towards, flow) {
    const dx = towards.x - node.x, dy = towards.y - node.y;
    const part = (distance, size) => Math.max(-0.3 * size, Math.min(0.3 * size, 0.3 * distance));
    if (flow === "TB") return { x: node.x + part(dx, node.width), y: node.y + (Math.sign(dy) * node.height) / 2 };
    return { x: node.x + (Math.sign(dx) * node.width) / 2, y: node.y + part(dy, node.height) };
  }

  function route(edge, start, end) {
    if (start === end) {
      const x = start.x + start.width / 2, y = start.y;
      return [{ x, y: y - 6 }, { x: x + LOOP, y: y - 12 }, { x: x + LOOP, y: y + 12 }, { x, y: y + 6 }];
    }
    const middle = (edge.points || []).slice(1, -1);
    if (middle.length) {
      return [gate(start, middle[0], edge.flow), ...middle, gate(end, middle[middle.length - 1], edge.flow)];
    }
    if (edge.bow) {
      const right = (node) => node.x + node.width / 2;
      const side = { x: Math.max(right(start), right(end)) + edge.bow, y: (start.y + end.y) / 2 };
      const lift = Math.sign(end.y - start.y) * 5;
      return [{ x: right(start), y: start.y + lift }, side, { x: right(end), y: end.y - lift }];
    }
    return [border(start, end), border(end, start)];
  }

  // A smooth curve through the middle points, its ends straight (so that heads point along it).
  function curve(points) {
    if (points.length < 3) return `M${points.map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join("L")}`;
    const at = (p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`;
    const half = (p, q) => ({ x: (p.x + q.x) / 2, y: (p.y + q.y) / 2 });
    let text = `M${at(points[0])}`;
    for (let k = 1; k < points.length - 2; k += 1) text += `Q${at(points[k])} ${at(half(points[k], points[k + 1]))}`;
    return `${text}Q${at(points[points.length - 2])} ${at(points[points.length - 1])}`;
  }

  // What the edges of a partial ancestral graph mean.
  const MARKS = {
    "->": "a cause of the other, perhaps through others",
    "o->": "a cause of the other, or both have a hidden common cause",
    "<->": "neither causes the other: a hidden common cause",
    "o-o": "either may cause the other, or a hidden cause both",
  };

  function head(points, size, colour) {
    const end = points[points.length - 1], before = points[points.length - 2];
    const angle = Math.atan2(end.y - before.y, end.x - before.x);
    const corner = (turn) => `${(end.x - size * Math.cos(angle + turn)).toFixed(1)},${(end.y - size * Math.sin(angle + turn)).toFixed(1)}`;
    return element("polygon", { points: `${end.x.toFixed(1)},${end.y.toFixed(1)} ${corner(0.42)} ${corner(-0.42)}`, fill: colour });
  }

  // What stands at the end of a line: ">" and "<" a head, "o" a circle, "-" nothing.
  function endShape(points, mark, size, colour) {
    if (mark !== "o") return head(points, size, colour);
    const end = points[points.length - 1], before = points[points.length - 2], radius = 0.35 * size;
    const length = Math.hypot(end.x - before.x, end.y - before.y) || 1;
    const centre = { x: end.x - (radius * (end.x - before.x)) / length, y: end.y - (radius * (end.y - before.y)) / length };
    return element("circle", { cx: centre.x.toFixed(1), cy: centre.y.toFixed(1), r: radius.toFixed(1), fill: "#fff", stroke: colour, "stroke-width": 1.6 });
  }

  function withoutTip(points, size) {
    const end = points[points.length - 1], before = points[points.length - 2];
    const length = Math.hypot(end.x - before.x, end.y - before.y) || 1;
    return [...points.slice(0, -1), { x: end.x - (size * 0.7 * (end.x - before.x)) / length, y: end.y - (size * 0.7 * (end.y - before.y)) / length }];
  }

  function middleOf(points, share = 0.5) {
    const path = element("path", { d: curve(points) });
    return path.getPointAtLength(path.getTotalLength() * share);
  }

  return function drawGraph(place, graph) {
    const found = graph.edges.filter((edge) => edge.found);
    const leftOut = graph.edges.filter((edge) => !edge.found && strengthOf(edge) > 0);
    const strongest = Math.max(1e-12, ...found.map(strengthOf));
    const share = graph.share || { key: "", name: "", least: 0 };
    const shareOf = (edge) => edge[share.key];
    const weighted = new Set(found.map((edge) => strengthOf(edge).toFixed(9))).size > 1;
    const standardised = found.some((edge) => edge.strength !== undefined);
    const shared = found.some((edge) => shareOf(edge) !== undefined);
    const judged = Object.keys(graph.counts).length > 0;
    const state = {
      count: found.length > MANY_EDGES ? STRONGEST : found.length,
      strength: 0, [share.key]: share.least, leftOut: false, truth: judged, labels: false, forbidden: false,
      lonely: graph.names.length <= FEW_VARIABLES, view: "summary", centre: -1, steps: 1,
    };
    const rank = (edge) => (weighted ? strengthOf(edge) : shareOf(edge) ?? 0);
    const ranked = [...found].sort((a, b) => rank(b) - rank(a));

    const root = html("div", { class: "graph" });
    const controls = html("form", { class: "controls", "aria-label": "What the graph shows" });
    const folded = html("details", {}, html("summary", {}, "Choose what is shown"), controls);
    folded.open = innerWidth > 640;
    const picture = html("div", { class: "picture" });
    const said = html("p", { class: "said", "aria-live": "polite" });
    const legend = html("ul", { class: "legend", "aria-label": "How edges are drawn" });
    root.append(folded, picture, legend, said);
    place.append(root);
    controls.addEventListener("submit", (event) => event.preventDefault());

    let later = 0;
    function changed() {
      cancelAnimationFrame(later);
      later = requestAnimationFrame(draw);
    }

    function slider(key, text, values, shown) {
      const output = html("output", {}, shown(state[key]));
      const input = html("input", { type: "range", ...values, id: `graph-${key}` });
      input.value = state[key];
      input.addEventListener("input", () => {
        state[key] = Number(input.value);
        output.textContent = shown(state[key]);
        changed();
      });
      controls.append(html("label", { for: `graph-${key}` }, `${text} `, output, input));
    }

    function check(where, key, text) {
      const input = html("input", { type: "checkbox", id: `graph-${key}` });
      input.checked = state[key];
      input.addEventListener("change", () => { state[key] = input.checked; changed(); });
      where.append(html("label", { for: `graph-${key}` }, input, ` ${text}`));
    }

    // Search for a variable.
    const search = html("input", { type: "search", id: "graph-centre", list: "variables", placeholder: "all variables", autocomplete: "off" });
    const list = html("datalist", { id: "variables" }, ...graph.names.map((name) => html("option", { value: name })));
    function centreOn(index) {
      state.centre = index;
      search.value = index < 0 ? "" : graph.names[index];
      changed();
    }
    search.addEventListener("input", () => {
      const index = graph.names.indexOf(search.value);
      if (index >= 0 || search.value === "") { state.centre = index; changed(); }
    });
    controls.append(html("label", { for: "graph-centre" }, "Neighbours of ", html("br"), search, list));
    if (found.length > 1) slider("count", "Strongest edges", { min: "1", max: String(found.length), step: "1" }, (v) => `${v} of ${found.length}`);
    if (weighted) slider("strength", standardised ? "Weight in standard deviations at least" : "Weight at least", { min: "0", max: String(strongest), step: String(strongest / 200) }, (v) => v.toFixed(2));
    if (shared) slider(share.key, `${share.name[0].toUpperCase()}${share.name.slice(1)} at least`, { min: "0", max: "1", step: "0.01" }, (v) => v.toFixed(2));
    const checks = html("div", { class: "checks" });
    controls.append(checks);
    if (graph.lags) {
      const select = html("select", { id: "graph-view" }, html("option", { value: "summary" }, "variables"), html("option", { value: "slices" }, "time slices"));
      select.addEventListener("change", () => { state.view = select.value; changed(); });
      controls.append(html("label", { for: "graph-view" }, "Nodes are ", html("br"), select));
    }
    if (weighted || shared) check(checks, "labels", weighted ? "weights" : share.name);
    if (judged) check(checks, "truth", "compare with the truth");
    if (leftOut.length) check(checks, "leftOut", "pairs below the method's threshold");
    if (graph.forbidden && graph.forbidden.length) check(checks, "forbidden", "forbidden edges");
    if (graph.names.length > FEW_VARIABLES) check(checks, "lonely", "variables without edges");

    const buttons = html("div", { class: "buttons" });
    function button(text, label, act) {
      const made = html("button", { type: "button", "aria-label": label, title: label }, text);
      made.addEventListener("click", act);
      buttons.append(made);
    }
    button("+", "Zoom in", () => zoom(0.8));
    button("−", "Zoom out", () => zoom(1.25));
    button("Fit", "Show the whole picture", () => fit());
    button("Reset", "Undo all choices", () => reset());
    button("SVG", "Save the picture as SVG", () => drawing.save(svg, box, "svg", "graph"));
    button("PNG", "Save the picture as PNG", () => drawing.save(svg, box, "png", "graph"));
    controls.append(buttons);
    const initial = { ...state };
    function reset() {
      Object.assign(state, initial);
      for (const input of controls.querySelectorAll("input, select")) {
        const value = state[input.id.replace("graph-", "")];
        if (input.type === "checkbox") input.checked = value;
        else if (input.type !== "search") { input.value = value; input.dispatchEvent(new Event("input")); }
      }
      centreOn(-1);
    }

    // Which edges are shown.
    function chosen() {
      const kept = new Set(ranked.slice(0, state.count));
      let edges = found.filter((edge) => kept.has(edge) && strengthOf(edge) >= state.strength - 1e-12 && (shareOf(edge) ?? 1) >= state[share.key]);
      if (state.leftOut) edges = edges.concat(leftOut.filter((edge) => strengthOf(edge) >= state.strength));
      if (state.truth) edges = edges.concat(graph.edges.filter((edge) => edge.truth === "missing" && !edges.includes(edge)));
      if (state.centre >= 0) {
        const near = new Set([state.centre]);
        const direct = edges.filter((edge) => edge.cause === state.centre || edge.effect === state.centre);
        direct.forEach((edge) => near.add(edge.cause).add(edge.effect));
        edges = edges.filter((edge) => near.has(edge.cause) && near.has(edge.effect));
      }
      return edges;
    }

    function styleOf(edge) {
      const verdict = state.truth && edge.truth ? VERDICTS[edge.truth] : null;
      if (verdict) return verdict;
      if (!edge.found) return { colour: LEFT_OUT, dash: "1 3", sign: "" };
      if (!weighted || !edge.weight || graph.unsigned) return { colour: NEUTRAL, dash: "", sign: "" };
      return edge.weight > 0 ? { colour: POSITIVE, dash: "", sign: "" } : { colour: NEGATIVE, dash: "", sign: "−" };
    }

    const lagText = (lag) => (lag ? `[t-${lag}]` : graph.lags ? "[t]" : "");

    function describe(edge) {
      const parts = [`${graph.names[edge.cause]}${lagText(edge.lag)} ${edge.mark} ${graph.names[edge.effect]}`];
      if (edge.found && weighted) parts.push(`weight ${rounded(edge.weight)}`);
      if (!edge.found && edge.raw) parts.push(`below the threshold, weight ${rounded(edge.raw)}`);
      if (shareOf(edge) !== undefined) parts.push(`${share.name} ${shareOf(edge).toFixed(2)}`);
      if (edge.required) parts.push("required by background knowledge");
      if (state.truth && edge.truth) parts.push(VERDICTS[edge.truth].words);
      return parts.join("; ");
    }

    function labelOf(edge) {
      if (!state.labels || !edge.found) return "";
      return weighted ? rounded(edge.weight) : shareOf(edge) === undefined ? "" : shareOf(edge).toFixed(2);
    }

    // Drawn edges: in the summary of a graph with lags, all lags of a pair are one line.
    function lines(edges) {
      if (!graph.lags || state.view === "slices") {
        return edges.map((edge) => ({ edges: [edge], from: `${edge.cause}@${edge.lag}`, to: `${edge.effect}@0`, label: labelOf(edge) }));
      }
      const pairs = new Map();
      edges.forEach((edge) => {
        const key = `${edge.cause}>${edge.effect}`;
        if (!pairs.has(key)) pairs.set(key, { edges: [], from: `${edge.cause}@0`, to: `${edge.effect}@0` });
        pairs.get(key).edges.push(edge);
      });
      return [...pairs.values()].map((line) => {
        line.edges.sort((a, b) => a.lag - b.lag);
        const past = line.edges.some((edge) => edge.lag);
        const label = line.edges.map((edge) => [past ? (edge.lag ? `t-${edge.lag}` : "t") : "", labelOf(edge)].filter(Boolean).join(" ")).filter(Boolean).join(", ");
        return { ...line, label };
      });
    }

    function nodesOf(drawn, edges) {
      const used = new Set(drawn.flatMap((line) => [line.from, line.to]));
      const slices = graph.lags && state.view === "slices";
      const order = slices ? rowsOf(edges) : graph.names.map((_, k) => k);
      const nodes = [];
      for (let lag = slices ? graph.lags : 0; lag >= 0; lag -= 1) {
        graph.names.forEach((name, index) => {
          const key = `${index}@${lag}`;
          const all = slices ? [...used].some((one) => one.startsWith(`${index}@`)) : false;
          if (!(used.has(key) || all || (state.lonely && state.centre < 0) || index === state.centre)) return;
          const text = shortened(name) + (slices ? lagText(lag) : "");
          nodes.push({ key, index, lag, text, name, row: order.indexOf(index), width: Math.max(30, widthOf(text) + 18), height: 28 });
        });
      }
      if (slices) {
        const rows = [...new Set(nodes.map((node) => node.row))].sort((a, b) => a - b);
        nodes.forEach((node) => { node.row = rows.indexOf(node.row); });
      }
      return nodes;
    }

    // Variables in an order in which causes without a lag come first.
    function rowsOf(edges) {
      const left = new Set(graph.names.keys()), order = [];
      const now = edges.filter((edge) => !edge.lag && edge.found);
      while (left.size) {
        const first = [...left].find((k) => !now.some((edge) => edge.effect === k && left.has(edge.cause) && edge.cause !== k)) ?? [...left][0];
        order.push(first);
        left.delete(first);
      }
      return order;
    }

    let svg = null, box = null, whole = null;

    function draw() {
      const edges = chosen(), drawn = lines(edges), nodes = nodesOf(drawn, edges);
      const width = Math.max(280, picture.clientWidth || 800);
      const ratio = { width, height: Math.max(320, 0.62 * innerHeight) };
      if (graph.lags && state.view === "slices") {
        inSlices(nodes, graph.lags);
        drawn.forEach((line) => {
          const [edge] = line.edges;
          line.bow = edge.lag ? 0 : 30 + 34 * Math.abs(rowOf(nodes, line.from) - rowOf(nodes, line.to));
        });
      } else {
        // Pairs below the threshold are many: they do not move the others.
        arranged(nodes, drawn.filter((line) => line.edges.some((edge) => edge.found || (state.truth && edge.truth))), ratio);
      }

      const byKey = new Map(nodes.map((node) => [node.key, node]));
      const back = element("g"), front = element("g");
      const corners = nodes.flatMap((node) => [{ x: node.x - node.width / 2, y: node.y - node.height / 2 }, { x: node.x + node.width / 2, y: node.y + node.height / 2 }]);
      for (const line of drawn) {
        const points = route(line, byKey.get(line.from), byKey.get(line.to));
        corners.push(...points);
        if (line.from === line.to) corners.push({ x: points[1].x + labelWidth(`required ${line.label}`), y: points[1].y });
        back.append(edgeShape(line, points, drawn.length > MANY_EDGES ? 0.5 : 1));
      }
      if (state.forbidden) {
        const slices = state.view === "slices", drawnPairs = new Map();
        for (const [cause, effect, lag] of graph.forbidden) {
          const key = `${cause}@${slices ? lag : 0}>${effect}@0`;
          drawnPairs.set(key, [...(drawnPairs.get(key) || []), lag]);
        }
        for (const [key, lags] of drawnPairs) {
          const [start, end] = key.split(">").map((one) => byKey.get(one));
          if (start && end) back.append(forbiddenShape(start, end, lags));
        }
      }
      nodes.forEach((node) => front.append(nodeShape(node, drawn)));

      const xs = corners.map((p) => p.x), ys = corners.map((p) => p.y);
      const left = Math.min(0, ...xs) - 14, top = Math.min(0, ...ys) - 14;
      whole = { x: left, y: top, w: Math.max(60, ...xs) + 14 - left, h: Math.max(40, ...ys) + 14 - top };
      const scale = Math.min(1.25, width / whole.w);
      const height = Math.round(Math.min(Math.max(120, whole.h * scale), Math.max(320, 0.72 * innerHeight)));
      const made = element("svg", { role: "group", "aria-label": `Graph of ${nodes.length} variables and ${edges.length} edges`, tabindex: "0", height, "font-family": drawing.FAMILY });
      made.append(back, front);
      const focus = svg && svg.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      if (svg) svg.replaceWith(made);
      else picture.append(made);
      svg = made;
      listen();
      fit();
      speak(edges, nodes);
      explain(edges);
      if (focus) [...svg.querySelectorAll(".node")].find((node) => node.dataset.key === focus)?.focus({ preventScroll: true });
    }

    const rowOf = (nodes, key) => nodes.find((node) => node.key === key).row;

    function edgeShape(line, points, scale) {
      const worst = line.edges.find((edge) => edge.truth && edge.truth !== "right") || line.edges[0];
      const style = styleOf(worst);
      const share = Math.max(...line.edges.map(strengthOf)) / strongest;
      const width = scale * (worst.found ? (weighted ? 1.3 + 2.7 * share : 1.8) : 1.4);
      const shape = element("g", { class: "edge", "data-from": line.from, "data-to": line.to });
      shape.append(element("title", {}, line.edges.map(describe).join("\n")));
      const size = 8 + 1.6 * width;
      const atStart = worst.mark[0], atEnd = worst.mark[worst.mark.length - 1];
      const backwards = points.slice().reverse();
      // The line ends inside its head, which ends at the border of the node.
      let path = points.slice();
      if (atEnd !== "-") path = withoutTip(path, size);
      if (atStart !== "-") path = withoutTip(path.slice().reverse(), size).reverse();
      shape.append(element("path", { d: curve(path), fill: "none", stroke: style.colour, "stroke-width": width.toFixed(2), "stroke-dasharray": style.dash }));
      shape.append(element("path", { d: curve(points), fill: "none", stroke: "transparent", "stroke-width": 12 }));
      if (atEnd !== "-") shape.append(endShape(points, atEnd, size, style.colour));
      if (atStart !== "-") shape.append(endShape(backwards, atStart, size, style.colour));
      const sign = [worst.required ? "required" : "", style.sign, line.label].filter(Boolean).join(" ");
      const text = line.label && style.sign === "−" ? [worst.required ? "required" : "", line.label].filter(Boolean).join(" ") : sign;
      if (text) {
        const wide = labelWidth(text), middle = middleOf(points);
        if (line.from === line.to) middle.x += wide / 2 + 4;
        shape.append(element("rect", { x: middle.x - wide / 2, y: middle.y - 8, width: wide, height: 16, rx: 4, fill: "#fff", stroke: line.label || worst.required ? "none" : style.colour }));
        shape.append(element("text", { x: middle.x, y: middle.y + 4, "text-anchor": "middle", "font-size": 11.5, fill: style.colour }, text));
      }
      return shape;
    }

    function forbiddenShape(start, end, lags) {
      const bow = state.view === "slices" && start.lag === end.lag ? 30 + 34 * Math.abs(start.row - end.row) : 0;
      const points = route({ bow }, start, end), middle = middleOf(points, 0.35);
      const words = lags.map((lag) => `${start.name}${lagText(lag)} -> ${end.name}: forbidden by background knowledge`);
      const shape = element("g", { class: "edge forbidden" });
      shape.append(element("title", {}, words.join("\n")));
      shape.append(element("path", { d: curve(points), stroke: LEFT_OUT, "stroke-width": 1, "stroke-dasharray": "1 4", fill: "none" }), head(points, 8, LEFT_OUT));
      shape.append(element("text", { x: middle.x, y: middle.y + 5, "text-anchor": "middle", "font-size": 14, fill: LEFT_OUT }, `✕${graph.lags && state.view !== "slices" ? lags.map((lag) => ` ${lag ? `t-${lag}` : "t"}`).join("") : ""}`));
      return shape;
    }

    function nodeShape(node, drawn) {
      const causes = [], effects = [], marked = [];
      for (const line of drawn) {
        if (line.to === node.key) causes.push(...line.edges.map((e) => graph.names[e.cause] + (e.lag ? lagText(e.lag) : "")));
        if ([line.from, line.to].includes(node.key)) marked.push(...line.edges.map((e) => `${graph.names[e.cause]} ${e.mark} ${graph.names[e.effect]}`));
        if (line.from === node.key) effects.push(...line.edges.map((e) => graph.names[e.effect]));
      }
      const words = `${node.name}${state.view === "slices" ? lagText(node.lag) : ""}: ${graph.kind === "pag" ? `edges ${marked.join(", ") || "none"}` : `causes ${causes.join(", ") || "none"}; effects ${effects.join(", ") || "none"}`}`;
      const shape = element("g", { class: "node", tabindex: "0", role: "button", "aria-label": words, "data-key": node.key, "aria-pressed": String(node.index === state.centre) });
      shape.append(element("title", {}, words));
      shape.append(element("rect", { x: node.x - node.width / 2, y: node.y - node.height / 2, width: node.width, height: node.height, rx: 7, fill: node.index === state.centre ? "#dbe8f7" : "#f3f6fa", stroke: node.index === state.centre ? "#1d4f91" : "#66758a", "stroke-width": node.index === state.centre ? 2.5 : 1.1 }));
      shape.append(element("text", { x: node.x, y: node.y + 5, "text-anchor": "middle", "font-size": 14, fill: "#1a202c" }, node.text));
      const act = () => centreOn(state.centre === node.index ? -1 : node.index);
      shape.addEventListener("click", () => { if (!moved) act(); });
      shape.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); }
      });
      shape.addEventListener("pointerenter", () => near(node.key));
      shape.addEventListener("pointerleave", () => near(null));
      shape.addEventListener("focus", () => near(node.key));
      shape.addEventListener("blur", () => near(null));
      return shape;
    }

    // The edges of a variable stand out while the pointer is on it.
    function near(key) {
      svg.classList.toggle("focused", key !== null);
      if (key === null) return;
      const keys = new Set([key]);
      for (const shape of svg.querySelectorAll(".edge")) {
        const touches = shape.dataset.from === key || shape.dataset.to === key;
        shape.classList.toggle("near", touches);
        if (touches) keys.add(shape.dataset.from).add(shape.dataset.to);
      }
      for (const shape of svg.querySelectorAll(".node")) shape.classList.toggle("near", keys.has(shape.dataset.key));
    }

    function speak(edges, nodes) {
      const shown = edges.filter((edge) => edge.found).length, variables = new Set(nodes.map((node) => node.index)).size;
      const parts = [`${shown} of ${found.length} edges and ${variables} of ${graph.names.length} variables are shown`];
      if (state.centre >= 0) parts.push(`around ${graph.names[state.centre]} (press it again for all)`);
      const extra = edges.filter((edge) => !edge.found && edge.truth !== "missing").length;
      if (extra) parts.push(`${extra} pairs below the threshold`);
      if (state.truth) {
        const counts = {};
        edges.forEach((edge) => { if (edge.truth) counts[edge.truth] = (counts[edge.truth] || 0) + 1; });
        parts.push(Object.entries(counts).map(([key, number]) => `${number} ${key === "open" ? "with open direction" : key}`).join(", "));
      }
      said.textContent = `${parts.filter(Boolean).join("; ")}.`;
    }

    function explain(edges) {
      const entries = new Map();
      for (const edge of edges) {
        const style = styleOf(edge);
        let words = state.truth && edge.truth ? VERDICTS[edge.truth].words : null;
        if (!words) words = !edge.found ? "below the threshold" : !weighted || !edge.weight ? null : graph.unsigned ? "strength without a sign" : edge.weight > 0 ? "positive effect" : "negative effect";
        if (graph.kind === "pag" && words) words = words.replace("effect", "partial correlation");
        if (words) entries.set(words, { ...style, mark: graph.kind === "pag" ? "--" : edge.mark });
        if (graph.kind === "pag") entries.set(MARKS[edge.mark], { colour: NEUTRAL, dash: "", sign: "", mark: edge.mark });
      }
      if (edges.some((edge) => edge.mark === "--")) entries.set("no head: either direction explains the rows equally well", { colour: NEUTRAL, dash: "", sign: "", mark: "--" });
      if (state.forbidden) entries.set("forbidden by background knowledge", { colour: LEFT_OUT, dash: "1 4", sign: "✕", mark: "->" });
      const items = [...entries].map(([words, style]) => {
        const sample = element("svg", { viewBox: "0 0 52 14", "aria-hidden": "true" });
        const points = [{ x: 2, y: 7 }, { x: 50, y: 7 }];
        const atStart = style.mark[0], atEnd = style.mark[style.mark.length - 1];
        sample.append(element("path", { d: `M${atStart === "-" ? 2 : 9},7L${atEnd === "-" ? 50 : 42},7`, stroke: style.colour, "stroke-width": 2, "stroke-dasharray": style.dash }));
        if (atEnd !== "-") sample.append(endShape(points, atEnd, 10, style.colour));
        if (atStart !== "-") sample.append(endShape(points.slice().reverse(), atStart, 10, style.colour));
        if (style.sign) sample.append(element("rect", { x: 17, y: 0, width: 13, height: 14, fill: "#fff" }), element("text", { x: 23.5, y: 11.5, "text-anchor": "middle", "font-size": 13, fill: style.colour }, style.sign));
        return html("li", {}, sample, words);
      });
      if (weighted) items.push(html("li", {}, standardised ? "wider line: larger weight in standard deviations" : "wider line: larger weight"));
      legend.replaceChildren(...items);
    }

    // Moving and zooming.
    let moved = false;
    function apply() { svg.setAttribute("viewBox", `${box.x} ${box.y} ${box.w} ${box.h}`); }
    function fit() { box = { ...whole }; apply(); }
    function zoom(factor, centre = { x: box.x + box.w / 2, y: box.y + box.h / 2 }) {
      box = { x: centre.x - (centre.x - box.x) * factor, y: centre.y - (centre.y - box.y) * factor, w: box.w * factor, h: box.h * factor };
      apply();
    }
    function listen() {
      const pixel = () => Math.max(box.w / svg.clientWidth, box.h / svg.clientHeight);
      let from = null;
      svg.addEventListener("pointerdown", (event) => { from = { x: event.clientX, y: event.clientY }; moved = false; });
      svg.addEventListener("pointermove", (event) => {
        if (!from || !event.buttons) return;
        const dx = event.clientX - from.x, dy = event.clientY - from.y;
        if (!moved && Math.hypot(dx, dy) < 4) return;
        moved = true;
        svg.classList.add("dragged");
        box.x -= dx * pixel();
        box.y -= dy * pixel();
        from = { x: event.clientX, y: event.clientY };
        apply();
      });
      for (const end of ["pointerup", "pointerleave"]) svg.addEventListener(end, () => { from = null; svg.classList.remove("dragged"); });
      svg.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return; // without Ctrl the page scrolls
        event.preventDefault();
        const at = svg.getBoundingClientRect();
        const x = box.x + box.w / 2 + (event.clientX - at.left - at.width / 2) * pixel();
        const y = box.y + box.h / 2 + (event.clientY - at.top - at.height / 2) * pixel();
        zoom(event.deltaY > 0 ? 1.15 : 0.87, { x, y });
      }, { passive: false });
      svg.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
        if (event.key === "+") zoom(0.8);
        else if (event.key === "-") zoom(1.25);
        else if (event.key === "0") fit();
        else if (event.key === "Escape") centreOn(-1);
        else if (step && event.target === svg) { box.x += step[0] * box.w * 0.1; box.y += step[1] * box.h * 0.1; apply(); }
        else return;
        event.preventDefault();
      });
    }

    let known = 0;
    new ResizeObserver(() => {
      if (Math.abs(picture.clientWidth - known) > 4) { known = picture.clientWidth; changed(); }
    }).observe(picture);
    known = picture.clientWidth;
    draw();
  };
})();
