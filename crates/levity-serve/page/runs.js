// The list of runs, its filters, and the form that starts a run.

import { h, fill, frame, Keyed, setText } from './dom.js';
import { badge, button } from './parts.js';
import { cost, isOver, stateOf } from './view.js';
import { clock, duration, money } from './format.js';
import { T } from './texts.js';

const STATES = ['running', 'waiting', 'paused', 'interrupted', 'queued', 'answered', 'partial', 'failed', 'cancelled'];

/** The number of requests for details of runs at a time. */
const PARALLEL = 2;

export function runs({ api, onStart, onProblem }) {
  const known = new Map();
  let selected = null;
  let next = null;
  let models = [];
  let conversation = null;

  // --- the form -----------------------------------------------------------------------------

  const goal = h('textarea', { rows: 3, 'aria-label': T.goal, placeholder: T.goalHint });
  const model = h('select', { 'aria-label': T.model, hidden: true });
  const thread = h('p', { class: 'note thread-of', hidden: true });
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
  const starter = h('form', { class: 'start', onsubmit: (event) => { event.preventDefault(); start(); } }, goal, thread,
    h('div', { class: 'row' }, model, h('button', { type: 'submit', class: 'main' }, T.start)), problem);
  goal.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      start();
    }
  });

  let isStarting = false;
  async function start() {
    const text = goal.value.trim();
    if (!text || isStarting) return;
    isStarting = true;
    problem.hidden = true;
    try {
      const body = { goal: text };
      if (model.value) body.model = model.value;
      if (conversation) body.conversation = conversation;
      const run = await api.start(body);
      goal.value = '';
      put([run]);
      onStart(run.id);
    } catch (error) {
      onProblem(error, problem);
    } finally {
      isStarting = false;
    }
  }

  function continueIn(id) {
    conversation = id;
    thread.hidden = !id;
    fill(thread, T.continues(id), ' ', button(T.clear, () => continueIn(null), { class: 'quiet' }));
    if (id) goal.focus();
  }

  // --- the list -----------------------------------------------------------------------------

  const search = h('input', { type: 'search', placeholder: T.search, 'aria-label': T.search, oninput: () => draw() });
  const filter = h('select', { 'aria-label': T.state, onchange: () => draw() }, h('option', { value: '' }, T.allStates),
    STATES.map((one) => h('option', { value: one }, T.states[one])));
  const period = h('select', { 'aria-label': T.period, onchange: () => draw() },
    [['', T.anyTime], ['1', T.today], ['7', T.week], ['30', T.month]].map(([value, text]) => h('option', { value }, text)));
  const list = h('ul', { class: 'runs' });
  const empty = h('p', { class: 'empty' });
  const older = button(T.more, () => load(next).catch((error) => onProblem(error, problem)), { class: 'quiet', hidden: true });
  const rows = new Keyed(list, (run) => {
    const row = h('li', {}, h('a', { class: 'run', href: `#run=${encodeURIComponent(run.id)}` },
      h('span', { class: 'goal', dir: 'auto' }), h('span', { class: 'state' }), h('span', { class: 'when' })));
    const [title, state, when] = row.firstChild.children;
    row.parts = { title, state, when };
    return row;
  }, ({ parts }, run) => {
    setText(parts.title, run.goal || run.id);
    const state = stateOf(run);
    if (parts.state.dataset.state !== state) {
      parts.state.dataset.state = state;
      fill(parts.state, badge(state));
    }
    const took = isOver(state) && run.updated && run.opened ? duration(run.updated - run.opened) : '';
    setText(parts.when, [clock(run.opened), took, cost(run.usage) !== undefined ? money(cost(run.usage)) : ''].filter(Boolean).join(' · '));
  });
  const node = h('nav', { class: 'side', 'aria-label': T.runs }, starter,
    h('div', { class: 'filters' }, search, h('div', { class: 'row' }, filter, period)), empty, list, older);

  const draw = frame(() => {
    const text = search.value.trim().toLowerCase();
    const since = period.value ? Date.now() - Number(period.value) * 86_400_000 : 0;
    const all = [...known.values()].sort((a, b) => (b.opened || 0) - (a.opened || 0));
    const shown = all.filter((run) => (!filter.value || stateOf(run) === filter.value) && (run.opened || since) >= since
      && (!text || `${run.goal} ${run.id}`.toLowerCase().includes(text)));
    rows.show(shown);
    empty.hidden = shown.length > 0;
    setText(empty, all.length ? T.noMatches : T.noRuns);
    for (const [id, { node: row }] of rows.known) {
      if (id === selected) row.firstChild.setAttribute('aria-current', 'true');
      else row.firstChild.removeAttribute('aria-current');
    }
    complete();
  });

  function put(found) {
    for (const run of found) {
      const old = known.get(run.id);
      if (old && Object.keys(run).every((name) => same(old[name], run[name]))) continue;
      const next = { ...old, ...run };
      // The usage of a run that goes on is soon wrong, and that of another state is requested again.
      if (!isOver(stateOf(next)) || (old && stateOf(old) !== stateOf(next) && !run.usage)) delete next.usage;
      known.set(run.id, next);
    }
    draw();
  }

  /** `true` while a list is requested, which probably has the missing goals. */
  let isLoading = true;

  async function load(cursor) {
    isLoading = true;
    try {
      const page = await api.runs(cursor ? { limit: 100, roots: true, cursor } : { limit: 100, roots: true });
      put(page.runs);
      next = page.next || null;
      older.hidden = !next;
    } finally {
      isLoading = false;
      draw();
    }
  }

  // The list of the server lacks the goals and costs of runs that it could not read in time, and the
  // costs of those that ended since. They are requested for the rows in sight, a few at a time.
  const asked = new Map();
  const inSight = new Set();
  const sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) inSight.add(target.runId);
      else inSight.delete(target.runId);
    }
    complete();
  }, { root: node, rootMargin: '200px' });
  let active = 0;

  function complete() {
    for (const [id, { node: row }] of rows.known) {
      if (row.runId) continue;
      row.runId = id;
      sight.observe(row);
    }
    for (const id of inSight) {
      if (isLoading || active >= PARALLEL) return;
      const run = known.get(id);
      const isMissing = run && (!run.goal || (isOver(stateOf(run)) && !run.usage));
      if (isMissing && asked.get(id) !== stateOf(run)) fetchOne(id, stateOf(run));
    }
  }

  async function fetchOne(id, state) {
    asked.set(id, state);
    active += 1;
    try {
      const { goal: text, usage } = await api.run(id);
      if (known.has(id)) put([{ id, goal: text ?? known.get(id).goal, usage }]);
    } catch {
      // The row stays as it is.
    } finally {
      active -= 1;
      complete();
    }
  }

  return {
    node, put, load, continueIn, draw,
    all: () => [...known.values()].sort((a, b) => (b.opened || 0) - (a.opened || 0)),
    get: (id) => known.get(id),
    remove(id) {
      known.delete(id);
      draw();
    },
    select(id) {
      selected = id;
      draw();
    },
    models(all) {
      models = all;
      model.hidden = models.length < 2;
      fill(model, models.map((one) => h('option', { value: one.name }, one.name)));
      const preset = models.find((one) => one.default);
      if (preset) model.value = preset.name;
    },
    focus: () => goal.focus(),
  };
}

function same(a, b) {
  return a === b || (typeof a === 'object' && typeof b === 'object' && JSON.stringify(a) === JSON.stringify(b));
}
