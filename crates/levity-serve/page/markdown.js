// A small subset of Markdown, as DOM nodes: paragraphs, headings, lists, code, quotes, tables,
// emphasis and links. It never loads anything: images become their text.
//
// The text comes from a model, so its cost must not depend on what it contains: each character is
// looked at a bounded number of times, and no regular expression may go back over it.

import { h } from './dom.js';

/** The maximum number of characters that are formatted; the rest is shown as it is. */
const MAX_LENGTH = 100_000;

/** The maximum number of formatted parts in one block, such as links and code. */
const MAX_PARTS = 2000;

/** The places at which formatting may begin. */
const SPECIAL = /[`*[]|!\[|https?:\/\//g;

function link(text, address) {
  // Other schemes may run code or leave the browser.
  if (!/^https?:\/\//i.test(address)) return `${text} (${address})`;
  return h('a', { href: address, target: '_blank', rel: 'noopener noreferrer nofollow' }, text);
}

/** Finds tokens in a text. Positions must not decrease, so all searches together are linear. */
class Finder {
  constructor(text) {
    this.text = text;
    this.known = new Map();
    this.ticks = null;
  }

  /** Returns the position of the next token, or the length of the text. */
  next(token, from) {
    const known = this.known.get(token);
    if (known !== undefined && known >= from) return known;
    const found = this.text.indexOf(token, from);
    const place = found < 0 ? this.text.length : found;
    this.known.set(token, place);
    return place;
  }

  /** Returns the start of the next run of exactly `count` backticks, or -1. */
  nextTicks(count, from) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const run of this.text.matchAll(/`+/g)) {
        const { length } = run[0];
        if (!this.ticks.has(length)) this.ticks.set(length, { places: [], next: 0 });
        this.ticks.get(length).places.push(run.index);
      }
    }
    const runs = this.ticks.get(count);
    if (!runs) return -1;
    while (runs.next < runs.places.length && runs.places[runs.next] < from) runs.next += 1;
    return runs.places[runs.next] ?? -1;
  }
}

function isSpace(char) {
  return char === ' ' || char === '\n' || char === '\t';
}

function isWord(char) {
  return char !== undefined && /[\w*]/.test(char);
}

/** Each reads one kind of formatting at a place, and returns the node and the end, or nothing. */
const READERS = {
  '`': (text, at, find) => {
    let start = at;
    while (text[start] === '`') start += 1;
    const count = start - at;
    const end = find.nextTicks(count, start);
    if (end < 0) return { node: text.slice(at, start), end: start };
    const code = text.slice(start, end);
    const isPadded = code.length > 2 && code.startsWith(' ') && code.endsWith(' ');
    return { node: h('code', {}, isPadded ? code.slice(1, -1) : code), end: end + count };
  },
  '*': (text, at, find) => {
    const line = find.next('\n', at);
    if (text[at + 1] === '*') {
      const end = find.next('**', at + 2);
      if (end >= line || end === at + 2) return { node: '**', end: at + 2 };
      return { node: h('strong', {}, inline(text.slice(at + 2, end))), end: end + 2 };
    }
    const end = find.next('*', at + 1);
    if (end >= line || isSpace(text[at + 1]) || isWord(text[at - 1])) return null;
    return { node: h('em', {}, text.slice(at + 1, end)), end: end + 1 };
  },
  '[': (text, at, find) => {
    const start = text[at] === '!' ? at + 2 : at + 1;
    const close = find.next(']', start);
    if (close >= find.next('\n', at) || text[close + 1] !== '(') return null;
    let end = close + 2;
    // The search ends at each parenthesis, so no part of the text is searched twice.
    while (end < text.length && text[end] !== ')' && text[end] !== '(' && !isSpace(text[end])) end += 1;
    if (text[end] !== ')' || end === close + 2) return null;
    const [label, address] = [text.slice(start, close), text.slice(close + 2, end)];
    return { node: start > at + 1 ? label : link(label || address, address), end: end + 1 };
  },
  h: (text, at) => {
    let end = at;
    while (end < text.length && !isSpace(text[end]) && !'<>()"\'`'.includes(text[end])) end += 1;
    const stop = end;
    while (end > at && '.,;:!?*'.includes(text[end - 1])) end -= 1;
    const address = text.slice(at, end);
    return address.length > 8 ? { node: link(address, address), end } : { node: text.slice(at, stop), end: stop };
  },
};

function inline(text) {
  const nodes = [];
  const find = new Finder(text);
  const special = new RegExp(SPECIAL);
  let last = 0;
  for (let match = special.exec(text); match && nodes.length < MAX_PARTS; match = special.exec(text)) {
    const at = match.index;
    const read = READERS[match[0] === '![' ? '[' : match[0][0]](text, at, find);
    special.lastIndex = read ? read.end : at + match[0].length;
    if (!read || typeof read.node === 'string' && text.startsWith(read.node, at)) continue;
    nodes.push(text.slice(last, at), read.node);
    last = read.end;
  }
  nodes.push(text.slice(last));
  return nodes;
}

/** Returns the number of leading spaces of a line. */
function indent(line) {
  let at = 0;
  while (line[at] === ' ' || line[at] === '\t') at += 1;
  return at;
}

/** Returns the kind of block that a line begins, with the start of its text. */
function kindOf(line) {
  const at = indent(line);
  if (at === line.length || line.trim() === '') return { kind: 'blank' };
  const start = line.slice(at, at + 16);
  const fence = /^(```|~~~)/.exec(start);
  if (fence) return { kind: 'fence', mark: fence[1] };
  const heading = at === 0 && /^(#{1,6})[ \t]/.exec(start);
  if (heading) return { kind: 'heading', level: heading[1].length, from: heading[0].length };
  if (start[0] === '>') return { kind: 'quote', from: at + (start[1] === ' ' ? 2 : 1) };
  if (/^([-*_])[ \t]*\1[ \t]*\1[-*_ \t]*$/.test(start) && line.trim().length <= 16) return { kind: 'rule' };
  const bullet = /^([-*+])[ \t]/.exec(start);
  if (bullet) return { kind: 'ul', from: at + bullet[0].length, depth: at };
  const count = /^(\d{1,9})[.)][ \t]/.exec(start);
  if (count) return { kind: 'ol', from: at + count[0].length, depth: at, number: Number(count[1]) };
  return { kind: 'text' };
}

function isDivider(line) {
  return line !== undefined && line.includes('-') && line.includes('|') && /^[ \t|:-]+$/.test(line);
}

function cells(line) {
  let text = line.trim();
  if (text.startsWith('|')) text = text.slice(1);
  if (text.endsWith('|')) text = text.slice(0, -1);
  return text.split('|').map((cell) => cell.trim());
}

/** Returns a list with the nested lists in it. */
function list(rows) {
  const make = (row) => h(row.kind, row.kind === 'ol' && row.number !== 1 ? { start: row.number } : {});
  const open = [{ node: make(rows[0]), depth: rows[0].depth }];
  for (const row of rows) {
    while (open.length > 1 && row.depth < open.at(-1).depth) open.pop();
    const last = open.at(-1).node.lastChild;
    if (row.depth >= open.at(-1).depth + 2 && last && open.length < 6) {
      const inner = make(row);
      last.append(inner);
      open.push({ node: inner, depth: row.depth });
    }
    open.at(-1).node.append(h('li', { dir: 'auto' }, inline(row.text)));
  }
  return open[0].node;
}

function table(lines) {
  const row = (tag) => (cell) => h(tag, tag === 'th' ? { scope: 'col', dir: 'auto' } : { dir: 'auto' }, inline(cell));
  const [head, , ...body] = lines;
  return h('div', { class: 'wide', tabindex: 0, role: 'group' }, h('table', {},
    h('thead', {}, h('tr', {}, cells(head).map(row('th')))),
    h('tbody', {}, body.map((line) => h('tr', {}, cells(line).map(row('td')))))));
}

/**
 * Returns the blocks of a text: the node of each, and the place where it begins. The last block may
 * still grow; the others are final.
 */
export function blocks(text) {
  const whole = text.length > MAX_LENGTH ? text.slice(0, MAX_LENGTH) : text;
  const lines = whole.split('\n');
  const kinds = lines.map(kindOf);
  const found = [];
  let place = 0;
  let at = 0;
  const takeWhile = (test) => {
    const from = at;
    while (at < lines.length && test(at)) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const first = at;
    const { kind, mark, level, from } = kinds[at];
    let node = null;
    if (kind === 'fence') {
      at += 1;
      const code = takeWhile((line) => !lines[line].trimStart().startsWith(mark));
      at += 1;
      node = h('pre', { tabindex: 0 }, h('code', {}, code.join('\n')));
    } else if (kind === 'heading') {
      at += 1;
      node = h(`h${Math.min(level + 2, 6)}`, { dir: 'auto' }, inline(lines[first].slice(from)));
    } else if (kind === 'ul' || kind === 'ol') {
      const rows = [];
      for (; at < lines.length; at += 1) {
        const { kind: other, from: start, ...about } = kinds[at];
        if (other === 'ul' || other === 'ol') {
          if (about.depth === kinds[first].depth && other !== kind) break;
          rows.push({ kind: other, ...about, text: lines[at].slice(start) });
        } else if (other === 'text' && indent(lines[at]) > 0) rows.at(-1).text += `\n${lines[at].trim()}`;
        else break;
      }
      node = list(rows);
    } else if (kind === 'quote') {
      const rows = takeWhile((line) => kinds[line].kind === 'quote');
      const inner = rows.map((row, line) => row.slice(kinds[first + line].from));
      node = h('blockquote', { dir: 'auto' }, inline(inner.join('\n')));
    } else if (kind === 'rule') {
      at += 1;
      node = h('hr', {});
    } else if (lines[at].includes('|') && isDivider(lines[at + 1])) {
      at += 2;
      takeWhile((line) => lines[line].includes('|'));
      node = table(lines.slice(first, at));
    } else if (kind === 'blank') {
      at += 1;
    } else {
      at += 1;
      takeWhile((line) => kinds[line].kind === 'text' && !isDivider(lines[line + 1]));
      node = h('p', { dir: 'auto' }, inline(lines.slice(first, at).join('\n')));
    }
    if (node) found.push({ node, place });
    for (let line = first; line < at && line < lines.length; line += 1) place += lines[line].length + 1;
  }
  if (whole !== text) found.push({ node: h('p', { dir: 'auto' }, text.slice(MAX_LENGTH)), place: MAX_LENGTH });
  return found;
}

/** Returns the nodes of a text in Markdown. */
export function markdown(text) {
  return blocks(text).map((block) => block.node);
}

/**
 * Shows a text in Markdown that grows. Blocks that are complete stay as they are, so an addition
 * costs only as much as the last block.
 */
export function showMarkdown(parent, text) {
  let known = parent.markdown;
  if (!known || !text.startsWith(known.text)) {
    parent.replaceChildren();
    known = { text: '', place: 0, last: [] };
    parent.markdown = known;
  }
  if (known.text === text) return;
  for (const node of known.last) node.remove();
  const found = blocks(text.slice(known.place));
  for (const block of found) parent.append(block.node);
  const open = found.at(-1);
  known.last = open ? [open.node] : [];
  known.place += open ? open.place : 0;
  known.text = text;
}
