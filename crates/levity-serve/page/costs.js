// The tokens and the cost of all stored runs, by day, model and agent.

import { h, fill } from './dom.js';
import { button, table } from './parts.js';
import { money, number } from './format.js';
import { cost } from './view.js';
import { T } from './texts.js';

const DAY = 86_400_000;

export function costs({ api }) {
  const period = h('select', { 'aria-label': T.period, onchange: () => show() },
    [['7', T.week], ['30', T.month], ['', T.anyTime]].map(([value, text]) => h('option', { value }, text)));
  period.value = '30';
  const body = h('div', {});
  const node = h('section', { class: 'place', tabindex: 0, 'aria-label': T.costs },
    h('div', { class: 'bar' }, h('h2', {}, T.costs), period, button(T.reload, () => show())), body);
  let request = 0;

  async function show() {
    request += 1;
    const own = request;
    fill(body, h('p', { class: 'note' }, T.loading));
    const since = period.value ? { since: Date.now() - Number(period.value) * DAY } : {};
    try {
      // One after the other: each reads the journal.
      const [days, models, agents] = [await api.costs({ by: 'day', ...since }), await api.costs({ by: 'model', ...since }), await api.costs({ by: 'agent', ...since })];
      if (own !== request) return;
      fill(body, cards(days.total), days.truncated && h('p', { class: 'note' }, T.costsTruncated),
        section(T.perDay, T.day, [...days.costs].reverse()), section(T.perModel, T.model, models.costs), section(T.perAgent, T.agent, agents.costs));
    } catch (error) {
      if (own === request) fill(body, h('p', { class: 'problem', role: 'alert' }, error.message));
    }
  }
  return { node, show };
}

function cards({ usage, model_calls: calls }) {
  const card = (name, value) => h('div', { class: 'card' }, h('dt', {}, name), h('dd', {}, value));
  return h('dl', { class: 'cards' }, card(T.cost, money(cost(usage))), card(T.tokens, number(usage.tokens)), card(T.modelCalls, number(calls)));
}

function section(title, first, groups) {
  if (!groups.length) return [h('h3', {}, title), h('p', { class: 'empty' }, T.noCosts)];
  // Without prices, the bars show tokens.
  const hasPrice = groups.some(({ usage }) => cost(usage) > 0);
  const size = ({ usage }) => (hasPrice ? cost(usage) || 0 : usage.tokens || 0);
  const most = Math.max(...groups.map(size), 1e-12);
  const bar = (group) => {
    const inner = h('i', {});
    inner.style.inlineSize = `${(100 * size(group)) / most}%`;
    return h('span', { class: 'share', 'aria-hidden': 'true' }, inner);
  };
  const rows = groups.map((group) => [group.group || '–', bar(group), number(group.model_calls), number(group.usage.input), number(group.usage.output), money(cost(group.usage))]);
  return [h('h3', {}, title), table([{ text: first }, { text: hasPrice ? T.share : T.shareOfTokens }, { text: T.modelCalls, isNumber: true }, { text: T.tokensIn, isNumber: true },
    { text: T.tokensOut, isNumber: true }, { text: T.cost, isNumber: true }], rows)];
}
