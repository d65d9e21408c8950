// The page: runs at the left, one run at the right, and the history of that run below it.

import { api, ApiError, hasToken, setToken, stream, takeCredentials } from './api.js';
import { h, fill, frame, Keyed, memo, setText } from './dom.js';
import { badge, button, closeButton, isSure } from './parts.js';
import { cost, isOver, RunState } from './view.js';
import { runs } from './runs.js';
import { chat } from './chat.js';
import { graph } from './graph.js';
import { files, log, summary } from './panels.js';
import { askForm } from './asks.js';
import { timeline } from './timeline.js';
import { compare } from './compare.js';
import { costs } from './costs.js';
import { sessions } from './sessions.js';
import { duration, money, number } from './format.js';
import { T } from './texts.js';

const app = document.getElementById('app');
const THEME = 'levity-theme';

/** What the address shows: a run with a tab, a position and another run, or another place. */
let route = { place: 'runs', run: null, tab: 'chat', at: null, with: null };
const state = { run: null, past: null, asks: [], models: [] };
let connection = new AbortController();

// --- one run --------------------------------------------------------------------------------

const list = runs({ api, onStart: (id) => go({ run: id }), onProblem: report });
const views = {
  chat: chat({ onDecide: decide, onNode: (id) => { go({ tab: 'graph' }); views.graph.select(id); } }),
  graph: graph({
    picture: () => api.picture(route.run),
    onChat: (id) => {
      views.chat.only(id, shown());
      go({ tab: 'chat' });
    },
  }),
  log: log(),
  files: files({ load: api.artifact }),
  summary: summary(),
};
const title = h('h2', { dir: 'auto' });
const head = h('div', { class: 'facts-line' });
const [took, spent, used] = [h('span'), h('span'), h('span')];
const hint = h('p', { class: 'hint', hidden: true });
const controls = h('div', { class: 'controls' });
const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
const tabs = h('div', { role: 'tablist', class: 'tabs' }, Object.keys(views).map((name) => h('button', {
  type: 'button', role: 'tab', id: `tab-${name}`, 'aria-controls': 'panel', onclick: () => go({ tab: name }),
  onkeydown: (event) => moveTab(event, name),
}, T[name])));
const panel = h('div', { class: 'panel', id: 'panel', role: 'tabpanel' });
const messageText = h('textarea', { rows: 1, 'aria-label': T.message, placeholder: T.message });
const messageForm = h('form', { class: 'message', onsubmit: (event) => { event.preventDefault(); say(); } }, messageText,
  h('button', { type: 'submit', class: 'main' }, T.send));
messageText.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey) return;
  event.preventDefault();
  say();
});
const history = timeline({ onMove: moveTo, onFork: fork });
const comparison = compare({ runs: list.all, load: (id) => api.view(id), onChoose: (id) => { isComparing = Boolean(id); go({ with: id }); } });
let isComparing = false;
const compareButton = button(T.compare, () => {
  isComparing = !isComparing;
  if (!isComparing) go({ with: null });
  drawComparison();
});
const nothing = h('p', { class: 'empty' }, T.noRun);
const runNodes = h('div', { class: 'of-run' }, h('header', { class: 'head' }, h('div', { class: 'row' }, title, controls), head, hint, problem, tabs),
  panel, messageForm, comparison.node, history.node);
const places = { costs: costs({ api }), sessions: sessions({ api, onContinue: (id) => { go({ place: 'runs', run: null }); list.continueIn(id); } }) };
const main = h('main', { id: 'main' });

function shown() {
  return state.past || state.run;
}

const drawRun = frame(() => {
  const now = shown();
  runNodes.hidden = route.place !== 'runs' || !now?.top || !state.run;
  nothing.hidden = route.place !== 'runs' || Boolean(route.run);
  if (runNodes.hidden) return;
  const { top } = now;
  setText(title, top.goal || route.run);
  memo(head, [now.standing, route.run], () => fill(head, badge(now.standing), h('code', {}, route.run), took, spent, used));
  setText(took, duration((top.updated || 0) - (top.started || 0)));
  setText(spent, cost(top.usage) === undefined ? '' : money(cost(top.usage)));
  setText(used, top.usage?.tokens > 0 ? `${number(top.usage.tokens)} ${T.tokens.toLowerCase()}` : '');
  drawControls(now);
  history.show(state.run.top);
  comparison.show(now);
  // The chat reads its height, so everything else is written before.
  views[route.tab].show(now);
});

function drawControls(now) {
  const standing = state.run.standing;
  const over = isOver(standing);
  const isPast = Boolean(state.past);
  messageForm.hidden = over || isPast || route.tab !== 'chat';
  memo(controls, [route.run, standing, isPast, state.run.stopped], () => {
    const text = state.run.stopped ? T.stoppedBy(state.run.stopped) : standing === 'interrupted' ? T.interrupted : '';
    hint.hidden = !text || over || isPast;
    setText(hint, text);
    const command = (name, props) => button(T[name], () => act(() => api.command(route.run, name)), props);
    const parts = [];
    if (!isPast && !over) {
      if (standing === 'paused' || standing === 'interrupted' || !state.run.isHere) parts.push(command('resume', { class: 'main' }));
      else parts.push(command('pause'));
      parts.push(button(T.cancel, () => isSure(T.confirmCancel) && act(() => api.command(route.run, 'cancel'))));
    }
    parts.push(compareButton);
    if (over) parts.push(button(T.remove, () => isSure(T.confirmRemove) && act(removeRun), { class: 'quiet' }));
    fill(controls, parts);
  });
  return now;
}

async function removeRun() {
  const id = route.run;
  await api.remove(id);
  list.remove(id);
  go({ run: null });
}

function moveTab(event, name) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const names = Object.keys(views);
  const next = names[(names.indexOf(name) + step + names.length) % names.length];
  go({ tab: next });
  document.getElementById(`tab-${next}`).focus();
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
  if (text) act(async () => { await api.command(route.run, 'message', { text }); messageText.value = ''; });
}

function decide(ask, decision) {
  return api.decide(ask, decision);
}

/** Shows the run after its first events, or as it is now. */
async function moveTo(at) {
  const run = route.run;
  go({ at }, true);
  if (at === null) {
    state.past = null;
    return drawRun();
  }
  return act(async () => {
    const found = await api.view(run, at);
    if (route.run !== run || !history.isAt(at)) return;
    state.past = new RunState().load(found);
    drawRun();
  });
}

/** Forks the run after the last record at the shown position. */
function fork({ message, model, at }) {
  return act(async () => {
    const from = route.run;
    const body = {};
    // The server chooses the place at the end of a run: before its last model call.
    if (at !== null) body.after = shown().top.record;
    if (message) body.message = message;
    if (model) body.model = model;
    const run = await api.fork(from, body);
    list.put([run]);
    go({ run: run.id, with: from });
  });
}

/** Loads the notable events of the run for the slider. */
async function loadMarks() {
  const run = route.run;
  if (!run) return;
  try {
    const { marks, total } = await api.view(run, 1);
    if (route.run === run) history.mark(marks, total);
  } catch {
    // Without a journal, an old run has no history.
  }
}

// --- questions ------------------------------------------------------------------------------

const inboxList = h('div', { class: 'asks' });
const inboxEmpty = h('p', { class: 'empty' }, T.noAsks);
const inbox = h('dialog', { class: 'inbox', 'aria-label': T.inbox, onclick: (event) => { if (event.target === inbox) inbox.close(); } },
  h('div', { class: 'inner' }, h('div', { class: 'bar' }, h('h2', {}, T.inbox), closeButton(() => inbox.close())), inboxEmpty, inboxList));
const inboxCount = h('span', { class: 'count' }, '0');
const inboxButton = button(T.inbox, () => inbox.showModal());
inboxButton.append(' ', inboxCount);
const inboxRows = new Keyed(inboxList, (ask) => askForm(ask, decide, () => inbox.close()), () => {});

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
  const { run } = route;
  stream(run, connection.signal, {
    onEvent: (name, data) => receive(run, name, data),
    onState: (name, error) => {
      document.body.dataset.connection = name;
      setText(status, { connecting: T.connecting, connected: T.connected, offline: T.offline }[name] || '');
      if (name === 'connected' && run) loadMarks();
      if (name !== 'refused') return;
      if (error.status === 401) logIn(T.wrongToken);
      else refuse(run, error);
    },
  });
}

/** Explains why a run cannot be shown, and follows the other runs. */
function refuse(run, error) {
  if (!run) return report(error, problem);
  go({ run: null }, true);
  nothing.hidden = false;
  setText(nothing, error.status === 404 ? T.noSuchRun(run) : error.message);
  return undefined;
}

function receive(run, name, data) {
  if (name === 'runs') {
    list.put(data.runs);
    const own = data.runs.find((one) => one.id === run);
    if (own && state.run && run === route.run && own.here !== undefined && !isOver(state.run.standing)) {
      state.run.isHere = own.here;
      if (own.here) state.run.stopped = null;
      drawRun();
    }
  } else if (name === 'asks') {
    state.asks = data.asks;
    drawAsks();
  } else if (name === 'view' && run === route.run) {
    const wasOver = state.run && isOver(state.run.standing);
    if (data.changes) state.run?.apply(data.changes);
    else state.run = new RunState().load(data);
    if (state.run && wasOver === false && isOver(state.run.standing)) loadMarks();
    drawRun();
  }
}

// --- address, theme and login ---------------------------------------------------------------

function parse(hash) {
  const given = new URLSearchParams(hash.slice(1));
  const at = Number(given.get('at'));
  return {
    place: places[given.get('place')] ? given.get('place') : 'runs', run: given.get('run') || null,
    tab: Object.hasOwn(views, given.get('tab')) ? given.get('tab') : 'chat', at: at > 0 && Number.isInteger(at) ? at : null, with: given.get('with') || null,
  };
}

function write({ place, run, tab, at, with: other }) {
  const parts = new URLSearchParams();
  if (place !== 'runs') parts.set('place', place);
  if (run) parts.set('run', run);
  if (run && tab !== 'chat') parts.set('tab', tab);
  if (run && at !== null) parts.set('at', at);
  if (run && other) parts.set('with', other);
  return `#${parts}`;
}

/** Changes what is shown, and the address with it. */
function go(change, isReplacing = false) {
  const isOther = 'run' in change && change.run !== route.run;
  const next = { ...route, ...(isOther ? { place: 'runs', at: null, with: null } : {}), ...change };
  const hash = write(next);
  if (hash !== write(route)) window.history[isReplacing ? 'replaceState' : 'pushState'](null, '', hash);
  apply(next);
}

function apply(next) {
  const before = route;
  route = next;
  if (before.run !== route.run) {
    state.run = null;
    state.past = null;
    problem.hidden = true;
    hint.hidden = true;
    messageText.value = '';
    views.graph.reset();
    history.reset();
    isComparing = Boolean(route.with);
    setText(nothing, T.noRun);
    list.select(route.run);
    connect();
  }
  if (before.place !== route.place) openPlace();
  if (before.tab !== route.tab) openTab();
  if (before.with !== route.with || before.run !== route.run) {
    isComparing ||= Boolean(route.with);
    drawComparison();
    comparison.choose(route.with);
  }
  if (route.at !== null && !history.isAt(route.at)) history.move(route.at);
  else if (route.at === null && history.at !== null) history.move(null);
  drawRun();
}

function openTab() {
  for (const tab of tabs.children) {
    const isOpen = tab.id === `tab-${route.tab}`;
    tab.setAttribute('aria-selected', String(isOpen));
    tab.tabIndex = isOpen ? 0 : -1;
  }
  panel.setAttribute('aria-labelledby', `tab-${route.tab}`);
  fill(panel, views[route.tab].node);
}

function openPlace() {
  for (const link of placeLinks.children) {
    if (link.dataset.place === route.place) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  for (const [name, place] of Object.entries(places)) place.node.hidden = name !== route.place;
  if (places[route.place]) places[route.place].show();
}

function drawComparison() {
  comparison.open(isComparing);
  runNodes.classList.toggle('comparing', isComparing);
  compareButton.setAttribute('aria-pressed', String(isComparing));
}

const placeLinks = h('nav', { class: 'places', 'aria-label': T.title }, ['runs', ...Object.keys(places)].map((name) => h('a', {
  'data-place': name, href: name === 'runs' ? '#' : `#place=${name}`, onclick: (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go({ place: name });
  },
}, T[name])));

window.addEventListener('popstate', () => {
  if (location.hash.includes('token=') || location.hash.includes('code=')) location.reload();
  else if (hasToken()) apply(parse(location.hash));
});

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
  inbox.remove();
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
  fill(main, nothing, runNodes, Object.values(places).map((place) => place.node));
  fill(app,
    h('header', { class: 'top' }, h('h1', {}, T.title), placeLinks, status, inboxButton, button(T.theme, changeTheme, { class: 'quiet' }),
      button(T.logout, () => { setToken(null); logIn(); }, { class: 'quiet' })),
    h('div', { class: 'columns' }, list.node, main),
    inbox);
  const wanted = parse(location.hash);
  route = { ...wanted, run: null, at: null, with: null };
  openTab();
  openPlace();
  drawAsks();
  if (wanted.run) apply(wanted);
  else {
    drawRun();
    list.select(null);
    connect();
  }
  list.load().catch((error) => report(error, nothing));
  api.models().then((all) => {
    list.models(all);
    history.models(all);
  }).catch(() => {});
}

async function begin() {
  const theme = localStorage.getItem(THEME);
  if (theme) setTheme(theme);
  try {
    await takeCredentials();
  } catch (error) {
    return logIn(error instanceof ApiError && error.status ? T.codeUsed : error.message);
  }
  return hasToken() ? open() : logIn();
}

begin();
