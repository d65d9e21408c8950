// The time machine: a position in the history of a run, and forks from there.

import { h, fill, memo, setText } from './dom.js';
import { button, icon } from './parts.js';
import { T } from './texts.js';

/** The colour of each notable event; others have that of a remark. */
const MARKS = { asked: 'wait', decided: 'wait', model_failed: 'bad', outcome_unknown: 'bad', limit_passed: 'bad', run_ended: 'good',
  message_received: 'run', goal: 'run', paused: 'wait', resumed: 'wait' };

export function timeline({ onMove, onFork }) {
  const range = h('input', { type: 'range', min: 1, max: 1, value: 1, 'aria-label': T.timeMachine });
  const ticks = h('div', { class: 'ticks', 'aria-hidden': 'true' });
  const text = h('output', {});
  const live = button(T.live, () => move(null), { class: 'live' });
  const message = h('textarea', { rows: 2, placeholder: T.forkMessage, 'aria-label': T.forkMessage });
  const model = h('select', { 'aria-label': T.model, hidden: true });
  const fork = button(T.fork, () => onFork({ message: message.value.trim(), model: model.value || undefined, at }), { class: 'main' });
  const step = (by) => () => move(Math.min(total, Math.max(1, (at ?? total) + by)));
  const more = h('details', { class: 'fork' }, h('summary', {}, T.forkOptions), h('div', { class: 'popup' }, message, model));
  const node = h('footer', { class: 'timeline' }, live, button(icon('M10 4.2v7.6L5 8z'), step(-1), { 'aria-label': T.previous }),
    h('div', { class: 'track' }, range, ticks), button(icon('M6 4.2v7.6L11 8z'), step(1), { 'aria-label': T.next }), text, more, fork);
  let total = 0;
  let at = null;
  let timer = 0;
  let marks = [];

  function move(next) {
    at = next;
    draw();
    clearTimeout(timer);
    // A drag produces many positions; only the last one is loaded.
    timer = setTimeout(() => onMove(at), next === null ? 0 : 40);
  }

  function draw() {
    memo(node, [at, total, marks], () => {
      range.max = Math.max(total, 1);
      range.value = at ?? total;
      live.setAttribute('aria-pressed', String(at === null));
      const mark = at !== null && marks.findLast(([number]) => number <= at);
      setText(text, T.position(at ?? total, total) + (mark && mark[0] === at ? ` · ${mark[2].replaceAll('_', ' ')}` : ''));
    });
  }

  range.addEventListener('input', () => move(Number(range.value)));
  return {
    node,
    show(top) {
      total = top.seq || 0;
      draw();
    },
    /** Shows the notable events of the run. */
    mark(found, length) {
      marks = found || [];
      const place = (number) => `${(100 * (number - 1)) / Math.max(length - 1, 1)}%`;
      fill(ticks, marks.filter(([, , name]) => MARKS[name]).map(([number, , name]) => {
        const tick = h('i', { class: `t-${MARKS[name]}` });
        tick.style.insetInlineStart = place(number);
        return tick;
      }));
      draw();
    },
    models(all) {
      model.hidden = all.length < 2;
      fill(model, h('option', { value: '' }, T.sameModel), all.map((one) => h('option', { value: one.name }, one.name)));
    },
    isAt: (position) => position === at,
    get at() { return at; },
    move,
    reset() {
      at = null;
      total = 0;
      marks = [];
      message.value = '';
      model.value = '';
      more.open = false;
      fill(ticks);
      clearTimeout(timer);
      draw();
    },
  };
}
