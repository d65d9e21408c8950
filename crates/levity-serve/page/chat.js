// The conversation of a run: texts, folded thinking, and tool calls as cards.

import { h, fill, setText, Keyed } from './dom.js';
import { markdown } from './markdown.js';
import { askForm } from './asks.js';
import { badge } from './parts.js';
import { duration, money, pretty } from './format.js';
import { cost, elapsed } from './view.js';
import { T } from './texts.js';

/** The number of items that are in the page at once. Older ones are added on demand. */
const SHOWN = 400;

export function chat(onDecide) {
  const older = h('button', { class: 'quiet', hidden: true, onclick: () => { shown += SHOWN; show(last); } });
  const list = h('ol', { class: 'items' });
  const asks = h('div', { class: 'asks' });
  const node = h('div', { class: 'chat', tabindex: 0, role: 'log', 'aria-label': T.chat }, older, list, asks);
  const items = new Keyed(list, create, update);
  const questions = new Keyed(asks, (ask) => askForm(ask, onDecide), () => {});
  let shown = SHOWN;
  let last = null;
  let run = null;

  function show(state) {
    last = state;
    const isAtEnd = run !== state.top.run || node.scrollHeight - node.scrollTop - node.clientHeight < 80;
    run = state.top.run;
    const all = state.items;
    const hidden = Math.max(0, all.length - shown) + (state.top.dropped || 0);
    older.hidden = hidden === 0;
    older.disabled = all.length <= shown;
    fill(older, T.dropped(hidden));
    const newest = all.at(-1);
    // Growing text is plain, and formatted once it is complete.
    const visible = all.slice(-shown).filter((item) => item.kind !== 'ask' || item.call?.decision);
    items.show(visible);
    for (const item of visible) {
      if (item.isGrowing && (item !== newest || state.isOver())) {
        item.isGrowing = false;
        update(items.known.get(item.id).node, item);
      }
    }
    questions.show(state.top.asks || []);
    if (isAtEnd) node.scrollTop = node.scrollHeight;
  }
  return { node, show };
}

function create(item) {
  const body = h('div', { class: 'body' });
  const node = h('li', { class: `item i-${item.kind}${/^(text|answer)$/.test(item.kind) ? ' reply' : ''}`, 'data-kind': item.kind });
  if (item.kind === 'thinking') node.append(h('details', {}, h('summary', {}, T.thinking), body));
  else if (item.kind === 'call') node.append(callCard());
  else {
    if (item.kind === 'user') node.append(h('div', { class: 'who' }, T.you));
    node.append(body);
  }
  return node;
}

function update(node, item) {
  if (item.call && item.kind === 'call') return updateCall(node, item);
  const body = node.querySelector('.body');
  const decision = item.call && item.call.decision;
  if (decision) return fill(body, `${item.text || ''} `, badge(decision === 'deny' ? 'denied' : 'done'), ` ${pretty(item.call.result ?? '')}`);
  const isOver = !item.isGrowing;
  if (item.media) return fill(body, media(item.media));
  if ((item.kind === 'text' || item.kind === 'answer') && isOver) fill(body, markdown(item.text || ''));
  else setText(body, item.text || '');
  set(body);
  node.classList.toggle('streaming', !isOver);
  if (item.truncated) body.append(h('p', { class: 'note' }, T.truncated));
  return undefined;
}

function set(body) {
  body.setAttribute('dir', 'auto');
}

/** Shows an image from the data in the event. Nothing is loaded from an address. */
function media({ mime, data, name }) {
  if (/^image\/(png|jpeg|gif|webp)$/.test(mime) && data) {
    return h('img', { src: `data:${mime};base64,${data}`, alt: name || T.image });
  }
  return `${name || ''} (${mime})`;
}

function callCard() {
  return h('details', { class: 'call' },
    h('summary', {}, h('code', { class: 'name' }), ' ', h('span', { class: 'status' }), ' ', h('span', { class: 'time' })),
    h('p', { class: 'label' }, T.args), h('pre', { class: 'args', tabindex: 0, dir: 'auto' }),
    h('p', { class: 'label has-result' }, T.result), h('pre', { class: 'result', tabindex: 0, dir: 'auto' }));
}

function updateCall(node, item) {
  const call = item.call || {};
  const find = (name) => node.querySelector(name);
  setText(find('.name'), call.name || '');
  fill(find('.status'), badge(call.status || 'running'), call.progress ? ` ${call.progress}` : '');
  const parts = [elapsed(call, call.ended) >= 0 ? duration(elapsed(call, call.ended)) : '', cost(call.usage) ? money(cost(call.usage)) : ''];
  setText(find('.time'), parts.filter(Boolean).join(', '));
  setText(find('.args'), pretty(call.args));
  const hasResult = call.result !== undefined && call.result !== null;
  find('.has-result').hidden = !hasResult;
  find('.result').hidden = !hasResult;
  if (hasResult) setText(find('.result'), pretty(call.result));
}
