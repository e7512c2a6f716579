// A chosen mark and its neighbors: their ellipses in one plane, and how far they are.
(() => {
  const source = document.getElementById("points");
  const stage = document.getElementById("stage");
  const panel = document.getElementById("ellipse-panel");
  if (!source || !panel || !stage) return;
  const data = JSON.parse(source.textContent);
  if (!data.ellipses) return;
  const unpack = (text, Kind) => new Kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const ellipses = unpack(data.ellipses, Float32Array);
  const neighbors = unpack(data.neighbors, Uint32Array);
  const far = unpack(data.dissimilarities, Float32Array);
  const sizes = unpack(data.sizes, Uint32Array);
  const codes = unpack(data.codes, Uint8Array);
  const rows = data.rows === null ? null : unpack(data.rows, Uint32Array);
  const plot = document.getElementById("ellipse-plot");
  const said = document.getElementById("ellipse-said");
  const body = document.getElementById("ellipse-table").tBodies[0];
  const k = data.n_neighbors, stored = ellipses.length / 5, UNKNOWN = 255;
  const [width, height, edge] = [460, 400, 34];
  const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const nameOf = (i) => (data.titles ? data.titles[i] : `${data.noun} ${rows ? rows[i] : i}`);
  const styleOf = (i) => (codes[i] === UNKNOWN ? "unknown" : data.numbers ? `n${codes[i]}` : `s${codes[i] % 10}`);
  const labelOf = (i) => (codes[i] === UNKNOWN || !data.names.length ? "–" : data.names[codes[i]]);

  // Half axes and turn of two standard deviations about the mean.
  const ellipse = (i) => {
    const [x, y, a, b, c] = ellipses.subarray(5 * i, 5 * i + 5);
    const middle = (a + c) / 2, half = Math.hypot((a - c) / 2, b);
    return {
      i, x, y, turn: Math.atan2(2 * b, a - c) / 2,
      long: 2 * Math.sqrt(Math.max(0, middle + half)), short: 2 * Math.sqrt(Math.max(0, middle - half)),
      dx: 2 * Math.sqrt(Math.max(0, a)), dy: 2 * Math.sqrt(Math.max(0, c)),
    };
  };
  const make = (name, attributes, text) => {
    const item = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => item.setAttribute(key, value));
    if (text !== undefined) item.textContent = text;
    return item;
  };

  const draw = (shapes) => {
    const low = [Math.min(...shapes.map((s) => s.x - s.dx)), Math.min(...shapes.map((s) => s.y - s.dy))];
    const high = [Math.max(...shapes.map((s) => s.x + s.dx)), Math.max(...shapes.map((s) => s.y + s.dy))];
    const scale = Math.min((width - 2 * edge) / (high[0] - low[0] || 1), (height - 2 * edge) / (high[1] - low[1] || 1));
    const px = (x) => width / 2 + scale * (x - (low[0] + high[0]) / 2);
    const py = (y) => height / 2 - scale * (y - (low[1] + high[1]) / 2);
    plot.replaceChildren(
      make("text", { class: "axis-name", x: width / 2, y: height - 6, "text-anchor": "middle" }, data.axes[0]),
      make("text", { class: "axis-name", x: 12, y: height / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${height / 2})` }, data.axes[1]),
    );
    // The chosen one last, on top.
    [...shapes].reverse().forEach((s) => {
      const first = s === shapes[0];
      const group = make("g", { class: `${styleOf(s.i)}${first ? " chosen" : ""}` });
      group.append(make("ellipse", {
        cx: px(s.x).toFixed(1), cy: py(s.y).toFixed(1), rx: Math.max(1, scale * s.long).toFixed(1), ry: Math.max(1, scale * s.short).toFixed(1),
        transform: `rotate(${(-s.turn * 180 / Math.PI).toFixed(2)} ${px(s.x).toFixed(1)} ${py(s.y).toFixed(1)})`,
      }));
      if (first) group.append(make("circle", { cx: px(s.x).toFixed(1), cy: py(s.y).toFixed(1), r: 4 }));
      else {
        // Its number on the rim, at a place of its own.
        const rank = shapes.indexOf(s), t = 0.6 + 2 * Math.PI * rank / shapes.length;
        const [u, v] = [s.long * Math.cos(t), s.short * Math.sin(t)];
        const [x, y] = [s.x + u * Math.cos(s.turn) - v * Math.sin(s.turn), s.y + u * Math.sin(s.turn) + v * Math.cos(s.turn)];
        group.append(make("text", { x: px(x).toFixed(1), y: (py(y) + 4).toFixed(1), "text-anchor": "middle" }, rank));
      }
      plot.append(group);
    });
  };

  const row = (i, rank, distance) => {
    const line = document.createElement("tr");
    line.className = rank ? "" : "query";
    const head = document.createElement("th");
    head.scope = "row";
    const mark = document.createElement("span");
    mark.className = `mark-of ${styleOf(i)}`;
    mark.textContent = rank || "●";
    mark.setAttribute("aria-hidden", "true");
    head.append(mark);
    if (rank) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "go";
      button.textContent = nameOf(i);
      button.addEventListener("click", () => {
        stage.dispatchEvent(new CustomEvent("choose", { detail: i }));
        (body.querySelector("button.go") ?? panel).focus();
      });
      head.append(button);
    } else head.append(nameOf(i));
    const cell = (text, number) => {
      const item = document.createElement("td");
      if (number) item.className = "num";
      item.textContent = text;
      return item;
    };
    line.append(head, cell(labelOf(i)), cell(sizes[i].toLocaleString("en"), true), cell(rank ? digits.format(distance) : "", true));
    return line;
  };

  const show = (i) => {
    if (i >= stored) {
      plot.replaceChildren();
      body.replaceChildren();
      said.textContent = `${nameOf(i)}: this page stores no ellipse of it.`;
      return;
    }
    const near = [...neighbors.subarray(k * i, k * i + k)];
    const shapes = [i, ...near.filter((j) => j < stored)].map(ellipse);
    draw(shapes);
    body.replaceChildren(row(i, 0), ...near.map((j, n) => row(j, n + 1, far[k * i + n])));
    const same = near.filter((j) => labelOf(j) === labelOf(i)).length;
    said.textContent = data.names.length
      ? `${nameOf(i)} (${labelOf(i)}): ${same} of its ${near.length} nearest ${data.noun.toLowerCase()}s have its label.`
      : `${nameOf(i)} and its ${near.length} nearest ${data.noun.toLowerCase()}s.`;
    panel.dataset.chosen = i;
  };
  panel.hidden = false;
  stage.addEventListener("choose", (event) => show(event.detail));
  show(0);
})();
