"use strict";
// What every page shares; what a page adds finds it in `page`.
const page = (() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Theme: the system's, until the button is used.
  const theme = document.getElementById("theme");
  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => {
    try { return localStorage.getItem("nearfar-theme"); } catch { return null; }
  };
  const isDark = () => (root.dataset.theme || (darkSystem.matches ? "dark" : "light")) === "dark";
  const showTheme = () => {
    theme.setAttribute("aria-pressed", String(isDark()));
    theme.querySelector(".theme-word").textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", isDark() ? "Use the light theme" : "Use the dark theme");
  };
  if (["dark", "light"].includes(remembered())) root.dataset.theme = remembered();
  theme.hidden = false;
  showTheme();
  darkSystem.addEventListener("change", showTheme);
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("nearfar-theme", root.dataset.theme); } catch { /* not kept */ }
    showTheme();
  });

  // Sorting: cells without a value stay last in both directions.
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort ?? cell.textContent.trim().replaceAll(",", "");
  };
  const compare = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  };
  const sort = (header) => {
    const table = header.closest("table");
    const column = header.cellIndex;
    const down = header.getAttribute("aria-sort") === "ascending";
    all("th[aria-sort]", table).forEach((other) => other.setAttribute("aria-sort", "none"));
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, key: key(row, column) }));
    rows.sort((a, b) => {
      if (a.key === "" || b.key === "") return (a.key === "") - (b.key === "");
      return down ? compare(b.key, a.key) : compare(a.key, b.key);
    });
    body.append(...rows.map((item) => item.row));
  };
  all("button.sort").forEach((button) =>
    button.addEventListener("click", () => sort(button.closest("th"))));

  // One tooltip for charts and maps; its content is text, never markup.
  const tip = document.getElementById("tip");
  const line = (parent, name, value) => {
    const item = document.createElement("div");
    const label = document.createElement("span");
    label.textContent = name;
    const text = document.createElement("span");
    text.textContent = value;
    item.append(label, text);
    parent.append(item);
  };
  const placeTip = (box) => {
    tip.hidden = false;
    const size = tip.getBoundingClientRect();
    const width = root.clientWidth;
    const x = Math.min(Math.max(box.left + box.width / 2 - size.width / 2, 8), width - size.width - 8);
    const above = box.top - size.height - 10;
    tip.style.left = `${Math.max(x, 8)}px`;
    tip.style.top = `${above > 8 ? above : Math.min(box.bottom + 10, innerHeight - size.height - 8)}px`;
  };
  const whenHidden = [];
  const hideTip = () => {
    tip.hidden = true;
    whenHidden.forEach((action) => action());
  };

  document.addEventListener("pointerover", (event) => {
    const target = event.target.closest?.("[data-tip]");
    if (!target) { if (!tip.hidden && !event.target.closest?.("[data-own-tip], [data-i]")) hideTip(); return; }
    hideTip();
    tip.textContent = target.dataset.tip;
    placeTip(target.getBoundingClientRect());
  });
  document.addEventListener("scroll", hideTip, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  // Copying: the clipboard, or else the text is selected.
  all("button.copy").forEach((button) => {
    button.hidden = false;
    const source = document.getElementById(button.dataset.copy);
    button.addEventListener("click", async () => {
      let word = "Copied";
      try {
        await navigator.clipboard.writeText(source.textContent);
      } catch {
        getSelection().selectAllChildren(source);
        word = "Selected";
      }
      button.textContent = word;
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  });

  // The section in view is marked in the list.
  const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (!entry.isIntersecting) return;
    links.forEach((link) => link.removeAttribute("aria-current"));
    const link = links.get(entry.target.id);
    link.setAttribute("aria-current", "true");
    const list = link.closest("nav");
    if (list.scrollWidth > list.clientWidth) list.scrollLeft = link.offsetLeft - 24;
  }), { rootMargin: "-15% 0px -75% 0px" });
  all("main > section").forEach((section) => seen.observe(section));

  // Printing opens what is folded.
  addEventListener("beforeprint", () => all("details.panel").forEach((part) => { part.open = true; }));

  return { all, isDark, theme, darkSystem, tip, line, placeTip, hideTip, whenHidden };
})();
