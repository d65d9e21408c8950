// Formats numbers, times and money for people.

const NUMBER = new Intl.NumberFormat('en');

export function number(value) {
  return NUMBER.format(value || 0);
}

/** Formats a cost in US dollars. Small costs keep two significant digits. */
export function money(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '$0';
  return value >= 0.1 ? `$${value.toFixed(2)}` : `$${Number(value.toPrecision(2))}`;
}

export function duration(ms) {
  if (!(ms >= 0)) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function time(ms) {
  if (!ms) return '–';
  const date = new Date(ms);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? date.toLocaleTimeString('en-GB') : date.toLocaleString('en-GB');
}

/** Formats a time without seconds, for narrow places. */
export function clock(ms) {
  if (!ms) return '–';
  const date = new Date(ms);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? date.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' }) : date.toLocaleDateString('en-GB');
}

export function bytes(count) {
  if (!(count >= 0)) return '–';
  if (count < 1000) return `${count} B`;
  return count < 1e6 ? `${(count / 1e3).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

/** Returns a value as indented JSON; a text stays as it is. */
export function pretty(value) {
  if (typeof value === 'string') return value;
  if (value === undefined) return '';
  return JSON.stringify(value, null, 2);
}

// All blank characters of `levity_core::text::is_blank`, except spaces, tabs and line breaks.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d159}\u{1d173}-\u{1d17a}\u{1fffe}\u{1ffff}\u{2fffe}\u{2ffff}\u{3fffe}\u{3ffff}\u{4fffe}\u{4ffff}\u{5fffe}\u{5ffff}\u{6fffe}\u{6ffff}\u{7fffe}\u{7ffff}\u{8fffe}\u{8ffff}\u{9fffe}\u{9ffff}\u{afffe}\u{affff}\u{bfffe}\u{bffff}\u{cfffe}\u{cffff}\u{dfffe}\u{dffff}\u{efffe}\u{effff}\u{ffffe}\u{fffff}\u{10fffe}\u{10ffff}\u{e0000}-\u{e0fff}]/gu;

/** Replaces characters that a reader cannot see by their codes, for texts that a person approves. */
export function visible(text) {
  return text.replace(INVISIBLE, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}

/** Returns `true` if a value contains an integer that JavaScript may have rounded. */
export function hasUnsafeNumber(value) {
  if (typeof value === 'number') return !Number.isFinite(value) || (Number.isInteger(value) && !Number.isSafeInteger(value));
  return Boolean(value) && typeof value === 'object' && Object.values(value).some(hasUnsafeNumber);
}

/**
 * Returns arguments as parts for people: the texts of several lines on their own, each with its
 * name, and everything else as JSON.
 */
export function readable(args) {
  if (!args || typeof args !== 'object' || Array.isArray(args)) return [['', pretty(args)]];
  const isLong = (value) => typeof value === 'string' && value.includes('\n');
  const short = Object.entries(args).filter(([, value]) => !isLong(value));
  const long = Object.entries(args).filter(([, value]) => isLong(value));
  const rest = short.length || !long.length ? [['', pretty(Object.fromEntries(short))]] : [];
  return [...rest, ...long];
}
