// Two runs side by side: answer, steps, cost and time.

import { h, fill } from './dom.js';
import { badge, button } from './parts.js';
import { answer } from './panels.js';
import { tokens } from './graph.js';
import { duration, money, number } from './format.js';
import { cost, RunState, standing } from './view.js';
import { T } from './texts.js';

export function compare({ runs, load }) {
  const list = h('select', { 'aria-label': T.compare, onchange: () => choose(list.value) });
  const table = h('div', {});
  const node = h('section', { class: 'compare', hidden: true, 'aria-label': T.compare },
    h('div', { class: 'bar' }, list, button('×', () => { node.hidden = true; }, { class: 'close', 'aria-label': T.close })), table);
  const opener = button(T.compare, () => {
    node.hidden = !node.hidden;
    if (!node.hidden) options();
  });
  let own = null;
  let other = null;

  function options() {
    const all = runs().filter((run) => !own || run.id !== own.top.run);
    fill(list, h('option', { value: '' }, T.choose), all.map((run) => h('option', { value: run.id }, `${run.goal || ''} (${run.id})`.slice(0, 120))));
    list.value = other ? other.top.run : '';
  }

  async function choose(id) {
    other = null;
    if (id) {
      node.hidden = false;
      try {
        const { view } = await load(id);
        other = new RunState().load(view);
      } catch (error) {
        return fill(table, h('p', { class: 'problem', role: 'alert' }, error.message));
      }
    }
    options();
    return draw();
  }

  function draw() {
    if (node.hidden || !own || !other) return void fill(table);
    const both = [own, other];
    const steps = ({ nodes }) => [...nodes.values()].filter((one) => one.kind === 'step').length || undefined;
    const row = (name, value) => h('tr', {}, h('th', { scope: 'row' }, name), both.map((one) => h('td', { dir: 'auto' }, value(one) ?? '–')));
    fill(table, h('table', {}, h('thead', {}, h('tr', {}, h('td', {}), both.map(({ top }) => h('th', { scope: 'col' }, top.run)))),
      h('tbody', {}, row(T.state, ({ top }) => badge(standing(top))), row(T.cost, ({ top }) => money(cost(top.usage))),
        row(T.duration, ({ top }) => duration((top.updated || 0) - (top.started || 0))), row(T.tokens, ({ top }) => top.usage && tokens(top.usage)),
        row(T.turns, ({ top }) => number(top.stats && top.stats.turns)), row(T.calls, ({ top }) => number(top.stats && top.stats.tool_calls)),
        row(T.steps, steps), row(T.answerOfRun, ({ top }) => answer(top)))));
  }

  return {
    node, button: opener, choose,
    show(state) {
      own = state;
      draw();
    },
    reset() {
      node.hidden = true;
      other = null;
      fill(table);
    },
  };
}
