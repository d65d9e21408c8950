// A small subset of Markdown, as DOM nodes: paragraphs, headings, lists, code, quotes, tables,
// emphasis and links. It never loads anything: images become their text.

import { h } from './dom.js';

const INLINE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\s][^*\n]*)\*|!?\[([^\]\n]*)\]\(([^()\s]+)\)|(https?:\/\/[^\s<>()"'`]+[^\s<>()"'`.,;:!?])/g;

/** The maximum length of a text that is formatted; longer ones are shown as they are. */
const MAX_LENGTH = 100_000;

function link(text, address) {
  // Other schemes may run code or leave the browser.
  if (!/^https?:\/\//i.test(address)) return `${text} (${address})`;
  return h('a', { href: address, target: '_blank', rel: 'noopener noreferrer nofollow' }, text);
}

function inline(text) {
  const nodes = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    nodes.push(text.slice(last, match.index));
    last = match.index + match[0].length;
    const [whole, , code, bold, italic, label, address, bare] = match;
    if (code !== undefined) nodes.push(h('code', {}, code));
    else if (bold !== undefined) nodes.push(h('strong', {}, bold));
    else if (italic !== undefined) nodes.push(h('em', {}, italic));
    else if (bare !== undefined) nodes.push(link(bare, bare));
    else nodes.push(whole.startsWith('!') ? label : link(label || address, address));
  }
  nodes.push(text.slice(last));
  return nodes;
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());
}

/** Returns the nodes of a text in Markdown. */
export function markdown(text) {
  if (text.length > MAX_LENGTH) return [h('p', { dir: 'auto' }, text)];
  const lines = text.split('\n');
  const nodes = [];
  let at = 0;
  const takeWhile = (test) => {
    const from = at;
    while (at < lines.length && test(lines[at])) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^\s*(```+|~~~+)/.exec(line);
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    if (fence) {
      at += 1;
      const code = takeWhile((other) => !other.trim().startsWith(fence[1]));
      at += 1;
      nodes.push(h('pre', { tabindex: 0 }, h('code', {}, code.join('\n'))));
    } else if (heading) {
      at += 1;
      nodes.push(h(`h${Math.min(heading[1].length + 2, 6)}`, { dir: 'auto' }, inline(heading[2])));
    } else if (/^\s*([-*+]|\d+[.)])\s+/.test(line)) {
      const tag = /^\s*\d/.test(line) ? 'ol' : 'ul';
      const rows = takeWhile((other) => /^\s*([-*+]|\d+[.)])\s+/.test(other));
      const item = (row) => h('li', { dir: 'auto' }, inline(row.replace(/^\s*([-*+]|\d+[.)])\s+/, '')));
      nodes.push(h(tag, {}, rows.map(item)));
    } else if (/^\s*>/.test(line)) {
      const rows = takeWhile((other) => /^\s*>/.test(other));
      nodes.push(h('blockquote', { dir: 'auto' }, inline(rows.map((row) => row.replace(/^\s*>\s?/, '')).join('\n'))));
    } else if (line.includes('|') && /^[\s|:-]+$/.test(lines[at + 1] || '') && (lines[at + 1] || '').includes('-')) {
      const head = cells(line);
      at += 2;
      const rows = takeWhile((other) => other.includes('|')).map(cells);
      nodes.push(h('div', { class: 'wide', tabindex: 0 }, h('table', {},
        h('thead', {}, h('tr', {}, head.map((cell) => h('th', { scope: 'col', dir: 'auto' }, inline(cell))))),
        h('tbody', {}, rows.map((row) => h('tr', {}, row.map((cell) => h('td', { dir: 'auto' }, inline(cell)))))))));
    } else if (!line.trim()) {
      at += 1;
    } else {
      const isPlain = (other) => other.trim() && !/^\s*(```|~~~|>|#{1,6}\s|([-*+]|\d+[.)])\s)/.test(other);
      let rows = takeWhile(isPlain);
      if (!rows.length) rows = [lines[at++]];
      nodes.push(h('p', { dir: 'auto' }, inline(rows.join('\n'))));
    }
  }
  return nodes;
}
