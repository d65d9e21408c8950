// Two runs side by side: answer, steps, cost and time.

import { h, fill, memo } from './dom.js';
import { badge, closeButton } from './parts.js';
import { answer } from './panels.js';
import { tokens } from './graph.js';
import { duration, money, number } from './format.js';
import { cost, RunState } from './view.js';
import { T } from './texts.js';

/** The number of steps that are compared one by one. */
const STEPS = 200;

export function compare({ runs, load, onChoose }) {
  const list = h('select', { 'aria-label': T.compare, onchange: () => onChoose(list.value || null) });
  const table = h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': T.compare });
  const node = h('section', { class: 'compare', hidden: true, 'aria-label': T.compare },
    h('div', { class: 'bar' }, h('h3', {}, T.compare), list, closeButton(() => onChoose(null))), table);
  let own = null;
  let other = null;
  let wanted = null;

  function options() {
    const all = runs().filter((run) => !own || run.id !== own.top.run);
    const entry = (run) => h('option', { value: run.id }, `${run.goal || ''} (${run.id})`.slice(0, 120));
    fill(list, h('option', { value: '' }, T.choose), all.map(entry));
    if (wanted && !all.some((run) => run.id === wanted)) list.append(entry({ id: wanted, goal: other?.top.goal }));
    list.value = wanted || '';
  }

  async function choose(id) {
    wanted = id;
    other = null;
    fill(table);
    table.drawnOf = null;
    options();
    if (!id) return;
    try {
      const found = new RunState().load(await load(id));
      if (wanted !== id) return;
      other = found;
    } catch (error) {
      fill(table, h('p', { class: 'problem', role: 'alert' }, error.message));
      return;
    }
    draw();
  }

  function draw() {
    if (node.hidden || !own || !other) return;
    memo(table, [other, own.top.run, own.top.seq, own.top.ending], () => {
      const both = [own, other];
      const head = h('tr', {}, h('td', {}), both.map(({ top }) => h('th', { scope: 'col' }, h('code', {}, top.run))), h('th', { scope: 'col' }, T.difference));
      const row = (name, values, difference) => h('tr', {}, h('th', { scope: 'row' }, name), values.map((value) => h('td', {}, value ?? '–')), h('td', {}, difference ?? ''));
      const numbers = (name, of, format) => {
        const values = both.map(of);
        return row(name, values.map((value) => (value === undefined || value === null ? '–' : format(value))), change(...values, format));
      };
      fill(table, h('div', { class: 'answers' }, both.map(({ top }) => h('article', {}, h('h4', {}, T.answerOf(top.run)), answer(top)))),
      h('table', {}, h('thead', {}, head), h('tbody', {},
        row(T.state, both.map((one) => badge(one.standing))),
        numbers(T.cost, ({ top }) => cost(top.usage), money),
        numbers(T.duration, ({ top }) => (top.updated || 0) - (top.started || 0), duration),
        row(T.tokens, both.map(({ top }) => top.usage && tokens(top.usage)), change(...both.map(({ top }) => top.usage?.tokens), number)),
        numbers(T.turns, ({ top }) => top.stats?.turns, number), numbers(T.calls, ({ top }) => top.stats?.tool_calls, number),
        numbers(T.steps, (one) => stepsOf(one).size || undefined, number))), steps(both));
    });
  }

  return {
    node, choose, options,
    open(isOpen) {
      node.hidden = !isOpen;
      if (isOpen) options();
      draw();
    },
    show(state) {
      const isOther = own?.top.run !== state.top.run;
      own = state;
      if (isOther && !node.hidden) options();
      draw();
    },
  };
}

/** Returns the change from the other run to this one, in percent. */
function change(own, other, format) {
  if (!(own >= 0) || !(other >= 0) || own === other) return '';
  const sign = own > other ? '+' : '−';
  const percent = other > 0 ? ` (${sign}${number(Math.round((Math.abs(own - other) / other) * 100))} %)` : '';
  return `${sign}${format(Math.abs(own - other))}${percent}`;
}

function stepsOf(state) {
  const steps = [...state.nodes.values()].filter((one) => one.kind === 'step' || one.kind === 'worker');
  return new Map(steps.map((one) => [one.label || one.id, one]));
}

function steps(both) {
  const [own, other] = both.map(stepsOf);
  const names = [...new Set([...own.keys(), ...other.keys()])].slice(0, STEPS);
  if (!names.length) return null;
  const cell = (one) => h('td', {}, one ? [badge(one.status), ' ', one.started && one.ended ? duration(one.ended - one.started) : '', ' ',
    cost(one.usage) !== undefined ? money(cost(one.usage)) : ''] : '–');
  return h('table', { class: 'steps' }, h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, T.step), both.map(({ top }) => h('th', { scope: 'col' }, h('code', {}, top.run))))),
    h('tbody', {}, names.map((name) => h('tr', {}, h('th', { scope: 'row', dir: 'auto' }, name), cell(own.get(name)), cell(other.get(name))))));
}
