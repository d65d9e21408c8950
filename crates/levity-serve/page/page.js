// The page: runs at the left, one run at the right, and the history of that run below it.

import { api, ApiError, hasToken, setToken, stream, takeCredentials } from './api.js';
import { h, fill, frame, Keyed, setText } from './dom.js';
import { badge, button } from './parts.js';
import { cost, RunState, standing } from './view.js';
import { chat } from './chat.js';
import { graph } from './graph.js';
import { answer, files, log, summary } from './panels.js';
import { askForm } from './asks.js';
import { timeline } from './timeline.js';
import { compare } from './compare.js';
import { duration, money, time } from './format.js';
import { T } from './texts.js';

const app = document.getElementById('app');
const THEME = 'levity-theme';

const state = {
  runs: new Map(),
  asks: [],
  selected: null,
  run: null,
  past: null,
  tab: 'chat',
  next: null,
};
let connection = new AbortController();

// --- runs -----------------------------------------------------------------------------------

const filter = h('input', { type: 'search', placeholder: T.search, 'aria-label': T.search, oninput: () => drawRuns() });
const stateFilter = h('select', { 'aria-label': T.state, onchange: () => drawRuns() },
  h('option', { value: '' }, T.allStates),
  ['running', 'waiting', 'paused', 'answered', 'partial', 'failed', 'cancelled'].map((one) => h('option', { value: one }, T.states[one])));
const runList = h('ul', { class: 'runs' });
const runsEmpty = h('p', { class: 'empty' });
const older = button(T.more, () => loadRuns(state.next), { class: 'quiet', hidden: true });
const runRows = new Keyed(runList,
  (run) => h('li', {}, h('button', { type: 'button', class: 'run', onclick: () => select(run.id) },
    h('span', { class: 'goal', dir: 'auto' }), h('span', { class: 'state' }), h('span', { class: 'when' }))),
  (row, run) => {
    setText(row.querySelector('.goal'), run.goal || run.id);
    fill(row.querySelector('.state'), badge(run.state));
    const parts = [time(run.opened), run.updated && run.opened ? duration(run.updated - run.opened) : '',
      cost(run.usage) !== undefined ? money(cost(run.usage)) : ''];
    setText(row.querySelector('.when'), parts.filter(Boolean).join(' · '));
  });

const drawRuns = frame(() => {
  const text = filter.value.trim().toLowerCase();
  const all = [...state.runs.values()].sort((a, b) => (b.opened || 0) - (a.opened || 0));
  const shown = all.filter((run) => (!stateFilter.value || run.state === stateFilter.value)
    && `${run.goal} ${run.id}`.toLowerCase().includes(text));
  runRows.show(shown);
  runsEmpty.hidden = shown.length > 0;
  fill(runsEmpty, all.length ? T.noMatches : T.noRuns);
  for (const button of runList.querySelectorAll('.run')) button.removeAttribute('aria-current');
  const current = runRows.known.get(state.selected);
  if (current) current.node.firstChild.setAttribute('aria-current', 'true');
});

function putRun(run) {
  state.runs.set(run.id, { ...state.runs.get(run.id), ...run });
}

async function loadRuns(cursor) {
  const page = await api.runs(cursor ? { limit: 100, cursor } : { limit: 100 });
  page.runs.forEach(putRun);
  state.next = page.next || null;
  older.hidden = !state.next;
  drawRuns();
}

const goal = h('textarea', { rows: 2, 'aria-label': T.goal, placeholder: T.goalHint });
const startProblem = h('p', { class: 'problem', role: 'alert', hidden: true });
const starter = h('form', { class: 'start', onsubmit: (event) => { event.preventDefault(); start(); } }, goal,
  h('button', { type: 'submit', class: 'main' }, T.start), startProblem);
goal.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey) {
    event.preventDefault();
    start();
  }
});

async function start() {
  const text = goal.value.trim();
  if (!text) return;
  startProblem.hidden = true;
  try {
    const run = await api.start(text);
    goal.value = '';
    putRun(run);
    select(run.id);
  } catch (error) {
    report(error, startProblem);
  }
}

// --- one run --------------------------------------------------------------------------------

const views = { chat: chat(decide), graph: graph(), log: log(), files: files(), summary: summary() };
const title = h('h2', { dir: 'auto' });
const head = h('div', { class: 'facts-line' });
const controls = h('div', { class: 'controls' });
const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
const tabs = h('div', { role: 'tablist', class: 'tabs' }, Object.keys(views).map((name) => h('button', {
  type: 'button', role: 'tab', id: `tab-${name}`, 'aria-controls': 'panel', onclick: () => openTab(name),
  onkeydown: (event) => moveTab(event, name),
}, T[name])));
const panel = h('div', { class: 'panel', id: 'panel', role: 'tabpanel' });
const messageText = h('input', { 'aria-label': T.message, placeholder: T.message });
const messageForm = h('form', { class: 'message', onsubmit: (event) => { event.preventDefault(); say(); } }, messageText,
  h('button', { type: 'submit' }, T.send));
const history = timeline({ onMove: moveTo, onFork: fork });
const comparison = compare({ runs: () => [...state.runs.values()], load: (id) => api.view(id) });
const nothing = h('p', { class: 'empty' }, T.noRun);
const main = h('main', { id: 'main' });

function shown() {
  return state.past || state.run;
}

const drawRun = frame(() => {
  const now = shown();
  main.classList.toggle('has-run', Boolean(now));
  nothing.hidden = Boolean(now);
  if (!now || !now.top) return;
  const { top } = now;
  setText(title, top.goal || state.selected);
  fill(head, badge(standing(top)), h('code', {}, state.selected), h('span', {}, duration((top.updated || 0) - (top.started || 0))),
    h('span', {}, money(cost(top.usage))));
  drawControls(top);
  views[state.tab].show(now);
  history.show(state.run.top, Boolean(state.past));
  comparison.show(state.run);
});

let controlsOf = '';
function drawControls(top) {
  const isOver = ['ended', 'answered', 'partial', 'failed', 'cancelled'].includes(top.state);
  const wanted = `${state.selected} ${top.state} ${Boolean(state.past)}`;
  messageForm.hidden = isOver || Boolean(state.past);
  if (wanted === controlsOf) return;
  controlsOf = wanted;
  const command = (name, verb) => button(T[name], () => act(() => api.command(state.selected, verb)));
  const parts = [];
  if (!state.past && !isOver) {
    if (top.state === 'paused' || top.state === 'stopped') parts.push(command('resume', 'resume'));
    else parts.push(command('pause', 'pause'));
    parts.push(button(T.cancel, () => confirm(T.confirmCancel) && act(() => api.command(state.selected, 'cancel'))));
  }
  parts.push(comparison.button);
  if (isOver) parts.push(button(T.remove, () => confirm(T.confirmRemove) && act(removeRun), { class: 'quiet' }));
  fill(controls, parts);
}

async function removeRun() {
  const id = state.selected;
  await api.remove(id);
  state.runs.delete(id);
  select(null);
}

function openTab(name) {
  state.tab = name;
  for (const tab of tabs.children) {
    const isOpen = tab.id === `tab-${name}`;
    tab.setAttribute('aria-selected', String(isOpen));
    tab.tabIndex = isOpen ? 0 : -1;
  }
  panel.setAttribute('aria-labelledby', `tab-${name}`);
  fill(panel, views[name].node);
  remember();
  drawRun();
}

function moveTab(event, name) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const names = Object.keys(views);
  const next = names[(names.indexOf(name) + step + names.length) % names.length];
  openTab(next);
  document.getElementById(`tab-${next}`).focus();
}

function select(id) {
  if (id === state.selected) return;
  state.selected = id;
  state.run = null;
  state.past = null;
  controlsOf = '';
  problem.hidden = true;
  views.graph.reset();
  history.reset();
  comparison.reset();
  remember();
  drawRuns();
  drawRun();
  connect();
}

async function act(work) {
  problem.hidden = true;
  try {
    return await work();
  } catch (error) {
    return report(error, problem);
  }
}

function report(error, place) {
  if (error.status === 401) return logIn(T.wrongToken);
  place.hidden = false;
  fill(place, error.message);
  return undefined;
}

function say() {
  const text = messageText.value.trim();
  if (text) act(async () => { await api.command(state.selected, 'message', { text }); messageText.value = ''; });
}

function decide(ask, decision) {
  return api.decide(ask, decision);
}

async function moveTo(at) {
  if (at === null) {
    state.past = null;
    return drawRun();
  }
  const run = state.selected;
  return act(async () => {
    const { view } = await api.view(run, at);
    if (state.selected !== run || !history.isAt(at)) return;
    state.past = new RunState().load(view);
    drawRun();
  });
}

/** Forks the run after the last record at the shown position. */
function fork(message) {
  return act(async () => {
    const from = state.selected;
    const after = shown().top.record;
    const body = message ? { after, message } : { after };
    const run = await api.fork(from, body);
    putRun(run);
    select(run.id);
    comparison.choose(from);
  });
}

// --- questions ------------------------------------------------------------------------------

const inboxList = h('div', { class: 'asks' });
const inboxEmpty = h('p', { class: 'empty' }, T.noAsks);
const inbox = h('dialog', { class: 'inbox', 'aria-label': T.inbox },
  h('div', { class: 'bar' }, h('h2', {}, T.inbox), button('×', () => inbox.close(), { class: 'close', 'aria-label': T.close })), inboxEmpty, inboxList);
const inboxCount = h('span', { class: 'count' }, '0');
const inboxButton = button(T.inbox, () => inbox.showModal());
inboxButton.append(' ', inboxCount);
const inboxRows = new Keyed(inboxList, (ask) => askForm(ask, decide), () => {});

const drawAsks = frame(() => {
  setText(inboxCount, String(state.asks.length));
  inboxButton.classList.toggle('waiting', state.asks.length > 0);
  inboxRows.show(state.asks);
  inboxEmpty.hidden = state.asks.length > 0;
  document.title = state.asks.length ? `(${state.asks.length}) ${T.title}` : T.title;
});

// --- connection -----------------------------------------------------------------------------

const status = h('span', { class: 'connection', role: 'status' });

function connect() {
  connection.abort();
  connection = new AbortController();
  const run = state.selected;
  stream(run, connection.signal, {
    onEvent: (name, data) => receive(run, name, data),
    onState: (name, error) => {
      document.body.dataset.connection = name;
      setText(status, { connecting: T.connecting, connected: T.connected, offline: T.offline }[name] || '');
      if (name !== 'refused') return;
      if (error.status === 401) logIn(T.wrongToken);
      else report(error, problem);
    },
  });
}

function receive(run, name, data) {
  if (name === 'runs') {
    data.runs.forEach(putRun);
    drawRuns();
  } else if (name === 'asks') {
    state.asks = data.asks;
    drawAsks();
  } else if (name === 'view' && run === state.selected) {
    if (data.changes) state.run?.apply(data.changes);
    else state.run = new RunState().load(data.view);
    drawRun();
  }
}

// --- address, theme and login ---------------------------------------------------------------

function remember() {
  const parts = new URLSearchParams();
  if (state.selected) parts.set('run', state.selected);
  if (state.tab !== 'chat') parts.set('tab', state.tab);
  const hash = `#${parts}`;
  if (location.hash !== hash) window.history.replaceState(null, '', hash);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(THEME, theme);
}

function changeTheme() {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  setTheme(isDark ? 'light' : 'dark');
}

function logIn(reason) {
  connection.abort();
  const field = h('input', { type: 'password', autocomplete: 'off', 'aria-label': T.token, required: true });
  const alert = h('p', { class: 'problem', role: 'alert' }, reason || '');
  alert.hidden = !reason;
  const send = async (event) => {
    event.preventDefault();
    setToken(field.value.trim());
    try {
      await api.check();
      open();
    } catch (error) {
      setToken(null);
      alert.hidden = false;
      fill(alert, error.status === 401 ? T.wrongToken : error.message);
    }
  };
  fill(app, h('main', { class: 'login' }, h('h1', {}, T.title), h('form', { onsubmit: send }, h('p', {}, T.tokenHint), field,
    h('button', { type: 'submit', class: 'main' }, T.login), alert)));
  field.focus();
}

function open() {
  fill(main, nothing, h('header', { class: 'head' }, title, head, controls, problem, tabs), panel, messageForm, comparison.node, history.node);
  fill(app,
    h('header', { class: 'top' }, h('h1', {}, T.title), status, inboxButton, button(T.theme, changeTheme, { class: 'quiet' }),
      button(T.logout, () => { setToken(null); logIn(); }, { class: 'quiet' })),
    h('div', { class: 'columns' },
      h('nav', { class: 'side', 'aria-label': T.runs }, starter, h('div', { class: 'filters' }, filter, stateFilter), runsEmpty, runList, older),
      main),
    inbox);
  openTab(state.tab);
  drawRuns();
  drawRun();
  drawAsks();
  connect();
  loadRuns().catch((error) => report(error, startProblem));
}

async function begin() {
  const theme = localStorage.getItem(THEME);
  if (theme) setTheme(theme);
  try {
    await takeCredentials();
  } catch (error) {
    return logIn(error instanceof ApiError && error.status ? T.codeUsed : error.message);
  }
  const hash = new URLSearchParams(location.hash.slice(1));
  state.selected = hash.get('run');
  if (views[hash.get('tab')]) state.tab = hash.get('tab');
  return hasToken() ? open() : logIn();
}

begin();
