// Stored conversations and executed plans.

import { h, fill, Keyed, setText } from './dom.js';
import { badge, button, isSure, table } from './parts.js';
import { markdown } from './markdown.js';
import { bytes, duration, number, pretty, time } from './format.js';
import { T } from './texts.js';

export function sessions({ api, onContinue }) {
  const kinds = ['conversation', 'plan'];
  const kind = h('div', { class: 'segments', role: 'group', 'aria-label': T.kind }, kinds.map((one) => button(T.sessionKinds[one], () => show(one))));
  const list = h('ul', { class: 'runs' });
  const more = button(T.moreSessions, () => load(next), { class: 'quiet', hidden: true });
  const note = h('p', { class: 'note' });
  const detail = h('div', { class: 'detail', tabindex: 0, role: 'group', 'aria-label': T.session });
  const node = h('section', { class: 'place sessions', 'aria-label': T.sessions },
    h('div', { class: 'bar' }, h('h2', {}, T.sessions), kind), h('div', { class: 'split' }, h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': T.sessions }, note, list, more), detail));
  const rows = new Keyed(list, (one) => h('li', {}, h('button', { type: 'button', class: 'run', onclick: () => open(one.id) },
    h('span', { class: 'goal', dir: 'auto' }), h('span', { class: 'when' }))), (row, one) => {
    setText(row.querySelector('.goal'), one.goal || one.id);
    setText(row.querySelector('.when'), [time(one.changed), one.end !== undefined ? T.messages(number(one.end - one.first)) : '', one.bytes ? bytes(one.bytes) : '', one.problem].filter(Boolean).join(' · '));
  });
  let wanted = 'conversation';
  let found = [];
  let next = null;

  async function show(which = wanted) {
    wanted = which;
    for (const [at, one] of kinds.entries()) kind.children[at].setAttribute('aria-pressed', String(one === wanted));
    found = [];
    rows.show([]);
    fill(detail, h('p', { class: 'empty' }, T.chooseSession));
    await load(null);
  }

  async function load(cursor) {
    const own = wanted;
    setText(note, T.loading);
    try {
      const page = await api.sessions(own === 'plan' ? { kind: own, limit: 100 } : cursor ? { cursor } : {});
      if (own !== wanted) return;
      found = [...found, ...page.sessions];
      next = page.next || null;
      more.hidden = !next;
      rows.show(found);
      setText(note, found.length ? '' : T.noSessions);
    } catch (error) {
      if (own === wanted) setText(note, error.status === 404 ? T.notStored[own] : error.message);
    }
  }

  async function open(id) {
    for (const [one, { node: row }] of rows.known) row.firstChild.setAttribute('aria-pressed', String(one === id));
    fill(detail, h('p', { class: 'note' }, T.loading));
    try {
      const one = await api.session(id, wanted);
      fill(detail, one.kind === 'plan' ? plan(one) : conversation(one));
      detail.focus();
    } catch (error) {
      fill(detail, h('p', { class: 'problem', role: 'alert' }, error.message));
    }
  }

  function conversation(one) {
    const older = one.messages.length && one.messages[0].at > one.first;
    const remove = async () => {
      if (!isSure(T.confirmForget)) return;
      try {
        await api.forget(one.id);
        show();
      } catch (error) {
        fill(detail, h('p', { class: 'problem', role: 'alert' }, error.message));
      }
    };
    return [h('div', { class: 'bar' }, h('h3', { dir: 'auto' }, one.id), button(T.continueIt, () => onContinue(one.id), { class: 'main' }), button(T.forget, remove, { class: 'quiet' })),
      one.summary && h('p', { class: 'note', dir: 'auto' }, textOf(one.summary)), older && h('p', { class: 'note' }, T.dropped(number(one.messages[0].at - one.first))),
      h('ol', { class: 'items' }, one.messages.map(({ message }) => entry(message)))];
  }
  return { node, show: () => show() };
}

function textOf(value) {
  return typeof value === 'string' ? value : value?.text ?? pretty(value);
}

/** Shows a stored message: its texts, and its other parts as JSON. */
function entry(message) {
  const parts = Array.isArray(message.parts) ? message.parts : [];
  const isUser = message.role === 'user';
  return h('li', { class: `item ${isUser ? 'i-user' : 'i-text reply'}` }, h('span', { class: 'who' }, T.roles[message.role] || message.role),
    parts.map((part) => {
      const [name, value] = typeof part === 'string' ? ['text', part] : part.type ? [part.type, part] : Object.entries(part)[0] || ['', ''];
      if (name === 'text') return h('div', { class: 'body', dir: 'auto' }, isUser ? textOf(value) : markdown(textOf(value)));
      return h('details', { class: 'call' }, h('summary', {}, name), h('pre', { tabindex: 0, dir: 'auto' }, pretty(value).slice(0, 20_000)));
    }));
}

function plan(one) {
  const rows = (one.steps || []).slice(0, 1000).map((step) => [step.id, step.agent || '', badge(step.status), step.started && step.ended ? duration(step.ended - step.started) : '',
    (step.error || textOf(step.output) || '').slice(0, 300)]);
  return [h('h3', { dir: 'auto' }, one.goal || one.id), h('p', { class: 'note' }, [time(one.created), one.replans ? T.replans(one.replans) : ''].filter(Boolean).join(' · ')),
    one.text && h('div', { class: 'answer' }, markdown(one.text)),
    table([{ text: T.step }, { text: T.agent }, { text: T.state }, { text: T.duration, isNumber: true }, { text: T.output }], rows)];
}
