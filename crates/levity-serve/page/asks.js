// Forms for the questions of runs: allow, deny, edit the arguments, or answer.

import { h, fill } from './dom.js';
import { button } from './parts.js';
import { pretty } from './format.js';
import { T } from './texts.js';

/** Returns the form for one question. `onDecide` sends the decision. */
export function askForm(ask, onDecide) {
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
  const area = h('div', { class: 'decide' });
  const node = h('section', { class: 'ask', 'data-ask': ask.id, 'aria-label': T.inbox });
  const fail = (text) => {
    problem.hidden = false;
    fill(problem, text);
  };
  const decide = async (decision) => {
    problem.hidden = true;
    node.querySelectorAll('button').forEach((one) => { one.disabled = true; });
    try {
      await onDecide(ask, decision);
    } catch (error) {
      fail(error.message);
      node.querySelectorAll('button').forEach((one) => { one.disabled = false; });
    }
  };
  const { call } = ask;
  if (ask.goal) node.append(h('p', { class: 'note', dir: 'auto' }, ask.goal));
  node.append(h('p', { class: 'reason', dir: 'auto' }, ask.reason || ''));
  if (ask.wanted === 'answer') fill(area, answerForm(ask, decide));
  else fill(area, approval(call, decide, fail));
  if (call && ask.wanted !== 'answer') {
    node.append(h('p', {}, h('code', {}, call.name)), h('pre', { tabindex: 0, dir: 'auto' }, pretty(call.args ?? call.arguments)));
  }
  node.append(area, problem);
  return node;
}

function answerForm(ask, decide) {
  const options = (ask.options || []).map((option) => button(option, () => decide({ decision: 'answer', text: option })));
  const text = h('textarea', { rows: 2, 'aria-label': T.yourAnswer, placeholder: T.yourAnswer });
  const send = () => text.value.trim() && decide({ decision: 'answer', text: text.value });
  return [options, text, button(T.send, send, { class: 'main' }),
    button(T.deny, () => decide({ decision: 'deny' }))];
}

function approval(call, decide, fail) {
  const reason = h('input', { 'aria-label': T.reason, placeholder: T.reason });
  const editor = h('textarea', { class: 'editor', rows: 8, spellcheck: 'false', 'aria-label': T.args });
  const send = () => {
    let args;
    try {
      args = JSON.parse(editor.value);
    } catch (error) {
      return fail(T.invalidJson + error.message);
    }
    if (args === null || typeof args !== 'object' || Array.isArray(args)) return fail(T.needsObject);
    return decide({ decision: 'edit', args });
  };
  const form = h('div', { class: 'edit', hidden: true }, editor, button(T.sendEdit, send, { class: 'main' }));
  const open = () => {
    editor.value = pretty((call && (call.args ?? call.arguments)) || {});
    form.hidden = !form.hidden;
    if (!form.hidden) editor.focus();
  };
  const deny = () => decide(reason.value ? { decision: 'deny', reason: reason.value } : { decision: 'deny' });
  return [button(T.allow, () => decide({ decision: 'allow' }), { class: 'main' }), button(T.deny, deny),
    call && button(T.edit, open), reason, form];
}
