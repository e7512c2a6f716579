// The picture of an embedding: drawn on a canvas, moved or turned, pointed at.
(() => {
  const { all, theme, darkSystem, tip, line, placeTip, hideTip, whenHidden } = page;
  const source = document.getElementById("points");
  const canvas = document.getElementById("canvas");
  const stage = document.getElementById("stage");
  if (!source || !canvas.getContext) return;
  const data = JSON.parse(source.textContent);
  const unpack = (text, Kind) =>
    (text === null ? null : new Kind(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer));
  const { n, q } = data;
  const places = unpack(data.places, Float32Array);
  const codes = unpack(data.codes, Uint8Array);
  const rows = unpack(data.rows, Uint32Array);
  const values = unpack(data.values, Float32Array);
  const edges = unpack(data.edges, Uint32Array);
  const UNKNOWN = 255;
  const deep = q === 3;
  const context = canvas.getContext("2d");
  const button = (id) => document.getElementById(id);

  document.documentElement.classList.add("has-script");
  stage.querySelector(".still").style.display = "none";
  canvas.hidden = false;
  button("tools").hidden = false;

  // The view. A turn is a 3 × 3 matrix, row by row.
  const times = (A, B) => [0, 3, 6].flatMap((i) => [0, 1, 2].map(
    (j) => A[i] * B[j] + A[i + 1] * B[j + 3] + A[i + 2] * B[j + 6]));
  const turned = (a) => [Math.cos(a), 0, Math.sin(a), 0, 1, 0, -Math.sin(a), 0, Math.cos(a)];
  const tilted = (a) => [1, 0, 0, 0, Math.cos(a), -Math.sin(a), 0, Math.sin(a), Math.cos(a)];
  const view = {};
  const resetView = () => Object.assign(view, {
    zoom: 1, x: 0, y: 0, turn: times(tilted(data.turn[1]), turned(data.turn[0])),
  });
  resetView();
  let showEdges = false, showPictures = false, only = null, at = -1, chosen = -1;
  let width = 0, height = 0, ratio = 1, moving = false;

  // Half the size of all there is, to fit it in.
  const half = [0, 0, 0];
  let radius = 0;
  for (let i = 0; i < n; i += 1) {
    let sum = 0;
    for (let j = 0; j < q; j += 1) {
      const value = places[i * q + j];
      half[j] = Math.max(half[j], Math.abs(value));
      sum += value * value;
    }
    radius = Math.max(radius, Math.sqrt(sum));
  }
  const margin = 26;
  const fit = () => (deep
    ? 1.12 * (Math.min(width, height) / 2 - margin) / (radius || 1)
    : Math.min((width - 2 * margin) / (2 * half[0] || 1), (height - 2 * margin) / (2 * half[1] || 1)));

  // Screen places and depths from -1 (far) to 1 (near).
  const sx = new Float32Array(n), sy = new Float32Array(n), depth = new Float32Array(n);
  const project = () => {
    const scale = fit() * view.zoom;
    const [cx, cy] = [width / 2 + view.x, height / 2 + view.y];
    const T = view.turn;
    for (let i = 0; i < n; i += 1) {
      const x = places[i * q], y = places[i * q + 1];
      if (!deep) { sx[i] = cx + scale * x; sy[i] = cy - scale * y; continue; }
      const z = places[i * q + 2];
      const far = (T[6] * x + T[7] * y + T[8] * z) / (radius || 1);
      const near = scale / (1 - 0.22 * far);
      sx[i] = cx + near * (T[0] * x + T[1] * y + T[2] * z);
      sy[i] = cy - near * (T[3] * x + T[4] * y + T[5] * z);
      depth[i] = far;
    }
  };

  // The order of drawing: mixed, so that no class covers another; or from far to near.
  const order = new Uint32Array(n);
  const mix = () => {
    let seed = 1;
    for (let i = 0; i < n; i += 1) order[i] = i;
    for (let i = n - 1; i > 0; i -= 1) {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      const j = seed % (i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
  };
  const bins = 512;
  const sortByDepth = () => {
    const starts = new Uint32Array(bins + 1);
    const bin = (i) => Math.min(bins - 1, Math.max(0, ((depth[i] + 1) / 2 * bins) | 0));
    for (let i = 0; i < n; i += 1) starts[bin(i) + 1] += 1;
    for (let b = 0; b < bins; b += 1) starts[b + 1] += starts[b];
    for (let i = 0; i < n; i += 1) { const b = bin(i); order[starts[b]] = i; starts[b] += 1; }
  };
  mix();

  // Colours come from the style sheet, through an element that has them.
  const probe = document.createElement("span");
  probe.hidden = true;
  stage.append(probe);
  const colorOf = (name, property = "color") => {
    probe.className = name;
    return getComputedStyle(probe)[property];
  };
  let ink = {}, sprites = new Map();
  const readColors = () => {
    ink = { ground: getComputedStyle(stage).backgroundColor, text: getComputedStyle(stage).color, line: colorOf("unknown") };
    sprites = new Map();
  };
  const styleOf = (code) => (code === UNKNOWN ? "unknown" : data.numbers ? `n${code}` : `s${code % 10}`);
  const shapeOf = (code) => (code === UNKNOWN || data.numbers ? "" : data.shapes[Math.floor(code / 10) % data.shapes.length]);
  const markSize = () => data.size * Math.min(1.9, Math.max(0.75, Math.sqrt(view.zoom)) * Math.min(1, Math.max(0.7, width / 900)));
  const sprite = (code, size) => {
    const key = `${code} ${size.toFixed(1)}`;
    if (sprites.has(key)) return sprites.get(key);
    const image = document.createElement("canvas");
    const edge = size < 2.2 ? 0.3 : 0.7;
    image.width = image.height = Math.ceil(2 * (1.35 * size + 1.5) * ratio);
    const pen = image.getContext("2d");
    pen.scale(ratio, ratio);
    pen.translate(image.width / ratio / 2, image.height / ratio / 2);
    pen.fillStyle = colorOf(styleOf(code));
    pen.strokeStyle = ink.ground;
    let path = new Path2D();
    const shape = shapeOf(code);
    if (shape) path.addPath(new Path2D(`M0 0${shape}`), new DOMMatrix().scale(size / 3));
    else path.arc(0, 0, size, 0, 2 * Math.PI);
    pen.fill(path);
    pen.lineWidth = edge;
    pen.stroke(path);
    sprites.set(key, image);
    return image;
  };

  // Neighbors of a row, for the edges that are shown where one points.
  let starts = null, ends = null;
  const neighbors = (i) => {
    if (!edges) return [];
    if (!starts) {
      starts = new Uint32Array(n + 1);
      for (const end of edges) starts[end + 1] += 1;
      for (let k = 0; k < n; k += 1) starts[k + 1] += starts[k];
      const next = starts.slice();
      ends = new Uint32Array(edges.length);
      for (let k = 0; k < edges.length; k += 2) {
        ends[next[edges[k]]++] = edges[k + 1];
        ends[next[edges[k + 1]]++] = edges[k];
      }
    }
    return ends.subarray(starts[i], starts[i + 1]);
  };
  const dimmed = (i) => only !== null && codes[i] !== only;

  const used = [...new Set(codes)];
  const slots = new Uint8Array(256);
  used.forEach((code, slot) => { slots[code] = slot; });

  const drawEdges = () => {
    context.beginPath();
    for (let k = 0; k < edges.length; k += 2) {
      const a = edges[k], b = edges[k + 1];
      if (dimmed(a) && dimmed(b)) continue;
      context.moveTo(sx[a], sy[a]);
      context.lineTo(sx[b], sy[b]);
    }
    context.globalAlpha = Math.min(0.6, Math.max(0.14, 40 / Math.sqrt(edges.length / 2 + 1)));
    context.lineWidth = edges.length > 20000 ? 0.5 : 0.8;
    context.strokeStyle = ink.line;
    context.stroke();
    context.globalAlpha = 1;
  };

  // Pictures at the rows, as many as have room.
  const loaded = new Map();
  const drawPictures = () => {
    const size = Math.min(96, (n < 300 ? 52 : 42) * Math.sqrt(view.zoom));
    const taken = new Set();
    let count = 0;
    for (let k = n - 1; k >= 0 && count < 500; k -= 1) {
      const i = order[k];
      if (!data.images[i] || dimmed(i) || sx[i] < 0 || sy[i] < 0 || sx[i] > width || sy[i] > height) continue;
      const [a, b] = [Math.floor(sx[i] / size), Math.floor(sy[i] / size)];
      let free = true;
      for (let u = -1; u <= 1 && free; u += 1) for (let v = -1; v <= 1; v += 1) {
        const other = taken.has(`${a + u} ${b + v}`) ? spots.get(`${a + u} ${b + v}`) : null;
        if (other && Math.abs(other[0] - sx[i]) < size && Math.abs(other[1] - sy[i]) < size) { free = false; break; }
      }
      if (!free) continue;
      taken.add(`${a} ${b}`);
      spots.set(`${a} ${b}`, [sx[i], sy[i]]);
      count += 1;
      let image = loaded.get(i);
      if (!image) {
        image = new Image();
        image.onload = redraw;
        image.src = data.images[i];
        loaded.set(i, image);
      }
      if (!image.complete || !image.naturalWidth) continue;
      const s = (size - 4) / Math.max(image.naturalWidth, image.naturalHeight);
      const [w, h] = [s * image.naturalWidth, s * image.naturalHeight];
      context.imageSmoothingEnabled = image.naturalWidth > 16;
      context.drawImage(image, sx[i] - w / 2, sy[i] - h / 2, w, h);
      context.strokeStyle = colorOf(styleOf(codes[i]));
      context.lineWidth = 2;
      context.strokeRect(sx[i] - w / 2, sy[i] - h / 2, w, h);
    }
    spots.clear();
    context.imageSmoothingEnabled = true;
    return count;
  };
  const spots = new Map();

  const drawAxes = () => {
    const size = 18, x = 20, y = height - 18;
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 1;
    context.strokeStyle = context.fillStyle = ink.line;
    for (let j = 0; j < q; j += 1) {
      const dx = deep ? view.turn[j] : Number(j === 0), dy = deep ? view.turn[3 + j] : Number(j === 1);
      if (Math.hypot(dx, dy) < 0.15) continue;
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + size * dx, y - size * dy);
      context.stroke();
      context.fillText(String(j + 1), x + (size + 9) * dx, y - (size + 9) * dy);
    }
  };

  // Thousands of marks are blended into one image here, which is fast in every browser.
  const sheetCanvas = document.createElement("canvas");
  let sheet = null;
  const freshSheet = () => {
    if (sheet && sheet.width === canvas.width && sheet.height === canvas.height) { sheet.data.fill(0); return; }
    [sheetCanvas.width, sheetCanvas.height] = [canvas.width, canvas.height];
    sheet = new ImageData(canvas.width, canvas.height);
  };
  const blend = (image, x, y, alpha) => {
    image.pixels ??= image.getContext("2d").getImageData(0, 0, image.width, image.height).data;
    const { pixels, width: size } = image;
    const { data: to, width: w, height: h } = sheet;
    const left = Math.round(x * ratio - size / 2), top = Math.round(y * ratio - size / 2);
    for (let v = Math.max(0, -top); v < size && top + v < h; v += 1) {
      for (let u = Math.max(0, -left); u < size && left + u < w; u += 1) {
        const from = 4 * (v * size + u);
        if (!pixels[from + 3]) continue;
        const at = 4 * ((top + v) * w + left + u);
        const a = alpha * pixels[from + 3] / 255;
        const below = to[at + 3] / 255 * (1 - a);
        const whole = a + below;
        to[at] = (pixels[from] * a + to[at] * below) / whole;
        to[at + 1] = (pixels[from + 1] * a + to[at + 1] * below) / whole;
        to[at + 2] = (pixels[from + 2] * a + to[at + 2] * below) / whole;
        to[at + 3] = 255 * whole;
      }
    }
  };

  const draw = () => {
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    project();
    if (deep) sortByDepth();
    // Very many edges would make a drag stutter.
    if (showEdges && edges && !(moving && edges.length > 30000)) drawEdges();
    const many = n > 3000;
    if (many) freshSheet();
    const size = markSize();
    const fade = deep && radius > 0;
    const faint = showPictures ? 0.35 : 1;
    // Three sizes of each mark: far, middle, near.
    const sizes = [0.8, 1, 1.2].map((part) => (fade ? size * part : size));
    const images = used.map((code) => sizes.map((one) => sprite(code, one)));
    for (let pass = only === null ? 1 : 0; pass < 2; pass += 1) {
      for (let k = 0; k < n; k += 1) {
        const i = order[k];
        if (only !== null && dimmed(i) !== (pass === 0)) continue;
        if (sx[i] < -9 || sy[i] < -9 || sx[i] > width + 9 || sy[i] > height + 9) continue;
        const image = images[slots[codes[i]]][fade ? Math.max(0, Math.min(2, Math.round(1 + 1.5 * depth[i]))) : 1];
        const alpha = (pass === 0 ? 0.07 : fade ? 0.72 + 0.28 * depth[i] : n > 8000 ? 0.85 : 0.92) * faint;
        const w = image.width / ratio;
        if (many) { blend(image, sx[i], sy[i], alpha); continue; }
        context.globalAlpha = alpha;
        context.drawImage(image, sx[i] - w / 2, sy[i] - w / 2, w, w);
      }
    }
    context.globalAlpha = 1;
    if (many) {
      sheetCanvas.getContext("2d").putImageData(sheet, 0, 0);
      context.drawImage(sheetCanvas, 0, 0, width, height);
    }
    canvas.dataset.pictures = showPictures ? drawPictures() : 0;
    if (chosen >= 0 && chosen !== at) ring(chosen, size + 3);
    if (at >= 0) drawChosen(size);
    drawAxes();
    canvas.dataset.points = n;
    canvas.dataset.edges = showEdges && edges ? edges.length / 2 : 0;
    canvas.dataset.view = [view.zoom, view.x, view.y, ...view.turn].map((v) => v.toFixed(3)).join(" ");
    canvas.dataset.at = at < 0 ? "" : `${sx[at].toFixed(1)} ${sy[at].toFixed(1)}`;
  };
  const drawChosen = (size) => {
    context.strokeStyle = ink.text;
    context.lineWidth = 1.2;
    context.beginPath();
    for (const other of neighbors(at)) {
      context.moveTo(sx[at], sy[at]);
      context.lineTo(sx[other], sy[other]);
    }
    context.stroke();
    for (const i of [...neighbors(at), at]) {
      const image = sprite(codes[i], size + (i === at ? 2 : 0.5));
      const w = image.width / ratio;
      context.drawImage(image, sx[i] - w / 2, sy[i] - w / 2, w, w);
    }
    ring(at, size + 4);
  };
  const ring = (i, radius) => {
    context.strokeStyle = ink.text;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(sx[i], sy[i], radius, 0, 2 * Math.PI);
    context.stroke();
  };
  let asked = false;
  const redraw = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  };

  // What a row is, in a tooltip; its content is text, never markup.
  const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const colorWords = (i) => {
    if (codes[i] === UNKNOWN) return "unknown";
    return data.numbers ? digits.format(values[i]) : data.names[codes[i]];
  };
  const showRow = (i) => {
    hideTip();
    at = i;
    tip.replaceChildren();
    const title = document.createElement("strong");
    title.textContent = data.titles ? data.titles[i] : `${data.noun} ${rows ? rows[i] : i}`;
    tip.append(title);
    if (data.images[i]) {
      const image = document.createElement("img");
      image.className = "large";
      image.src = data.images[i];
      image.alt = "";
      tip.append(image);
    }
    // What names the row first, then its colour, then the rest.
    const cell = (name, j) => line(tip, name, data.cells[j][i] || "–");
    data.columns.slice(0, data.n_ids).forEach(cell);
    if (data.color !== null) line(tip, data.color, colorWords(i));
    data.columns.slice(data.n_ids).forEach((name, j) => cell(name, j + data.n_ids));
    const box = canvas.getBoundingClientRect();
    placeTip(new DOMRect(box.left + sx[i] - 6, box.top + sy[i] - 6, 12, 12));
    redraw();
  };
  whenHidden.push(() => { if (at >= 0) { at = -1; redraw(); } });
  const nearest = (x, y) => {
    let best = -1, least = 14 * 14;
    for (let i = 0; i < n; i += 1) {
      if (dimmed(i)) continue;
      const far = (sx[i] - x) ** 2 + (sy[i] - y) ** 2;
      // Of those at one place the nearest to the eye.
      if (far < least || (deep && best >= 0 && far < least + 9 && depth[i] > depth[best] + 0.05)) {
        least = Math.min(least, far);
        best = i;
      }
    }
    return best;
  };

  // The mouse, a pen or a finger.
  let held = null, dragged = false;
  const placeOf = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const move = (dx, dy) => {
    if (deep) {
      const speed = 0.008;
      view.turn = times(times(tilted(dy * speed), turned(dx * speed)), view.turn);
    } else { view.x += dx; view.y += dy; }
    redraw();
  };
  const zoom = (factor, x = width / 2, y = height / 2) => {
    const before = view.zoom;
    view.zoom = Math.min(60, Math.max(0.4, before * factor));
    const share = view.zoom / before;
    view.x = x - width / 2 - share * (x - width / 2 - view.x);
    view.y = y - height / 2 - share * (y - height / 2 - view.y);
    hideTip();
    redraw();
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    held = placeOf(event);
    dragged = false;
    stopSpin();
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = placeOf(event);
    if (held) {
      if (!moving && Math.hypot(x - held[0], y - held[1]) < 3) return;
      moving = dragged = true;
      hideTip();
      move(x - held[0], y - held[1]);
      held = [x, y];
      return;
    }
    const found = nearest(x, y);
    canvas.classList.toggle("pointing", found >= 0);
    if (found < 0) { if (at >= 0) hideTip(); } else if (found !== at) showRow(found);
  });
  const release = () => { held = null; if (moving) { moving = false; redraw(); } };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { if (!held) hideTip(); });
  canvas.addEventListener("click", (event) => {  // a finger does not hover
    const found = nearest(...placeOf(event));
    if (found >= 0) showRow(found);
    if (found >= 0 && !dragged) choose(found);
  });
  // What stands beside the picture hears which mark was chosen, and may choose one itself.
  const choose = (i) => stage.dispatchEvent(new CustomEvent("choose", { detail: i }));
  stage.addEventListener("choose", (event) => { chosen = data.ellipses ? event.detail : -1; redraw(); });
  canvas.addEventListener("dblclick", (event) => zoom(1.8, ...placeOf(event)));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;  // the page scrolls
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.004)), ...placeOf(event));
  }, { passive: false });

  // The keyboard.
  let walked = -1;
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const way = { ArrowRight: [1, 0], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowUp: [0, -1] }[event.key];
    if (way && event.shiftKey) {
      hideTip();
      move(24 * way[0], 24 * way[1]);
    } else if (way) {
      const step = way[0] + way[1];
      walked = Math.max(walked, step < 0 ? 0 : -1);
      for (let k = 0; k < n; k += 1) {  // past those that are dimmed
        walked = (walked + step + n) % n;
        if (!dimmed(walked)) break;
      }
      showRow(walked);
    } else if (event.key === "Enter" && at >= 0) choose(at);
    else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") { resetView(); hideTip(); redraw(); }
    else return;
    event.preventDefault();
  });
  canvas.addEventListener("blur", hideTip);

  // The buttons.
  const toggle = (id, change) => button(id)?.addEventListener("click", (event) => {
    const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
    event.currentTarget.setAttribute("aria-pressed", String(on));
    change(on);
  });
  toggle("edges", (on) => { showEdges = on; redraw(); });
  toggle("pictures", (on) => { showPictures = on; redraw(); });
  let spinning = false;
  const spin = (before) => (now) => {
    if (!spinning) return;
    view.turn = times(view.turn, turned((now - before) * 0.0005));
    draw();
    requestAnimationFrame(spin(now));
  };
  const stopSpin = () => {
    if (!spinning) return;
    spinning = moving = false;
    button("spin").setAttribute("aria-pressed", "false");
    redraw();
  };
  toggle("spin", (on) => {
    if (!on) { stopSpin(); return; }
    spinning = moving = true;
    requestAnimationFrame((now) => spin(now)(now));
  });
  button("closer").addEventListener("click", () => zoom(1.5));
  button("farther").addEventListener("click", () => zoom(1 / 1.5));
  button("reset").addEventListener("click", () => { stopSpin(); resetView(); hideTip(); redraw(); });

  // A class of the legend alone.
  const legend = all("button.class-button");
  legend.forEach((item) => item.addEventListener("click", () => {
    const alone = item.getAttribute("aria-pressed") !== "true";
    legend.forEach((other) => other.setAttribute("aria-pressed", String(alone && other === item)));
    only = alone ? Number(item.dataset.class) : null;
    redraw();
  }));

  const restyle = () => { readColors(); redraw(); };
  theme.addEventListener("click", restyle);
  darkSystem.addEventListener("change", restyle);
  new ResizeObserver(() => {
    // Lower where the picture is long and thin; a style of its own would undo the sheet's limits.
    const share = deep ? 1 : half[1] / (half[0] || 1);
    const wanted = share * (canvas.clientWidth - 2 * margin) + 4 * margin;
    canvas.style.maxHeight = `${Math.max(260, Math.round(wanted))}px`;
    const box = canvas.getBoundingClientRect();
    if (!box.width) return;
    [width, height, ratio] = [box.width, box.height, Math.min(devicePixelRatio || 1, 2)];
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    sprites = new Map();
    draw();
  }).observe(canvas);
  readColors();
})();
