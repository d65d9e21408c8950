// Requests to the server, and its stream of events.
//
// The token comes from the fragment of the address, which no server and no log sees. It stays in
// the storage of this tab. Addresses are relative, so the page works below any path of a proxy.

import { T } from './texts.js';

const KEY = 'levity-token';

/** An error that the server reported, or a failed connection. */
export class ApiError extends Error {
  constructor(status, code, message, problems = []) {
    super(message);
    this.status = status;
    this.code = code;
    this.problems = problems;
  }
}

let token = sessionStorage.getItem(KEY);

export function hasToken() {
  return Boolean(token);
}

export function setToken(value) {
  token = value;
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

function address(path) {
  return new URL(path, document.baseURI.replace(/#.*/, ''));
}

async function send(method, path, body, options = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(address(path), {
      method, headers, body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
      cache: 'no-store', credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer',
      ...options,
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'offline', T.unreachable);
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  const { code = 'unknown', message = T.answered(answer.status), problems } = problem.error || {};
  throw new ApiError(answer.status, code, message, Array.isArray(problems) ? problems : []);
}

async function json(method, path, body) {
  const answer = await send(method, path, body);
  return answer.status === 204 ? null : answer.json();
}

const run = (id) => `v1/runs/${encodeURIComponent(id)}`;

export const api = {
  login: (code) => json('POST', 'v1/login', { code }),
  runs: (query) => json('GET', `v1/runs?${new URLSearchParams(query)}`),
  run: (id) => json('GET', run(id)),
  start: (body) => json('POST', 'v1/runs', body),
  view: (id, at) => json('GET', `${run(id)}/view${at === undefined || at === null ? '' : `?at=${at}`}`),
  command: (id, verb, body) => json('POST', `${run(id)}/${verb}`, body || {}),
  remove: (id) => json('DELETE', run(id)),
  /** Decides a question. Edited arguments are sent as the text that the person wrote, so no number in them is rounded. */
  decide: (ask, { argsText, ...decision }) => json('POST', `${run(ask.run)}/asks/${encodeURIComponent(ask.id)}`,
    argsText === undefined ? decision : `{"decision":"edit","args":${argsText}}`),
  /** Returns the pending questions of a run with complete arguments. */
  asks: async (id) => (await json('GET', `${run(id)}/asks`)).asks,
  fork: (id, body) => json('POST', `${run(id)}/fork`, body),
  costs: (query) => json('GET', `v1/costs?${new URLSearchParams(query)}`),
  sessions: (query) => json('GET', `v1/sessions?${new URLSearchParams(query)}`),
  session: (id, kind) => json('GET', `v1/sessions/${encodeURIComponent(id)}${kind === 'plan' ? '?kind=plan' : ''}`),
  forget: (id) => json('DELETE', `v1/sessions/${encodeURIComponent(id)}`),
  artifact: (id, path) => send('GET', `${run(id)}/artifacts/content?${new URLSearchParams({ path })}`),
  picture: async (id) => (await send('GET', `${run(id)}/graph.svg`)).blob(),
  check: () => json('GET', 'v1/runs?limit=1'),
  /** Returns the models from which a run can choose; none if the server offers no choice. */
  models: async () => {
    try {
      return (await json('GET', 'v1/models')).models || [];
    } catch (error) {
      if (error.status === 404) return [];
      throw error;
    }
  },
};

/** Takes the token or the one-time code from the fragment, and removes it from the address. */
export async function takeCredentials() {
  const given = new URLSearchParams(location.hash.slice(1));
  const isGiven = given.has('token') || given.has('code');
  const code = given.get('code');
  if (given.has('token')) setToken(given.get('token'));
  if (isGiven) {
    given.delete('token');
    given.delete('code');
    history.replaceState(null, '', `#${given}`);
  }
  if (code) setToken((await api.login(code)).token);
}

/**
 * Reads the event stream until `stop` is aborted, and connects again after each interruption.
 * Each connection begins with complete snapshots, so nothing is lost and nothing comes twice.
 */
export async function stream(id, stop, { onEvent, onState }) {
  let pause = 250;
  while (!stop.aborted) {
    try {
      onState('connecting');
      const query = id ? `?run=${encodeURIComponent(id)}` : '';
      const answer = await send('GET', `v1/stream${query}`, undefined, { signal: stop });
      onState('connected');
      pause = 250;
      await events(answer.body, onEvent);
    } catch (error) {
      if (stop.aborted) return;
      if (error.status === 401 || error.status === 403 || error.status === 404) {
        onState('refused', error);
        return;
      }
    }
    if (stop.aborted) return;
    onState('offline');
    await new Promise((resume) => setTimeout(resume, pause));
    pause = Math.min(pause * 2, 5000);
  }
}

/** Parses server-sent events. */
async function events(body, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = [];
  let name = 'message';
  let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    pending.push(value);
    if (!value.includes('\n')) continue;
    const lines = pending.join('').split('\n');
    pending = [lines.pop()];
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line === '') {
        if (data.length) onEvent(name, JSON.parse(data.join('\n')));
        name = 'message';
        data = [];
      } else if (line.startsWith('event:')) name = line.slice(6).trim();
      else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
    }
  }
}
