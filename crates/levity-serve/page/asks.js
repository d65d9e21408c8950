// Forms for the questions of runs: allow, deny, edit the arguments, or answer.

import { h, fill } from './dom.js';
import { button } from './parts.js';
import { pretty, readable, visible } from './format.js';
import { T } from './texts.js';

/** Returns the form for one question. `onDecide` sends the decision; `onOpen` opens the run. */
export function askForm(ask, onDecide, onOpen) {
  const problem = h('div', { class: 'problem', role: 'alert', hidden: true });
  const node = h('section', { class: 'ask', 'data-ask': ask.id, 'aria-label': T.question });
  const fail = (text, problems = []) => {
    problem.hidden = false;
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
  const { call } = ask;
  const root = ask.root || ask.run;
  if (ask.goal || onOpen) node.append(h('p', { class: 'note of', dir: 'auto' }, ask.goal || '', onOpen && h('a', { href: `#run=${encodeURIComponent(root)}`, onclick: onOpen }, T.openRun)));
  node.append(h('p', { class: 'reason', dir: 'auto' }, ask.reason || ''));
  if (ask.wanted !== 'answer' && call) {
    node.append(h('p', { class: 'call-name' }, h('code', {}, visible(call.name))), argumentsOf(call.args ?? call.arguments));
  }
  node.append(h('div', { class: 'decide' }, ask.wanted === 'answer' ? answerForm(ask, decide) : approval(call, decide, fail)), problem);
  return node;
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

function approval(call, decide, fail) {
  const reason = h('input', { 'aria-label': T.reason, placeholder: T.reason });
  const editor = h('textarea', { class: 'editor', rows: 8, spellcheck: 'false', 'aria-label': T.args });
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
    const args = parsed();
    if (args) decide({ decision: 'edit', args });
  };
  editor.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send();
    }
  });
  const format = () => {
    const args = parsed();
    if (args) editor.value = pretty(args);
  };
  const form = h('div', { class: 'edit', hidden: true }, editor, h('div', { class: 'actions' }, button(T.sendEdit, send, { class: 'main' }), button(T.format, format)));
  const open = () => {
    editor.value = pretty((call && (call.args ?? call.arguments)) || {});
    form.hidden = !form.hidden;
    if (!form.hidden) editor.focus();
  };
  const deny = () => decide(reason.value ? { decision: 'deny', reason: reason.value } : { decision: 'deny' });
  return [button(T.allow, () => decide({ decision: 'allow' }), { class: 'main' }), button(T.deny, deny),
    call && button(T.edit, open), reason, form];
}

/** Adds the line to a message about JSON that names only a position. */
function placeOf(text, message) {
  const at = /position (\d+)/.exec(message);
  if (!at || /line \d+/.test(message)) return message;
  const before = text.slice(0, Number(at[1])).split('\n');
  return `${message} (${T.line(before.length, before.at(-1).length + 1)})`;
}
