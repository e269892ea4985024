// Sorts a table by a click on a column's head, and copies a command. The page says everything without it.
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
