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

// Control characters, and characters that have no width or change the direction of text.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;

/** Replaces characters that a reader cannot see by their codes, for texts that a person approves. */
export function visible(text) {
  return text.replace(INVISIBLE, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
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
