(() => {
  const { all, tip, line, placeTip, hideTip, whenHidden } = page;
  whenHidden.push(() => all(".map .on").forEach((mark) => mark.classList.remove("on")));

  // Maps: what a point is, in a tooltip; its content is text, never markup.
  const source = document.getElementById("points");
  const points = source ? JSON.parse(source.textContent) : null;
  const maps = all("svg.map");
  const marks = maps.map((map) => {
    const byIndex = new Map();
    all("[data-i]", map).forEach((mark) => byIndex.set(Number(mark.dataset.i), mark));
    return byIndex;
  });
  const showPoint = (mark) => {
    const index = Number(mark.dataset.i);
    const guess = points.predicted[Number(mark.closest("svg").dataset.map)][index];
    hideTip();
    tip.replaceChildren();
    const title = document.createElement("strong");
    title.textContent = points.titles?.[index] || `${points.noun} ${points.rows[index]}`;
    tip.append(title);
    if (points.images[index]) {
      const image = document.createElement("img");
      image.src = points.images[index];
      image.alt = "";
      tip.append(image);
    }
    line(tip, "class", points.names[points.true[index]] ?? "unknown");
    if (guess !== null && guess !== undefined) {
      line(tip, "predicted", points.names[guess] + (guess === points.true[index] ? " ✓" : " ✗"));
    }
    (points.values[index] ?? []).forEach((value, i) => line(tip, points.columns[i], value));
    marks.forEach((byIndex) => byIndex.get(index)?.classList.add("on"));
    placeTip(mark.getBoundingClientRect());
  };
  maps.forEach((map) => map.addEventListener("pointerover", (event) => {
    const mark = event.target.closest?.("[data-i]");
    if (mark) showPoint(mark);
  }));

  // Arrow keys walk through the points of a map.
  maps.forEach((map, number) => {
    let at = -1;
    map.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const indices = [...marks[number].keys()].sort((a, b) => a - b);
      at = (Math.max(at, step < 0 ? 0 : -1) + step + indices.length) % indices.length;
      showPoint(marks[number].get(indices[at]));
    });
    map.addEventListener("blur", hideTip);
  });

  // A class of the legend alone.
  const legend = maps.length ? all("button.class-button") : [];
  legend.forEach((button) => button.addEventListener("click", () => {
    const alone = button.getAttribute("aria-pressed") !== "true";
    legend.forEach((other) => other.setAttribute("aria-pressed", String(alone && other === button)));
    marks.forEach((byIndex) => byIndex.forEach((mark, index) => mark.classList.toggle(
      "dim", alone && points.true[index] !== Number(button.dataset.class))));
  }));
})();
