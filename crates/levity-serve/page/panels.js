// The log, the summary and the files of a run.

import { h, fill, Keyed, memo, setText } from './dom.js';
import { badge, button, closeButton, facts, save, table } from './parts.js';
import { markdown } from './markdown.js';
import { bytes, duration, money, number, pretty, time } from './format.js';
import { tokens } from './graph.js';
import { cost } from './view.js';
import { T } from './texts.js';

/** The number of entries of the log that are in the page at once. */
const SHOWN = 500;
/** The largest file with a preview, in bytes. */
const MAX_PREVIEW = 2 << 20;
/** The number of characters of a text in a preview. */
const MAX_TEXT = 200_000;

export function log() {
  const list = h('ol', { class: 'lines' });
  const empty = h('p', { class: 'empty' }, T.noLog);
  const scroll = h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': T.log }, empty, list);
  const search = h('input', { type: 'search', 'aria-label': T.searchLog, placeholder: T.searchLog, oninput: () => last && show(last) });
  const kind = h('select', { 'aria-label': T.kind, onchange: () => last && show(last) }, h('option', { value: '' }, T.allKinds),
    Object.entries(T.itemKinds).map(([value, text]) => h('option', { value }, text)));
  const count = h('span', { class: 'note' });
  const node = h('div', { class: 'log' }, h('div', { class: 'bar' }, search, kind, count), scroll);
  const lines = new Keyed(list, (item) => {
    const row = h('li', { class: `l-${item.kind}` }, h('time', {}), h('span', { class: 'kind' }), h('span', { class: 'where', dir: 'auto' }), h('span', { class: 'text', dir: 'auto' }));
    return row;
  }, (row, item) => {
    const [at, kindText, where, text] = row.children;
    setText(at, time(item.at));
    setText(kindText, T.itemKinds[item.kind] || item.kind);
    setText(where, labelOf(item));
    setText(text, line(item));
    row.classList.toggle('bad', item.kind === 'error' || Boolean(item.call?.failed));
  });
  let last = null;
  let isAtEnd = true;
  scroll.addEventListener('scroll', () => { isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60; }, { passive: true });

  function labelOf({ node: id }) {
    return id === last.top.run ? '' : last.nodes.get(id)?.label || id;
  }

  function show(state) {
    if (last?.top.run !== state.top.run) isAtEnd = true;
    last = state;
    const wanted = search.value.trim().toLowerCase();
    const all = !wanted && !kind.value ? state.items : state.items.filter((item) => (!kind.value || item.kind === kind.value)
      && (!wanted || `${labelOf(item)} ${line(item)}`.toLowerCase().includes(wanted)));
    empty.hidden = all.length > 0;
    lines.show(all.slice(-SHOWN));
    setText(count, T.lines(number(Math.min(all.length, SHOWN)), number(all.length + (wanted || kind.value ? 0 : state.top.dropped || 0))));
    if (isAtEnd) scroll.scrollTop = scroll.scrollHeight;
  }
  return { node, show };
}

function line({ text, call, media }) {
  const what = call ? `${call.name} ${JSON.stringify(call.args ?? {})} ${call.status || ''}` : text || media?.mime || '';
  return what.slice(0, 2000).replace(/\s+/g, ' ').slice(0, 500);
}

export function summary() {
  const node = h('div', { class: 'summary', tabindex: 0, role: 'group', 'aria-label': T.summary });
  function show(state) {
    const { top, nodes } = state;
    memo(node, [top.seq, top.state, top.ending, top.run, state.isHere, top.usage], () => {
      const all = [...nodes.values()];
      const steps = all.filter((one) => one.kind === 'step' || one.kind === 'worker');
      const count = (status) => steps.filter((one) => one.status === status).length;
      const stats = top.stats || {};
      const usage = top.usage || {};
      const card = (name, value, more) => h('div', { class: 'card' }, h('dt', {}, name), h('dd', {}, value, more && h('small', {}, more)));
      fill(node, h('dl', { class: 'cards' },
        card(T.state, badge(state.standing), time(top.started)),
        card(T.duration, duration((top.updated || 0) - (top.started || 0))),
        card(T.cost, money(cost(usage))), card(T.tokens, number(usage.tokens), tokens(usage)),
        card(T.turns, number(stats.turns)), card(T.calls, number(stats.tool_calls)),
        steps.length > 0 && card(T.steps, `${number(count('completed'))} / ${number(steps.length)}`, count('failed') > 0 && `${number(count('failed'))} ${T.states.failed}`)),
      h('h3', {}, T.answerOfRun), answer(top), steps.length > 0 && [h('h3', {}, T.steps), stepTable(steps)]);
    });
  }
  return { node, show };
}

function stepTable(steps) {
  const rows = steps.slice(0, 500).map((one) => [one.label || one.id, one.agent, badge(one.status), one.started && one.ended ? duration(one.ended - one.started) : '',
    one.usage?.tokens ? number(one.usage.tokens) : '', cost(one.usage) !== undefined ? money(cost(one.usage)) : '', one.attempt || '']);
  return [table([{ text: T.step }, { text: T.agent }, { text: T.state }, { text: T.duration, isNumber: true }, { text: T.tokens, isNumber: true },
    { text: T.cost, isNumber: true }, { text: T.attempts, isNumber: true }], rows), steps.length > 500 && h('p', { class: 'note' }, T.dropped(number(steps.length - 500)))];
}

export function answer({ ending }) {
  if (!ending) return h('p', { class: 'note' }, T.noAnswer);
  const isComplete = ending.status === 'complete';
  const why = !isComplete && ending.why && h('p', { class: 'problem', dir: 'auto' }, ending.why);
  return h('div', { class: 'answer' }, why, markdown(ending.text || ''));
}

/** The files that a run wrote, with a preview of the chosen one. `load` returns a response. */
export function files({ load }) {
  const list = h('ul', { class: 'files-list' });
  const empty = h('p', { class: 'empty' }, T.noFiles);
  const preview = h('section', { class: 'preview', 'aria-label': T.preview, tabindex: 0, hidden: true });
  const node = h('div', { class: 'files' }, h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': T.files }, empty, list), preview);
  let last = null;
  let open = null;
  let address = null;
  const rows = new Keyed(list, (one) => h('li', {}, h('button', { type: 'button', class: 'file', onclick: () => choose(one.path) },
    h('span', { class: 'path', dir: 'auto' }), h('span', { class: 'note' }))), (row, one) => {
    const [path, note] = row.firstChild.children;
    setText(path, one.path);
    setText(note, [one.media_type, one.size !== undefined && bytes(one.size), last.nodes.get(one.node)?.label, time(one.at)].filter(Boolean).join(' · '));
  });

  function show(state) {
    if (last && last.top.run !== state.top.run) close();
    const isSame = last && last.top.artifacts === state.top.artifacts;
    last = state;
    if (isSame) return;
    const all = state.top.artifacts || [];
    empty.hidden = all.length > 0;
    rows.show(all.map((one) => ({ ...one, id: one.path })));
    const now = open && all.find((one) => one.path === open.path);
    if (now && now.sha256 !== open.sha256) choose(open.path);
  }

  function close() {
    open = null;
    preview.hidden = true;
    fill(preview);
    mark();
    if (address) URL.revokeObjectURL(address);
    address = null;
  }

  function mark() {
    for (const [path, { node: row }] of rows.known) row.firstChild.setAttribute('aria-pressed', String(path === open?.path));
  }

  async function choose(path) {
    const file = (last.top.artifacts || []).find((one) => one.path === path);
    if (!file) return;
    close();
    open = file;
    mark();
    preview.hidden = false;
    const run = last.top.run;
    const body = h('div', { class: 'content' }, h('p', { class: 'note' }, T.loading));
    const actions = h('span', {});
    fill(preview, h('div', { class: 'bar' }, h('h3', { dir: 'auto' }, path), actions, closeButton(close)), body);
    try {
      const answer = await load(run, path);
      const blob = await answer.blob();
      if (open !== file) return;
      fill(actions, button(T.download, () => save(blob, path.split('/').at(-1) || 'file')));
      fill(body, await content(blob, path, (answer.headers.get('content-type') || '').split(';')[0]));
    } catch (error) {
      if (open === file) fill(body, h('p', { class: 'problem', role: 'alert' }, error.code === 'no_route' ? T.noPreview : error.message));
    }
  }

  async function content(blob, path, type) {
    if (/^image\/(png|jpeg|gif|webp)$/.test(type)) {
      address = URL.createObjectURL(blob);
      return h('img', { src: address, alt: path });
    }
    const isText = type.startsWith('text/') || /^application\/(json|xml|toml|yaml)$/.test(type) || /\+(json|xml)$/.test(type);
    if (!isText || blob.size > MAX_PREVIEW) return h('p', { class: 'note' }, T.onlyDownload(type || T.unknownType, bytes(blob.size)));
    const whole = await blob.text();
    const text = whole.slice(0, MAX_TEXT);
    const rest = whole.length > text.length && h('p', { class: 'note' }, T.truncated);
    if (/\.(md|markdown)$/i.test(path)) return [h('div', { class: 'prose' }, markdown(text)), rest];
    if (/\.csv$/i.test(path)) return [csv(text), rest];
    return [h('pre', { tabindex: 0, dir: 'auto' }, /\.json$/i.test(path) ? formatted(text) : text), rest];
  }
  return { node, show };
}

function formatted(text) {
  try {
    return pretty(JSON.parse(text));
  } catch {
    return text;
  }
}

/** Shows the first rows of comma-separated values; quoted cells may contain commas. */
function csv(text) {
  const rows = [];
  let [row, cell, isQuoted] = [[], '', false];
  const endCell = () => { row.push(cell); cell = ''; };
  for (let at = 0; at < text.length && rows.length < 201; at += 1) {
    const char = text[at];
    if (isQuoted && char === '"' && text[at + 1] === '"') { cell += '"'; at += 1; }
    else if (char === '"') isQuoted = !isQuoted;
    else if (char === ',' && !isQuoted) endCell();
    else if (char === '\n' && !isQuoted) { endCell(); rows.push(row); row = []; }
    else if (char !== '\r') cell += char;
  }
  if (cell || row.length) { endCell(); rows.push(row); }
  const [head = [], ...body] = rows;
  const columns = head.slice(0, 40).map((name) => ({ text: name }));
  return table(columns, body.slice(0, 200).map((one) => columns.map((_, at) => one[at] ?? '')));
}
