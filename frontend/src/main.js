// The page of a view. Values of the graph enter the page as text only, never as markup.
import { MultiDirectedGraph } from "graphology";
import forceAtlas2 from "graphology-layout-forceatlas2";
import Sigma from "sigma";
import { createEdgeCurveProgram, indexParallelEdgesIndex } from "@sigma/edge-curve";
import { createEdgeArrowProgram, EdgeLineProgram } from "sigma/rendering";

performance.mark("start");
const page = JSON.parse(document.getElementById("data").textContent);
const PLAIN = page.marks.indexOf("plain");
const SIGNS = { plain: "", added: "+ ", removed: "\u2212 ", changed: "~ " };
const MARK_WORDS = { plain: "Unchanged", added: "Added", removed: "Removed", changed: "Changed" };
const ARRANGED_MAX = 1500;
const ARROWS_MAX = 2000;
const LISTED_MAX = 60;
const LABELLED_MAX = 60; // nodes, for ids that no person chose

// ---------------------------------------------------------------- elements of the page

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (value !== false && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const ICONS = {
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  theme: "M12 3v2m0 14v2M3 12h2m14 0h2M5.6 5.6l1.4 1.4m10 10 1.4 1.4m0-12.8L17 7M7 17l-1.4 1.4M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8",
  save: "M12 4v11m0 0-4-4m4 4 4-4M5 20h14",
  arrange: "M6 6h.01M18 7h.01M12 18h.01M6 6l6 12 6-11z",
  close: "M6 6l12 12M18 6 6 18",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14m5 12 4 4",
};

function vector(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function icon(name) {
  const svg = vector("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" });
  svg.append(vector("path", { d: ICONS[name] }));
  return svg;
}

const button = (name, title, action) =>
  element("button", { type: "button", class: "icon", title, "aria-label": title, onclick: action }, icon(name));

function dot(color, kind = "dot") {
  const mark = element("span", { class: kind, "aria-hidden": "true" });
  mark.style.background = color;
  return mark;
}

const number = (value) => value.toLocaleString("en-US");
const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

// ---------------------------------------------------------------- the graph

let data; // the scene that is shown: of a large graph a page has two
let isCommits, isDiff, isTypes;
let nodes, edges, graph, state;
let palette = {};

function load(scene) {
  data = scene;
  isCommits = data.kind === "commits";
  isDiff = data.kind === "diff";
  isTypes = data.kind === "types";
  nodes = data.nodes.map(([type, id, label, x, y, mark, shown, complete, properties, before, size], place) => ({
    place, type, id, label, x, y, mark, shown, complete, properties: properties || {}, before: before || {}, size, edges: [],
    isGenerated: id.length >= 26 && label !== id && id.startsWith(label),
  }));
  edges = data.edges.map(([type, source, target, id, mark, properties, before, label], place) => ({
    place, type, source, target, id, mark, properties: properties || {}, before: before || {}, label: label || data.edgeTypes[type][0],
  }));
  for (const edge of edges) {
    nodes[edge.source].edges.push(edge.place);
    if (edge.target !== edge.source) nodes[edge.target].edges.push(edge.place);
  }
  state = {
    hovered: null,
    selected: null,
    selectedEdge: null,
    pointed: null, // the edge type under the mouse in the legend
    near: null,
    hiddenTypes: new Set(),
    hiddenEdgeTypes: new Set(),
    hiddenMarks: new Set(),
  };
  graph = new MultiDirectedGraph();
  for (const node of nodes) if (node.shown) addNode(node);
  resize();
  if (isTypes) bendApart();
}

// Edges between the same nodes bend to either side of the straight line.
function bendApart() {
  indexParallelEdgesIndex(graph, { edgeIndexAttribute: "index", edgeMinIndexAttribute: "least", edgeMaxIndexAttribute: "most" });
  graph.forEachEdge((place, { index, least, most }) => {
    const steps = index === null || index === undefined ? 0 : least < 0 ? index : index - most / 2;
    graph.mergeEdgeAttributes(place, { curvature: steps * 0.22, type: steps ? "curved" : "arrow" });
  });
}

const other = (edge, place) => (edge.source === place ? edge.target : edge.source);
const isHidden = (node) => state.hiddenTypes.has(node.type) || state.hiddenMarks.has(node.mark);
const hiddenNeighbours = (node) => {
  if (graph.order === nodes.length) return [];
  const places = new Set();
  for (const place of node.edges) {
    const neighbour = other(edges[place], node.place);
    if (!graph.hasNode(neighbour)) places.add(neighbour);
  }
  return [...places];
};

function baseSize(count) {
  return count <= 60 ? 8 : count <= 300 ? 5.5 : count <= 1500 ? 4 : count <= 4000 ? 2.8 : 2;
}

function addNode(node) {
  graph.addNode(node.place, { x: node.x, y: node.y, size: 1, label: node.label });
  for (const place of node.edges) {
    const edge = edges[place];
    if (graph.hasNode(edge.source) && graph.hasNode(edge.target) && !graph.hasEdge(place)) {
      graph.addEdgeWithKey(place, edge.source, edge.target, { label: edge.label });
    }
  }
}

function resize() {
  const base = baseSize(graph.order);
  const drop = graph.order > 4000 ? 0.5 : 1;
  graph.updateEachNodeAttributes((place, attributes) => {
    const { size } = nodes[place];
    attributes.size = size ? 5 + 13 * size : base + Math.min(Math.sqrt(graph.degree(place)), 12) * base * 0.16 * drop;
    return attributes;
  }); // without a hint of what changed: sigma would not index nodes that were added just before
}

// ---------------------------------------------------------------- colours

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  palette = {
    paper: read("--paper"), ink: read("--ink"), soft: read("--soft"), card: read("--card"), line: read("--line"),
    edge: read(graph.size > 6000 ? "--edge-many" : graph.size > 1500 ? "--edge-some" : "--edge"),
    edges: data.edgeTypes.map(([, color]) => mix(color, read("--paper"), graph.size > 6000 ? 0.65 : graph.size > 1500 ? 0.45 : graph.size > 200 ? 0.25 : 0)),
    faint: read("--faint"), strong: read("--strong"),
    marks: data.marks.map((mark) => read(`--${mark}`)),
  };
}

function mix(color, other, share) {
  const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
  return `#${[1, 3, 5].map((at) => Math.round(part(color, at) * (1 - share) + part(other, at) * share).toString(16).padStart(2, "0")).join("")}`;
}

const colorOf = (node) => (isDiff ? palette.marks[node.mark] : data.types[node.type][1]);
const labelOf = (node) => SIGNS[data.marks[node.mark]] + node.label;

// ---------------------------------------------------------------- drawing

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";

let taken = []; // by the labels of this frame
let discs = null; // of the nodes of this frame, which labels of edges avoid

function takeRoom(left, top, width, height) {
  for (const box of taken) {
    if (left < box[0] + box[2] && box[0] < left + width && top < box[1] + box[3] && box[1] < top + height) return false;
  }
  taken.push([left, top, width, height]);
  return true;
}

function drawLabel(context, drawn, settings) {
  if (!drawn.label) return;
  const size = settings.labelSize;
  const y = drawn.y + size / 3;
  context.font = `${drawn.strong ? 600 : 400} ${size}px ${FONT}`;
  const room = context.measureText(drawn.label).width + (drawn.more ? 28 : 4);
  const right = drawn.x + drawn.size + 4;
  const x = drawn.strong || right + room < stage.clientWidth ? right : drawn.x - drawn.size - 4 - room;
  if (!drawn.strong && !takeRoom(x, y - size, room, size + 4)) return;
  context.lineJoin = "round";
  context.lineWidth = 5;
  context.strokeStyle = drawn.strong ? palette.card : palette.paper;
  context.strokeText(drawn.label, x, y);
  context.fillStyle = palette.ink;
  context.fillText(drawn.label, x, y);
  if (drawn.more) {
    const width = context.measureText(drawn.label).width;
    context.font = `500 ${size - 2}px ${FONT}`;
    context.strokeText(drawn.more, x + width + 5, y);
    context.fillStyle = palette.strong;
    context.fillText(drawn.more, x + width + 5, y);
  }
}

function isBehindNode(left, top, width, height) {
  discs ??= graph.mapNodes((place) => {
    const at = renderer?.getNodeDisplayData(place);
    return at && !at.hidden ? { ...renderer.framedGraphToViewport(at), size: renderer.scaleSize(at.size) } : { x: -99, y: -99, size: 0 };
  });
  return discs.some(({ x, y, size }) => left < x + size && x - size < left + width && top < y + size && y - size < top + height);
}

// In the middle of a line or of its curve, with a halo, if no label is there.
function drawEdgeLabel(context, drawn, source, target, settings) {
  if (!drawn.label) return;
  const [across, down] = [target.x - source.x, target.y - source.y];
  const bend = drawn.type === "curved" ? (drawn.curvature ?? 0) / 2 : 0;
  const size = settings.edgeLabelSize;
  context.font = `400 ${size}px ${FONT}`;
  const width = context.measureText(drawn.label).width;
  for (const part of [0.5, 0.36, 0.64]) {
    const x = source.x + across * part + down * bend - width / 2;
    const y = source.y + down * part - across * bend + size / 3;
    if (isBehindNode(x, y - size, width, size) || !takeRoom(x - 2, y - size, width + 4, size + 3)) continue;
    context.lineJoin = "round";
    context.lineWidth = 4;
    context.strokeStyle = palette.paper;
    context.strokeText(drawn.label, x, y);
    context.fillStyle = palette.soft;
    context.fillText(drawn.label, x, y);
    return;
  }
}

// Sigma draws no edge from a node to itself.
function drawLoops() {
  const context = renderer.getCanvases().edgeLabels.getContext("2d");
  const loops = new Map();
  graph.forEachEdge((place, attributes, source, target) => {
    if (source !== target) return;
    const shown = edgeReducer(place, attributes);
    const at = renderer.getNodeDisplayData(source);
    if (shown.hidden || !at || at.hidden) return;
    const { x, y } = renderer.framedGraphToViewport(at);
    const count = (loops.get(source) ?? 0) + 1;
    loops.set(source, count);
    const radius = renderer.scaleSize(at.size) * 0.8 + 5 + 4 * count;
    context.beginPath();
    context.strokeStyle = shown.color;
    context.lineWidth = shown.size;
    context.arc(x, y - radius, radius, 0, 2 * Math.PI);
    context.stroke();
    if (isTypes) {
      drawEdgeLabel(context, shown, { x, y: y - 2 * radius }, { x, y: y - 2 * radius }, { edgeLabelSize: 11 });
    }
  });
}

function drawHover(context, drawn, settings) {
  const size = settings.labelSize;
  context.font = `600 ${size}px ${FONT}`;
  const width = context.measureText(drawn.label ?? "").width + (drawn.more ? 32 : 0);
  const height = size + 12;
  context.beginPath();
  context.fillStyle = palette.card;
  context.shadowColor = "rgba(15, 23, 42, 0.28)";
  context.shadowBlur = 10;
  context.shadowOffsetY = 2;
  const left = drawn.x - drawn.size - 5;
  context.roundRect(left, drawn.y - height / 2, drawn.size * 2 + width + 18, height, height / 2);
  context.fill();
  context.shadowBlur = 0;
  context.shadowOffsetY = 0;
  context.beginPath();
  context.fillStyle = drawn.color;
  context.arc(drawn.x, drawn.y, drawn.size, 0, 2 * Math.PI);
  context.fill();
  context.strokeStyle = palette.card;
  drawLabel(context, { ...drawn, strong: true }, settings);
}

function nodeReducer(place, attributes) {
  const node = nodes[place];
  if (isHidden(node)) return { ...attributes, hidden: true };
  const focus = state.hovered ?? state.selected;
  const isNear = !state.near || state.near.has(node.place);
  const more = node.more ?? (node.more = hiddenNeighbours(node).length);
  const result = {
    ...attributes,
    color: isNear ? colorOf(node) : palette.faint,
    label: isNear && !(node.isGenerated && graph.order > LABELLED_MAX && node.place !== focus) ? labelOf(node) : "",
    zIndex: isNear ? 1 : 0,
    more: more ? `+${number(more)}` : "",
    strong: node.place === focus,
  };
  if (node.place === state.selected) {
    result.highlighted = true;
    result.forceLabel = true;
  } else if (state.near && isNear && state.near.size <= 40) result.forceLabel = true;
  if (isDiff && node.mark !== PLAIN && graph.order <= 200) result.forceLabel = true;
  return result;
}

function edgeReducer(place, attributes) {
  const edge = edges[place];
  if (state.hiddenEdgeTypes.has(edge.type) || isHidden(nodes[edge.source]) || isHidden(nodes[edge.target])
    || (isDiff && state.hiddenMarks.has(edge.mark) && edge.mark !== PLAIN)) return { ...attributes, hidden: true };
  const focus = state.hovered ?? state.selected;
  const isChosen = place === state.selectedEdge || Number(place) === state.selectedEdge;
  const isNear = focus === null ? true : edge.source === focus || edge.target === focus;
  const isPointed = state.pointed === edge.type;
  let color = isDiff ? (edge.mark === PLAIN ? palette.edge : palette.marks[edge.mark]) : palette.edges[edge.type];
  if (isChosen || isPointed || (focus !== null && isNear && edge.mark === PLAIN)) color = palette.strong;
  const heavy = graph.size > 6000 ? 0.6 : graph.size > 1500 ? 0.9 : graph.size > 200 ? 1.2 : 1.6;
  return {
    ...attributes,
    color: isNear || isChosen ? color : palette.faint,
    size: isChosen || isPointed || (focus !== null && isNear) ? heavy + 0.8 : edge.mark === PLAIN ? heavy : heavy + 0.6,
    zIndex: isNear || isPointed ? 1 : 0,
    label: isNear ? attributes.label : "",
  };
}

const stage = element("div", {
  class: "stage", tabindex: "0", role: "application",
  "aria-label": page.kind === "commits" ? "History. Arrow keys choose a commit, slash searches."
    : "Graph. Arrow keys move, plus and minus zoom, 0 fits, Enter expands the selected node, slash searches.",
});
let renderer = null;

function draw() {
  performance.mark("built");
  const withArrows = graph.size <= ARROWS_MAX;
  const head = { lengthToThicknessRatio: graph.size > 200 ? 4 : 6, widenessToThicknessRatio: graph.size > 200 ? 3 : 4 };
  renderer = new Sigma(graph, stage, {
    allowInvalidContainer: true,
    defaultEdgeType: withArrows ? "arrow" : "line",
    edgeProgramClasses: {
      arrow: createEdgeArrowProgram(head),
      curved: createEdgeCurveProgram({ arrowHead: { extremity: "target", ...head }, drawLabel: drawEdgeLabel }),
      line: EdgeLineProgram,
    },
    defaultDrawEdgeLabel: drawEdgeLabel,
    enableEdgeEvents: graph.size <= ARROWS_MAX,
    renderEdgeLabels: isTypes || graph.size <= 120,
    edgeLabelSize: 11,
    labelSize: 12,
    labelFont: FONT,
    labelDensity: isTypes ? 20 : graph.order > 2000 ? 0.5 : 1,
    labelGridCellSize: 80,
    labelRenderedSizeThreshold: graph.order > 2000 ? 3.2 : graph.order > 300 ? 4.5 : 0,
    stagePadding: 48,
    minCameraRatio: 0.01,
    maxCameraRatio: 4,
    zIndex: true,
    hideEdgesOnMove: graph.size > 30000,
    defaultDrawNodeLabel: drawLabel,
    defaultDrawNodeHover: drawHover,
    nodeReducer,
    edgeReducer,
  });
  renderer.on("beforeRender", () => { taken = []; discs = null; });
  renderer.on("afterRender", drawLoops);
  renderer.scheduleRender(); // the first frame was drawn before there was a renderer to ask
  renderer.on("enterNode", ({ node }) => hover(Number(node)));
  renderer.on("leaveNode", () => hover(null));
  renderer.on("clickNode", ({ node }) => select(Number(node)));
  renderer.on("doubleClickNode", ({ node, preventSigmaDefault }) => {
    preventSigmaDefault();
    expand(nodes[node]);
  });
  renderer.on("clickEdge", ({ edge }) => selectEdge(Number(edge)));
  renderer.on("clickStage", () => clear());
  performance.mark("drawn");
  painted();
}

// What was drawn is on the screen after the next frame.
function painted() {
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.dataset.painted = String(Math.round(performance.now()));
  }));
}

function refresh() {
  if (isCommits) drawHistory();
  else renderer?.refresh({ skipIndexation: true });
  showCounts();
}

function updateNear() {
  const focus = state.hovered ?? state.selected;
  if (focus === null) state.near = null;
  else {
    state.near = new Set([focus]);
    for (const place of nodes[focus].edges) state.near.add(other(edges[place], focus));
  }
}

function hover(place) {
  state.hovered = place;
  stage.style.cursor = place === null ? "" : "pointer";
  updateNear();
  refresh();
}

// ---------------------------------------------------------------- a history

const ROW = 34;
const LANE = 18;
const log = element("ol", { class: "log" });

function drawHistory() {
  const shown = nodes.filter((node) => !isHidden(node));
  const rows = new Map(shown.map((node, row) => [node.place, row]));
  const x = (node) => 20 + node.x * LANE;
  const y = (node) => rows.get(node.place) * ROW + ROW / 2;
  const width = 20 + (Math.max(0, ...shown.map((node) => node.x)) + 1) * LANE;
  const lines = vector("svg", { class: "lanes", width, height: shown.length * ROW, "aria-hidden": "true" });
  for (const edge of edges) {
    const [child, parent] = [nodes[edge.source], nodes[edge.target]];
    if (!rows.has(child.place) || !rows.has(parent.place)) continue;
    const isMerge = data.edgeTypes[edge.type][0] === "merged";
    const [x1, y1, x2, y2] = [x(child), y(child), x(parent), y(parent)];
    const bend = x1 === x2 ? `V${y2}`
      : isMerge ? `C${x1} ${y1 + ROW * 0.8} ${x2} ${y1 + ROW * 0.2} ${x2} ${y1 + ROW}V${y2}`
        : `V${y2 - ROW}C${x1} ${y2 - ROW * 0.2} ${x2} ${y2 - ROW * 0.8} ${x2} ${y2}`;
    const line = vector("path", { d: `M${x1} ${y1}${bend}` });
    line.style.stroke = data.types[(isMerge ? parent : child).type][1];
    lines.append(line);
  }
  for (const node of shown) {
    const point = vector("circle", { cx: x(node), cy: y(node), r: node.place === state.selected ? 7 : 5 });
    point.style.fill = data.types[node.type][1];
    lines.append(point);
  }
  log.replaceChildren(...shown.map((node) => commitRow(node, width)));
  stage.replaceChildren(lines, log);
}

function commitRow(node, width) {
  const { names, actor, created, tables, merged, schema } = node.properties;
  const verb = merged ? "merge " : schema ? "schema " : "";
  const types = (tables ?? "").split("\n").map((line) => line.replace(/^\w+:/, "").replace(/ version .*/, "")).join(", ");
  const row = element("button", { type: "button", class: "commit", "aria-current": node.place === state.selected && "true", onclick: () => select(node.place) },
    element("code", {}, node.id.slice(0, 12)),
    ...(names ? names.split(", ") : []).map((name) => element("span", { class: "chip" }, name)),
    element("span", { class: "name" }, verb + types),
    element("span", { class: "soft" }, actor ?? ""),
    element("time", { class: "soft" }, (created ?? "").slice(0, 16).replace("T", " ")));
  row.style.paddingLeft = `${width + 12}px`;
  return element("li", {}, row);
}

// ---------------------------------------------------------------- what can be done

function show(places) {
  let added = 0;
  for (const place of places) {
    if (!graph.hasNode(place)) {
      addNode(nodes[place]);
      added += 1;
    }
  }
  if (!added) return;
  for (const node of nodes) node.more = undefined;
  resize();
  renderer?.setCustomBBox(null);
  renderer?.refresh();
  if (graph.order <= ARRANGED_MAX) arrange(50);
}

function expand(node) {
  if (!graph.hasNode(node.place)) show([node.place]);
  const places = hiddenNeighbours(node);
  show(places);
  select(node.place);
  say(places.length ? `${counted(places.length, "neighbour")} of ${node.label} added` : `${node.label} has no more neighbours in this page`);
}

let arranging = 0;

function arrange(rounds = 200) {
  if (!graph.order) return;
  const mine = (arranging += 1);
  const settings = {
    ...forceAtlas2.inferSettings(graph), scalingRatio: 0.4, gravity: 0.08, strongGravityMode: false,
    slowDown: 4, barnesHutOptimize: graph.order > 400, outboundAttractionDistribution: false,
  };
  let left = rounds;
  const step = () => {
    if (mine !== arranging || left <= 0) return;
    const began = performance.now();
    while (left > 0 && performance.now() - began < 14) {
      forceAtlas2.assign(graph, { iterations: 2, settings });
      left -= 2;
    }
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

function select(place) {
  state.selected = place;
  state.selectedEdge = null;
  if (place !== null && !graph.hasNode(place)) show([place]);
  updateNear();
  refresh();
  showDetails();
  if (place !== null) say(`${data.types[nodes[place].type][0]} ${nodes[place].label} selected`);
}

function selectEdge(place) {
  state.selected = null;
  state.selectedEdge = place;
  updateNear();
  refresh();
  showDetails();
}

function clear() {
  if (state.selected === null && state.selectedEdge === null) return;
  state.selected = null;
  state.selectedEdge = null;
  updateNear();
  refresh();
  showDetails();
}

function centre(place) {
  if (isCommits) log.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
  const shown = renderer?.getNodeDisplayData(place);
  if (!shown) return;
  const camera = renderer.getCamera();
  camera.animate({ x: shown.x, y: shown.y, ratio: Math.min(camera.ratio, graph.order > 300 ? 0.35 : 0.8) }, { duration: 250 });
}

function fit() {
  renderer?.setCustomBBox(null);
  renderer?.refresh();
  renderer?.getCamera().animatedReset({ duration: 250 });
}

function savePicture() {
  if (!renderer) return;
  const { width, height } = renderer.getDimensions();
  const ratio = window.devicePixelRatio || 1;
  const picture = element("canvas", { width: width * ratio, height: height * ratio });
  const context = picture.getContext("2d");
  context.fillStyle = palette.paper;
  context.fillRect(0, 0, picture.width, picture.height);
  renderer.refresh();
  const canvases = renderer.getCanvases();
  for (const layer of ["edges", "edgeLabels", "nodes", "labels", "hovers", "hoverNodes"]) {
    if (canvases[layer]) context.drawImage(canvases[layer], 0, 0, picture.width, picture.height);
  }
  const link = element("a", { href: picture.toDataURL("image/png"), download: "graph.png" });
  link.click();
}

// ---------------------------------------------------------------- panels

const live = element("div", { class: "unseen", role: "status", "aria-live": "polite" });
const counts = element("div", { class: "counts" });
const details = element("aside", { class: "details", "aria-label": "Details", hidden: true });

function say(text) {
  live.textContent = text;
}

const tallies = []; // [cell, how many of its kind are in the graph], of the legend

function showCounts() {
  let shown = 0;
  for (const place of graph.nodes()) if (!isHidden(nodes[place])) shown += 1;
  for (const [cell, count] of tallies) cell.textContent = number(count());
  let shownEdges = 0;
  for (const place of graph.edges()) {
    const edge = edges[place];
    if (!state.hiddenEdgeTypes.has(edge.type) && !isHidden(nodes[edge.source]) && !isHidden(nodes[edge.target])) shownEdges += 1;
  }
  const [total, totalEdges] = data.totals;
  counts.textContent = isCommits ? `Showing ${number(shown)} of ${counted(total, "commit")}`
    : isTypes ? `${counted(shown, "node type")} with ${counted(total, "node")}, ${counted(data.edgeTypes.length, "edge type")} with ${counted(totalEdges, "edge")}`
    : `Showing ${number(shown)} of ${counted(total, "node")} and ${number(shownEdges)} of ${counted(totalEdges, "edge")}${data.isSample ? " (a sample)" : ""}`;
}

function properties(subject) {
  const list = element("dl", {});
  const names = new Set([...Object.keys(subject.properties), ...Object.keys(subject.before)]);
  for (const name of names) {
    list.append(element("dt", {}, name));
    const value = subject.properties[name];
    const former = subject.before[name];
    const cell = element("dd", {});
    if (former !== undefined) cell.append(element("del", {}, former), " ");
    if (value !== undefined) cell.append(former !== undefined ? element("ins", {}, value) : value);
    else if (former !== undefined) cell.append(element("span", { class: "soft" }, "no value"));
    list.append(cell);
  }
  return names.size ? list : element("p", { class: "soft" }, "No properties.");
}

const link = (place, prefix = "") =>
  element("button", { type: "button", class: "link", onclick: () => { select(place); centre(place); } },
    dot(colorOf(nodes[place])), prefix + nodes[place].label);

function neighbours(node) {
  const groups = new Map();
  for (const place of node.edges) {
    const edge = edges[place];
    const isOut = edge.source === node.place;
    const title = isOut ? `${data.edgeTypes[edge.type][0]} \u2192` : `\u2190 ${data.edgeTypes[edge.type][0]}`;
    if (!groups.has(title)) groups.set(title, []);
    groups.get(title).push(edge);
  }
  return [...groups].map(([title, members]) => {
    const list = element("ul", {});
    for (const edge of members.slice(0, LISTED_MAX)) {
      list.append(element("li", {}, link(other(edge, node.place), isDiff ? SIGNS[data.marks[edge.mark]] : "")));
    }
    if (members.length > LISTED_MAX) list.append(element("li", { class: "soft" }, `and ${number(members.length - LISTED_MAX)} more`));
    return element("section", {}, element("h3", {}, title, element("span", { class: "count" }, number(members.length))), list);
  });
}

function quote(text) {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function nodeDetails(node) {
  const hidden = hiddenNeighbours(node).length;
  const parts = [
    element("div", { class: "chips" },
      element("span", { class: "chip" }, dot(colorOf(node)), data.types[node.type][0]),
      isDiff ? element("span", { class: "chip" }, MARK_WORDS[data.marks[node.mark]]) : null),
    element("h2", {}, node.label),
    node.id !== node.label ? element("code", { class: "id" }, node.id) : null,
  ];
  if (hidden) {
    parts.push(element("button", { type: "button", class: "primary", onclick: () => expand(node) }, `Expand ${counted(hidden, "neighbour")}`));
  }
  parts.push(properties(node), ...neighbours(node));
  if (!node.complete && data.kind === "graph") {
    const root = (data.facts.find(([name]) => name === "graph") ?? ["", "GRAPH"])[1];
    parts.push(element("div", { class: "note" }, "Not all edges of this node are in this page. See all of them with:",
      element("code", {}, `omnigraph view ${quote(root)} --around ${quote(`${data.types[node.type][0]}/${node.id}`)}`)));
  }
  return parts;
}

function edgeDetails(edge) {
  return [
    element("div", { class: "chips" }, element("span", { class: "chip" }, data.edgeTypes[edge.type][0]),
      isDiff ? element("span", { class: "chip" }, MARK_WORDS[data.marks[edge.mark]]) : null),
    element("div", { class: "ends" }, link(edge.source), element("span", { class: "soft" }, "\u2193"), link(edge.target)),
    edge.id ? element("code", { class: "id" }, edge.id) : null,
    properties(edge),
  ];
}

function showDetails() {
  const node = state.selected === null ? null : nodes[state.selected];
  const edge = state.selectedEdge === null ? null : edges[state.selectedEdge];
  details.hidden = !node && !edge;
  details.replaceChildren();
  if (details.hidden) return;
  const close = button("close", "Close details", () => { clear(); stage.focus(); });
  close.classList.add("close");
  details.append(close, ...(node ? nodeDetails(node) : edgeDetails(edge)).filter(Boolean));
  details.scrollTop = 0;
}

function toggles(title, entries, hidden, mark, point = () => {}) {
  if (!entries.length) return null;
  const list = element("ul", { class: "legend" });
  for (const { place, name, color, count } of entries) {
    const cell = element("span", { class: "count" });
    tallies.push([cell, count]);
    const box = element("input", { type: "checkbox", checked: true, onchange: () => {
      if (box.checked) hidden.delete(place);
      else hidden.add(place);
      refresh();
    } });
    list.append(element("li", { onmouseenter: () => point(place), onmouseleave: () => point(null) }, element("label", {}, box, dot(color, mark), element("span", { class: "name", title: name }, name), cell)));
  }
  return element("section", {}, element("h2", {}, title), list);
}

const countOf = (places, items, key, value) => {
  let count = 0;
  for (const place of places()) if (items[place][key] === value) count += 1;
  return count;
};

function legend() {
  tallies.length = 0;
  const nodesWith = (key, value) => () => countOf(() => graph.nodes(), nodes, key, value);
  const edgesWith = (key, value) => () => countOf(() => graph.edges(), edges, key, value);
  const marks = data.marks.map((mark, place) => ({ place, name: MARK_WORDS[mark], color: `var(--${mark})`, count: nodesWith("mark", place) }))
    .filter(({ count }) => count());
  const types = data.types.map(([name, color, rows], place) => ({ place, name, color: isDiff ? "var(--soft)" : color, count: isTypes ? () => rows : nodesWith("type", place) }));
  const edgeTypes = data.edgeTypes.map(([name, color, rows], place) => ({ place, name, color: isDiff ? "var(--edge)" : color, count: isTypes ? () => rows : edgesWith("type", place) }));
  const point = (place) => { state.pointed = place; refresh(); };
  const facts = element("dl", { class: "facts" });
  for (const [name, text] of data.facts) facts.append(element("dt", {}, name), element("dd", { title: text }, text));
  return element("nav", { class: "side", "aria-label": "Legend" },
    isDiff ? toggles("Changes", marks, state.hiddenMarks, "dot") : null,
    toggles(isCommits ? "Branches" : "Nodes", types, state.hiddenTypes, "dot"),
    isCommits ? null : toggles("Edges", edgeTypes, state.hiddenEdgeTypes, "dash", point),
    element("section", {}, element("h2", {}, "About"), facts),
    ...data.notes.map((text) => element("p", { class: "note" }, text)));
}

// ---------------------------------------------------------------- search

function matches(text) {
  const wanted = text.toLowerCase();
  const starts = [];
  const others = [];
  for (const node of nodes) {
    const label = node.label.toLowerCase();
    if (label.startsWith(wanted) || node.id.toLowerCase() === wanted) starts.push(node);
    else if (label.includes(wanted) || node.id.toLowerCase().includes(wanted)
      || (wanted.length > 1 && Object.values(node.properties).some((value) => value.toLowerCase().includes(wanted)))) others.push(node);
  }
  return [...starts, ...others];
}

function searchBox() {
  const list = element("ul", { class: "results", role: "listbox", id: "results", hidden: true });
  const input = element("input", {
    type: "search", placeholder: isCommits ? "Search commits" : "Search nodes and properties", "aria-label": "Search", role: "combobox",
    "aria-controls": "results", "aria-expanded": "false", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false",
  });
  let hits = [];
  let active = -1;
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const mark = (place) => {
    active = place;
    [...list.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === active)));
    if (active >= 0 && list.children[active]) {
      input.setAttribute("aria-activedescendant", list.children[active].id);
      list.children[active].scrollIntoView({ block: "nearest" });
    }
  };
  const choose = (node) => {
    close();
    select(node.place);
    centre(node.place);
    stage.focus();
  };
  input.addEventListener("input", () => {
    const text = input.value.trim();
    list.replaceChildren();
    if (!text) return close();
    hits = matches(text);
    hits.slice(0, LISTED_MAX).forEach((node, at) => list.append(element("li", { role: "option", id: `result-${at}`, onmousedown: (event) => { event.preventDefault(); choose(node); } },
      dot(colorOf(node)), element("span", { class: "name" }, node.label),
      element("span", { class: "soft" }, graph.hasNode(node.place) ? data.types[node.type][0] : `${data.types[node.type][0]}, not expanded`))));
    if (!hits.length) list.append(element("li", { class: "soft", role: "option", id: "result-none" }, "No match in this page"));
    else if (hits.length > LISTED_MAX) list.append(element("li", { class: "soft", role: "presentation" }, `${LISTED_MAX} of ${counted(hits.length, "match").replace("matchs", "matches")}`));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark(hits.length ? 0 : -1);
    say(hits.length === 1 ? "1 match" : `${number(hits.length)} matches`);
  });
  input.addEventListener("keydown", (event) => {
    const last = Math.min(hits.length, LISTED_MAX) - 1;
    if (event.key === "ArrowDown") mark(Math.min(active + 1, last));
    else if (event.key === "ArrowUp") mark(Math.max(active - 1, 0));
    else if (event.key === "Enter" && hits[active]) choose(hits[active]);
    else if (event.key === "Escape") { input.value = ""; close(); stage.focus(); }
    else return;
    event.preventDefault();
  });
  input.addEventListener("blur", close);
  return { input, box: element("div", { class: "search" }, icon("search"), input, element("kbd", { "aria-hidden": "true" }, "/"), list) };
}

// ---------------------------------------------------------------- light and dark

const preference = window.matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;

function applyTheme() {
  document.documentElement.dataset.theme = chosenTheme ?? (preference.matches ? "dark" : "light");
  readPalette();
  if (!renderer) return;
  refresh();
  showDetails();
}

preference.addEventListener("change", applyTheme);

function switchTheme() {
  chosenTheme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  applyTheme();
}

// ---------------------------------------------------------------- keys

function historyKeys(event) {
  const shown = nodes.filter((node) => !isHidden(node));
  const at = shown.findIndex((node) => node.place === state.selected);
  const next = { ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, Home: 0, End: shown.length - 1 }[event.key];
  if (event.key === "Escape") clear();
  else if (next !== undefined && shown[next]) {
    select(shown[next].place);
    centre(shown[next].place);
  } else return;
  event.preventDefault();
}

function keys(event) {
  if (isCommits) {
    historyKeys(event);
    return;
  }
  const camera = renderer?.getCamera();
  if (!camera) return;
  const { x, y, ratio } = camera.getState();
  const step = 0.08 * ratio;
  const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
  if (moves[event.key]) camera.setState({ x: x + moves[event.key][0], y: y + moves[event.key][1] });
  else if (event.key === "+" || event.key === "=") camera.animatedZoom({ duration: 150 });
  else if (event.key === "-") camera.animatedUnzoom({ duration: 150 });
  else if (event.key === "0") fit();
  else if (event.key === "Enter" && state.selected !== null) expand(nodes[state.selected]);
  else if (event.key === "Escape") clear();
  else return;
  event.preventDefault();
}

// ---------------------------------------------------------------- start

function tryToDraw() {
  try {
    draw();
  } catch (error) {
    renderer = null;
    console.warn(error);
    stage.replaceChildren(element("p", { class: "notice" }, "This browser has no WebGL, so the graph cannot be drawn. Search and details still work."));
  }
}

function drawingTools() {
  return [
    button("plus", "Zoom in", () => renderer?.getCamera().animatedZoom({ duration: 150 })),
    button("minus", "Zoom out", () => renderer?.getCamera().animatedUnzoom({ duration: 150 })),
    button("fit", "Show all", fit),
    button("arrange", "Arrange again", () => (graph.order <= ARRANGED_MAX ? arrange() : say(`Graphs of more than ${number(ARRANGED_MAX)} nodes keep their arrangement`))),
    button("save", "Save as PNG", savePicture),
  ];
}

// Of a large graph: its types, or a sample of its nodes.
function switcher() {
  if (!page.other) return null;
  const choose = (scene) => { clear(); load(scene); start(); stage.focus(); };
  return element("div", { class: "switch", role: "group", "aria-label": "What is shown" },
    ...(page.kind === "types" ? [page, page.other] : [page.other, page]).map((scene) =>
      element("button", { type: "button", "aria-pressed": String(scene === data), onclick: () => choose(scene) }, scene.kind === "types" ? "Types" : "Sample")));
}

function start() {
  renderer?.kill();
  renderer = null;
  stage.replaceChildren();
  applyTheme();
  const search = searchBox();
  const tools = element("div", { class: "tools", role: "toolbar", "aria-label": "Tools" },
    ...(isCommits ? [] : drawingTools()), button("theme", "Switch between light and dark", switchTheme));
  const main = element("main", {}, stage, details);
  const choice = switcher();
  if (choice) main.append(choice);
  document.getElementById("app").replaceChildren(
    element("header", {}, element("span", { class: "mark", "aria-hidden": "true" }, element("i"), element("i"), element("i")), element("h1", { title: data.title }, data.title), search.box, tools),
    legend(),
    main,
    element("footer", {}, counts, element("div", { class: "hint" }, isCommits ? "Click for details, arrow keys move" : isTypes ? "Click for details" : "Click for details, double-click to expand")),
    live);
  showCounts();
  if (!nodes.length) stage.append(element("p", { class: "notice" }, "Nothing to show."));
  else if (isCommits) {
    stage.classList.add("scrolls");
    drawHistory();
    painted();
  } else tryToDraw();
  document.documentElement.dataset.ready = "true";
}

stage.addEventListener("keydown", keys);
document.addEventListener("keydown", (event) => {
  const input = document.querySelector("input[type=search]");
  if (event.key === "/" && document.activeElement !== input) {
    event.preventDefault();
    input.focus();
  }
});
load(page);
start();
