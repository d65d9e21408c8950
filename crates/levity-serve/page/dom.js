// Builds DOM nodes. Texts become text nodes only, so no markup from a model is ever parsed.

const SVG = 'http://www.w3.org/2000/svg';
const SVG_TAGS = new Set(['svg', 'g', 'path', 'rect', 'text', 'title', 'circle', 'polygon']);

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
  add(node, children);
  return node;
}

/** Sets the text of a node if it differs. Longer text with the same beginning is appended. */
export function setText(node, text) {
  const last = node.shown ?? '';
  if (text === last) return;
  if (last && text.startsWith(last) && node.lastChild && node.lastChild.nodeType === Node.TEXT_NODE) {
    node.lastChild.appendData(text.slice(last.length));
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
    let before = null;
    for (const value of values) {
      let entry = this.known.get(value.id);
      if (!entry) entry = { node: this.create(value), value: undefined };
      if (entry.value !== value) {
        this.update(entry.node, value);
        entry.value = value;
      }
      const place = before ? before.nextSibling : this.parent.firstChild;
      if (entry.node !== place) this.parent.insertBefore(entry.node, place);
      before = entry.node;
      next.set(value.id, entry);
      this.known.delete(value.id);
    }
    for (const entry of this.known.values()) entry.node.remove();
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
