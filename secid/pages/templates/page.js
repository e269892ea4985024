// Sorts a table by a click on a column's head, copies a command, and filters rows. The page says the rest without it.
for (const head of document.querySelectorAll("table.sortable thead th")) {
  const button = document.createElement("button");
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") !== "descending";
    const key = (row) => row.cells[head.cellIndex].textContent.trim();
    const number = (text) => parseFloat(text.replace(/[,<>±\s]/g, "").replace("\u2212", "-"));
    const order = (a, b) => {
      const [x, y] = [number(a), number(b)];
      if (isNaN(x) || isNaN(y)) return isNaN(x) && isNaN(y) ? a.localeCompare(b) : isNaN(x) ? -1 : 1;
      return x - y;
    };
    const rows = [...body.rows].sort((a, b) => (down ? order(key(b), key(a)) : order(key(a), key(b))));
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
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
