// Small parts that several views use.

import { h } from './dom.js';
import { T } from './texts.js';

const SHAPES = {
  running: '▶', waiting: '?', paused: '❚❚', ended: '✓', completed: '✓', done: '✓', answered: '✓',
  failed: '✕', stopped: '✕', denied: '⊘', cancelled: '⊘', skipped: '–', pending: '○', queued: '○',
  unknown: '!', partial: '◐',
};

/** A status with its shape, colour and word, so that it does not depend on colour alone. */
export function badge(state) {
  return h('span', { class: `badge s-${String(state).replace(/[^a-z]/g, '')}` },
    h('span', { 'aria-hidden': 'true' }, SHAPES[state] || '·'), ' ', T.states[state] || state);
}

export function shape(state) {
  return SHAPES[state] || '·';
}

/** A list of terms with their values; empty values are omitted. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return h('dl', { class: 'facts' }, shown.map(([term, value]) => [h('dt', {}, term), h('dd', { dir: 'auto' }, value)]));
}

export function button(text, onclick, props = {}) {
  return h('button', { type: 'button', onclick, ...props }, text);
}
