// Forms for the questions of runs: allow, deny, edit the arguments, or answer.
//
// A person must see all of what they approve. Lists of questions contain the beginning of a long
// call only, and JavaScript rounds large integers. In both cases, the form loads the complete call
// before it can be approved. A long call also needs a confirmation, because most of it is out of
// sight.

import { api } from './api.js';
import { h, fill } from './dom.js';
import { button } from './parts.js';
import { hasUnsafeNumber, number, pretty, readable, visible } from './format.js';
import { T } from './texts.js';

/** The number of characters of arguments above which an approval needs a confirmation. */
const LONG_CALL = 8 << 10;

/** Returns the form for one question. `onDecide` sends the decision; `onOpen` opens the run. */
export function askForm(ask, onDecide, onOpen) {
  const problem = h('div', { class: 'problem', role: 'alert', hidden: true });
  const node = h('section', { class: 'ask', 'data-ask': ask.id, 'aria-label': T.question });
  const fail = (text, problems = []) => {
    problem.hidden = !text;
    fill(problem, h('p', {}, text), problems.length > 0 && h('ul', {}, problems.map((one) => h('li', { dir: 'auto' }, describe(one)))));
  };
  const decide = async (decision) => {
    problem.hidden = true;
    const buttons = [...node.querySelectorAll('button')].filter((one) => !one.disabled);
    for (const one of buttons) one.disabled = true;
    try {
      await onDecide(ask, decision);
    } catch (error) {
      fail(error.message, error.problems);
      for (const one of buttons) one.disabled = false;
      // The question stays open, so the editor keeps its text and gets the focus.
      const editor = node.querySelector('.edit:not([hidden]) .editor');
      if (editor) showPlace(editor, error.problems?.[0]?.path);
    }
  };
  const call = ask.wanted !== 'answer' && ask.call;
  const root = ask.root || ask.run;
  if (ask.goal || onOpen) node.append(h('p', { class: 'note of', dir: 'auto' }, ask.goal || '', onOpen && h('a', { href: `#run=${encodeURIComponent(root)}`, onclick: onOpen }, T.openRun)));
  node.append(h('p', { class: 'reason', dir: 'auto' }, ask.reason || ''));
  const shown = h('div');
  if (call) node.append(h('p', { class: 'call-name' }, h('code', {}, visible(call.name))), shown);
  const approve = call && approval(decide, fail);
  node.append(h('div', { class: 'decide' }, approve ? approve.nodes : answerForm(ask, decide)), problem);
  if (approve) showCall(ask, shown, approve, fail);
  return node;
}

/** Shows the call of a question, and lets the person approve it when all of it is shown. */
async function showCall(ask, shown, approve, fail) {
  const show = ({ call, args_text: text, reason }) => {
    fail('');
    fill(shown, argumentsOf(text ?? call.args));
    shown.parentNode.querySelector('.reason').textContent = reason || '';
    approve.enable(text ?? pretty(call.args), shown.textContent.length);
  };
  if (isComplete(ask)) {
    show(ask);
    return;
  }
  fill(shown, argumentsOf(ask.call.args), h('p', { class: 'note', role: 'status' }, T.loadingCall));
  try {
    const complete = (await api.asks(ask.run)).find((one) => one.id === ask.id);
    if (!complete) throw new Error(T.otherCall);
    show(complete);
  } catch (error) {
    fill(shown, argumentsOf(ask.call.args), button(T.reload, () => showCall(ask, shown, approve, fail)));
    fail(T.noCompleteCall(error.message));
  }
}

/** Returns `true` if a question contains all of its call, and no number that may be rounded. */
function isComplete(ask) {
  return !ask.truncated && (Boolean(ask.args_text) || !hasUnsafeNumber(ask.call.args));
}

/** Shows arguments: texts of several lines as they are, the rest as JSON. Every character is visible. */
export function argumentsOf(args) {
  return h('div', { class: 'args' }, readable(args).map(([name, text]) => [name && h('p', { class: 'label', dir: 'auto' }, visible(name)),
    h('pre', { tabindex: 0, dir: 'auto' }, visible(text))]));
}

/** Selects the name of the field that a JSON pointer leads to. */
function showPlace(editor, pointer) {
  editor.focus();
  const field = (pointer || '').split('/').at(-1).replaceAll('~1', '/').replaceAll('~0', '~');
  const name = JSON.stringify(field);
  const at = field ? editor.value.indexOf(name) : -1;
  if (at >= 0) editor.setSelectionRange(at, at + name.length);
}

/** Returns the text of a problem, which is a text or an object with a place and a message. */
function describe(problem) {
  if (typeof problem === 'string') return problem;
  const { path = problem?.pointer ?? '', message = pretty(problem) } = problem || {};
  return path ? `${path}: ${message}` : message;
}

function answerForm(ask, decide) {
  const options = (ask.options || []).map((option) => button(option, () => decide({ decision: 'answer', text: option })));
  const text = h('textarea', { rows: 2, 'aria-label': T.yourAnswer, placeholder: T.yourAnswer });
  const send = () => text.value.trim() && decide({ decision: 'answer', text: text.value });
  return [options, text, button(T.send, send, { class: 'main' }),
    button(T.deny, () => decide({ decision: 'deny' }))];
}

/** Returns the parts of the form for a call. Only `enable` makes its approval possible. */
function approval(decide, fail) {
  const reason = h('input', { 'aria-label': T.reason, placeholder: T.reason });
  const editor = h('textarea', { class: 'editor', rows: 8, spellcheck: 'false', 'aria-label': T.args });
  let original = '';
  const parsed = () => {
    let args;
    try {
      args = JSON.parse(editor.value);
    } catch (error) {
      fail(T.invalidJson + placeOf(editor.value, error.message));
      return null;
    }
    if (args === null || typeof args !== 'object' || Array.isArray(args)) {
      fail(T.needsObject);
      return null;
    }
    return args;
  };
  const send = () => {
    if (!sendEdit.disabled && parsed()) decide({ decision: 'edit', argsText: editor.value });
  };
  editor.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send();
    }
  });
  const format = () => {
    const args = parsed();
    if (args && hasUnsafeNumber(args)) fail(T.roundedNumbers);
    else if (args) editor.value = pretty(args);
  };
  const sendEdit = button(T.sendEdit, send, { class: 'main', disabled: true });
  const form = h('div', { class: 'edit', hidden: true }, editor, h('div', { class: 'actions' }, sendEdit, button(T.format, format)));
  const open = () => {
    editor.value = original;
    form.hidden = !form.hidden;
    if (!form.hidden) editor.focus();
  };
  const deny = () => decide(reason.value ? { decision: 'deny', reason: reason.value } : { decision: 'deny' });
  const allow = button(T.allow, () => decide({ decision: 'allow' }), { class: 'main', disabled: true });
  const edit = button(T.edit, open, { disabled: true });
  const setEnabled = (isEnabled) => {
    for (const one of [allow, edit, sendEdit]) one.disabled = !isEnabled;
  };
  const confirm = h('div', { class: 'confirm', hidden: true });
  return {
    nodes: [confirm, allow, button(T.deny, deny), edit, reason, form],
    /** Makes the approval possible. A long call needs a confirmation first. */
    enable(text, length) {
      original = text;
      confirm.hidden = length <= LONG_CALL;
      setEnabled(confirm.hidden);
      if (confirm.hidden) return;
      const box = h('input', { type: 'checkbox', onchange: () => setEnabled(box.checked) });
      fill(confirm, h('label', {}, box, ` ${T.readAll(number(length))}`));
    },
  };
}

/** Adds the line to a message about JSON that names only a position. */
function placeOf(text, message) {
  const at = /position (\d+)/.exec(message);
  if (!at || /line \d+/.test(message)) return message;
  const before = text.slice(0, Number(at[1])).split('\n');
  return `${message} (${T.line(before.length, before.at(-1).length + 1)})`;
}
