// The plots of the page, as SVG: heat maps, courses, densities, bars. `room` is a width in pixels.
"use strict";

const plots = (() => {
  const { FAMILY, element, widthOf } = drawing;
  const BLUE = "#1d5fa8", PALE = "#cfe0f3", INK = "#1a202c", LINE = "#a0aec0";
  const STRONG = { positive: [8, 63, 127], negative: [148, 56, 8] }; // the colours of the largest values
  const SIZE = 10; // of letters
  const NAMES_ON_AXES = 40;
  const LONGEST = 130; // pixels of a name
  const MARKED = 60; // so many points of a course are marked

  function short(value) {
    const size = Math.abs(value);
    if (size >= 1e4) return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
    if (size && size < 1e-3) return value.toExponential(1);
    return String(Number(value.toPrecision(3)));
  }

  function cut(text, room = LONGEST) {
    if (widthOf(text, SIZE) <= room) return text;
    let length = text.length;
    while (length > 1 && widthOf(`${text.slice(0, length)}…`, SIZE) > room) length -= 1;
    return `${text.slice(0, length)}…`;
  }

  const longest = (texts) => Math.max(0, ...texts.map((text) => widthOf(text, SIZE)));

  function text(words, x, y, more = {}) {
    return element("text", { x, y, "font-size": SIZE, fill: INK, ...more }, words);
  }

  function titled(shape, words) {
    shape.append(element("title", {}, words));
    return shape;
  }

  function picture(width, height, ...parts) {
    const made = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FAMILY });
    made.append(...parts);
    return made;
  }

  function ticks([low, high], count, least = 0) {
    const raw = Math.max((high - low) / count, least);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw * 0.999);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, k) => (first + k) * step);
  }

  function powers([low, high]) {
    const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9), step = Math.max(1, Math.ceil((last - first) / 4));
    return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, k) => first + k * step);
  }

  const span = (values) => {
    const low = Math.min(...values), high = Math.max(...values);
    return low < high ? [low, high] : [low - 0.5, high + 0.5];
  };

  const roomy = ([low, high]) => [low, high + 0.05 * (high - low)];

  // A frame for points (x, y): its parts, the places of values, and the picture that it becomes.
  function framed(room, high, y, marks, words, { below = 18, title = null, side = null } = {}) {
    const left = longest(marks.map(words)) + 10 + (side ? 14 : 0), top = 6;
    const wide = Math.max(90, Math.min(260, room - left - 12));
    const up = (value) => top + high * (1 - (value - y[0]) / (y[1] - y[0]));
    const parts = [element("rect", { x: left, y: top, width: wide, height: high, fill: "none", stroke: LINE })];
    for (const mark of marks) {
      parts.push(element("line", { x1: left, x2: left + wide, y1: up(mark), y2: up(mark), stroke: "#e2e8f0" }));
      parts.push(text(words(mark), left - 4, up(mark) + 3.5, { "text-anchor": "end" }));
    }
    if (side) parts.push(text(side, 0, 0, { "text-anchor": "middle", transform: `translate(${SIZE}, ${top + high / 2}) rotate(-90)` }));
    if (title) parts.push(text(title, left + wide / 2, top + high + below + 12, { "text-anchor": "middle" }));
    const made = () => picture(left + wide + 12, top + high + below + (title ? 18 : 0), ...parts);
    return { left, wide, floor: top + high, up, parts, made };
  }

  function across(frame, x, marks) {
    const at = (value) => frame.left + frame.wide * (value - x[0]) / (x[1] - x[0]);
    for (const mark of marks) frame.parts.push(text(short(mark), at(mark), frame.floor + 13, { "text-anchor": "middle" }));
    return at;
  }

  const path = (points) => `M${points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L")}`;

  function line(room, { points, log }, title) {
    const scale = log ? Math.log10 : (value) => value;
    const y = roomy(span([...points.map((one) => scale(one[1])), ...(log ? [] : [0])])), x = span(points.map((one) => one[0]));
    const frame = framed(room, 110, y, log ? powers(y) : ticks(y, 4), (mark) => short(log ? 10 ** mark : mark), { title });
    const at = across(frame, x, ticks(x, 5, 1));
    const places = points.map(([one, value]) => [at(one), frame.up(scale(value))]);
    frame.parts.push(element("path", { d: path(places), fill: "none", stroke: BLUE, "stroke-width": 1.5 }));
    if (points.length < MARKED) places.forEach(([cx, cy], k) => frame.parts.push(titled(element("circle", { cx, cy, r: 2.5, fill: BLUE }), `${title} ${points[k][0]}: ${short(points[k][1])}`)));
    return frame.made();
  }

  function area(room, { points, steps }) {
    const x = span(points.map((one) => one[0])), y = roomy([0, Math.max(...points.map((one) => one[1])) || 1]);
    const frame = framed(room, 100, y, ticks(y, 3), short, { side: "density" });
    const at = across(frame, x, ticks(x, 4));
    const places = points.flatMap(([one, value], k) => [...(steps && k ? [[at(one), frame.up(points[k - 1][1])]] : []), [at(one), frame.up(value)]]);
    const ends = [[places[places.length - 1][0], frame.floor], [places[0][0], frame.floor]];
    frame.parts.push(element("path", { d: path([...places, ...ends]), fill: PALE }), element("path", { d: path(places), fill: "none", stroke: BLUE, "stroke-width": 1.5 }));
    return frame.made();
  }

  function bars(room, { bars: given, unit }) {
    const y = roomy([0, Math.max(...given.map((one) => one[1])) || 1]), names = given.map(([name]) => cut(String(name), 90));
    const slanted = given.length > 6 || longest(names) > Math.min(260, room - 60) / given.length;
    const frame = framed(room, 100, y, ticks(y, 3), short, { below: slanted ? 14 + 0.87 * longest(names) : 18, side: unit });
    const band = frame.wide / given.length, every = slanted ? Math.ceil(12 / band) : 1;
    given.forEach(([name, value], k) => {
      const x = frame.left + band * k, middle = x + band / 2;
      frame.parts.push(titled(element("rect", { x: x + band * 0.1, y: frame.up(value), width: band * 0.8, height: frame.floor - frame.up(value), fill: BLUE }), `${name}: ${short(value)}`));
      if (k % every === 0) frame.parts.push(slanted ? text(names[k], 0, 0, { "text-anchor": "end", transform: `translate(${middle + 3}, ${frame.floor + 9}) rotate(-60)` }) : text(names[k], middle, frame.floor + 13, { "text-anchor": "middle" }));
    });
    return frame.made();
  }

  // White for 0; `share` of the strong colour.
  const mixed = (share, strong) => `rgb(${strong.map((part) => Math.round(255 + (part - 255) * (0.06 + 0.94 * share))).join(",")})`;
  const coloured = (share) => mixed(Math.abs(share), share < 0 ? STRONG.negative : STRONG.positive);

  function heat(room, { unit, axes, names, across: given, cells, share }) {
    const columns = given || names, extreme = share ? 1 : Math.max(1e-12, ...cells.map((cell) => Math.abs(cell[2])));
    const few = Math.max(names.length, columns.length) <= NAMES_ON_AXES;
    const wide = Math.max(few ? 12 : 1, Math.min(30, (room - 190) / columns.length));
    const high = Math.max(few ? 12 : 1, Math.min(22, 640 / names.length));
    const rowNames = few ? names.map((name) => cut(name)) : [], columnNames = few ? columns.map((name) => cut(name)) : [];
    const left = 18 + longest(rowNames) + 6, top = 4, right = left + wide * columns.length, floor = top + high * names.length;
    const below = floor + 8 + 0.87 * longest(columnNames) + 4;
    const parts = [element("rect", { x: left, y: top, width: right - left, height: floor - top, fill: "none", stroke: LINE })];
    for (const [row, column, value] of cells) {
      const x = left + wide * column, y = top + high * row, of = Math.max(-1, Math.min(1, value / extreme));
      parts.push(titled(element("rect", { x, y, width: wide, height: high, fill: coloured(of), stroke: "#fff", "stroke-width": few ? 1 : 0 }), `${axes[0]} ${names[row]}, ${axes[1]} ${columns[column]}: ${short(value)}`));
      const words = String(Number(value.toPrecision(2)));
      if (wide >= 26 && widthOf(words, 8.5) < wide) parts.push(text(words, x + wide / 2, y + high / 2 + 3, { "text-anchor": "middle", "font-size": 8.5, fill: Math.abs(of) > 0.6 ? "#fff" : INK, "pointer-events": "none" }));
    }
    rowNames.forEach((name, k) => parts.push(text(name, left - 5, top + high * (k + 0.5) + 3.5, { "text-anchor": "end" })));
    columnNames.forEach((name, k) => parts.push(text(name, 0, 0, { "text-anchor": "end", transform: `translate(${left + wide * (k + 0.5) + 3}, ${floor + 9}) rotate(-60)` })));
    parts.push(text(axes[0], 0, 0, { "text-anchor": "middle", transform: `translate(${SIZE}, ${(top + floor) / 2}) rotate(-90)` }));
    parts.push(text(axes[1], (left + right) / 2, below + 10, { "text-anchor": "middle" }));
    const key = below + 22, signed = cells.some((cell) => cell[2] < 0), blocks = 24;
    const low = text(short(signed ? -extreme : 0), left, key + 9), start = left + widthOf(low.textContent, SIZE) + 5;
    parts.push(low);
    for (let k = 0; k < blocks; k += 1) parts.push(element("rect", { x: start + 4 * k, y: key, width: 4.5, height: 10, fill: coloured(signed ? 2 * k / (blocks - 1) - 1 : k / (blocks - 1)) }));
    const end = `${short(extreme)}  ${unit}`;
    parts.push(text(end, start + 4 * blocks + 5, key + 9));
    return picture(Math.max(right, start + 4 * blocks + 5 + widthOf(end, SIZE)) + 8, key + 14, ...parts);
  }

  return { area, bars, heat, line };
})();
