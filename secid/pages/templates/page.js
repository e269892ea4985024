// Sorts tables, copies commands, filters rows and saves figures. The page says the rest without it.
for (const head of document.querySelectorAll("table.sortable thead th")) {
  const button = document.createElement("button");
  button.append(...head.childNodes);
  head.append(button);
  if (head.title) {
    const tip = document.createElement("p");
    tip.className = "tip";
    tip.textContent = `${button.textContent}: ${head.title}`;
    button.title = head.title; // read to those who cannot see the tip
    head.removeAttribute("title");
    button.addEventListener("focus", () => head.closest(".scroll").before(tip));
    button.addEventListener("blur", () => tip.remove());
  }
  button.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    const key = (row) => row.cells[head.cellIndex].textContent.trim();
    const number = (text) => parseFloat(text.replace(/[,<>±\s]/g, "").replace("\u2212", "-"));
    const order = (a, b) => {
      const [x, y] = [number(a), number(b)];
      if (isNaN(x) || isNaN(y)) return isNaN(x) && isNaN(y) ? a.localeCompare(b) : isNaN(x) ? -1 : 1;
      return x - y;
    };
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    for (const body of head.closest("table").querySelectorAll("tbody:not(.controls)")) {
      body.append(...[...body.rows].sort((a, b) => (down ? order(key(b), key(a)) : order(key(a), key(b)))));
    }
  });
}
for (const code of document.querySelectorAll("code.command")) {
  if (!navigator.clipboard) break;
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${code.textContent}`);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  code.after(button);
}
const template = document.querySelector("#rows");
if (template) {
  const part = template.content.querySelector("section");
  const list = part.querySelector("ul");
  const more = part.querySelector("button");
  const [source, finding, order] = part.querySelectorAll("select");
  const rows = [...list.children];
  const chosen = ({ dataset }) =>
    (!source.value || dataset.source === source.value) &&
    (!finding.value || dataset.findings.split(" ").includes(finding.value));
  const show = (n) => {
    const unknown = (row) => row.dataset.margin === undefined;
    const compare = (a, b) => unknown(a) - unknown(b) || order.value * (a.dataset.margin - b.dataset.margin);
    const found = rows.filter(chosen).sort(compare);
    list.replaceChildren(...found.slice(0, n));
    more.hidden = n >= found.length;
    part.querySelector("[role=status]").textContent = `${list.children.length} of ${found.length} rows`;
  };
  for (const select of [source, finding, order]) select.addEventListener("change", () => show(20));
  more.addEventListener("click", () => {
    const n = list.children.length;
    show(n + 20);
    list.children[n].tabIndex = -1;
    list.children[n].focus();
  });
  show(20);
  template.replaceWith(part);
}
const drawn = (figure) => {
  const create = (name, attributes, ...inner) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...inner);
    return element;
  };
  const chart = figure.querySelector("[role=img]");
  const { left, top, width, height } = chart.getBoundingClientRect();
  const color = getComputedStyle(document.body).backgroundColor;
  const whole = create("svg", { width, height }, create("title", {}, chart.getAttribute("aria-label")));
  whole.append(create("rect", { width, height, fill: color }));
  for (const part of chart.querySelectorAll("span, bdi, svg")) {
    const box = part.getBoundingClientRect();
    const place = { x: box.left - left, y: box.top - top, width: box.width, height: box.height };
    if (part.localName === "svg") {
      const copy = part.cloneNode(true);
      const copies = copy.querySelectorAll("*");
      for (const [n, shape] of part.querySelectorAll("*").entries()) {
        const style = getComputedStyle(shape);
        copies[n].removeAttribute("class");
        for (const key of styled) copies[n].setAttribute(key, style.getPropertyValue(key));
      }
      for (const key of ["class", "aria-hidden"]) copy.removeAttribute(key);
      for (const [key, value] of Object.entries(place)) copy.setAttribute(key, value);
      whole.append(copy);
    } else if (part.textContent.trim()) {
      const style = getComputedStyle(part);
      const size = parseFloat(style.fontSize);
      if (part.localName === "span") place.overflow = "visible"; // a head may be wider than its column
      const words = { y: box.height / 2 + 0.35 * size, fill: style.color, "font-size": size };
      words["font-family"] = style.fontFamily;
      whole.append(create("svg", place, create("text", words, part.textContent)));
    }
  }
  return new XMLSerializer().serializeToString(whole);
};
const styled = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray"];
styled.push("stroke-linejoin", "paint-order", "vector-effect", "text-anchor", "font-family", "font-size");
for (const figure of self === top ? document.querySelectorAll("figure[data-title]") : []) {
  const line = document.createElement("span");
  line.className = "save";
  line.append("Save");
  const { title } = figure.dataset;
  const numbers = figure.querySelector("template").content.textContent;
  const kinds = { SVG: ["image/svg+xml", () => drawn(figure)], JSON: ["application/json", () => numbers] };
  for (const [kind, [type, text]] of Object.entries(kinds)) {
    const button = document.createElement("button");
    button.textContent = kind;
    button.setAttribute("aria-label", `Save ${title} as ${kind}`);
    button.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text()], { type }));
      link.download = `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.${kind.toLowerCase()}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
    line.append(button);
  }
  (figure.querySelector("figcaption") || figure).append(" ", line);
}
