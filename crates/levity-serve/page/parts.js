// Small parts that several views use.

import { h } from './dom.js';
import { T } from './texts.js';

/** The shape of each status as a path in a square of 16 by 16. */
const SHAPES = {
  done: 'M3 8.5l3.2 3.2L13 5', failed: 'M4.5 4.5l7 7M11.5 4.5l-7 7', none: 'M4 8h8',
  running: 'M6 4.2v7.6L12 8z', paused: 'M6 4.5v7M10 4.5v7', pending: 'M8 4.5a3.5 3.5 0 1 1 0 7a3.5 3.5 0 1 1 0-7',
  waiting: 'M5.8 6.2a2.2 2.2 0 1 1 3.3 1.9c-.8.5-1.1.8-1.1 1.6M8 12v.1',
  stopped: 'M8 4a4 4 0 1 1 0 8a4 4 0 1 1 0-8M5.2 10.8l5.6-5.6', alert: 'M8 3.5v5.2M8 12v.1',
  half: 'M8 4a4 4 0 1 1 0 8a4 4 0 1 1 0-8M8 4v8M10 5v6',
};

const SHAPE_OF = {
  running: 'running', waiting: 'waiting', paused: 'paused', completed: 'done', done: 'done', answered: 'done',
  failed: 'failed', denied: 'stopped', cancelled: 'stopped', skipped: 'none', pending: 'pending', queued: 'pending',
  unknown: 'alert', interrupted: 'alert', partial: 'half',
};

/** The path that draws the shape of a status. */
export function shape(state) {
  return SHAPES[SHAPE_OF[state]] || SHAPES.none;
}

/** A drawing in a square of 16 by 16. */
export function icon(path) {
  return h('svg', { class: 'icon', viewBox: '0 0 16 16', 'aria-hidden': 'true' }, h('path', { d: path }));
}

/** A status with its shape, colour and word, so that it does not depend on colour alone. */
export function badge(state, text) {
  return h('span', { class: `badge s-${String(state).replace(/[^a-z]/g, '')}` }, icon(shape(state)), text || T.states[state] || state);
}

/** A list of terms with their values; empty values are omitted. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return h('dl', { class: 'facts' }, shown.map(([term, value]) => [h('dt', {}, term), h('dd', { dir: 'auto' }, value)]));
}

export function button(text, onclick, props = {}) {
  return h('button', { type: 'button', onclick, ...props }, text);
}

export function closeButton(onclick) {
  return button(icon(SHAPES.failed), onclick, { class: 'close quiet', 'aria-label': T.close });
}

/** A table from a list of column names and rows of cells. A cell may be a node. */
export function table(columns, rows, props = {}) {
  const cell = (value, at) => h('td', { dir: 'auto', class: columns[at].isNumber ? 'number' : undefined }, value ?? '');
  return h('div', { class: 'wide', tabindex: 0, role: 'group', ...props }, h('table', {},
    h('thead', {}, h('tr', {}, columns.map((one) => h('th', { scope: 'col', class: one.isNumber ? 'number' : undefined }, one.text)))),
    h('tbody', {}, rows.map((row) => h('tr', {}, row.map(cell))))));
}

/** Gives a file to the user, without an address that another page could open. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = h('a', { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Asks the user to confirm. */
export function isSure(text) {
  return window.confirm(text);
}
