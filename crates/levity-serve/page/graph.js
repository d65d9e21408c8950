// The graph of a run: layers from left to right, as the server laid them out.
//
// Edges and distant nodes are drawn on a canvas, and only the nodes in sight are elements, so a
// plan with thousands of steps stays fast. An update redraws only the nodes that changed.

import { h, fill, Keyed, frame, setText } from './dom.js';
import { badge, button, closeButton, facts, save, shape } from './parts.js';
import { duration, money, number, pretty, time } from './format.js';
import { cost, elapsed } from './view.js';
import { T } from './texts.js';

const WIDTH = 210;
const HEIGHT = 62;
const GAP_X = 74;
const GAP_Y = 16;
/** The maximum number of rows of a layer; a longer one continues in a further column. */
const ROWS = 30;
/** Layers with fewer nodes are not worth folding. */
const FOLDABLE = 3;
/** Below this scale, labels cannot be read, and all nodes are drawn on the canvas. */
const LEGIBLE = 0.4;
/** The number of nodes from which the small map is useful. */
const MAPPED = 25;
const SETTLED = new Set(['completed', 'skipped', 'cancelled', 'failed']);
const STATUSES = ['failed', 'waiting', 'running', 'completed', 'skipped', 'cancelled', 'pending'];

export function graph({ onChat, picture }) {
  const boxes = h('g', {});
  const svg = h('svg', { class: 'canvas', tabindex: 0, role: 'group', 'aria-label': T.graphHelp }, boxes);
  const back = h('canvas', { class: 'back', 'aria-hidden': 'true' });
  const map = h('canvas', { class: 'minimap', 'aria-hidden': 'true', hidden: true });
  const details = h('aside', { class: 'details', hidden: true, tabindex: -1, 'aria-label': T.details });
  const search = h('input', { type: 'search', placeholder: T.searchSteps, 'aria-label': T.searchSteps, oninput: () => find(0),
    onkeydown: (event) => { if (event.key === 'Enter') { event.preventDefault(); find(event.shiftKey ? -1 : 1); } } });
  const hits = h('output', { class: 'note hits' });
  const folded = h('input', { type: 'checkbox', onchange: () => { byHand.clear(); relayout(); } });
  const up = button(T.up, () => enter(null), { hidden: true });
  const counts = h('span', { class: 'counts' });
  const empty = h('p', { class: 'empty' }, T.noSteps);
  const export_ = button(T.saveSvg, async () => save(await picture(), 'graph.svg'), { hidden: !picture });
  const bar = h('div', { class: 'bar' }, up, search, hits, counts, h('label', { class: 'check' }, folded, T.collapse),
    button('−', () => zoom(0.8), { 'aria-label': T.zoomOut }), button('+', () => zoom(1.25), { 'aria-label': T.zoomIn }), button(T.fit, () => fit()), export_);
  const stage = h('div', { class: 'stage' }, back, svg, map, empty, details);
  const node = h('div', { class: 'graph' }, bar, stage);
  const drawn = new Keyed(boxes, create, (box, entry) => update(box, entry));

  let state = null;
  let layoutOf = -1;
  /** The nodes and folded layers that are shown, by id: their place and their value. */
  let shown = new Map();
  /** The id in `shown` for each node, which is that of its layer if it is folded. */
  let standIn = new Map();
  let links = [];
  let size = [1, 1];
  let camera = { x: 0, y: 0, scale: 1 };
  let view = [0, 0];
  let isPlaced = false;
  let selected = null;
  let focus = null;
  let colours = null;
  let mapAt = 0;
  const byHand = new Map();

  function enter(id) {
    focus = id;
    isPlaced = false;
    select(null);
    relayout();
  }

  function show(next) {
    const isOther = next !== state;
    state = next;
    const changed = state.takeChanges();
    if (isOther || state.layout !== layoutOf || (folded.checked && changed.size)) relayout();
    else if (changed.size) refresh(changed);
    if (selected) inspect();
  }

  /** Redraws the nodes that changed. */
  function refresh(changed) {
    let isMapped = false;
    for (const id of changed) {
      const entry = shown.get(id);
      if (entry) {
        isMapped = true;
        entry.one = state.nodes.get(id);
        const box = drawn.known.get(id);
        if (box) update(box.node, entry);
      }
    }
    if (!isMapped) return;
    drawCounts();
    if (camera.scale < LEGIBLE) drawBack();
    // The map is an overview, so it may be a little late.
    const now = performance.now();
    if (now - mapAt > 250) drawMap(now);
  }

  /** Computes the place of each node, below the node in focus or below the root. */
  function relayout() {
    if (!state || !state.top) return;
    layoutOf = state.layout;
    const root = state.root();
    if (focus && !state.nodes.has(focus)) focus = null;
    let group = state.below(focus || state.top.run);
    if (!group.length && root) group = [root];
    up.hidden = !focus;
    const layers = new Map();
    for (const one of group) {
      const layer = one.layer || 0;
      if (!layers.has(layer)) layers.set(layer, []);
      layers.get(layer).push(one);
    }
    shown = new Map();
    standIn = new Map();
    const columns = [...layers.keys()].sort((a, b) => a - b).map((layer) => column(layer, layers.get(layer)));
    const tallest = Math.max(HEIGHT, ...columns.map((one) => one.rows * (HEIGHT + GAP_Y) - GAP_Y));
    let x = 0;
    for (const { entries, rows, wide, head } of columns) {
      const top = (tallest - rows * (HEIGHT + GAP_Y) + GAP_Y) / 2;
      entries.forEach((entry, at) => {
        entry.x = x + Math.floor(at / ROWS) * (WIDTH + 24);
        entry.y = top + (at % ROWS) * (HEIGHT + GAP_Y);
        shown.set(entry.id, entry);
      });
      if (head) shown.set(head.id, Object.assign(head, { x, y: top - 34 }));
      x += wide * (WIDTH + 24) - 24 + GAP_X;
    }
    size = [Math.max(x - GAP_X, 1), tallest];
    connect();
    empty.hidden = group.length > 0;
    map.hidden = group.length < MAPPED;
    drawCounts();
    if (!isPlaced && group.length > 0 && view[0] > 0) {
      isPlaced = true;
      begin();
    } else draw();
  }

  /** Returns one layer: its nodes, or one box for all of them. */
  function column(layer, list) {
    list.sort((a, b) => a.row - b.row);
    const isSettled = list.every((one) => SETTLED.has(one.status));
    const canFold = list.length >= FOLDABLE;
    const isFolded = canFold && (byHand.get(layer) ?? (folded.checked && isSettled));
    if (!isFolded) {
      const entries = list.map((one) => ({ id: one.id, one }));
      for (const one of list) standIn.set(one.id, one.id);
      const head = canFold && { id: `head:${layer}`, layer, isHead: true, count: list.length };
      return { entries, head, rows: Math.min(ROWS, list.length), wide: Math.ceil(list.length / ROWS) };
    }
    const id = `layer:${layer}`;
    for (const one of list) standIn.set(one.id, id);
    const status = STATUSES.find((one) => list.some((other) => other.status === one)) || 'pending';
    return { entries: [{ id, layer, list, status }], head: null, rows: 1, wide: 1 };
  }

  function connect() {
    const known = new Set();
    links = [];
    for (const [from, to] of state.top.edges || []) {
      const [a, b] = [standIn.get(from), standIn.get(to)];
      const key = `${a}\n${b}`;
      if (!a || !b || a === b || known.has(key)) continue;
      known.add(key);
      links.push([shown.get(a), shown.get(b)]);
    }
  }

  function drawCounts() {
    const byStatus = new Map();
    for (const { one, list } of shown.values()) {
      for (const each of list || (one ? [one] : [])) byStatus.set(each.status, (byStatus.get(each.status) || 0) + 1);
    }
    const key = STATUSES.map((status) => byStatus.get(status)).join();
    if (counts.dataset.key === key) return;
    counts.dataset.key = key;
    fill(counts, STATUSES.filter((status) => byStatus.has(status)).map((status) => badge(status, `${number(byStatus.get(status))} ${T.states[status]}`)));
  }

  function draw() {
    if (!state || !view[0]) return;
    const { x, y, scale } = camera;
    boxes.setAttribute('transform', `translate(${x} ${y}) scale(${scale})`);
    const [left, top] = [-x / scale - WIDTH, -y / scale - HEIGHT];
    const [right, bottom] = [(view[0] - x) / scale, (view[1] - y) / scale];
    const isInSight = (at) => at.x >= left && at.x <= right && at.y >= top && at.y <= bottom;
    drawn.show(scale < LEGIBLE ? [] : [...shown.values()].filter(isInSight));
    drawBack();
    drawMap(performance.now());
  }
  const drawSoon = frame(draw);

  /** Prepares a canvas for the resolution of the screen. */
  function paper(canvas, width, height) {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (!colours) {
      const style = getComputedStyle(document.documentElement);
      const of = (name) => style.getPropertyValue(name).trim();
      colours = { line: of('--edge'), card: of('--card'), sight: of('--main'), running: of('--run'), completed: of('--good'),
        failed: of('--bad'), waiting: of('--wait'), pending: of('--idle'), skipped: of('--idle'), cancelled: of('--idle') };
    }
    return context;
  }

  /** Draws the edges in sight and, if labels cannot be read, the nodes. */
  function drawBack() {
    const context = paper(back, view[0], view[1]);
    const { x, y, scale } = camera;
    const [right, bottom] = [(view[0] - x) / scale, (view[1] - y) / scale];
    context.translate(x, y);
    context.scale(scale, scale);
    context.strokeStyle = colours.line;
    context.lineWidth = Math.max(1.4, 0.7 / scale);
    context.beginPath();
    for (const [from, to] of links) {
      const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
      if (x2 < -x / scale || x1 > right || Math.max(y1, y2) < -y / scale || Math.min(y1, y2) > bottom) continue;
      const middle = (x1 + x2) / 2;
      context.moveTo(x1, y1);
      context.bezierCurveTo(middle, y1, middle, y2, x2, y2);
    }
    context.stroke();
    if (scale < LEGIBLE) drawRects(context);
  }

  function drawRects(context) {
    for (const status of STATUSES) {
      context.fillStyle = colours[status];
      context.globalAlpha = SETTLED.has(status) && status !== 'failed' || status === 'pending' ? 0.55 : 1;
      for (const entry of shown.values()) {
        if (!entry.isHead && (entry.status || entry.one.status) === status) context.fillRect(entry.x, entry.y, WIDTH, HEIGHT);
      }
    }
    context.globalAlpha = 1;
    const at = selected && shown.get(standIn.get(selected));
    if (!at) return;
    context.strokeStyle = colours.sight;
    context.lineWidth = 3 / camera.scale;
    context.strokeRect(at.x, at.y, WIDTH, HEIGHT);
  }

  const MAP = [200, 130];
  function drawMap(now) {
    if (map.hidden) return;
    mapAt = now;
    const context = paper(map, ...MAP);
    const scale = mapScale();
    context.translate((MAP[0] - size[0] * scale) / 2, (MAP[1] - size[1] * scale) / 2);
    context.scale(scale, scale);
    drawRects(context);
    context.strokeStyle = colours.sight;
    context.lineWidth = 2 / scale;
    context.strokeRect(-camera.x / camera.scale, -camera.y / camera.scale, view[0] / camera.scale, view[1] / camera.scale);
  }

  function mapScale() {
    return Math.min((MAP[0] - 12) / size[0], (MAP[1] - 12) / size[1]);
  }

  function create(entry) {
    const act = entry.isHead || entry.list ? () => toggle(entry) : () => select(entry.id, true);
    const box = h('g', {
      class: 'box', tabindex: 0, role: 'button', 'data-node': entry.id, onclick: act, onfocus: () => reveal(entry.id),
      onkeydown: (event) => {
        if (event.key === 'Enter' || event.key === ' ') {
          event.preventDefault();
          act();
        } else if (event.key.startsWith('Arrow')) {
          event.preventDefault();
          event.stopPropagation();
          step(entry.id, event.key);
        }
      },
    }, h('title', {}));
    if (entry.isHead) box.append(h('text', { class: 'more', x: 2, y: 22 }));
    else {
      box.append(h('rect', { width: WIDTH, height: HEIGHT, rx: 9 }), h('rect', { class: 'stripe', width: 4, height: HEIGHT - 18, x: 0, y: 9, rx: 2 }),
        h('path', { class: 'shape', transform: 'translate(12 12)' }), h('text', { class: 'label', x: 34, y: 25 }), h('text', { class: 'more', x: 34, y: 46 }));
    }
    const [label, more] = [box.querySelector('.label'), box.querySelector('.more')];
    box.parts = { title: box.firstChild, label, more, shape: box.querySelector('.shape') };
    return box;
  }

  function update(box, entry) {
    const { title, label, more, shape: mark } = box.parts;
    const place = `translate(${entry.x} ${entry.y})`;
    if (box.place !== place) box.setAttribute('transform', box.place = place);
    if (entry.isHead) {
      const text = T.layer(entry.layer + 1, number(entry.count));
      setText(more, `▾ ${text}`);
      setText(title, T.foldLayer(text));
      box.setAttribute('class', 'box head');
      return;
    }
    const { one } = entry;
    const status = entry.status || (one.id === state.top.run ? state.standing : one.status);
    const kind = entry.list ? 'folded' : one.kind;
    const look = `box s-${status} k-${kind}${entry.id === selected ? ' selected' : ''}`;
    if (box.look !== look) {
      box.setAttribute('class', box.look = look);
      mark.setAttribute('d', shape(status));
    }
    if (entry.list) {
      setText(label, T.layer(entry.layer + 1, number(entry.list.length)));
      const failed = entry.list.filter((each) => each.status === 'failed').length;
      setText(more, failed ? `${number(failed)} ${T.states.failed}` : T.states[status]);
      setText(title, T.unfoldLayer);
      return;
    }
    setText(label, cut(one.label || one.id, 22));
    setText(more, cut(about(one), 27));
    setText(title, `${one.label || one.id}: ${T.states[status] || status}${one.description ? `. ${cut(one.description, 300)}` : ''}`);
  }

  function about(one) {
    const progress = one.items && `${one.items.done}/${one.items.total}`;
    const tries = one.attempt > 1 && `×${one.attempt}`;
    const inside = state.children.get(one.id)?.size;
    const what = one.status === 'running' ? one.activity || one.agent : one.agent;
    const took = one.ended && one.started && duration(elapsed(one));
    return [progress, tries, what !== one.label && what, took, inside > 0 && !one.items && `▸ ${number(inside)}`].filter(Boolean).join(' · ');
  }

  function toggle(entry) {
    byHand.set(entry.layer, Boolean(entry.isHead));
    relayout();
    boxes.querySelector(`[data-node="${entry.isHead ? 'layer' : 'head'}:${entry.layer}"]`)?.focus();
  }

  /** Moves the focus to the nearest node in a direction. */
  function step(id, key) {
    const from = shown.get(id);
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    let best = null;
    let least = Infinity;
    for (const to of shown.values()) {
      const [along, aside] = dx ? [(to.x - from.x) * dx, Math.abs(to.y - from.y)] : [(to.y - from.y) * dy, Math.abs(to.x - from.x)];
      if (to.isHead || along <= 0 || along + aside * 2 >= least) continue;
      least = along + aside * 2;
      best = to;
    }
    if (!best) return;
    centre(best);
    drawn.known.get(best.id)?.node.focus();
  }

  /** Moves a node into sight that got the focus by the keyboard. */
  function reveal(id) {
    const at = shown.get(id);
    if (!at) return;
    const [x, y] = [at.x * camera.scale + camera.x, at.y * camera.scale + camera.y];
    if (x < 0 || y < 0 || x + WIDTH * camera.scale > view[0] || y + HEIGHT * camera.scale > view[1]) centre(at);
  }

  function select(id, isNew) {
    const before = selected;
    selected = id;
    details.hidden = !id;
    details.drawnOf = null;
    for (const each of [before, id]) {
      const box = each && drawn.known.get(each);
      if (box && shown.has(each)) update(box.node, shown.get(each));
    }
    if (camera.scale < LEGIBLE) drawBack();
    if (id) inspect();
    if (id && isNew) details.focus({ preventScroll: true });
  }

  function close() {
    const box = selected && drawn.known.get(selected);
    select(null);
    (box ? box.node : svg).focus();
  }
  details.addEventListener('keydown', (event) => { if (event.key === 'Escape') close(); });

  /** Fills the panel about the selected node, if something in it has changed. */
  function inspect() {
    const one = state.nodes.get(selected);
    if (!one) return select(null);
    const key = [one, state.items.length, state.layout];
    if (details.drawnOf && key.every((value, at) => value === details.drawnOf[at])) return undefined;
    details.drawnOf = key;
    const within = state.within(one.id);
    const calls = state.items.filter((item) => item.kind === 'call' && within.has(item.node)).slice(-50);
    const inputs = (state.top.edges || []).filter(([, to]) => to === one.id).map(([from]) => state.nodes.get(from)).filter(Boolean);
    const block = (title, text) => text && [h('p', { class: 'label' }, title), h('pre', { tabindex: 0, dir: 'auto' }, pretty(text))];
    const status = one.id === state.top.run ? state.standing : one.status;
    const isInside = one.id !== (focus || state.top.run) && state.below(one.id).length > 0;
    return fill(details, h('div', { class: 'bar' }, h('h3', { dir: 'auto' }, one.label || one.id), closeButton(close)), badge(status),
      facts([[T.kind, T.kinds[one.kind] || one.kind], [T.agent, one.agent], [T.attempts, one.attempt > 1 ? one.attempt : undefined],
        [T.started, one.started && time(one.started)], [T.duration, one.started && duration(elapsed(one, state.top.updated))],
        [T.tokens, one.usage && one.usage.tokens > 0 && tokens(one.usage)], [T.cost, cost(one.usage) !== undefined ? money(cost(one.usage)) : undefined],
        [T.items, one.items && `${one.items.done} / ${one.items.total}`], [T.activity, one.activity]]),
      one.error && h('p', { class: 'problem', dir: 'auto' }, one.error),
      h('div', { class: 'actions' }, isInside && button(T.inside, () => enter(one.id)), button(T.inChat, () => onChat(one.id))),
      block(T.description, one.description), block(T.prompt, one.prompt),
      inputs.length > 0 && h('p', { class: 'label' }, T.inputs),
      inputs.slice(0, 20).map((from) => h('details', { class: 'input' }, h('summary', { dir: 'auto' }, from.label || from.id),
        h('pre', { tabindex: 0, dir: 'auto' }, pretty(from.output || T.nothing)))),
      block(T.output, one.output),
      calls.length > 0 && [h('p', { class: 'label' }, T.calls), h('ul', { class: 'calls' }, calls.map(({ call }) => h('li', {}, h('code', {}, call.name), ' ',
        badge(call.failed ? 'failed' : call.status), ' ', call.ended ? duration(elapsed(call)) : '')))],
      one.truncated && h('p', { class: 'note' }, T.truncated));
  }

  let hit = 0;
  function find(by) {
    const text = search.value.trim().toLowerCase();
    setText(hits, '');
    if (!text || !state) return;
    const found = [...standIn.keys()].map((id) => state.nodes.get(id))
      .filter((one) => one && `${one.label} ${one.agent || ''} ${one.status} ${one.description || ''}`.toLowerCase().includes(text));
    hit = by === 0 ? 0 : (hit + by + found.length) % Math.max(found.length, 1);
    setText(hits, found.length ? T.hit(hit + 1, found.length) : T.noMatches);
    const one = found[hit];
    if (!one) return;
    camera.scale = Math.max(camera.scale, 0.75);
    centre(shown.get(standIn.get(one.id)));
    select(one.id);
  }

  function zoom(factor, cx = view[0] / 2, cy = view[1] / 2) {
    const scale = Math.min(2.5, Math.max(0.02, camera.scale * factor));
    const real = scale / camera.scale;
    camera = { scale, x: cx - (cx - camera.x) * real, y: cy - (cy - camera.y) * real };
    drawSoon();
  }

  function fit() {
    const [width, height] = [size[0], size[1] + 40];
    const scale = Math.min(1, Math.max(0.02, Math.min((view[0] - 48) / width, (view[1] - 48) / height)));
    camera = { scale, x: (view[0] - size[0] * scale) / 2, y: (view[1] - size[1] * scale) / 2 + 14 };
    draw();
  }

  /** Shows the whole graph if it is legible then, else the first running step or the first step. */
  function begin() {
    fit();
    if (camera.scale >= 0.55) return;
    const all = [...shown.values()].filter((entry) => !entry.isHead);
    const first = all.find(({ one }) => one && (one.status === 'running' || one.status === 'waiting')) || all[0];
    camera.scale = 0.75;
    centre(first);
  }

  function centre(at) {
    camera.x = view[0] / 2 - (at.x + WIDTH / 2) * camera.scale;
    camera.y = view[1] / 2 - (at.y + HEIGHT / 2) * camera.scale;
    draw();
  }

  let drag = null;
  svg.addEventListener('pointerdown', (event) => {
    if (event.button === 0) drag = { x: event.clientX - camera.x, y: event.clientY - camera.y, from: [event.clientX, event.clientY] };
  });
  svg.addEventListener('pointermove', (event) => {
    if (!drag || !(event.buttons & 1)) return;
    camera.x = event.clientX - drag.x;
    camera.y = event.clientY - drag.y;
    drawSoon();
  });
  svg.addEventListener('pointerup', (event) => {
    const isClick = drag && Math.hypot(event.clientX - drag.from[0], event.clientY - drag.from[1]) < 4;
    drag = null;
    if (!isClick || camera.scale >= LEGIBLE) return;
    // Distant nodes are not elements, so a click comes closer.
    const box = svg.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left - camera.x) / camera.scale, (event.clientY - box.top - camera.y) / camera.scale];
    const at = [...shown.values()].find((one) => !one.isHead && x >= one.x && x <= one.x + WIDTH && y >= one.y && y <= one.y + HEIGHT);
    if (!at) return;
    camera.scale = 0.75;
    centre(at);
    if (at.one) select(at.id);
  });
  svg.addEventListener('wheel', (event) => {
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  svg.addEventListener('keydown', (event) => {
    const move = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (move) {
      event.preventDefault();
      camera.x += move[0];
      camera.y += move[1];
      drawSoon();
    } else if (event.key === '+') zoom(1.25);
    else if (event.key === '-') zoom(0.8);
    else if (event.key === '0') fit();
  });
  map.addEventListener('pointerdown', (event) => {
    const box = map.getBoundingClientRect();
    const scale = mapScale();
    const x = (event.clientX - box.left - (MAP[0] - size[0] * scale) / 2) / scale;
    const y = (event.clientY - box.top - (MAP[1] - size[1] * scale) / 2) / scale;
    centre({ x: x - WIDTH / 2, y: y - HEIGHT / 2 });
  });
  new ResizeObserver(() => {
    view = [stage.clientWidth, stage.clientHeight];
    relayout();
  }).observe(stage);
  const recolour = () => {
    colours = null;
    drawSoon();
  };
  new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ['data-theme'] });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolour);

  return {
    node, show,
    reset() {
      [isPlaced, focus, state] = [false, null, null];
      byHand.clear();
      search.value = '';
      setText(hits, '');
      select(null);
    },
    /** Selects a node, inside the node that contains it. */
    select(id) {
      const one = state?.nodes.get(id);
      if (!one) return;
      const parent = one.parent && one.parent !== state.top.run ? one.parent : null;
      if (parent !== focus) enter(parent);
      const at = shown.get(standIn.get(id));
      if (at) centre(at);
      select(id);
    },
  };
}

function cut(text, max) {
  return text.length > max ? `${text.slice(0, max - 1)}…` : text;
}

export function tokens(usage) {
  return T.tokensInOut(number(usage.input ?? usage.input_tokens), number(usage.output ?? usage.output_tokens));
}
