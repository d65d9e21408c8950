// The graph of a run: layers from left to right, as the server laid them out.
//
// Only the nodes in sight are in the page, so a plan with thousands of steps stays fast.

import { h, fill, Keyed, frame, setText } from './dom.js';
import { badge, button, facts, shape } from './parts.js';
import { duration, money, number, pretty, time } from './format.js';
import { cost, elapsed } from './view.js';
import { T } from './texts.js';

const WIDTH = 210;
const HEIGHT = 64;
const GAP_X = 70;
const GAP_Y = 18;
const SETTLED = new Set(['completed', 'skipped', 'cancelled', 'failed']);

export function graph() {
  const edges = h('g', { class: 'edges' });
  const boxes = h('g', { class: 'boxes' });
  const world = h('g', {}, edges, boxes);
  const svg = h('svg', { class: 'canvas', tabindex: 0, role: 'group', 'aria-label': T.graph }, world);
  const map = h('svg', { class: 'minimap', 'aria-hidden': 'true' });
  const details = h('aside', { class: 'details', hidden: true, tabindex: -1 });
  const search = h('input', { type: 'search', placeholder: T.searchSteps, 'aria-label': T.searchSteps, oninput: () => find() });
  const folded = h('input', { type: 'checkbox', onchange: () => relayout() });
  const up = button(T.up, () => enter(null), { hidden: true });
  const empty = h('p', { class: 'empty' }, T.noSteps);
  const bar = h('div', { class: 'bar' }, up, search, button('+', () => zoom(1.25), { 'aria-label': T.zoomIn }),
    button('−', () => zoom(0.8), { 'aria-label': T.zoomOut }), button(T.fit, () => fit()),
    h('label', {}, folded, ' ', T.collapse));
  const node = h('div', { class: 'graph' }, bar, empty, svg, map, details);
  const drawn = new Keyed(boxes, create, update);
  let state = null;
  let places = new Map();
  let size = [1, 1];
  let camera = { x: 0, y: 0, scale: 1 };
  let isPlaced = false;
  let selected = null;
  let key = '';
  let focus = null;
  let group = new Map();

  /** Chooses the nodes to show: those below the node in focus, or below the root, or the root. */
  function choose() {
    const all = [...state.nodes.values()];
    const root = all.find((one) => !one.parent);
    if (focus && !state.nodes.has(focus)) focus = null;
    const from = focus || (root && root.id);
    let shown = state.below(from);
    if (!shown.length && root) shown = [root];
    group = new Map(shown.map((one) => [one.id, one]));
    up.hidden = !focus;
  }

  function enter(id) {
    focus = id;
    isPlaced = false;
    selected = null;
    details.hidden = true;
    key = '';
    show(state);
  }

  function show(next) {
    state = next;
    choose();
    const layout = [...group.values()].map((one) => `${one.id}:${one.layer}:${one.row}`).join();
    if (layout !== key || folded.checked) {
      key = layout;
      relayout();
    } else draw();
    if (selected) inspect(selected, false);
  }

  /** Computes the place of each node. A layer in which all steps have ended may become one bar. */
  function relayout() {
    if (!state) return;
    places = new Map();
    const layers = new Map();
    for (const one of group.values()) {
      const layer = one.layer || 0;
      if (!layers.has(layer)) layers.set(layer, []);
      layers.get(layer).push(one);
    }
    let x = 0;
    let tallest = 0;
    for (const layer of [...layers.keys()].sort((a, b) => a - b)) {
      const list = layers.get(layer);
      const isFolded = folded.checked && list.length > 1 && list.every((one) => SETTLED.has(one.status));
      for (const one of list) {
        const y = isFolded ? 0 : (one.row || 0) * (HEIGHT + GAP_Y);
        places.set(one.id, { x, y, isFolded, count: list.length, isFirst: one === list[0] });
        tallest = Math.max(tallest, y + HEIGHT);
      }
      x += (isFolded ? 60 : WIDTH) + GAP_X;
    }
    size = [Math.max(x - GAP_X, 1), Math.max(tallest, 1)];
    empty.hidden = group.size > 0;
    if (!isPlaced && group.size > 0 && svg.clientWidth > 0) {
      isPlaced = true;
      begin();
    }
    draw();
  }

  const draw = frame(() => {
    if (!state || !svg.clientWidth) return;
    const { x, y, scale } = camera;
    world.setAttribute('transform', `translate(${x} ${y}) scale(${scale})`);
    const [left, top] = [-x / scale - WIDTH, -y / scale - HEIGHT];
    const [right, bottom] = [(svg.clientWidth - x) / scale, (svg.clientHeight - y) / scale];
    const isInSight = (place) => place && place.x >= left && place.x <= right && place.y >= top && place.y <= bottom;
    const seen = [...group.values()].filter((one) => {
      const place = places.get(one.id);
      return isInSight(place) && (!place.isFolded || place.isFirst);
    });
    drawn.show(seen);
    for (const one of seen) place(one);
    drawEdges(new Set(seen.map((one) => one.id)));
    drawMap(left + WIDTH, top + HEIGHT, right, bottom);
  });

  function place(one) {
    const entry = drawn.known.get(one.id);
    const at = places.get(one.id);
    entry.node.setAttribute('transform', `translate(${at.x} ${at.y})`);
    entry.node.classList.toggle('folded', at.isFolded);
    entry.node.classList.toggle('selected', one.id === selected);
    if (at.isFolded) setText(entry.node.querySelector('.label'), `✓ ${at.count}`);
    entry.node.querySelector('rect').setAttribute('width', at.isFolded ? 60 : WIDTH);
  }

  function drawEdges(seen) {
    const paths = [];
    for (const [from, to] of (state.top && state.top.edges) || []) {
      const [a, b] = [places.get(from), places.get(to)];
      if (!a || !b || !(seen.has(from) || seen.has(to))) continue;
      const start = a.x + (a.isFolded ? 60 : WIDTH);
      const middle = (start + b.x) / 2;
      const [ya, yb] = [a.y + HEIGHT / 2, b.y + HEIGHT / 2];
      paths.push(`M${start} ${ya}C${middle} ${ya} ${middle} ${yb} ${b.x} ${yb}`);
    }
    fill(edges, h('path', { d: paths.join('') }));
  }

  function drawMap(left, top, right, bottom) {
    map.toggleAttribute('hidden', group.size < 30);
    if (group.size < 30) return;
    const byState = new Map();
    for (const one of group.values()) {
      const at = places.get(one.id);
      byState.set(one.status, `${byState.get(one.status) || ''}M${at.x} ${at.y}h${WIDTH}v${HEIGHT}h-${WIDTH}z`);
    }
    map.setAttribute('viewBox', `0 0 ${size[0]} ${size[1]}`);
    map.setAttribute('preserveAspectRatio', 'xMidYMid meet');
    fill(map, [...byState].map(([status, d]) => h('path', { class: `s-${status}`, d })),
      h('rect', { class: 'sight', x: left, y: top, width: Math.max(right - left, 1), height: Math.max(bottom - top, 1) }));
  }

  function create(one) {
    const box = h('g', {
      class: 'box', tabindex: 0, role: 'button', 'data-node': one.id,
      onclick: () => inspect(one.id, true),
      onkeydown: (event) => {
        if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); inspect(one.id, true); }
      },
    }, h('title', {}), h('rect', { width: WIDTH, height: HEIGHT, rx: 8 }), h('text', { class: 'shape', x: 10, y: 24, 'aria-hidden': 'true' }),
    h('text', { class: 'label', x: 30, y: 24 }), h('text', { class: 'more', x: 30, y: 46 }));
    return box;
  }

  function update(box, one) {
    const cut = (text, max) => (text.length > max ? `${text.slice(0, max - 1)}…` : text);
    box.setAttribute('class', `box s-${one.status}`);
    setText(box.querySelector('.shape'), shape(one.status));
    const label = cut(one.label || one.id, 22);
    setText(box.querySelector('.label'), label);
    const progress = one.items ? `${one.items.done}/${one.items.total} ` : '';
    const tries = one.attempt > 1 ? `×${one.attempt} ` : '';
    const took = one.ended ? duration(elapsed(one)) : '';
    const more = cut(`${progress}${tries}${one.activity || one.agent || ''} ${took}`.trim(), 26);
    setText(box.querySelector('.more'), more);
    const about = one.description ? `. ${cut(one.description, 300)}` : '';
    setText(box.querySelector('title'), `${one.label || one.id}: ${T.states[one.status] || one.status}${about}`);
  }

  function inspect(id, isNew) {
    const one = state.nodes.get(id);
    if (!one) return;
    selected = id;
    details.hidden = false;
    const block = (title, text) => text && [h('p', { class: 'label' }, title), h('pre', { tabindex: 0, dir: 'auto' }, pretty(text))];
    fill(details, button('×', () => { details.hidden = true; selected = null; draw(); svg.focus(); }, { class: 'close', 'aria-label': T.close }),
      h('h3', { dir: 'auto' }, one.label || one.id), badge(one.status),
      facts([[T.agent, one.agent], [T.attempt, one.attempt > 1 ? one.attempt : undefined],
        [T.started, one.started && time(one.started)], [T.duration, one.started && duration(elapsed(one, state.top.updated))],
        [T.tokens, one.usage && tokens(one.usage)], [T.cost, cost(one.usage) !== undefined ? money(cost(one.usage)) : undefined],
        [T.items, one.items && `${one.items.done} / ${one.items.total}`], [T.activity, one.activity], [T.error, one.error]]),
      block(T.description, one.description), block(T.prompt, one.prompt), block(T.output, one.output),
      state.below(id).length > 0 && id !== focus && group.size > 0 && [...group.keys()].includes(id) && button(T.inside, () => enter(id)));
    if (isNew) {
      details.focus();
      draw();
    }
  }

  function find() {
    const text = search.value.trim().toLowerCase();
    if (!text || !state) return;
    const hit = [...group.values()].find((one) => `${one.id} ${one.label} ${one.description || ''}`.toLowerCase().includes(text));
    if (!hit) return;
    selected = hit.id;
    inspect(hit.id, false);
    camera.scale = Math.max(camera.scale, 0.7);
    centre(places.get(hit.id));
  }

  function zoom(factor, cx = svg.clientWidth / 2, cy = svg.clientHeight / 2) {
    const scale = Math.min(3, Math.max(0.03, camera.scale * factor));
    const real = scale / camera.scale;
    camera = { scale, x: cx - (cx - camera.x) * real, y: cy - (cy - camera.y) * real };
    draw();
  }

  function fit() {
    const scale = Math.min(1, Math.max(0.03, Math.min((svg.clientWidth - 40) / size[0], (svg.clientHeight - 40) / size[1])));
    camera = { scale, x: (svg.clientWidth - size[0] * scale) / 2, y: (svg.clientHeight - size[1] * scale) / 2 };
    draw();
  }

  /** Shows the whole graph if it is legible then, else the first running step or the first step. */
  function begin() {
    fit();
    if (camera.scale >= 0.5) return;
    const all = [...group.values()];
    const first = all.find((one) => one.status === 'running' || one.status === 'waiting') || all[0];
    camera.scale = 0.7;
    centre(places.get(first.id));
  }

  function centre(at) {
    camera.x = svg.clientWidth / 2 - (at.x + WIDTH / 2) * camera.scale;
    camera.y = svg.clientHeight / 2 - (at.y + HEIGHT / 2) * camera.scale;
    draw();
  }

  let drag = null;
  svg.addEventListener('pointerdown', (event) => {
    if (event.button === 0) drag = { x: event.clientX - camera.x, y: event.clientY - camera.y };
  });
  svg.addEventListener('pointermove', (event) => {
    if (!drag || !(event.buttons & 1)) return;
    camera.x = event.clientX - drag.x;
    camera.y = event.clientY - drag.y;
    draw();
  });
  svg.addEventListener('pointerup', () => { drag = null; });
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
      draw();
    } else if (event.key === '+') zoom(1.25);
    else if (event.key === '-') zoom(0.8);
    else if (event.key === '0') fit();
  });
  new ResizeObserver(() => relayout()).observe(svg);
  return { node, show, reset: () => { isPlaced = false; selected = null; focus = null; details.hidden = true; key = ''; } };
}

export function tokens(usage) {
  return T.tokensInOut(number(usage.input ?? usage.input_tokens), number(usage.output ?? usage.output_tokens));
}
