// What graph and plots share: elements, the width of texts, saving a picture.
"use strict";

const drawing = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const FAMILY = "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

  function element(name, attributes = {}, text = null) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    return made;
  }

  function html(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key in made && typeof value !== "string") made[key] = value;
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  const context = document.createElement("canvas").getContext("2d");
  function widthOf(text, size = 14) {
    context.font = `${size}px ${FAMILY}`;
    return context.measureText(text).width;
  }

  // Save the part of an SVG element that a box (x, y, w, h) has, on white.
  function save(svg, box, kind, name) {
    const copy = svg.cloneNode(true);
    copy.setAttribute("xmlns", SVG);
    copy.setAttribute("width", Math.round(box.w));
    copy.setAttribute("height", Math.round(box.h));
    copy.prepend(element("rect", { x: box.x, y: box.y, width: box.w, height: box.h, fill: "#fff" }));
    const address = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    if (kind === "svg") return download(address, `${name}.svg`);
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      const scale = Math.min(2, 8000 / Math.max(box.w, box.h));
      canvas.width = box.w * scale;
      canvas.height = box.h * scale;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      download(canvas.toDataURL("image/png"), `${name}.png`);
    };
    image.src = address;
    return undefined;
  }

  function download(address, name) {
    const link = html("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
  }

  return { FAMILY, element, html, save, widthOf };
})();
