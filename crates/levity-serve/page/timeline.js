// The time machine: a position in the history of a run, and forks from there.

import { h, fill } from './dom.js';
import { button } from './parts.js';
import { T } from './texts.js';

export function timeline({ onMove, onFork }) {
  const range = h('input', { type: 'range', min: 1, max: 1, value: 1, 'aria-label': T.timeMachine });
  const text = h('output', {});
  const live = button(T.live, () => move(null), { class: 'live' });
  const message = h('input', { placeholder: T.forkMessage, 'aria-label': T.forkMessage });
  const fork = button(T.fork, () => onFork(message.value.trim()), { class: 'main' });
  const step = (by) => () => move(Math.min(total, Math.max(1, (at ?? total) + by)));
  const node = h('footer', { class: 'timeline' }, live, button('◀', step(-1), { 'aria-label': T.previous }), range,
    button('▶', step(1), { 'aria-label': T.next }), text, message, fork);
  let total = 0;
  let at = null;
  let timer = 0;

  function move(next) {
    at = next;
    draw();
    clearTimeout(timer);
    // A drag produces many positions; only the last one is loaded.
    timer = setTimeout(() => onMove(at), next === null ? 0 : 40);
  }

  function draw() {
    range.max = Math.max(total, 1);
    range.value = at ?? total;
    live.setAttribute('aria-pressed', String(at === null));
    fill(text, T.position(at ?? total, total));
  }

  range.addEventListener('input', () => move(Number(range.value)));
  return {
    node,
    show(top) {
      total = top.seq || 0;
      draw();
    },
    isAt: (position) => position === at,
    reset() {
      at = null;
      total = 0;
      message.value = '';
      draw();
    },
  };
}
