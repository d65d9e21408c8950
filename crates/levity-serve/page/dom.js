// Builds DOM nodes. Texts become text nodes only, so no markup from a model is ever parsed.

const SVG = 'http://www.w3.org/2000/svg';
const SVG_TAGS = new Set(['svg', 'g', 'path', 'rect', 'text', 'title', 'circle', 'line']);

/** Creates an element. Properties that begin with `on` are event listeners. */
export function h(tag, props, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) set(node, name, value);
  add(node, children);
  return node;
}

/** Sets an attribute or a listener; `false`, `null` and `undefined` remove the attribute. */
export function set(node, name, value) {
  if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
  else if (name === 'value') node.value = value;
  else if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, value === true ? '' : String(value));
  }
}

function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces all children. */
export function fill(node, ...children) {
  node.replaceChildren();
  node.shown = undefined;
  node.markdown = undefined;
  add(node, children);
  return node;
}

/** Calls `draw` only if one of the values differs from those of the last call for this node. */
export function memo(node, values, draw) {
  const last = node.drawnOf;
  if (last && values.every((value, at) => value === last[at])) return;
  node.drawnOf = values;
  draw();
}

/** Sets the text of a node if it differs. Longer text with the same beginning is appended. */
export function setText(node, text) {
  const last = node.shown ?? '';
  if (text === last) return;
  if (last && text.startsWith(last) && node.lastChild && node.lastChild.nodeType === Node.TEXT_NODE) {
    node.lastChild.appendData(text.slice(last.length));
  } else if (last && text && node.firstChild === node.lastChild && node.firstChild?.nodeType === Node.TEXT_NODE) {
    node.firstChild.data = text;
  } else {
    node.textContent = text;
  }
  node.shown = text;
}

/**
 * A list of nodes that follow a list of values with keys. A node is created once for each key and
 * updated only if its value is another object.
 */
export class Keyed {
  constructor(parent, create, update) {
    this.parent = parent;
    this.create = create;
    this.update = update;
    this.known = new Map();
  }

  show(values) {
    const next = new Map();
    for (const value of values) {
      const entry = this.known.get(value.id) || { node: this.create(value), value: undefined };
      next.set(value.id, entry);
      this.known.delete(value.id);
      if (entry.value !== value) {
        this.update(entry.node, value);
        entry.value = value;
      }
    }
    // Removals come first: then nodes that stay need not move, and keep the focus.
    for (const entry of this.known.values()) entry.node.remove();
    let place = this.parent.firstChild;
    for (const { node } of next.values()) {
      if (node === place) place = place.nextSibling;
      else this.parent.insertBefore(node, place);
    }
    this.known = next;
  }
}

/** Calls `draw` before the next frame, at most once for any number of requests. */
export function frame(draw) {
  let isRequested = false;
  return () => {
    if (isRequested) return;
    isRequested = true;
    requestAnimationFrame(() => {
      isRequested = false;
      draw();
    });
  };
}
