// The conversation of a run: texts, folded thinking, and tool calls as cards.

import { h, fill, setText, Keyed } from './dom.js';
import { showMarkdown } from './markdown.js';
import { argumentsOf, askForm } from './asks.js';
import { badge, button, icon } from './parts.js';
import { bytes, duration, money, number, pretty } from './format.js';
import { cost, elapsed } from './view.js';
import { T } from './texts.js';

/** The number of items that are in the page at once. Older ones are added when a person scrolls up. */
const SHOWN = 50;

/** The number of items above `SHOWN` at which old ones are removed. They are removed together, because each removal moves all others. */
const SLACK = 25;

const CHANGES = { written: 'M4 12l1-3 6-6 2 2-6 6z', removed: 'M4 8h8' };

export function chat({ onDecide, onNode }) {
  const older = button('', () => showOlder(), { class: 'quiet', hidden: true });
  const only = h('div', { class: 'only', hidden: true });
  const list = h('ol', { class: 'items' });
  const asks = h('div', { class: 'asks' });
  const inner = h('div', { class: 'thread' }, only, older, list, asks);
  const node = h('div', { class: 'chat', tabindex: 0, role: 'log', 'aria-label': T.chat }, inner);
  const newer = button(T.newest, () => follow(), { class: 'newest', hidden: true });
  const items = new Keyed(list, create, (row, item) => update(row, item, last));
  const questions = new Keyed(asks, (ask) => askForm(ask, onDecide), () => {});
  let shown = SHOWN;
  let last = null;
  let run = null;
  let filter = null;
  let isAtEnd = true;
  let heads = '';
  /** The id of the first item that is shown. */
  let first = null;

  let before = 0;
  node.addEventListener('scroll', () => {
    // Only a person scrolls up. Items in sight for the first time change the height, not this.
    if (node.scrollHeight - node.scrollTop - node.clientHeight < 60) isAtEnd = true;
    else if (node.scrollTop < before) isAtEnd = false;
    before = node.scrollTop;
    newer.hidden = isAtEnd;
    if (before < 20 && !isAtEnd && !older.hidden && !older.disabled) showOlder();
  }, { passive: true });
  new ResizeObserver(() => { if (isAtEnd) scrollToEnd(); }).observe(inner);

  function scrollToEnd() {
    node.scrollTop = node.scrollHeight;
    // Removed items reduce the position as well, and no person scrolled then.
    before = node.scrollTop;
  }

  /** Shows older items above, while those in sight stay where they are. */
  function showOlder() {
    const { scrollHeight, scrollTop } = node;
    shown += SHOWN;
    isAtEnd = false;
    show(last);
    node.scrollTop = scrollTop + node.scrollHeight - scrollHeight;
  }

  function follow() {
    isAtEnd = true;
    newer.hidden = true;
    scrollToEnd();
  }

  function show(state) {
    if (run !== state.top.run) {
      [run, shown, filter, isAtEnd, heads] = [state.top.run, SHOWN, null, true, ''];
      drawFilter();
    }
    last = state;
    const below = filter && state.within(filter);
    // Open questions have their form at the end, and those that were decided are shown by the call.
    const all = state.items.filter((item) => (item.kind !== 'ask' || item.call?.decision) && (!below || below.has(item.node)));
    const tops = group(all, !filter);
    const start = begin(tops);
    const hidden = start + (filter ? 0 : state.top.dropped || 0);
    older.hidden = hidden === 0;
    older.disabled = start === 0;
    setText(older, T.dropped(number(hidden)));
    const visible = tops.slice(start);
    items.show(visible);
    drawHeads(state, visible);
    drawWork(items, visible);
    questions.show((state.top.asks || []).filter((ask) => !below || below.has(ask.node)));
    if (isAtEnd) scrollToEnd();
  }

  /** Returns the index of the first item that is shown: the same item as before, unless too many follow it. */
  function begin(tops) {
    let at = Math.max(0, tops.length - shown - SLACK);
    while (at < tops.length && tops[at].id !== first) at += 1;
    if (tops.length - at < Math.min(shown, tops.length)) at = Math.max(0, tops.length - shown);
    first = tops[at]?.id;
    return at;
  }

  /** The items of each child run whose call is shown; they are inside its card. */
  let inside = new Map();

  /** Returns the items at the top: all, or those that are not inside the card of a call. */
  function group(all, isNested) {
    inside = new Map();
    if (!isNested) return all;
    for (const { call } of all) if (call?.child) inside.set(call.child, []);
    if (!inside.size) return all;
    return all.filter((item) => {
      const own = item.run !== run && inside.get(item.run);
      if (own) own.push(item);
      return !own;
    });
  }

  /** Updates the cards of calls that are done by runs of their own. */
  function drawWork(keyed, visible) {
    for (const { id, call } of visible) {
      const found = call?.child && inside.get(call.child);
      if (!found) continue;
      const row = keyed.known.get(id).node;
      const newest = found.at(-1);
      if (row.newest === newest && row.count === found.length && row.status === call.status) continue;
      [row.newest, row.count, row.status] = [newest, found.length, call.status];
      const one = last.nodes.get(last.nodeOfRun.get(call.child));
      if (one && one.id !== call.child) setText(row.parts.name, one.label || one.id);
      const text = call.ended ? [call.name, one?.description].filter(Boolean).join(' · ') : newest && (newest.call?.name || newest.text);
      setText(row.parts.brief, (call.ended ? (text || '').slice(0, 160) : (text || '').slice(-160)).replace(/\s+/g, ' '));
      if (row.card.open) openWork(row, found);
    }
  }

  function openWork(row, found) {
    row.work ||= new Keyed(row.parts.work, create, (inner, item) => update(inner, item, last));
    const visible = found.filter((item) => item.kind !== 'user').slice(-SHOWN);
    row.work.show(visible);
    drawWork(row.work, visible);
  }

  list.addEventListener('toggle', ({ target: { open, parentNode: row } }) => {
    // What a person opens must not scroll away.
    if (open) isAtEnd = false;
    const found = open && row.item && inside.get(row.item.call?.child);
    if (found) openWork(row, found);
  }, true);

  /** Names the step or agent above the first of its items, when the run has several. */
  function drawHeads(state, visible) {
    const key = `${visible[0]?.id} ${visible.at(-1)?.id} ${visible.length} ${state.layout}`;
    if (key === heads) return;
    heads = key;
    let before = null;
    for (const item of visible) {
      const { who } = items.known.get(item.id).node;
      const isOwn = item.node === state.top.run;
      const isFirst = item.node !== before;
      before = item.node;
      if (!who) continue;
      const one = state.nodes.get(item.node);
      const text = item.kind === 'user' && isOwn ? T.you : !isOwn && one ? nameOf(one) : '';
      who.hidden = !isFirst || !text;
      setText(who, text);
      who.dataset.node = isOwn ? '' : item.node;
    }
  }

  function drawFilter() {
    const one = filter && last?.nodes.get(filter);
    only.hidden = !one;
    if (one) fill(only, T.only(one.label || one.id), ' ', button(T.showAll, () => { filter = null; drawFilter(); show(last); }, { class: 'quiet' }));
  }

  list.addEventListener('click', (event) => {
    const id = event.target.closest?.('.who')?.dataset.node;
    if (id) onNode(id);
  });

  return {
    node: h('div', { class: 'chat-panel' }, node, newer), show,
    /** Shows only the items of a node and those below it. */
    only(id, state) {
      run = state.top.run;
      last = state;
      filter = id;
      heads = '';
      isAtEnd = true;
      drawFilter();
    },
  };
}

function nameOf(node) {
  const label = node.label || node.id;
  return node.agent && node.agent !== label ? `${label} · ${node.agent}` : label;
}

function create(item) {
  const body = h('div', { class: 'body', dir: 'auto' });
  const isReply = item.kind === 'text' || item.kind === 'answer';
  const node = h('li', { class: `item i-${item.kind}${isReply ? ' reply' : ''}`, 'data-kind': item.kind });
  node.who = h('button', { type: 'button', class: 'who quiet', hidden: true });
  node.append(node.who);
  node.body = body;
  if (item.kind === 'thinking') node.append(h('details', { class: 'thought' }, h('summary', {}, T.thinking), body));
  else if (item.kind === 'call') node.append(...callCard(node));
  else node.append(body);
  return node;
}

function update(node, item, state) {
  if (item.call && item.kind === 'call') return updateCall(node, item);
  const { body } = node;
  const decision = item.call && item.call.decision;
  if (decision) return fill(body, badge(decision === 'deny' ? 'denied' : 'done', T.decisions[decision]), ' ', item.text || '');
  if (item.media) return fill(body, media(item.media));
  if (item.kind === 'text' || item.kind === 'answer') {
    // A reply that grows becomes the answer without a visible change.
    node.className = `item i-${item.kind} reply`;
    const json = !item.isGrowing && structured(item.text);
    if (json) fill(body, h('details', { class: 'call' }, h('summary', {}, T.structured, h('span', { class: 'brief', dir: 'auto' }, item.text.slice(0, 120))), h('pre', { tabindex: 0, dir: 'auto' }, json)));
    else showMarkdown(body, item.text || '');
  } else setText(body, item.text || '');
  node.classList.toggle('streaming', Boolean(item.isGrowing) && !state.top.ending);
  updateNotes(node, item);
  return undefined;
}

/** Returns a text that is a JSON object or list with indentation, or nothing. */
function structured(text) {
  if (typeof text !== 'string' || !/^[{[]/.test(text)) return null;
  try {
    return pretty(JSON.parse(text));
  } catch {
    return null;
  }
}

function updateNotes(node, { truncated, usage, model }) {
  const text = [truncated && T.truncated, usage && model && [model, T.tokensInOut(number(usage.input), number(usage.output)),
    cost(usage) !== undefined && money(cost(usage))].filter(Boolean).join(' · ')].filter(Boolean).join(' ');
  if (!text) return;
  if (!node.note) {
    node.note = h('p', { class: 'note usage' });
    node.append(node.note);
  }
  setText(node.note, text);
}

/** Shows an image from the data in the event. Nothing is loaded from an address. */
function media({ mime, data, name, size, url }) {
  if (/^image\/(png|jpeg|gif|webp)$/.test(mime) && data) {
    const image = h('img', { src: `data:${mime};base64,${data}`, alt: name || T.image });
    return h('figure', {}, image, name && h('figcaption', { class: 'note' }, name));
  }
  return [name, mime, size && bytes(size), url].filter(Boolean).join(' · ');
}

function callCard(node) {
  node.parts = {
    name: h('code', { class: 'name' }), brief: h('span', { class: 'brief', dir: 'auto' }), status: h('span', { class: 'status' }),
    time: h('span', { class: 'time' }), args: h('div', {}),
    work: h('ol', { class: 'items work' }), label: h('p', { class: 'label' }, T.result), result: h('pre', { class: 'result', tabindex: 0, dir: 'auto' }), files: h('ul', { class: 'changes' }),
  };
  const { name, brief, status, time, args, work, label, result, files } = node.parts;
  const card = h('details', { class: 'call', ontoggle: () => { if (card.open && node.item) fillCall(node); } },
    h('summary', {}, name, brief, status, time), h('p', { class: 'label has-args' }, T.args), args, work, label, result);
  node.card = card;
  return [card, files];
}

/** Returns the first short text among the arguments, which usually says what the call is about. */
function briefly(args) {
  if (typeof args === 'string') return args.slice(0, 120);
  if (!args || typeof args !== 'object') return '';
  const value = Object.values(args).find((one) => typeof one === 'string' || typeof one === 'number');
  return value === undefined ? '' : String(value).slice(0, 120).replace(/\s+/g, ' ');
}

function updateCall(node, item) {
  node.item = item;
  const call = item.call || {};
  const { parts } = node;
  if (!call.child) {
    setText(parts.name, call.name || '');
    setText(parts.brief, call.progress || briefly(call.args));
  } else if (!parts.name.shown) setText(parts.name, call.name || '');
  const status = call.failed ? 'failed' : call.status || 'running';
  if (parts.status.dataset.status !== status) {
    parts.status.dataset.status = status;
    fill(parts.status, badge(status));
  }
  const took = call.ended ? duration(elapsed(call)) : '';
  setText(parts.time, [took, cost(call.usage) !== undefined && money(cost(call.usage))].filter(Boolean).join(' · '));
  const files = call.files || [];
  if (files.length !== parts.files.childElementCount) {
    fill(parts.files, files.map((file) => h('li', { dir: 'auto' }, icon(CHANGES[file.kind] || CHANGES.written), file.path)));
  }
  if (node.card.open) fillCall(node);
}

/** Fills the folded part of a card, which most people never open. */
function fillCall({ item, parts, card }) {
  const call = item.call || {};
  const hasArgs = call.args !== null && call.args !== undefined;
  card.querySelector('.has-args').hidden = !hasArgs;
  parts.args.hidden = !hasArgs;
  if (parts.args.of !== call.args) fill(parts.args, argumentsOf(parts.args.of = call.args));
  const hasResult = call.result !== undefined && call.result !== null;
  parts.label.hidden = !hasResult;
  parts.result.hidden = !hasResult;
  if (!hasResult) return;
  const text = structured(call.result) || pretty(call.result);
  setText(parts.result, call.truncated ? `${text}\n${T.truncated}` : text);
}
