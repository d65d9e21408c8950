// The log, the summary and the files of a run.

import { h, fill, Keyed, setText } from './dom.js';
import { badge, facts } from './parts.js';
import { markdown } from './markdown.js';
import { bytes, duration, money, number, time } from './format.js';
import { tokens } from './graph.js';
import { cost, standing } from './view.js';
import { T } from './texts.js';

/** The number of entries of the log that are in the page at once. */
const SHOWN = 1000;

export function log() {
  const list = h('ol', { class: 'lines' });
  const empty = h('p', { class: 'empty' }, T.noLog);
  const node = h('div', { class: 'log', tabindex: 0 }, empty, list);
  const lines = new Keyed(list, () => h('li', {}, h('time', {}), ' ', h('span', { class: 'kind' }), ' ', h('span', { class: 'text', dir: 'auto' })),
    (row, item) => {
      setText(row.querySelector('time'), time(item.at));
      setText(row.querySelector('.kind'), item.kind);
      setText(row.querySelector('.text'), line(item));
    });
  function show(state) {
    const isAtEnd = node.scrollHeight - node.scrollTop - node.clientHeight < 80;
    const all = state.items;
    empty.hidden = all.length > 0;
    lines.show(all.slice(-SHOWN));
    if (isAtEnd) node.scrollTop = node.scrollHeight;
  }
  return { node, show };
}

function line({ text, call, node }) {
  const where = node ? `${node}: ` : '';
  const what = call ? `${call.name} ${JSON.stringify(call.args ?? {})} ${call.status || ''}` : text || '';
  return (where + what).replace(/\s+/g, ' ').slice(0, 500);
}

export function summary() {
  const node = h('div', { class: 'summary', tabindex: 0 });
  function show({ top, nodes }) {
    const steps = [...nodes.values()].filter((one) => one.kind === 'step');
    const count = (status) => steps.filter((one) => one.status === status).length;
    const stats = top.stats || {};
    const usage = top.usage || {};
    fill(node, facts([
      [T.state, badge(standing(top))], [T.started, time(top.started)],
      [T.duration, duration((top.updated || 0) - (top.started || 0))],
      [T.cost, money(cost(usage))], [T.tokens, tokens(usage)],
      [T.turns, number(stats.turns)], [T.calls, number(stats.tool_calls)],
      [T.steps, steps.length ? `${count('completed')} / ${steps.length}` : undefined],
    ]), h('h3', {}, T.answerOfRun), answer(top));
  }
  return { node, show };
}

export function answer({ ending }) {
  if (!ending) return h('p', { class: 'note' }, T.noAnswer);
  const why = ending.why && h('p', { class: 'problem', dir: 'auto' }, ending.why);
  return h('div', { class: 'answer' }, why, markdown(ending.text || ''));
}

export function files() {
  const node = h('div', { class: 'files', tabindex: 0 });
  function show({ top }) {
    const all = top.artifacts || [];
    if (!all.length) return fill(node, h('p', { class: 'empty' }, T.noFiles));
    const row = (one) => h('tr', {}, h('td', { dir: 'auto' }, one.path), h('td', { dir: 'auto' }, one.node || ''),
      h('td', {}, one.media_type || ''), h('td', {}, bytes(one.size)));
    return fill(node, h('table', {}, h('thead', {}, h('tr', {}, [T.path, T.by, T.type, T.size].map((text) => h('th', { scope: 'col' }, text)))),
      h('tbody', {}, all.map(row))));
  }
  return { node, show };
}
