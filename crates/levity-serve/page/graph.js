// The graph of a run: layers from left to right, as the server laid them out.
//
// Edges and distant nodes are drawn on a canvas, and only the nodes in sight are elements, so a
// plan with thousands of steps stays fast. An update redraws only the nodes that changed.

import { h, fill, Keyed, frame, set, setText } from './dom.js';
import { badge, button, closeButton, facts, icon, save, shape } from './parts.js';
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
  const boxes = h('div', { class: 'boxes' });
  const board = h('div', { class: 'board', tabindex: 0, role: 'group', 'aria-label': T.graphHelp }, boxes);
  const back = h('canvas', { class: 'back', 'aria-hidden': 'true' });
  const far = h('canvas', { class: 'back', 'aria-hidden': 'true' });
  const dots = h('canvas', {});
  const sight = h('div', { class: 'sight' });
  const map = h('div', { class: 'minimap', 'aria-hidden': 'true', hidden: true }, dots, sight);
  const details = h('aside', { class: 'details', hidden: true, tabindex: -1, 'aria-label': T.details });
  const search = h('input', { type: 'search', placeholder: T.searchSteps, 'aria-label': T.searchSteps, oninput: () => find(0),
    onkeydown: (event) => { if (event.key === 'Enter') { event.preventDefault(); find(event.shiftKey ? -1 : 1); } } });
  const hits = h('output', { class: 'note hits' });
  const folded = h('input', { type: 'checkbox', onchange: () => { byHand.clear(); relayout(); } });
  const up = button(T.up, () => enter(null), { hidden: true });
  const counts = h('span', { class: 'counts' });
  const empty = h('p', { class: 'empty' }, T.noSteps);
  const saver = button(T.saveSvg, async () => {
    try {
      save(await picture(), 'graph.svg');
    } catch (error) {
      setText(hits, error.message);
    }
  });
  const bar = h('div', { class: 'bar' }, up, search, hits, counts, h('label', { class: 'check' }, folded, T.collapse),
    button('−', () => zoom(0.8), { 'aria-label': T.zoomOut }), button('+', () => zoom(1.25), { 'aria-label': T.zoomIn }), button(T.fit, () => showAll()), saver);
  const stage = h('div', { class: 'stage' }, back, far, board, map, empty, details);
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
  /** What follows the growth of the graph: nothing once a person has moved it. */
  let follow = begin;
  /** Whether the whole graph is in sight, because of its size or a person's choice. */
  let isWhole = false;
  let placedFor = '';
  let selected = null;
  let focus = null;
  let colours = null;
  const byHand = new Map();

  function enter(id) {
    focus = id;
    [follow, placedFor] = [begin, ''];
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
    const entries = [];
    for (const id of changed) {
      const entry = shown.get(id);
      if (!entry || entry.one === state.nodes.get(id)) continue;
      const { status } = entry.one;
      entry.one = state.nodes.get(id);
      const box = drawn.known.get(id);
      if (box) update(box.node, entry);
      if (entry.one.status !== status) entries.push(entry);
    }
    if (!entries.length) return;
    drawCounts();
    if (camera.scale < LEGIBLE) repaint(far, entries);
    if (!map.hidden) repaint(dots, entries);
  }

  /** Paints the changed nodes again, on a canvas that has all of them. */
  function repaint(canvas, entries) {
    if (!canvas.toWorld) return;
    const context = canvas.getContext('2d');
    context.setTransform(canvas.toWorld);
    for (const entry of entries) {
      context.clearRect(entry.x, entry.y, WIDTH, HEIGHT);
      paint(context, entry);
    }
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
    // Until a person moves the graph, it follows its growth.
    if (group.length > 0 && view[0] > 0 && follow && `${size}` !== placedFor) {
      placedFor = `${size}`;
      follow();
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

  const tallies = new Map(STATUSES.map((status) => {
    const one = h('span', { class: `tally s-${status}`, hidden: true });
    one.append(badge(status, ' '));
    counts.append(one);
    return [status, { one, text: one.querySelector('.badge').lastChild, shown: 0 }];
  }));

  function drawCounts() {
    const byStatus = {};
    for (const { one, list } of shown.values()) {
      if (list) for (const each of list) byStatus[each.status] = (byStatus[each.status] || 0) + 1;
      else if (one) byStatus[one.status] = (byStatus[one.status] || 0) + 1;
    }
    for (const [status, tally] of tallies) {
      const count = byStatus[status] || 0;
      if (count === tally.shown) continue;
      tally.shown = count;
      tally.one.hidden = count === 0;
      tally.text.data = `${number(count)} ${T.states[status]}`;
    }
  }

  function draw() {
    if (!state || !view[0]) return;
    const { x, y, scale } = camera;
    boxes.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    const [left, top] = [-x / scale - WIDTH, -y / scale - HEIGHT];
    const [right, bottom] = [(view[0] - x) / scale, (view[1] - y) / scale];
    const isInSight = (at) => at.x >= left && at.x <= right && at.y >= top && at.y <= bottom;
    drawn.show(scale < LEGIBLE ? [] : [...shown.values()].filter(isInSight));
    drawBack();
    drawMap();
  }
  const drawSoon = frame(draw);

  /** Prepares a canvas for the resolution of the screen and for a part of the graph. */
  function paper(canvas, [width, height], { x, y, scale }) {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext('2d');
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * x, ratio * y);
    canvas.toWorld = context.getTransform();
    if (!colours) {
      const style = getComputedStyle(document.documentElement);
      const of = (name) => style.getPropertyValue(name).trim();
      colours = { line: of('--edge'), sight: of('--main'), running: of('--run'), completed: of('--good'),
        failed: of('--bad'), waiting: of('--wait'), pending: of('--idle'), skipped: of('--idle'), cancelled: of('--idle') };
    }
    return context;
  }

  /** Draws the edges in sight and, if labels cannot be read, the nodes. */
  function drawBack() {
    const context = paper(back, view, camera);
    const { x, y, scale } = camera;
    const [right, bottom] = [(view[0] - x) / scale, (view[1] - y) / scale];
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
    const isFar = scale < LEGIBLE;
    far.hidden = !isFar;
    if (!isFar) return;
    const near = paper(far, view, camera);
    for (const entry of shown.values()) paint(near, entry);
  }

  function paint(context, entry) {
    if (entry.isHead) return;
    const status = entry.status || entry.one.status;
    context.globalAlpha = status === 'completed' || status === 'skipped' || status === 'pending' ? 0.5 : 1;
    context.fillStyle = colours[status];
    context.fillRect(entry.x, entry.y, WIDTH, HEIGHT);
    context.globalAlpha = 1;
    if (!selected || entry.id !== standIn.get(selected)) return;
    context.strokeStyle = colours.sight;
    context.lineWidth = 24;
    context.strokeRect(entry.x + 12, entry.y + 12, WIDTH - 24, HEIGHT - 24);
  }

  const MAP = [200, 130];
  function drawMap() {
    if (map.hidden) return;
    const scale = Math.min((MAP[0] - 12) / size[0], (MAP[1] - 12) / size[1]);
    const at = { x: (MAP[0] - size[0] * scale) / 2, y: (MAP[1] - size[1] * scale) / 2, scale };
    if (map.of !== shown || map.colours !== colours || map.selected !== selected) {
      const context = paper(dots, MAP, at);
      for (const entry of shown.values()) paint(context, entry);
      [map.of, map.colours, map.selected, map.place] = [shown, colours, selected, at];
    }
    const real = scale / camera.scale;
    sight.style.transform = `translate(${at.x - camera.x * real}px, ${at.y - camera.y * real}px)`;
    sight.style.width = `${view[0] * real}px`;
    sight.style.height = `${view[1] * real}px`;
  }

  function create(entry) {
    const act = entry.isHead || entry.list ? () => toggle(entry.id) : () => select(entry.id, true);
    const parts = { label: h('span', { class: 'label', dir: 'auto' }), more: h('span', { class: 'more', dir: 'auto' }), mark: icon(shape('pending')) };
    const box = h('button', {
      type: 'button', class: 'box', 'data-node': entry.id, onclick: () => { if (!isDragged) act(); }, onfocus: () => reveal(entry.id),
      onkeydown: (event) => {
        if (!event.key.startsWith('Arrow')) return;
        event.preventDefault();
        event.stopPropagation();
        step(entry.id, event.key);
      },
    }, entry.isHead ? parts.more : [h('span', { class: 'stripe' }), parts.mark, parts.label, parts.more]);
    box.parts = parts;
    return box;
  }

  function update(box, entry) {
    const { label, more, mark } = box.parts;
    const place = `translate(${entry.x}px, ${entry.y}px)`;
    if (box.place !== place) box.style.transform = box.place = place;
    if (entry.isHead) {
      const text = T.layer(entry.layer + 1, number(entry.count));
      setText(more, `▾ ${text}`);
      set(box, 'aria-label', T.foldLayer(text));
      set(box, 'class', 'box head');
      return;
    }
    const { one } = entry;
    const status = entry.status || (one.id === state.top.run ? state.standing : one.status);
    const kind = entry.list ? 'folded' : one.kind;
    const look = `box s-${status} k-${kind}${entry.id === selected ? ' selected' : ''}`;
    if (box.look !== look) {
      set(box, 'class', box.look = look);
      mark.firstChild.setAttribute('d', shape(status));
    }
    if (entry.list) {
      setText(label, T.layer(entry.layer + 1, number(entry.list.length)));
      const failed = entry.list.filter((each) => each.status === 'failed').length;
      setText(more, failed ? `${number(failed)} ${T.states.failed}` : T.states[status]);
      set(box, 'aria-label', `${label.textContent}. ${T.unfoldLayer}`);
      return;
    }
    setText(label, (one.label || one.id).slice(0, 60));
    setText(more, about(one).slice(0, 60));
    set(box, 'aria-label', `${one.label || one.id}: ${T.states[status] || status}`);
    set(box, 'title', one.description ? cut(one.description, 300) : undefined);
  }

  function about(one) {
    const progress = one.items && `${one.items.done}/${one.items.total}`;
    const tries = one.attempt > 1 && `×${one.attempt}`;
    const inside = state.children.get(one.id)?.size;
    const what = one.status === 'running' ? one.activity || one.agent : one.agent;
    const took = one.ended && one.started && duration(elapsed(one));
    return [progress, tries, what !== one.label && what, took, inside > 0 && !one.items && `▸ ${number(inside)}`].filter(Boolean).join(' · ');
  }

  function toggle(id) {
    const { layer, isHead } = shown.get(id);
    byHand.set(layer, Boolean(isHead));
    relayout();
    drawn.known.get(`${isHead ? 'layer' : 'head'}:${layer}`)?.node.focus({ preventScroll: true });
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
    drawn.known.get(best.id)?.node.focus({ preventScroll: true });
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
    if (state && camera.scale < LEGIBLE && view[0]) drawBack();
    if (state && view[0]) drawMap();
    if (id) inspect();
    if (id && isNew) details.focus({ preventScroll: true });
  }

  function close() {
    const box = selected && drawn.known.get(selected);
    select(null);
    (box ? box.node : board).focus({ preventScroll: true });
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
    move();
    camera = { scale, x: cx - (cx - camera.x) * real, y: cy - (cy - camera.y) * real };
    drawSoon();
  }

  /** Places the camera so that the whole graph is in sight. */
  function widen() {
    const [width, height] = [size[0], size[1] + 40];
    const scale = Math.min(1, Math.max(0.02, Math.min((view[0] - 48) / width, (view[1] - 48) / height)));
    camera = { scale, x: (view[0] - size[0] * scale) / 2, y: (view[1] - size[1] * scale) / 2 + 14 };
    isWhole = true;
  }

  function fit() {
    widen();
    draw();
  }

  /** Shows the whole graph, also when it grows. */
  function showAll() {
    follow = fit;
    fit();
  }

  /** Shows the whole graph if it is legible then, else the first running step or the first step. */
  function begin() {
    widen();
    if (camera.scale >= 0.55) return draw();
    const all = [...shown.values()].filter((entry) => !entry.isHead);
    const first = all.find(({ one }) => one && (one.status === 'running' || one.status === 'waiting')) || all[0];
    camera.scale = 0.75;
    centre(first);
    follow = begin;
    return undefined;
  }

  /** Notes that a person has moved the graph, which then stays where it is. */
  function move() {
    [follow, isWhole] = [null, false];
  }

  function centre(at) {
    move();
    camera.x = view[0] / 2 - (at.x + WIDTH / 2) * camera.scale;
    camera.y = view[1] / 2 - (at.y + HEIGHT / 2) * camera.scale;
    draw();
  }

  let drag = null;
  let isDragged = false;
  board.addEventListener('pointerdown', (event) => {
    isDragged = false;
    if (event.button === 0) drag = { x: event.clientX - camera.x, y: event.clientY - camera.y, from: [event.clientX, event.clientY] };
  });
  board.addEventListener('pointermove', (event) => {
    if (!drag || !(event.buttons & 1)) return;
    isDragged ||= Math.hypot(event.clientX - drag.from[0], event.clientY - drag.from[1]) > 4;
    if (!isDragged) return;
    move();
    camera.x = event.clientX - drag.x;
    camera.y = event.clientY - drag.y;
    drawSoon();
  });
  board.addEventListener('pointerup', (event) => {
    const isClick = drag && !isDragged;
    drag = null;
    if (!isClick || camera.scale >= LEGIBLE) return;
    // Distant nodes are not elements, so a click comes closer.
    const box = board.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left - camera.x) / camera.scale, (event.clientY - box.top - camera.y) / camera.scale];
    const at = [...shown.values()].find((one) => !one.isHead && x >= one.x && x <= one.x + WIDTH && y >= one.y && y <= one.y + HEIGHT);
    if (!at) return;
    camera.scale = 0.75;
    centre(at);
    if (at.one) select(at.id);
  });
  board.addEventListener('wheel', (event) => {
    event.preventDefault();
    const box = board.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  board.addEventListener('keydown', (event) => {
    const move = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (move) {
      event.preventDefault();
      move();
      camera.x += move[0];
      camera.y += move[1];
      drawSoon();
    } else if (event.key === '+') zoom(1.25);
    else if (event.key === '-') zoom(0.8);
    else if (event.key === '0') showAll();
  });
  map.addEventListener('pointerdown', (event) => {
    const box = map.getBoundingClientRect();
    const x = (event.clientX - box.left - map.place.x) / map.place.scale;
    const y = (event.clientY - box.top - map.place.y) / map.place.scale;
    centre({ x: x - WIDTH / 2, y: y - HEIGHT / 2 });
  });
  new ResizeObserver(() => {
    const isFirst = !view[0];
    view = [stage.clientWidth, stage.clientHeight];
    // The places of the nodes do not depend on the room for them.
    if (isFirst) relayout();
    else if (isWhole) fit();
    else draw();
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
      [follow, placedFor, focus, state] = [begin, '', null, null];
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
